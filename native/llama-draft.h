#pragma once

// What the draft architectures share: sizes that their graphs can compute, the tensors and the graph of a layer, the head.
// Included by llama-eagle.h and the patched src/models/eagle3.cpp; knows nothing of contexts and targets.

#include "llama-graph.h"
#include "llama-model.h"
#include "llama-model-loader.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

constexpr size_t llama_draft_max_features = 64;

// a file that contradicts itself is refused while it is loaded: nothing of it may reach an assertion of a graph
inline void llama_draft_require(const llama_model & model, bool fits, const std::string & text) {
    if (!fits) {
        throw std::runtime_error(model.arch_name() + ": " + text);
    }
}

inline void llama_draft_check_features(const llama_model_base & model) {
    const auto & ids = model.target_layer_ids;
    llama_draft_require(model, !ids.empty() && ids.size() <= llama_draft_max_features,
            "target_layers has " + std::to_string(ids.size()) + " entries, expected 1 to " + std::to_string(llama_draft_max_features));
    for (const int32_t id : ids) {
        llama_draft_require(model, id >= -1 && id <= LLAMA_MAX_LAYERS, "target_layers has the entry " + std::to_string(id));
    }
}

inline void llama_draft_check_heads(const llama_model_base & model) {
    const auto & hparams = model.hparams;
    const uint32_t n_head = hparams.n_head();
    const uint32_t n_head_kv = hparams.n_head_kv();
    llama_draft_require(model, n_head > 0 && n_head_kv > 0 && n_head % n_head_kv == 0,
            std::to_string(n_head) + " heads over " + std::to_string(n_head_kv) + " heads of keys");
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        llama_draft_require(model, hparams.n_head(il) == n_head && hparams.n_head_kv(il) == n_head_kv && hparams.n_ff(il) == hparams.n_ff(),
                "layer " + std::to_string(il) + " has other sizes than the first");
    }
    const uint32_t head = hparams.n_embd_head_k();
    llama_draft_require(model, head > 0 && head == hparams.n_embd_head_v(),
            "keys of " + std::to_string(head) + " and values of " + std::to_string(hparams.n_embd_head_v()) + " numbers, they must be alike");
    llama_draft_require(model, hparams.n_rot() > 0 && hparams.n_rot() % 2 == 0 && hparams.n_rot() <= head,
            "rope turns " + std::to_string(hparams.n_rot()) + " numbers of a head of " + std::to_string(head));
}

// the keys of both architectures
inline void llama_draft_load_hparams(llama_model_base & model, llama_model_loader & ml) {
    auto & hparams = model.hparams;
    uint32_t width = 0;
    ml.get_key(LLM_KV_ATTENTION_LAYERNORM_RMS_EPS,   hparams.f_norm_rms_eps);
    ml.get_key(LLM_KV_ROPE_SCALING_YARN_EXT_FACTOR,  hparams.yarn_ext_factor,  false);
    ml.get_key(LLM_KV_ROPE_SCALING_YARN_ATTN_FACTOR, hparams.yarn_attn_factor, false);
    ml.get_key(LLM_KV_ROPE_SCALING_YARN_BETA_FAST,   hparams.yarn_beta_fast,   false);
    ml.get_key(LLM_KV_ROPE_SCALING_YARN_BETA_SLOW,   hparams.yarn_beta_slow,   false);
    ml.get_arr(LLM_KV_TARGET_LAYERS, model.target_layer_ids);
    ml.get_key(LLM_KV_TARGET_HIDDEN_SIZE, width);

    llama_draft_check_features(model);
    llama_draft_check_heads(model);
    llama_draft_require(model, width > 0 && width < (1u << 24), "target_hidden_size is " + std::to_string(width));
    llama_draft_require(model, hparams.n_embd > 0 && hparams.n_ff() > 0, "embedding_length and feed_forward_length must be positive");
    llama_draft_require(model, hparams.n_layer_nextn == 0, "a draft has no nextn_predict_layers");
    llama_draft_require(model, hparams.causal_attn, "a draft attends to the past only: attention.causal is false");
    llama_draft_require(model, hparams.n_embd_out_impl == 0 || hparams.n_embd_out_impl == hparams.n_embd, "embedding_length_out differs from embedding_length");
    llama_draft_require(model, hparams.rope_scaling_type_train != LLAMA_ROPE_SCALING_TYPE_LONGROPE, "rope.scaling.type longrope is not known here");

    hparams.n_embd_inp_enc_impl = (uint32_t) model.target_layer_ids.size() * width;
    model.type = LLM_TYPE_UNKNOWN;
}

