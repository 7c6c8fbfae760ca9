// Recurrent states: what llama.cpp's rollback leaves to its caller. It takes any count up to n_rs_seq back, whether or not
// the last decode wrote that snapshot, and a shared or moved state loses its snapshots without a word.

#include "eagle_recurrent.h"

#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"

#include <algorithm>

llama_memory_recurrent * eagle_recurrent(const eagle_context & ctx) {
    if (auto * alone = dynamic_cast<llama_memory_recurrent *>(ctx.memory())) {
        return alone;
    }
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid *>(ctx.memory())) {
        return hybrid->get_mem_recr();
    }
    if (auto * window = dynamic_cast<llama_memory_hybrid_iswa *>(ctx.memory())) {
        return window->get_mem_recr();
    }
    return nullptr;
}

int32_t eagle_rollback_limit(const eagle_context & ctx, int32_t asked) {
    if (eagle_recurrent(ctx) != nullptr) {
        return llama_n_rs_seq(ctx.llama); // clamped to 0 in silence
    }
    return ctx.tree ? asked : 0; // caches with pooled or sparse parts were not shown to forget a chain
}

int64_t eagle_state_bytes(const eagle_context & ctx) {
    int64_t res = 0;
    if (const llama_memory_recurrent * state = eagle_recurrent(ctx)) {
        for (const auto * layers : { &state->r_l, &state->s_l, &state->p_l }) {
            for (const ggml_tensor * t : *layers) {
                res += t != nullptr ? ggml_nbytes(t) : 0;
            }
        }
    }
    return res;
}

eagle_state_places eagle_state_look(const eagle_context & ctx) {
    eagle_state_places res;
    if (const llama_memory_recurrent * state = eagle_recurrent(ctx)) {
        res.rs_idx = state->rs_idx;
        for (size_t s = 0; s < ctx.seqs.size(); ++s) {
            res.tails.push_back(state->cells[s].tail);
        }
    }
    return res;
}

namespace {

// whether no piece of the batch moved the state of a sequence that an earlier piece had finished, for it moves without its
// snapshots: llama_batch_allocr::split_equal() takes equal counts of all sequences that are left, and pieces of one
// sequence move nothing
bool snapshots_stay(const eagle_context & ctx, const llama_batch_ext & batch, const std::vector<eagle_sequence> & seqs) {
    std::vector<int32_t> order, counts;
    for (const llama_batch_ext::token & token : batch.tokens) {
        const int32_t seq_id = *token.seq_ids.begin();
        if (std::find(order.begin(), order.end(), seq_id) == order.end()) {
            order.push_back(seq_id);
            counts.push_back(seqs[seq_id].n_past - ctx.seqs[seq_id].n_past);
        }
    }
    const int32_t n_seqs = order.size();
    if (n_seqs == 1) {
        return true;
    }
    if (!ctx.llama->get_cparams().kv_unified) { // there a piece takes consecutive ids only
        for (int32_t i = 1; i < n_seqs; ++i) {
            if (order[i] != order[i - 1] + 1) {
                return false;
            }
        }
    }
    std::sort(counts.begin(), counts.end());
    const int32_t rest = counts[n_seqs - 1] - counts[0]; // of the longest, alone in the pieces behind the first
    const bool equal = counts[0] == counts[n_seqs - 2] && (rest == 0 || rest > ctx.n_rollback);
    return equal && (int64_t) counts[0] * n_seqs <= llama_n_ubatch(ctx.llama);
}

} // namespace

void eagle_state_decoded(const eagle_context & ctx, const llama_batch_ext & batch, std::vector<eagle_sequence> & seqs) {
    if (eagle_recurrent(ctx) == nullptr) {
        return;
    }
    const bool stay = ctx.n_rollback > 0 && snapshots_stay(ctx, batch, seqs);
    for (size_t s = 0; s < seqs.size(); ++s) {
        // the state in front of the batch is no snapshot, and sequences outside of it may have been moved
        const int32_t n_new = seqs[s].n_past - ctx.seqs[s].n_past;
        seqs[s].n_snapshots = stay ? std::clamp(n_new - 1, 0, ctx.n_rollback) : 0;
    }
}

bool eagle_state_moved(const eagle_context & ctx, const eagle_state_places & before, int32_t seq_id) {
    const llama_memory_recurrent * state = eagle_recurrent(ctx);
    return state != nullptr && (state->cells[seq_id].tail != before.tails[seq_id] || state->rs_idx[seq_id] != before.rs_idx[seq_id]);
}

void eagle_state_failed(const eagle_context & ctx) {
    if (llama_memory_recurrent * state = eagle_recurrent(ctx)) {
        for (auto & cell : state->cells) {
            if (cell.is_empty()) {
                cell.src = -1; // find_slot() takes free cells within its range for cleared, which the graph would have done
            }
        }
    }
}

void eagle_state_check_rm(const eagle_context & ctx, const eagle_sequence & seq, int32_t p0, int32_t p1) {
    const bool to_end   = p1 < 0 || p1 >= seq.n_past;
    const bool touches  = p0 < seq.n_past && p1 != 0 && p0 != p1;
    const bool all      = p0 <= 0 && to_end;
    if (eagle_recurrent(ctx) == nullptr || all || !touches) {
        return;
    }
    const int32_t back = seq.n_past - p0;
    if (!to_end || back > seq.n_snapshots) {
        throw eagle_invalid("positions [" + std::to_string(p0) + ", " + std::to_string(p1) + ") cannot be removed from this memory: its state can go back " +
                            (seq.n_snapshots > 0 ? "at most " + std::to_string(seq.n_snapshots) + " tokens now" : "by no token now, or be cleared"));
    }
}

void eagle_state_settle(const eagle_context & ctx, int32_t seq_id) {
    const llama_memory_recurrent * state = eagle_recurrent(ctx);
    if (state == nullptr || state->rs_idx[seq_id] == 0) {
        return;
    }
    const llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY; // the state alone
    std::vector<uint8_t> data(llama_state_seq_get_size_ext(ctx.llama, seq_id, flags));
    if (data.empty() || llama_state_seq_get_data_ext(ctx.llama, data.data(), data.size(), seq_id, flags) != data.size() ||
        llama_state_seq_set_data_ext(ctx.llama, data.data(), data.size(), seq_id, flags) != data.size()) {
        throw std::runtime_error("the state of sequence " + std::to_string(seq_id) + " could not be stored anew");
    }
}
