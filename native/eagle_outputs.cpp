// What is read from a context after a decode or encode: logits, hidden states, features.

#include "eagle_internal.h"
#include "eagle_rows.h"

#include <algorithm>
#include <cstring>

namespace {

// logits that are no numbers: no text may be made of them
int32_t refuse_logits(const eagle_context & ctx) {
    ctx.error = ctx.model->is_draft()
        ? "the draft computed NaN: its weights or the target's are broken, or a type overflows; decode without it (--spec off)"
        : "the target computed NaN: its weights are broken or its type overflows; try another file of it";
    return EAGLE_FAILED;
}

// the extracted rows of a feature, in the order of the batch: [n_rows, n_embd]
const float * feature_rows(eagle_context & ctx, int32_t id) {
    return llama_get_embeddings_layer_inp(ctx.llama, eagle_feature_slot(ctx, id));
}

} // namespace

int32_t eagle_feature_slot(const eagle_context & ctx, int32_t id) {
    return id == EAGLE_POST_NORM ? llama_model_n_layer(ctx.model->llama) + 1 : id;
}

size_t eagle_feature_width(const eagle_context & ctx) {
    const llama_hparams & hparams = ctx.model->llama->hparams;
    return ctx.model->is_draft() ? hparams.n_embd_inp_enc() : ctx.features.size() * hparams.n_embd;
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
