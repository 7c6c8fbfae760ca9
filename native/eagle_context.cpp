// Contexts: decode and encode, and what is read from them afterwards.

#include "eagle_internal.h"
#include "eagle_batch.h"
#include "eagle_recurrent.h"
#include "eagle_rows.h"
#include "eagle_verifier.h"

#include <algorithm>
#include <cstring>

namespace {

llama_context_params to_llama(const eagle_context_params & params) {
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

// where llama.cpp keeps a feature: the inputs of its layers, then the final norm's output
int32_t feature_slot(const eagle_context & ctx, int32_t id) {
    return id == EAGLE_POST_NORM ? llama_model_n_layer(ctx.model->llama) + 1 : id;
}

std::string feature_name(int32_t id) {
    return id == EAGLE_POST_NORM ? "the last hidden state after the final norm" : "the input of layer " + std::to_string(id);
}

// build a graph without reserving memory for it, and look whether it gives rows and features as asked
void probe_graph(const eagle_context & ctx) {
    llama_context * llama = ctx.llama;
    const int32_t n_seqs = llama_n_seq_max(llama);
    const int32_t n_tokens = 2 * n_seqs;
    const auto mctx = ctx.memory()->init_full();
    llama->graph_reserve(n_tokens, n_seqs, n_seqs, mctx.get(), /*split_only*/ true);

    const llm_graph_result * res = llama->get_gf_res_reserve();
    const std::string arch = ctx.model->llama->arch_name();
    for (const int32_t id : ctx.features) {
        const ggml_tensor * t = res->get_layer_inp(feature_slot(ctx, id));
        if (t == nullptr || t->type != GGML_TYPE_F32 || t->ne[0] != ctx.model->llama->hparams.n_embd || ggml_nrows(t) != n_tokens) {
            throw eagle_invalid("architecture " + arch + " does not give " + feature_name(id) + " as a feature");
        }
    }
    if (res->get_logits() == nullptr || ggml_nrows(res->get_logits()) != n_seqs) {
        throw eagle_invalid(llama->get_cparams().all_rows ? "architecture " + arch + " does not give the output of its last layer for every token"
                                                          : "architecture " + arch + " does not select the rows of logits asked for: its graph is of no use here");
    }
}

// graphs with several residual streams join them for the outputs only, and abort while they are built when asked for all
bool joins_streams_late(llm_arch arch) {
    return arch == LLM_ARCH_DEEPSEEK4 || arch == LLM_ARCH_HY_V4 || arch == LLM_ARCH_GLM5_NEXT || arch == LLM_ARCH_QWEN4EXP;
}

void enable_features(eagle_context & ctx, const eagle_context_params & params) {
    const int32_t n_layer = llama_model_n_layer(ctx.model->llama);
    ctx.features.assign(params.features, params.features + params.n_features);
    for (const int32_t id : ctx.features) {
        if (id < EAGLE_POST_NORM || id > n_layer) {
            throw eagle_invalid("feature " + std::to_string(id) + " is not in [0, " + std::to_string(n_layer) + "], the inputs of the layers and the last output, nor " +
                                std::to_string(EAGLE_POST_NORM) + ", the last hidden state after the final norm");
        }
        const bool last = id == n_layer || id == EAGLE_POST_NORM;
        if (last && joins_streams_late(ctx.model->llama->arch)) {
            throw eagle_invalid(std::string("architecture ") + ctx.model->llama->arch_name() + " does not give the output of its last layer for every token");
        }
        if (last) {
            ctx.llama->set_all_rows(true);
        }
    }
    if (!ctx.model->is_draft()) {
        probe_graph(ctx);
    }
    for (const int32_t id : ctx.features) {
        ctx.llama->set_embeddings_layer_inp(feature_slot(ctx, id), true);
    }
}

// null where two ids stand for one token
std::shared_ptr<const std::vector<int32_t>> inverse(const std::vector<int32_t> & d2t, int32_t n_vocab) {
    auto res = std::make_shared<std::vector<int32_t>>(n_vocab, -1);
    for (size_t id = 0; id < d2t.size(); ++id) {
        if ((*res)[d2t[id]] >= 0) {
            return nullptr;
        }
        (*res)[d2t[id]] = (int32_t) id;
    }
    return res;
}

void enable_draft(eagle_context & ctx) {
    ctx.pending.resize(ctx.seqs.size());
    llama_set_embeddings_nextn(ctx.llama, true, /*masked*/ true);
    ctx.llama->set_draft_logits(true);
    const llama_model * model = ctx.model->llama;
    if (model->d2t != nullptr) {
        ctx.d2t.resize(model->d2t->ne[0]);
        eagle_model_d2t(ctx.model, ctx.d2t.data());
        ctx.t2d = inverse(ctx.d2t, model->vocab.n_tokens());
    }
}

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

void check_params(const eagle_model & model, const eagle_context_params & params) {
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

eagle_context * init(const eagle_model & model, const eagle_context_params & params) {
    check_params(model, params);
    auto ctx = std::make_unique<eagle_context>();
    ctx->model      = &model;
    ctx->abort_flag = params.abort_flag;
    ctx->type_k     = (ggml_type) params.type_k;
    eagle_log_take_error();
    ctx->llama = llama_init_from_model(model.llama, to_llama(params));
    if (ctx->llama == nullptr) {
        const std::string cause = eagle_log_take_error();
        throw std::runtime_error(cause.empty() ? "llama.cpp could not create the context" : cause);
    }
    if (ctx->memory() == nullptr) {
        throw eagle_invalid(std::string("architecture ") + model.llama->arch_name() + " keeps no memory and cannot generate text");
    }
    ctx->seqs.resize(params.n_seq_max);
    ctx->tree = ctx->memory()->tree_supported();
    ctx->asked_rollback = params.n_rollback;
    ctx->n_rollback     = eagle_rollback_limit(*ctx, params.n_rollback);
    ctx->n_paths = params.n_paths;
    ctx->leaves.resize(ctx->n_paths > 0 ? params.n_seq_max : 0);
    if (ctx->n_paths > 0) {
        eagle_check_paths(*ctx);
    }
    if (model.is_draft()) {
        enable_draft(*ctx);
    }
    enable_features(*ctx, params);
    return ctx.release();
}

// after a failed decode: forget what the batch may have left in the memory
void forget(eagle_context & ctx, const eagle_placed_batch & placed, const eagle_state_places & places) {
    const bool recurrent = eagle_recurrent(ctx) != nullptr;
    for (size_t s = 0; s < ctx.seqs.size(); ++s) {
        const eagle_sequence & before = ctx.seqs[s];
        const bool in_batch = placed.seqs[s].n_past != before.n_past || placed.seqs[s].parents.size() != before.parents.size();
        if (recurrent && (in_batch || eagle_state_moved(ctx, places, s))) { // overwritten, whatever rollback says
            ctx.memory()->seq_rm(s, -1, -1);
            ctx.seqs[s] = {};
        } else if (in_batch) {
            const int32_t first = before.n_past + before.max_depth();
            if (!ctx.memory()->seq_rm(s, first, -1) || !eagle_window_holds(ctx, s, before.n_past)) {
                ctx.memory()->seq_rm(s, -1, -1);
                ctx.seqs[s] = {};
            }
        }
    }
    eagle_state_failed(ctx);
}

int32_t encode(eagle_context & ctx, const float * features, int32_t n_rows) {
    if (!ctx.model->is_draft()) {
        throw eagle_invalid("only a draft encodes features");
    }
    const int32_t n_ubatch = llama_n_ubatch(ctx.llama);
    if (n_rows < 1 || n_rows > n_ubatch) {
        throw eagle_invalid(std::to_string(n_rows) + " rows of features, the context takes 1 to " + std::to_string(n_ubatch) + " (n_ubatch)");
    }
    const size_t width = ctx.model->llama->hparams.n_embd_inp_enc();
    if (!ctx.model->has_fusion()) {
        ctx.encoded.assign(features, features + n_rows * width);
        ctx.n_outputs = 0;
        ctx.n_rows    = 0;
        ctx.stats.n_encode++;
        return EAGLE_OK;
    }
    llama_batch_ext ext(ctx.llama);
    for (int32_t i = 0; i < n_rows; ++i) {
        llama_batch_ext::token token;
        token.seq_ids.insert(0);
        token.has_embd = true;
        token.embd_off = i * width;
        token.output   = true;
        token.pos[0]   = ctx.seqs[0].n_past + ctx.seqs[0].max_depth() + i; // not used by the encoder, but checked
        ext.tokens.push_back(std::move(token));
    }
    ext.embd.assign(features, features + n_rows * width);
    ext.n_embd = width;

    ctx.n_outputs = 0;
    ctx.n_rows    = 0;
    eagle_log_take_error(); // an earlier call's
    const int32_t code = ctx.llama->encode(ext);
    if (code == 2) {
        ctx.error = "encode was aborted";
        return EAGLE_ABORTED;
    }
    if (code != 0) {
        throw std::runtime_error("llama_encode failed with " + std::to_string(code) + ": " + eagle_log_take_error());
    }
    llama_synchronize(ctx.llama);
    ctx.stats.n_encode++;
    return EAGLE_OK;
}

// logits that are no numbers: no text may be made of them
int32_t refuse_logits(const eagle_context & ctx) {
    ctx.error = ctx.model->is_draft()
        ? "the draft computed NaN: its weights or the target's are broken, or a type overflows; decode without it (--spec off)"
        : "the target computed NaN: its weights are broken or its type overflows; try another file of it";
    return EAGLE_FAILED;
}

// the extracted rows of a feature, in the order of the batch: [n_rows, n_embd]
const float * feature_rows(eagle_context & ctx, int32_t id) {
    return llama_get_embeddings_layer_inp(ctx.llama, feature_slot(ctx, id));
}

} // namespace

int32_t eagle_decode_placed(eagle_context & ctx, eagle_placed_batch & placed) {
    const int32_t n_tokens = placed.ext.tokens.size();
    const eagle_state_places places = eagle_state_look(ctx);
    ctx.encoded.clear();
    ctx.n_outputs = 0;
    ctx.n_rows    = 0;
    eagle_log_take_error(); // an earlier call's
    ctx.llama->set_attn_rows(placed.rows);
    const int32_t code = ctx.llama->decode(placed.ext);
    if (code == 0) {
        llama_synchronize(ctx.llama);
        eagle_state_decoded(ctx, placed.ext, placed.seqs);
        ctx.seqs      = std::move(placed.seqs);
        ctx.n_outputs = placed.n_outputs;
        ctx.n_rows    = n_tokens;
        ctx.stats.n_decode++;
        ctx.stats.n_tokens += n_tokens;
        return EAGLE_OK;
    }
    if (code == 1) {
        throw eagle_full("no free cells for a batch of " + std::to_string(n_tokens) + " tokens");
    }
    forget(ctx, placed, places);
    if (code == 2) {
        ctx.error = "decode was aborted";
        return EAGLE_ABORTED;
    }
    throw std::runtime_error("llama_decode failed with " + std::to_string(code) + ": " + eagle_log_take_error());
}

size_t eagle_feature_width(const eagle_context & ctx) {
    const llama_hparams & hparams = ctx.model->llama->hparams;
    return ctx.model->is_draft() ? hparams.n_embd_inp_enc() : ctx.features.size() * hparams.n_embd;
}

bool eagle_abort_requested(void * data) {
    return *(const volatile int32_t *) data != 0;
}

eagle_context * eagle_context_init(eagle_model * model, const eagle_context_params * params, char * error, int32_t error_size) {
    try {
        return init(*model, *params);
    } catch (const std::exception & e) {
        eagle_copy_text(e.what(), error, error_size);
    } catch (...) {
        eagle_copy_text("unknown exception in llama.cpp", error, error_size);
    }
    return nullptr;
}

void eagle_context_free(eagle_context * ctx) {
    delete ctx;
}

int32_t eagle_context_describe(const eagle_context * ctx, eagle_context_info * info) {
    info->n_ctx     = llama_n_ctx(ctx->llama);
    info->n_ctx_seq = llama_n_ctx_seq(ctx->llama);
    info->n_batch   = llama_n_batch(ctx->llama);
    info->n_ubatch  = llama_n_ubatch(ctx->llama);
    info->n_seq_max = ctx->seqs.size();
    info->has_tree  = ctx->tree;
    info->n_logits  = ctx->llama->n_logits();
    info->n_threads = llama_n_threads(ctx->llama);
    info->n_rollback     = ctx->n_rollback;
    info->state_bytes    = eagle_state_bytes(*ctx);
    info->snapshot_bytes = info->state_bytes / (1 + llama_n_rs_seq(ctx->llama));
    return EAGLE_OK;
}

int32_t eagle_context_count(const eagle_context * ctx, eagle_context_stats * stats) {
    *stats = ctx->stats;
    stats->n_reused = llama_perf_context(ctx->llama).n_reused;
    return EAGLE_OK;
}

const char * eagle_context_error(const eagle_context * ctx) {
    return ctx->error.c_str();
}

int32_t eagle_decode(eagle_context * ctx, const eagle_batch * batch) {
    return eagle_guard(ctx, [&]() -> int32_t {
        try {
            eagle_placed_batch placed = eagle_place_batch(*ctx, *batch);
            return eagle_decode_placed(*ctx, placed);
        } catch (const eagle_full & e) {
            ctx->error = e.what();
            return EAGLE_FULL;
        }
    });
}

int32_t eagle_encode(eagle_context * ctx, const float * features, int32_t n_rows) {
    return eagle_guard(ctx, [&] { return encode(*ctx, features, n_rows); });
}

int32_t eagle_n_outputs(const eagle_context * ctx) {
    return ctx->n_outputs;
}

int32_t eagle_n_rows(const eagle_context * ctx) {
    return ctx->n_rows;
}

const float * eagle_logits(eagle_context * ctx) {
    return ctx->n_outputs > 0 ? llama_get_logits(ctx->llama) : nullptr;
}

const float * eagle_hidden(eagle_context * ctx) {
    if (!ctx->encoded.empty()) {
        return ctx->encoded.data();
    }
    return ctx->model->is_draft() ? llama_get_embeddings_nextn(ctx->llama) : nullptr;
}

int32_t eagle_argmax_of(eagle_context & ctx, int32_t row) {
    const int32_t width = ctx.llama->n_logits();
    const int32_t id = eagle_row_argmax(eagle_logits(&ctx) + (size_t) row * width, width);
    if (id < 0) {
        refuse_logits(ctx);
        throw std::runtime_error(std::string(ctx.error));
    }
    return id;
}

int32_t eagle_argmax(eagle_context * ctx, int32_t * ids) {
    const float * logits = eagle_logits(ctx);
    const int32_t width = ctx->llama->n_logits();
    bool finite = true;
    for (int32_t i = 0; i < ctx->n_outputs; ++i) {
        ids[i] = eagle_row_argmax(logits + (size_t) i * width, width);
        finite = finite && ids[i] >= 0;
    }
    return finite ? ctx->n_outputs : refuse_logits(*ctx);
}

int32_t eagle_top_k(eagle_context * ctx, int32_t k, int32_t * ids, float * logp) {
    const float * logits = eagle_logits(ctx);
    const int32_t width = ctx->llama->n_logits();
    if (k < 1 || k > width) {
        ctx->error = "top-k of " + std::to_string(k) + " from " + std::to_string(width) + " logits";
        return EAGLE_INVALID;
    }
    for (int32_t i = 0; i < ctx->n_outputs; ++i) {
        if (!eagle_row_top_k(logits + (size_t) i * width, width, k, ids + i * k, logp + i * k)) {
            return refuse_logits(*ctx);
        }
    }
    if (!ctx->d2t.empty()) {
        std::transform(ids, ids + ctx->n_outputs * k, ids, [&](int32_t id) { return ctx->d2t[id]; });
    }
    return ctx->n_outputs;
}

int32_t eagle_features(eagle_context * ctx, const int32_t * rows, int32_t n_rows, float * out) {
    const size_t n_embd = ctx->model->llama->hparams.n_embd;
    const size_t n_features = n_rows > 0 ? ctx->features.size() : 0;
    for (int32_t i = 0; i < n_rows; ++i) {
        const int32_t row = rows != nullptr ? rows[i] : i;
        if (row < 0 || row >= ctx->n_rows) {
            ctx->error = "row " + std::to_string(row) + " of features, the last decode had " + std::to_string(ctx->n_rows);
            return EAGLE_INVALID;
        }
    }
    for (size_t f = 0; f < n_features; ++f) {
        const float * layer = feature_rows(*ctx, ctx->features[f]);
        for (int32_t i = 0; i < n_rows; ++i) {
            const int32_t row = rows != nullptr ? rows[i] : i;
            memcpy(out + (i * n_features + f) * n_embd, layer + row * n_embd, n_embd * sizeof(float));
        }
    }
    return EAGLE_OK;
}
