#pragma once

// Feature extraction for every architecture: the two questions that the patched graph builder asks.
// Included by src/llama-graph.cpp of the patched llama.cpp; knows nothing of contexts, caches or drafts.

#include "llama-batch.h"
#include "llama-graph.h"

#include <cstring>

// true when the tensor is computed from the token embeddings alone: no matrix product lies behind it, and a few steps only
inline bool llama_is_embedding(const ggml_tensor * t, int steps = 12) {
    if (t == nullptr || t->op == GGML_OP_NONE || t->op == GGML_OP_GET_ROWS) {
        return true;
    }
    if (steps == 0 || t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_MUL_MAT_ID || t->op == GGML_OP_FLASH_ATTN_EXT) {
        return false;
    }
    for (const ggml_tensor * src : t->src) {
        if (src != nullptr && src != t && !llama_is_embedding(src, steps - 1)) { // a cast is its own second source
            return false;
        }
    }
    return true;
}

// true for the projection to the vocabulary (a tied head carries the name of the embeddings)
inline bool llama_is_output_head(const ggml_tensor * w) {
    return strcmp(w->name, "output.weight") == 0 || strcmp(w->name, "token_embd.weight") == 0;
}

// selects every token of the ubatch where a model would select the output rows before its last feed-forward
class llm_graph_input_all_ids : public llm_graph_input_i {
public:
    explicit llm_graph_input_all_ids(ggml_tensor * ids) : ids(ids) {}

    void set_input(const llama_ubatch * ubatch) override {
        auto * data = (int32_t *) ids->data;
        for (uint32_t i = 0; i < ubatch->n_tokens; ++i) {
            data[i] = i;
        }
    }

    bool can_reuse(const llm_graph_params & params) override {
        return ids->ne[0] == params.ubatch.n_tokens;
    }

    ggml_tensor * ids; // I32 [n_tokens]
};
