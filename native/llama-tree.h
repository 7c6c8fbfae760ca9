#pragma once

// A draft tree in the KV cache: its nodes are cells that are not committed yet.
// Included by the patched llama-batch.h and llama-kv-cells.h; knows nothing of masks or policies.

#include <cstdint>

// A node sees the committed tokens of its sequence and its own ancestors. Ids are unique within the uncommitted
// nodes of a sequence; the parent -1 is the last committed token.
struct llama_tree_node {
    int32_t node   = -1; // -1: an ordinary, committed token
    int32_t parent = -1;

    bool is_committed() const {
        return node < 0;
    }
};
