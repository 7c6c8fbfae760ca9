// Parameters of a context: checked before llama.cpp sees them.

#include "eagle_context_params.h"

#include <algorithm>

namespace {

// without flash attention llama.cpp takes a key that fills no whole blocks, and computes garbage
void check_key_blocks(const llama_hparams & hparams, ggml_type type_k) {
    const uint32_t block = ggml_blck_size(type_k);
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        if (hparams.n_embd_head_k(il) % block != 0) {
            throw eagle_invalid("a K cache of " + std::string(ggml_type_name(type_k)) + " needs heads of a multiple of " + std::to_string(block) +
                                " values, the model's have " + std::to_string(hparams.n_embd_head_k(il)) + ": use f16");
        }
    }
}

// a chain is decoded in one piece; llama.cpp asserts that it fits
void check_rollback(const eagle_model & model, const eagle_context_params & params) {
    if (params.n_rollback < 0) {
        throw eagle_invalid("n_rollback " + std::to_string(params.n_rollback) + " is negative");
    }
    const int32_t piece = std::min(params.n_batch, params.n_ubatch);
    if (params.n_rollback > 0 && llm_arch_supports_rs_rollback(model.llama->arch) && piece - 2 < params.n_rollback) {
        throw eagle_invalid("n_rollback " + std::to_string(params.n_rollback) + " needs n_batch and n_ubatch of at least n_rollback + 2, got " + std::to_string(piece));
    }
}

// the types that llama.cpp's own -ctk and -ctv take: others have no kernels, or no blocks at all
bool is_cache_type(int32_t type) {
    switch (type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_IQ4_NL:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q5_1:
            return true;
        default:
            return false;
    }
}

// llama.cpp keeps room for a row of logits of each sequence, and asserts that the limit of rows allows it
void check_outputs_max(const eagle_model & model, const eagle_context_params & params) {
    const int32_t n_ctx = params.n_ctx > 0 ? params.n_ctx : llama_model_n_ctx_train(model.llama);
    const bool given = params.n_outputs_max > 0 && !llama_model_has_encoder(model.llama); // with an encoder it is not looked at
    const int32_t limit = given ? params.n_outputs_max : std::min(params.n_batch, n_ctx);
    if (limit < params.n_seq_max) {
        throw eagle_invalid(std::to_string(params.n_seq_max) + " sequences need as many rows of logits, the context would keep " + std::to_string(limit) +
                            ": raise " + (given ? "n_outputs_max" : "n_batch and n_ctx"));
    }
}

} // namespace

void eagle_check_context_params(const eagle_model & model, const eagle_context_params & params) {
    if (params.n_batch < 1 || params.n_ubatch < 1 || params.n_seq_max < 1 || params.n_seq_max > LLAMA_MAX_SEQ || params.n_threads < 1 || params.n_threads > GGML_MAX_N_THREADS || params.n_ctx < 0 || params.n_outputs_max < 0) {
        throw eagle_invalid("n_ctx, n_outputs_max >= 0, n_batch, n_ubatch >= 1, 1 <= n_threads <= 512 and 1 <= n_seq_max <= 256 are needed");
    }
    check_outputs_max(model, params);
    if (!is_cache_type(params.type_k) || !is_cache_type(params.type_v)) {
        throw eagle_invalid("types " + std::to_string(params.type_k) + " and " + std::to_string(params.type_v) + " of the K and V cache: not both are among ggml's f32, f16, bf16, q4_0 to q8_0 and iq4_nl");
    }
    if (params.flash_attn < -1 || params.flash_attn > 1) {
        throw eagle_invalid("flash_attn " + std::to_string(params.flash_attn) + " is none of -1 (auto), 0 and 1");
    }
    if (params.n_features < 0 || params.n_features > EAGLE_MAX_FEATURES) {
        throw eagle_invalid(std::to_string(params.n_features) + " features, 0 to " + std::to_string(EAGLE_MAX_FEATURES) + " are possible");
    }
    if (params.n_paths < 0 || params.n_paths > LLAMA_MAX_SEQ - params.n_seq_max) {
        throw eagle_invalid("n_paths " + std::to_string(params.n_paths) + " is not in [0, " + std::to_string(LLAMA_MAX_SEQ - params.n_seq_max) +
                            "]: llama.cpp has " + std::to_string(LLAMA_MAX_SEQ) + " sequence ids, n_seq_max of them are taken");
    }
    if (params.n_paths > 0 && (model.is_draft() || !params.kv_unified)) {
        throw eagle_invalid(model.is_draft() ? "n_paths is for a target: a draft verifies nothing" : "paths share their cells, which needs a unified cache (kv_unified)");
    }
    if (!model.is_draft() && (llama_model_has_encoder(model.llama) || !llama_model_has_decoder(model.llama))) {
        throw eagle_invalid(std::string("architecture ") + model.llama->arch_name() + " is not a plain decoder and cannot be a target");
    }
    if (model.is_draft() && params.n_features > 0) {
        throw eagle_invalid("features are a target's: a draft gives its hidden state, which is there without asking");
    }
    check_rollback(model, params);
    check_key_blocks(model.llama->hparams, (ggml_type) params.type_k);
    const bool quantised_v = ggml_is_quantized((ggml_type) params.type_v);
    if (quantised_v && params.flash_attn == 0) {
        throw eagle_invalid("a quantised V cache needs flash attention: leave it on or keep V in f16");
    }
}

llama_context_params eagle_to_llama(const eagle_context_params & params) {
    llama_context_params res = llama_context_default_params();
    res.n_ctx           = params.n_ctx;
    res.n_batch         = params.n_batch;
    res.n_ubatch        = params.n_ubatch;
    res.n_seq_max       = params.n_seq_max + params.n_paths;
    // llama.cpp aborts where there is no output for each sequence
    res.n_outputs_max   = std::max<uint32_t>(params.n_outputs_max > 0 ? params.n_outputs_max : params.n_batch, res.n_seq_max);
    res.n_threads       = params.n_threads;
    res.n_threads_batch = params.n_threads;
    res.flash_attn_type = (llama_flash_attn_type) params.flash_attn;
    res.type_k          = (ggml_type) params.type_k;
    res.type_v          = (ggml_type) params.type_v;
    res.kv_unified      = params.kv_unified != 0;
    res.swa_full        = params.swa_full != 0;
    res.n_rs_seq        = params.n_rollback;
    res.no_perf         = true;
    if (params.abort_flag != nullptr) {
        res.abort_callback      = eagle_abort_requested;
        res.abort_callback_data = (void *) params.abort_flag;
    }
    return res;
}
