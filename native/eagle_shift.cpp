// Context shift: drop tokens from the middle of a sequence and move the later ones down.

#include "eagle_parts.h"

#include "ggml-cpp.h"

#include <algorithm>

namespace {

// an abort would leave some layers moved and others not
struct abort_held {
    explicit abort_held(eagle_context & ctx) : ctx(ctx) {
        llama_set_abort_callback(ctx.llama, nullptr, nullptr);
    }
    ~abort_held() {
        if (ctx.abort_flag != nullptr) {
            llama_set_abort_callback(ctx.llama, eagle_abort_requested, (void *) ctx.abort_flag);
        }
    }

    eagle_context & ctx;
};

// graphs that turn their keys another way than llama.cpp's shift: layers without a rotation, a norm or scale behind it
bool rotates_differently(llm_arch arch) {
    constexpr llm_arch found[] = {
        LLM_ARCH_AFMOE,       LLM_ARCH_BAICHUAN,    LLM_ARCH_COHERE2,      LLM_ARCH_COHERE2MOE,   LLM_ARCH_EXAONE4,      LLM_ARCH_EXAONE_MOE,
        LLM_ARCH_FALCON_H1,   LLM_ARCH_HUNYUAN_MOE, LLM_ARCH_HUNYUAN_DENSE, LLM_ARCH_LLAMA4,      LLM_ARCH_MAINCODER,    LLM_ARCH_MAPLE,
        LLM_ARCH_MUSE_GLIMMER, LLM_ARCH_PANGU_EMBED, LLM_ARCH_POCKETTTS,    LLM_ARCH_SMALLTHINKER, LLM_ARCH_SMOLLM3,
    };
    return std::find(std::begin(found), std::end(found), arch) != std::end(found);
}

bool holds_layer(const llama_kv_cache & cache, uint32_t il) {
    try {
        return cache.get_k_storage(il) != nullptr;
    } catch (const std::out_of_range &) {
        return false;
    }
}

// llama.cpp aborts over a cache in which there is nothing to rotate
bool has_rotated_layers(const llama_kv_cache & cache, const llama_hparams & hparams) {
    for (uint32_t il = 0; il < hparams.n_layer(); ++il) {
        if (hparams.has_rope(il) && holds_layer(cache, il)) {
            return true;
        }
    }
    return false;
}

// llama.cpp mixes quantised keys by a Hadamard matrix where heads are large enough; its shift crashes where they are not
bool mixes_keys(const llama_kv_cache & cache) {
    const ggml_init_params params = { ggml_tensor_overhead(), nullptr, /*no_alloc*/ true };
    const ggml_context_ptr ctx(ggml_init(params));
    return cache.build_input_k_rot(ctx.get()) != nullptr;
}

// ggml rotates f32 and f16 only; quantised keys go through f32, whole heads of them
std::string key_refusal(const eagle_context & ctx, const eagle_memory_parts & parts) {
    const llama_hparams & hparams = ctx.model->llama->hparams;
    const bool mixed = hparams.swa_type != LLAMA_SWA_TYPE_NONE && ctx.llama->get_cparams().yarn_ext_factor != 0.0f;
    if (rotates_differently(ctx.model->llama->arch) || (mixed && ctx.model->llama->arch != LLM_ARCH_OPENAI_MOE)) {
        return std::string("architecture ") + ctx.model->llama->arch_name() + " rotates its keys in a way that llama.cpp cannot repeat";
    }
    for (const llama_kv_cache * cache : parts.caches) {
        if (!has_rotated_layers(*cache, hparams)) {
            return std::string("architecture ") + ctx.model->llama->arch_name() + " has a cache without rotated keys";
        }
        if (ggml_is_quantized(ctx.type_k) && !mixes_keys(*cache)) {
            return "a K cache of " + std::string(ggml_type_name(ctx.type_k)) + " cannot be rotated with heads of this size: use f16";
        }
    }
    if (ctx.type_k == GGML_TYPE_BF16) {
        return "a K cache of bf16 cannot be rotated: use f16";
    }
    for (uint32_t il = 0; ggml_is_quantized(ctx.type_k) && il < hparams.n_layer(); ++il) {
        if (hparams.has_rope(il) && hparams.n_rot(il) != hparams.n_embd_head_k(il)) {
            return "a K cache of " + std::string(ggml_type_name(ctx.type_k)) + " cannot be rotated in part, as this model's heads are: use f16";
        }
    }
    return "";
}

// why positions cannot be moved, or nothing
std::string shift_refusal(const eagle_context & ctx) {
    const llama_model & model = *ctx.model->llama;
    const eagle_memory_parts parts = eagle_parts_of(ctx);
    if (model.hparams.n_pos_per_embd() > 1) {
        return "its positions have several dimensions (M-RoPE)";
    }
    if (model.pos_embd != nullptr) {
        return std::string("architecture ") + model.arch_name() + " adds positions to its embeddings";
    }
    if (parts.caches.size() > 1 && parts.caches[0]->get_size() != parts.caches[1]->get_size()) {
        return "its sliding-window cache is smaller than the context: make it with swa_full";
    }
    if (!parts.known() || !llama_memory_can_shift(ctx.memory())) {
        return std::string("architecture ") + model.arch_name() + " has a memory that cannot move positions";
    }
    return parts.caches.empty() || model.hparams.rope_type == LLAMA_ROPE_TYPE_NONE ? "" : key_refusal(ctx, parts);
}

// a cell has one position for all of its sequences
bool shares_cells(const eagle_memory_parts & parts, int32_t seq_id, int32_t first) {
    for (const llama_kv_cache * cache : parts.caches) {
        const llama_kv_cells & cells = cache->get_cells(seq_id);
        for (uint32_t i = 0; i < cells.size(); ++i) {
            if (!cells.is_empty(i) && cells.seq_has(i, seq_id) && cells.pos_get(i) >= first && cells.seq_count(i) > 1) {
                return true;
            }
        }
    }
    if (parts.recurrent == nullptr) {
        return false;
    }
    const int32_t tail = parts.recurrent->cells[seq_id].tail;
    return tail >= 0 && parts.recurrent->cells[tail].seq_id.size() > 1;
}

// what the next token sees must still be in the window's cache when it has moved
bool window_reaches(const eagle_context & ctx, const eagle_memory_parts & parts, int32_t seq_id, int32_t keep, int32_t discard) {
    const llama_hparams & hparams = ctx.model->llama->hparams;
    if (hparams.swa_type == LLAMA_SWA_TYPE_NONE || parts.caches.empty()) {
        return true;
    }
    const int32_t first = parts.caches.back()->seq_pos_min(seq_id);
    const int32_t moved = first < keep ? first : std::max(first, keep + discard) - discard;
    return moved <= std::max(0, ctx.seqs[seq_id].n_past - discard - (int32_t) hparams.n_swa);
}

void check_shift(const eagle_context & ctx, int32_t seq_id, int32_t keep, int32_t discard) {
    const std::string refusal = shift_refusal(ctx);
    if (!refusal.empty()) {
        throw eagle_invalid("the context cannot be shifted: " + refusal);
    }
    const int32_t n_past = ctx.seqs[seq_id].n_past;
    if (keep < 0 || discard < 1 || (int64_t) keep + discard >= n_past) {
        throw eagle_invalid("a shift that keeps " + std::to_string(keep) + " and discards " + std::to_string(discard) + " of " + std::to_string(n_past) +
                            " tokens: keep >= 0, discard >= 1 and a token behind them are needed");
    }
    const eagle_memory_parts parts = eagle_parts_of(ctx);
    if (shares_cells(parts, seq_id, keep + discard)) {
        throw eagle_invalid("sequence " + std::to_string(seq_id) + " shares its cells with a copy, which would move along: free the copy, or save and restore this state first");
    }
    if (!window_reaches(ctx, parts, seq_id, keep, discard)) {
        throw eagle_invalid("the sliding window no longer holds the tokens that would move into it: keep fewer than " + std::to_string(keep));
    }
}

int32_t seq_shift(eagle_context & ctx, int32_t seq_id, int32_t keep, int32_t discard) {
    eagle_sequence & seq = eagle_committed_sequence(ctx, seq_id);
    check_shift(ctx, seq_id, keep, discard);
    eagle_settle(ctx);
    if (!ctx.memory()->seq_rm(seq_id, keep, keep + discard)) {
        throw eagle_invalid("positions [" + std::to_string(keep) + ", " + std::to_string(keep + discard) + ") cannot be removed from this memory");
    }
    ctx.memory()->seq_add(seq_id, keep + discard, -1, -discard);
    seq.n_past -= discard;
    eagle_log_take_error(); // an earlier call's
    eagle_settle(ctx);
    for (const llama_kv_cache * cache : eagle_parts_of(ctx).caches) {
        if (cache->get_cells(seq_id).get_has_shift()) {
            ctx.memory()->seq_rm(seq_id, -1, -1);
            seq = {};
            throw std::runtime_error("llama.cpp could not rotate the keys, and sequence " + std::to_string(seq_id) + " is empty now: " + eagle_log_take_error());
        }
    }
    return EAGLE_OK;
}

} // namespace

void eagle_settle(eagle_context & ctx) {
    const abort_held held(ctx);
    ctx.llama->memory_update(false);
}

int32_t eagle_can_shift(const eagle_context * ctx) {
    return eagle_guard(ctx, [&]() -> int32_t {
        ctx->error = shift_refusal(*ctx);
        return ctx->error.empty();
    });
}

int32_t eagle_seq_shift(eagle_context * ctx, int32_t seq_id, int32_t keep, int32_t discard) {
    return eagle_guard(ctx, [&] { return seq_shift(*ctx, seq_id, keep, discard); });
}