inline uint32_t llama_draft_feature_width(const llama_model & model) {
    return model.hparams.n_embd_inp_enc() / model.target_layer_ids.size();
}

// embeddings, head and the map of its ids; what is missing is the target's
inline void llama_draft_load_vocabulary(llama_model_base & model, llama_model_loader & ml) {
    const int64_t n_embd  = model.hparams.n_embd;
    const int64_t n_vocab = model.vocab.n_tokens();
    const auto & tn = model.tn;

    const ggml_tensor * ids = ml.get_tensor_meta("d2t");
    if (ids != nullptr) {
        llama_draft_require(model, ids->type == GGML_TYPE_I64, std::string("d2t is of type ") + ggml_type_name(ids->type) + ", expected i64");
        llama_draft_require(model, ids->ne[0] <= n_vocab, "d2t has " + std::to_string(ids->ne[0]) + " entries, the vocabulary " + std::to_string(n_vocab));
        model.d2t = model.create_tensor(tn(LLM_TENSOR_D2T), {ids->ne[0]}, 0);
    }
    model.output = model.create_tensor(tn(LLM_TENSOR_OUTPUT, "weight"), {n_embd, ids ? ids->ne[0] : n_vocab}, ids ? 0 : model.TENSOR_NOT_REQUIRED);

    // some files pad the table: rows behind the vocabulary are never read
    const ggml_tensor * table = ml.get_tensor_meta(tn(LLM_TENSOR_TOKEN_EMBD, "weight").str().c_str());
    if (table != nullptr) {
        llama_draft_require(model, table->ne[1] >= n_vocab, "token_embd has " + std::to_string(table->ne[1]) + " rows, the vocabulary " + std::to_string(n_vocab) + " tokens");
        model.tok_embd = model.create_tensor(tn(LLM_TENSOR_TOKEN_EMBD, "weight"), {n_embd, table->ne[1]}, 0);
    }
}

// everything of a layer behind its input norms; n_in: width of what it attends over
inline void llama_draft_load_layer(llama_model_base & model, int64_t n_in, int il) {
    const auto & hparams = model.hparams;
    const auto & tn = model.tn;
    const int optional = model.TENSOR_NOT_REQUIRED;
    auto & layer = model.layers[il];
    const int64_t n_embd = hparams.n_embd;
    const int64_t n_ff   = hparams.n_ff();
    const int64_t head   = hparams.n_embd_head_k();
    const int64_t n_q    = head * hparams.n_head();

    model.create_tensor_qkv(layer, il, n_in, n_q, hparams.n_embd_k_gqa(), hparams.n_embd_v_gqa(), 0);
    layer.wo          = model.create_tensor(tn(LLM_TENSOR_ATTN_OUT,    "weight", il), {n_q, n_embd}, 0);
    layer.wo_b        = model.create_tensor(tn(LLM_TENSOR_ATTN_OUT,    "bias",   il), {n_embd}, optional);
    layer.attn_q_norm = model.create_tensor(tn(LLM_TENSOR_ATTN_Q_NORM, "weight", il), {head}, optional);
    layer.attn_k_norm = model.create_tensor(tn(LLM_TENSOR_ATTN_K_NORM, "weight", il), {head}, optional);
    layer.rope_freqs  = model.create_tensor(tn(LLM_TENSOR_ROPE_FREQS,  "weight", il), {hparams.n_rot()/2}, optional | (il > 0 ? model.TENSOR_DUPLICATED : 0));

    layer.ffn_norm   = model.create_tensor(tn(LLM_TENSOR_FFN_NORM, "weight", il), {n_embd}, 0);
    layer.ffn_gate   = model.create_tensor(tn(LLM_TENSOR_FFN_GATE, "weight", il), {n_embd, n_ff}, 0);
    layer.ffn_down   = model.create_tensor(tn(LLM_TENSOR_FFN_DOWN, "weight", il), {n_ff, n_embd}, 0);
    layer.ffn_up     = model.create_tensor(tn(LLM_TENSOR_FFN_UP,   "weight", il), {n_embd, n_ff}, 0);
    layer.ffn_gate_b = model.create_tensor(tn(LLM_TENSOR_FFN_GATE, "bias",   il), {n_ff}, optional);
    layer.ffn_down_b = model.create_tensor(tn(LLM_TENSOR_FFN_DOWN, "bias",   il), {n_embd}, optional);
    layer.ffn_up_b   = model.create_tensor(tn(LLM_TENSOR_FFN_UP,   "bias",   il), {n_ff}, optional);
}

