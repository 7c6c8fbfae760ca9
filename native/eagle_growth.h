#pragma once

// One sequence's draft tree in the making: it says which nodes to decode next, and reads the best tokens behind them.

#include "eagle_internal.h"

#include <memory>

// nodes to decode, children of earlier ones
struct eagle_nodes {
    std::vector<int32_t> tokens;
    std::vector<int32_t> parents; // as the draft's memory counts: in the order they were decoded, -1: the root
    std::vector<int32_t> rows;    // which of the sequence's outputs of the last decode is the parent's
};

struct eagle_growth {
    virtual ~eagle_growth() = default;

    virtual int32_t top_k() const = 0; // how many tokens the next read() needs of each row; 0: read_rows() is called instead
    // rows of the nodes that next() gave, at first the root's: ids and log probabilities, best first, `stride` a row
    virtual void read(const int32_t * ids, const float * logp, int32_t stride) = 0;
    virtual void read_rows(const float * /*logits*/) {} // the same rows, whole; throws where they hold no numbers
    virtual eagle_nodes next() = 0;    // none: the tree is complete
    virtual void write(eagle_tree & tree) const = 0;
};

// throw eagle_invalid for senseless shapes
std::unique_ptr<eagle_growth> eagle_grow_dynamic(const eagle_context & ctx, const eagle_tree_shape & shape);
std::unique_ptr<eagle_growth> eagle_grow_static(const eagle_context & ctx, const eagle_static_shape & shape);
std::unique_ptr<eagle_growth> eagle_grow_sampled(const eagle_context & ctx, const eagle_turn & turn); // its sampler keeps the weights
