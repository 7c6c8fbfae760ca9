// The memory of a context: committed tokens, uncommitted nodes, cells.

#include "eagle_recurrent.h"

#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"

#include <algorithm>

namespace {

eagle_sequence & sequence(eagle_context & ctx, int32_t seq_id) {
    return const_cast<eagle_sequence &>(eagle_sequence_of(ctx, seq_id));
}

int32_t commit(eagle_context & ctx, int32_t seq_id, const std::vector<int32_t> & path) {
    eagle_sequence & seq = sequence(ctx, seq_id);
    int32_t last = -1;
    for (const int32_t node : path) {
        if (node < 0 || node >= (int32_t) seq.parents.size() || seq.parents[node] != last) {
            throw eagle_invalid("node " + std::to_string(node) + " does not continue the path from node " + std::to_string(last));
        }
        last = node;
    }
    if (!seq.parents.empty()) {
        ctx.memory()->tree_commit(seq_id, path);
    }
    seq.n_past += path.size();
    seq.parents.clear();
    seq.depths.clear();
    return EAGLE_OK;
}

void check_window(const eagle_context & ctx, int32_t seq_id, int32_t p0) {
    if (!eagle_window_holds(ctx, seq_id, p0)) {
        throw eagle_invalid("position " + std::to_string(p0) + " cannot be gone back to: the sliding window starts at " +
                            std::to_string(ctx.memory()->seq_pos_min(seq_id)));
    }
}

int32_t seq_rm(eagle_context & ctx, int32_t seq_id, int32_t p0, int32_t p1) {
    eagle_sequence & seq = eagle_committed_sequence(ctx, seq_id);
    eagle_state_check_rm(ctx, seq, p0, p1);
    if (p0 > 0 && p0 < seq.n_past && eagle_recurrent(ctx) == nullptr) { // a window reuses no cell that the last decode's first token saw
        check_window(ctx, seq_id, p0);
    }
    const int32_t end = p1 >= seq.n_past ? -1 : p1; // a state that goes back or is cleared asks for an open end
    if (!ctx.memory()->seq_rm(seq_id, p0, end)) {
        throw eagle_invalid("positions [" + std::to_string(p0) + ", " + std::to_string(p1) + ") cannot be removed from this memory: its state has no past");
    }
    const int32_t n_past = ctx.memory()->seq_pos_max(seq_id) + 1;
    seq.n_snapshots = n_past < seq.n_past ? 0 : seq.n_snapshots;
    seq.n_past      = n_past;
    return EAGLE_OK;
}

llama_kv_cache_iswa * window_cache(const eagle_context & ctx) {
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid_iswa *>(ctx.memory())) {
        return hybrid->get_mem_attn();
    }
    return dynamic_cast<llama_kv_cache_iswa *>(ctx.memory());
}

int32_t seq_cp(eagle_context & ctx, int32_t src, int32_t dst) {
    eagle_committed_sequence(ctx, src);
    eagle_sequence & to = eagle_committed_sequence(ctx, dst);
    if (src == dst) {
        return EAGLE_OK;
    }
    eagle_state_settle(ctx, src);
    ctx.memory()->seq_rm(dst, -1, -1);
    eagle_drop_behind_window(ctx, src);
    ctx.memory()->seq_cp(src, dst, -1, -1);
    ctx.seqs[src].n_snapshots = 0; // they share one state now, and one cannot go back without the other
    to = ctx.seqs[src];
    return EAGLE_OK;
}

const llama_kv_cache * cache_of(const eagle_context & ctx, bool window) {
    if (auto * plain = dynamic_cast<llama_kv_cache *>(ctx.memory())) {
        return plain;
    }
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid *>(ctx.memory())) {
        return hybrid->get_mem_attn();
    }
    if (const auto * iswa = window_cache(ctx)) {
        return window ? iswa->get_swa() : iswa->get_base();
    }
    return nullptr;
}

} // namespace

const eagle_sequence & eagle_sequence_of(const eagle_context & ctx, int32_t seq_id) {
    if (seq_id < 0 || seq_id >= (int32_t) ctx.seqs.size()) {
        throw eagle_invalid("sequence id " + std::to_string(seq_id) + " is not in [0, " + std::to_string(ctx.seqs.size()) + ")");
    }
    return ctx.seqs[seq_id];
}

eagle_sequence & eagle_committed_sequence(eagle_context & ctx, int32_t seq_id) {
    eagle_sequence & seq = sequence(ctx, seq_id);
    if (!seq.parents.empty()) {
        throw eagle_invalid("sequence " + std::to_string(seq_id) + " has " + std::to_string(seq.parents.size()) + " uncommitted nodes: commit a path first");
    }
    return seq;
}

bool eagle_window_holds(const eagle_context & ctx, int32_t seq_id, int32_t p0) {
    const llama_hparams & hparams = ctx.model->llama->hparams;
    if (hparams.swa_type == LLAMA_SWA_TYPE_NONE || p0 == 0) {
        return true;
    }
    const int32_t first = ctx.memory()->seq_pos_min(seq_id);
    return first >= 0 && first <= std::max(0, p0 - (int32_t) hparams.n_swa);
}

void eagle_drop_behind_window(eagle_context & ctx, int32_t seq_id) {
    const llama_hparams & hparams = ctx.model->llama->hparams;
    auto * iswa = window_cache(ctx);
    const int32_t first = ctx.seqs[seq_id].n_past - (int32_t) hparams.n_swa;
    if (iswa != nullptr && first > 0) {
        iswa->get_swa()->seq_rm(seq_id, 0, first);
    }
}

int32_t eagle_commit(eagle_context * ctx, int32_t seq_id, const int32_t * path, int32_t n_path) {
    return eagle_guard(ctx, [&] { return commit(*ctx, seq_id, std::vector<int32_t>(path, path + n_path)); });
}

int32_t eagle_seq_rm(eagle_context * ctx, int32_t seq_id, int32_t p0, int32_t p1) {
    return eagle_guard(ctx, [&] { return seq_rm(*ctx, seq_id, p0, p1); });
}

int32_t eagle_seq_cp(eagle_context * ctx, int32_t src, int32_t dst) {
    return eagle_guard(ctx, [&] { return seq_cp(*ctx, src, dst); });
}

int32_t eagle_seq_n_past(const eagle_context * ctx, int32_t seq_id) {
    return seq_id < 0 || seq_id >= (int32_t) ctx->seqs.size() ? EAGLE_INVALID : ctx->seqs[seq_id].n_past;
}

int32_t eagle_seq_n_nodes(const eagle_context * ctx, int32_t seq_id) {
    return seq_id < 0 || seq_id >= (int32_t) ctx->seqs.size() ? EAGLE_INVALID : (int32_t) ctx->seqs[seq_id].parents.size();
}

int32_t eagle_cells_used(const eagle_context * ctx, int32_t seq_id, int32_t window) {
    const llama_kv_cache * cache = cache_of(*ctx, window != 0);
    if (cache == nullptr || seq_id < 0 || seq_id >= (int32_t) ctx->seqs.size()) {
        return EAGLE_INVALID;
    }
    return cache->get_cells(seq_id).get_used();
}

int32_t eagle_clear(eagle_context * ctx) {
    return eagle_guard(ctx, [&]() -> int32_t {
        ctx->memory()->clear(false);
        ctx->seqs.assign(ctx->seqs.size(), {});
        ctx->pending.assign(ctx->pending.size(), {});
        return EAGLE_OK;
    });
}
