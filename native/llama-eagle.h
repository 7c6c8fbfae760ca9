#pragma once

// The network of EAGLE-1 and EAGLE-2 (arXiv 2401.15077, 2406.16858): one fusion of embedding and feature, then plain layers.
// Included by the patched src/llama-model.cpp. docs/head-format.md names its keys and tensors.

#include "llama-draft.h"

struct llama_model_eagle : public llama_model_base {
    explicit llama_model_eagle(const llama_model_params & params) : llama_model_base(params) {}

    void load_arch_hparams(llama_model_loader & ml) override {
        llama_draft_load_hparams(*this, ml);
        llama_draft_require(*this, target_layer_ids == std::vector<int32_t>{ -1 }, "target_layers must be [-1], the hidden state after the final norm");
        llama_draft_require(*this, llama_draft_feature_width(*this) == hparams.n_embd,
                "target_hidden_size is " + std::to_string(llama_draft_feature_width(*this)) + ", the draft has " + std::to_string(hparams.n_embd) + ": they must be alike");
    }

    void load_arch_tensors(llama_model_loader & loader) override {
        const int64_t n_embd = hparams.n_embd;
        llama_draft_load_vocabulary(*this, loader);

        fc          = create_tensor(tn(LLM_TENSOR_FC, "weight"), {2*n_embd, n_embd}, 0);
        fc_b        = create_tensor(tn(LLM_TENSOR_FC, "bias"),   {n_embd}, TENSOR_NOT_REQUIRED);
        output_norm = create_tensor(tn(LLM_TENSOR_OUTPUT_NORM, "weight"), {n_embd}, TENSOR_NOT_REQUIRED);

        layers[0].attn_norm   = create_tensor(tn(LLM_TENSOR_ATTN_NORM,   "weight", 0), {n_embd}, TENSOR_NOT_REQUIRED);
        layers[0].attn_norm_2 = create_tensor(tn(LLM_TENSOR_ATTN_NORM_2, "weight", 0), {n_embd}, TENSOR_NOT_REQUIRED);
        llama_draft_load_layer(*this, n_embd, 0);
        llama_draft_load_plain_layers(*this);
    }

    struct graph : public llm_graph_context {
        graph(const llama_model & model, const llm_graph_params & params) : llm_graph_context(params) {
            ggml_tensor * cur = build_fusion(model);

            const llama_draft_graph draft = { model, *this, build_inp_pos(), build_attn_inp_kv() };
            ggml_tensor * out_ids = build_inp_out_ids();

            cur = draft.layer(cur, cur, 0);
            cur = draft.plain_layers(cur);

            // the feature of the next step is the output before its norm
            ggml_tensor * rows = ggml_get_rows(ctx0, cur, out_ids);
            cur = cparams.embeddings_nextn_masked ? rows : cur;
            ggml_set_output(cur);
            res->t_h_nextn = cur;

            if (model.output_norm != nullptr) {
                rows = build_norm(rows, model.output_norm, NULL, LLM_NORM_RMS, -1);
            }
            cb(rows, "result_norm", -1);

            rows = draft.head(model.output, rows);
            cb(rows, "result_output", -1);
            res->t_logits = rows;
            ggml_build_forward_expand(gf, cur);
            ggml_build_forward_expand(gf, rows);
        }

        // fc(embedding, feature), each normed first where the draft has a norm for it (HASS)
        ggml_tensor * build_fusion(const llama_model & model) const {
            auto inp = std::make_unique<llm_graph_input_embd>(n_embd);
            inp->tokens = ggml_new_tensor_1d(ctx0, GGML_TYPE_I32, n_tokens);
            inp->embd   = ggml_new_tensor_2d(ctx0, GGML_TYPE_F32, n_embd, n_tokens);
            ggml_set_input(inp->tokens);
            ggml_set_input(inp->embd);

            ggml_tensor * embedding = ggml_get_rows(ctx0, model.tok_embd, inp->tokens);
            ggml_tensor * feature   = inp->embd;
            cb(embedding, "inp_embd", -1);
            cb(feature, "inp_feature", -1);
            res->add_input(std::move(inp));

            if (model.layers[0].attn_norm != nullptr) {
                embedding = build_norm(embedding, model.layers[0].attn_norm, NULL, LLM_NORM_RMS, 0);
            }
            if (model.layers[0].attn_norm_2 != nullptr) {
                feature = build_norm(feature, model.layers[0].attn_norm_2, NULL, LLM_NORM_RMS, 0);
            }
            ggml_tensor * cur = build_lora_mm(model.fc, ggml_concat(ctx0, embedding, feature, 0));
            if (model.fc_b != nullptr) {
                cur = ggml_add(ctx0, cur, model.fc_b);
            }
            cb(cur, "fc_out", -1);
            return cur;
        }
    };

    // a context of a draft without embeddings or head needs those of a target: without them there is nothing to build
    std::unique_ptr<llm_graph_context> build_arch_graph(const llm_graph_params & params) const override {
        llama_draft_require(*this, tok_embd != nullptr && output != nullptr, "no embeddings or no head: give the draft its target");
        return std::make_unique<graph>(*this, params);
    }
};
