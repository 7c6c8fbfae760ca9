#pragma once

// What the tokens of a drawn tree were drawn from. Their sampler keeps it until the tree is verified.

#include "eagle.h"

#include <memory>
#include <vector>

struct eagle_drawn {
    std::vector<int32_t> tokens;  // by node, the tree's
    std::vector<int32_t> parents; // likewise
    std::vector<int32_t> rows;    // by node: the row of weights behind its parent
    std::vector<double>  left;    // by node: the sum of that row's weights without its earlier siblings
    std::vector<float>   weights; // rows of `width`, over the draft's vocabulary
    int32_t width = 0;
    std::shared_ptr<const std::vector<int32_t>> t2d; // by token of the target: the draft's id, -1: none; null: the identity

    bool is_of(const eagle_tree & tree) const;
    double weight(int32_t row, int32_t token) const;
};

// residual.py's accept_residual(): the path of a turn whose tree its sampler's numbers drew. logits: rows of `width`, the
// root's first
void eagle_descend_drawn(eagle_turn & turn, const float * logits, size_t width);
