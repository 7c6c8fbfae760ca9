#pragma once

// How a target decodes turns and keeps an accepted path: the one choice that its memory and its parameters make.

#include "eagle_internal.h"

struct eagle_verifier {
    virtual ~eagle_verifier() = default;

    // one decode: of each turn its tokens, an output for the last one if it chooses, then its nodes with an output each
    virtual int32_t decode(eagle_context & ctx, eagle_turn * const * turns, int32_t n) const = 0;
    // keep the path's nodes and free the turn's others; path.n = 0: all
    virtual int32_t keep(eagle_context & ctx, const eagle_turn & turn) const = 0;
};

// turns as one batch, its rows in the order that decode() promises
struct eagle_turns_batch {
    std::vector<int32_t> tokens, parents, seq_ids;
    std::vector<int8_t>  outputs;
    int32_t rows = EAGLE_ROWS_SINGLE;

    eagle_turns_batch(eagle_turn * const * turns, int32_t n);

    eagle_batch batch() const {
        return { (int32_t) tokens.size(), tokens.data(), nullptr, seq_ids.data(), parents.data(), outputs.data(), rows };
    }
};

// tree attention: nodes see their ancestors (eagle_verify.cpp)
const eagle_verifier & eagle_tree_verifier();

// chains as ordinary tokens, of which the rejected ones are taken back (eagle_chain_verifier.cpp)
const eagle_verifier & eagle_chain_verifier();

// each path from a root to a leaf is a sequence of its own (eagle_paths.cpp)
const eagle_verifier & eagle_path_verifier();

// throws eagle_invalid for a memory whose cells paths cannot share
void eagle_check_paths(const eagle_context & ctx);