// the layers after the first
inline void llama_draft_load_plain_layers(llama_model_base & model) {
    for (uint32_t il = 1; il < model.hparams.n_layer(); ++il) {
        model.layers[il].attn_norm = model.create_tensor(model.tn(LLM_TENSOR_ATTN_NORM, "weight", il), {model.hparams.n_embd}, 0);
        llama_draft_load_layer(model, model.hparams.n_embd, il);
    }
}

// graphs of decoders, over the builder of llama.cpp
struct llama_draft_graph {
    const llama_model & model;
    const llm_graph_context & g;
    ggml_tensor * inp_pos;
    llm_graph_input_attn_kv * inp_attn;

    // cur [n_in, n_tokens] is what the layer attends over, residual [n_embd, n_tokens] what its outputs are added to
    ggml_tensor * layer(ggml_tensor * cur, ggml_tensor * residual, int il) const {
        const auto & w = model.layers[il];

        cur = attention(cur, il);

        ggml_tensor * ffn_inp = ggml_add(g.ctx0, cur, residual);
        g.cb(ffn_inp, "ffn_inp", il);

        cur = g.build_norm(ffn_inp, w.ffn_norm, NULL, LLM_NORM_RMS, il);
        g.cb(cur, "post_attn_norm", il);

        cur = g.build_ffn(cur,
                w.ffn_up,   w.ffn_up_b,   NULL,
                w.ffn_gate, w.ffn_gate_b, NULL,
                w.ffn_down, w.ffn_down_b, NULL,
                NULL,
                LLM_FFN_SILU, LLM_FFN_PAR, il);
        g.cb(cur, "ffn_out", il);

        cur = ggml_add(g.ctx0, cur, ffn_inp);
        g.cb(cur, "l_out", il);
        return cur;
    }

    ggml_tensor * plain_layers(ggml_tensor * cur) const {
        for (int il = 1; il < g.n_layer; ++il) {
            ggml_tensor * normed = g.build_norm(cur, model.layers[il].attn_norm, NULL, LLM_NORM_RMS, il);
            g.cb(normed, "attn_norm", il);
            cur = layer(normed, cur, il);
        }
        return cur;
    }

    // a shared head comes with the target's scale and bias
    ggml_tensor * head(ggml_tensor * output, ggml_tensor * cur) const {
        cur = g.build_lora_mm(output, cur, model.output_s);
        return model.output_b != nullptr ? ggml_add(g.ctx0, cur, model.output_b) : cur;
    }

private:
    ggml_tensor * attention(ggml_tensor * cur, int il) const {
        const auto & w = model.layers[il];
        const int64_t head = g.hparams.n_embd_head_k();

        auto [q, k, v] = g.build_qkv(w, cur, head, g.n_head, g.n_head_kv, il);
        q = turned(w.attn_q_norm, q, il);
        k = turned(w.attn_k_norm, k, il);

        return g.build_attn(inp_attn,
                w.wo, w.wo_b, w.wo_s,
                q, k, v, nullptr, nullptr, nullptr, 1.0f/sqrtf(float(head)), il);
    }

    ggml_tensor * turned(ggml_tensor * norm, ggml_tensor * cur, int il) const {
        if (norm != nullptr) {
            cur = g.build_norm(cur, norm, NULL, LLM_NORM_RMS, il);
        }
        return ggml_rope_ext(
                g.ctx0, cur, inp_pos, model.get_rope_factors(g.cparams, il),
                g.n_rot, g.rope_type, g.n_ctx_orig, g.freq_base, g.freq_scale,
                g.ext_factor, g.attn_factor, g.beta_fast, g.beta_slow);
    }
};
