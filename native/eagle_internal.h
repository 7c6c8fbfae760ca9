#pragma once

// What the parts of the shim share: the handles and the guard that keeps exceptions inside.

#include "eagle.h"

#include "llama-batch.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama-memory.h"
#include "llama-model.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

struct eagle_model {
    llama_model * llama = nullptr;

    ~eagle_model() {
        if (llama != nullptr) {
            llama_model_free(llama);
        }
    }

    bool is_draft() const {
        return llama->arch == LLM_ARCH_EAGLE3 || llama->arch == LLM_ARCH_EAGLE;
    }

    // whether the draft fuses features before its decoder sees them; without, they are its input as they are
    bool has_fusion() const {
        return llama->arch == LLM_ARCH_EAGLE3 && llama->fc != nullptr;
    }
};

// the committed length and the uncommitted nodes of one sequence
struct eagle_sequence {
    int32_t n_past = 0;
    std::vector<int32_t> parents; // by node
    std::vector<int32_t> depths;  // by node, a child of the last committed token has depth 1

    int32_t max_depth() const {
        return depths.empty() ? 0 : depths.back();
    }
};

struct eagle_context {
    const eagle_model * model = nullptr;
    llama_context * llama = nullptr;

    std::vector<int32_t> features;
    std::vector<int32_t> d2t;           // empty: the identity
    std::vector<float>   encoded;       // features of the last encode of a draft without fusion
    std::vector<eagle_sequence> seqs;

    int32_t n_outputs = 0;              // of the last decode
    int32_t n_rows = 0;                 // tokens of the last decode: rows of features
    bool    tree = false;
    const int32_t * abort_flag = nullptr;

    eagle_context_stats stats = {};
    mutable std::string error;

    ~eagle_context() {
        if (llama != nullptr) {
            llama_free(llama);
        }
    }

    llama_memory_t memory() const {
        return llama_get_memory(llama);
    }
};

// a refusal of the caller's arguments, as opposed to a failure of llama.cpp
struct eagle_invalid : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// whether a window cache still has every position that the token at p0 sees
bool eagle_window_holds(const eagle_context & ctx, int32_t seq_id, int32_t p0);

// a draft's dynamic tree behind the last output row; the memory keeps no node of it
int32_t eagle_grow(eagle_context & ctx, int32_t seq_id, const eagle_tree_shape & shape, eagle_tree & tree);

// likewise for given nodes; the check refuses what is no tree in level order
std::vector<int32_t> eagle_check_static(const eagle_context & ctx, const eagle_static_shape & shape); // depths by node
int32_t eagle_grow_static(eagle_context & ctx, int32_t seq_id, const eagle_static_shape & shape, std::vector<int32_t> depths, eagle_tree & tree);

// the argmax of one output row of the last decode; throws where it holds no numbers
int32_t eagle_argmax_of(eagle_context & ctx, int32_t row);

// write a message into a caller's buffer, cut to its size
void eagle_copy_text(const std::string & text, char * out, int32_t size);

// the first error that llama.cpp logged since the previous call
std::string eagle_log_take_error();

// run a body that returns a code; refusals and failures become codes with a text in the handle
template <typename F> int32_t eagle_guard(const eagle_context * ctx, F && body) {
    try {
        return body();
    } catch (const eagle_invalid & e) {
        ctx->error = e.what();
        return EAGLE_INVALID;
    } catch (const std::exception & e) {
        ctx->error = e.what();
        return EAGLE_FAILED;
    } catch (...) {
        ctx->error = "unknown exception in llama.cpp";
        return EAGLE_FAILED;
    }
}
