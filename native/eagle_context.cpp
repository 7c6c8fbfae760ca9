// Contexts: made, decode and encode. What is read from them afterwards is in eagle_outputs.cpp.

#include "eagle_internal.h"
#include "eagle_batch.h"
#include "eagle_context_params.h"
#include "eagle_recurrent.h"
#include "eagle_verifier.h"

#include <algorithm>

namespace {

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
        const ggml_tensor * t = res->get_layer_inp(eagle_feature_slot(ctx, id));
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
        ctx.llama->set_embeddings_layer_inp(eagle_feature_slot(ctx, id), true);
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
    if (model->d2t != nullptr && !model->hparams.no_alloc) {
        ctx.d2t.resize(model->d2t->ne[0]);
        eagle_model_d2t(ctx.model, ctx.d2t.data());
        ctx.t2d = inverse(ctx.d2t, model->vocab.n_tokens());
    }
}

eagle_context * init(const eagle_model & model, const eagle_context_params & params) {
    eagle_check_context_params(model, params);
    auto ctx = std::make_unique<eagle_context>();
    ctx->model      = &model;
    ctx->abort_flag = params.abort_flag;
    ctx->type_k     = (ggml_type) params.type_k;
    eagle_log_take_error();
    ctx->llama = llama_init_from_model(model.llama, eagle_to_llama(params));
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

// rows of features as a batch of the encoder
llama_batch_ext place_features(const eagle_context & ctx, const float * features, int32_t n_rows, size_t width) {
    llama_batch_ext res(ctx.llama);
    for (int32_t i = 0; i < n_rows; ++i) {
        llama_batch_ext::token token;
        token.seq_ids.insert(0);
        token.has_embd = true;
        token.embd_off = i * width;
        token.output   = true;
        token.pos[0]   = ctx.seqs[0].n_past + ctx.seqs[0].max_depth() + i; // not used by the encoder, but checked
        res.tokens.push_back(std::move(token));
    }
    res.embd.assign(features, features + n_rows * width);
    res.n_embd = width;
    return res;
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
    llama_batch_ext ext = place_features(ctx, features, n_rows, width);
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
    stats->n_built  = ctx->llama->n_graphs_built();
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
