#pragma once

// A tree whose nodes are given, in the making: which of them are decoded when. How tokens are chosen may be overridden.

#include "eagle_growth.h"

struct eagle_static_growth : eagle_growth {
    const eagle_static_shape shape;
    const std::vector<int32_t> depths;
    std::vector<bool>    has_child;
    std::vector<int32_t> tokens;
    std::vector<float>   scores;
    std::vector<int32_t> rows;  // by node: its row among the outputs of its level
    std::vector<int32_t> ids;   // by node: what the draft's memory calls it
    int32_t first     = 0;      // the level to be read: nodes [first, last)
    int32_t last      = 0;
    int32_t n_decoded = 0;

    // refuses what is no tree in level order, and ranks of more tokens than there are
    eagle_static_growth(const eagle_static_shape & shape, int32_t n_logits);

    int32_t end_of_level(int32_t node) const;
    int32_t parent_row(int32_t node) const;

    int32_t top_k() const override;
    void read(const int32_t * best, const float * logp, int32_t stride) override;
    eagle_nodes next() override;
    void write(eagle_tree & tree) const override;
};
