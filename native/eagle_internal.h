#pragma once

// What the parts of the shim share: the handles and the guard that keeps exceptions inside.

#include "eagle.h"

#include "llama-batch.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama-memory.h"
#include "llama-model.h"

#include <exception>
#include <memory>
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
    int32_t n_snapshots = 0;      // of a recurrent state: how many of the last tokens it can go back by, once

    int32_t max_depth() const {
        return depths.empty() ? 0 : depths.back();
    }
};

// what a draft has not seen yet of one sequence: rows of features, and the tokens behind them as far as they are known
struct eagle_pending {
    std::vector<float>   features;
    std::vector<int32_t> tokens; // one fewer than rows while the last row's is not known
    int32_t n_rows = 0;
};

struct eagle_context {
    const eagle_model * model = nullptr;
    llama_context * llama = nullptr;

    std::vector<int32_t> features;
    std::vector<int32_t> d2t;           // empty: the identity
    std::shared_ptr<const std::vector<int32_t>> t2d; // its inverse, -1: no id; null: the identity, or there is none
    std::vector<float>   encoded;       // features of the last encode of a draft without fusion
    std::vector<eagle_sequence> seqs;
    std::vector<eagle_pending> pending; // of a draft, by sequence
    int32_t n_paths = 0;                // sequence ids behind those of seqs, for the paths of trees
    std::vector<int32_t> leaves;        // by sequence: the id of its tree's first leaf in the step that is being verified

    int32_t n_outputs = 0;              // of the last decode
    int32_t n_rows = 0;                 // tokens of the last decode: rows of features
    bool    tree = false;
    int32_t n_rollback = 0;             // tokens that a chain may be taken back by
    int32_t asked_rollback = 0;
    const int32_t * abort_flag = nullptr;
    ggml_type type_k = GGML_TYPE_F16;

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

// a model whose tensors have no data, to see what it would take of which device: its contexts must not compute
std::unique_ptr<eagle_model> eagle_model_outline(const char * path, int32_t n_gpu_layers, const eagle_model * target);

// llama.cpp's abort callback; data: the flag
bool eagle_abort_requested(void * data);

// a sequence without uncommitted nodes; throws eagle_invalid where it has some, and for an unknown id
eagle_sequence & eagle_committed_sequence(eagle_context & ctx, int32_t seq_id);

// whether a window cache still has every position that the token at p0 sees
bool eagle_window_holds(const eagle_context & ctx, int32_t seq_id, int32_t p0);

// free what of a sequence a window cache no longer needs: cells of two sequences are not reused when they leave the
// window, so they must not get there
void eagle_drop_behind_window(eagle_context & ctx, int32_t seq_id);

// where llama.cpp keeps a feature: the inputs of its layers, then the final norm's output
int32_t eagle_feature_slot(const eagle_context & ctx, int32_t id);

// floats of one token's features: those a draft takes, or those a target gives
size_t eagle_feature_width(const eagle_context & ctx);

// the sequence of an id; throws eagle_invalid
const eagle_sequence & eagle_sequence_of(const eagle_context & ctx, int32_t seq_id);

// a root and n - 1 draft tokens as ordinary ones: refused, by the architecture's name, where they could not be taken back
void eagle_check_chain(const eagle_context & ctx, int32_t n);

// throws eagle_invalid where a node's parent is neither -1 nor an earlier node
void eagle_check_parents(const eagle_tree & tree);

// the argmax of one output row of the last decode; throws where it holds no numbers
int32_t eagle_argmax_of(eagle_context & ctx, int32_t row);

// write a message into a caller's buffer, cut to its size
void eagle_copy_text(const std::string & text, char * out, int32_t size);

// the first error that llama.cpp logged since the previous call
std::string eagle_log_take_error();

// run a body that returns a code; refusals and failures become codes with a text in the handle, a context or a sampler
template <typename H, typename F> int32_t eagle_guard(const H * handle, F && body) {
    try {
        return body();
    } catch (const eagle_invalid & e) {
        handle->error = e.what();
        return EAGLE_INVALID;
    } catch (const std::exception & e) {
        handle->error = e.what();
        return EAGLE_FAILED;
    } catch (...) {
        handle->error = "unknown exception in llama.cpp";
        return EAGLE_FAILED;
    }
}
