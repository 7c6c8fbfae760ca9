// Chains: a root and its draft tokens decoded as ordinary tokens, of which those behind the accepted ones are taken back.
// For memories that hold no trees; recurrent states go back by llama.cpp's rollback.

#include "eagle_recurrent.h"

void eagle_check_chain(const eagle_context & ctx, int32_t n) {
    if (n < 1) {
        throw eagle_invalid("a chain of " + std::to_string(n) + " tokens: the root at least");
    }
    if (n > 1 && ctx.n_rollback == 0) {
        throw eagle_invalid(std::string("architecture ") + ctx.model->llama->arch_name() + (ctx.asked_rollback > 0
            ? " cannot take decoded tokens back, so no draft can be verified: decode plainly (--spec off)"
            : ": a chain needs a context with n_rollback of at least its length without the root, " + std::to_string(n - 1)));
    }
    if (n - 1 > ctx.n_rollback) {
        throw eagle_invalid("a chain of " + std::to_string(n - 1) + " tokens behind the root: the context takes back at most " +
                            std::to_string(ctx.n_rollback) + " (n_rollback)");
    }
}

namespace {

int32_t keep(eagle_context & ctx, int32_t seq_id, int32_t n_past) {
    if (seq_id < 0 || seq_id >= (int32_t) ctx.seqs.size()) {
        throw eagle_invalid("sequence id " + std::to_string(seq_id) + " is not in [0, " + std::to_string(ctx.seqs.size()) + ")");
    }
    const eagle_sequence & seq = ctx.seqs[seq_id];
    if (n_past < 1 || n_past > seq.n_past) {
        throw eagle_invalid(std::to_string(n_past) + " tokens of sequence " + std::to_string(seq_id) + " to keep: it has " + std::to_string(seq.n_past));
    }
    if (!seq.parents.empty()) {
        throw eagle_invalid("sequence " + std::to_string(seq_id) + " has " + std::to_string(seq.parents.size()) + " uncommitted nodes: commit a path first");
    }
    if (n_past == seq.n_past) {
        return EAGLE_OK;
    }
    const int32_t code = eagle_seq_rm(&ctx, seq_id, n_past, -1);
    if (code == EAGLE_OK && ctx.seqs[seq_id].n_past == n_past) {
        return EAGLE_OK;
    }
    const std::string cause = code == EAGLE_OK ? "the memory was left with " + std::to_string(ctx.seqs[seq_id].n_past) + " tokens" : ctx.error;
    ctx.memory()->seq_rm(seq_id, -1, -1);
    ctx.seqs[seq_id] = {};
    throw std::runtime_error("sequence " + std::to_string(seq_id) + " could not be taken back to " + std::to_string(n_past) +
                             " tokens and was cleared: " + cause);
}

} // namespace

int32_t eagle_chain_decode(eagle_context * ctx, int32_t seq_id, const int32_t * tokens, int32_t n) {
    return eagle_guard(ctx, [&]() -> int32_t {
        eagle_check_chain(*ctx, n);
        const std::vector<int32_t> seq_ids(n, seq_id);
        const std::vector<int8_t>  outputs(n, 1);
        const eagle_batch batch = { n, tokens, nullptr, seq_ids.data(), nullptr, outputs.data() };
        return eagle_decode(ctx, &batch);
    });
}

int32_t eagle_chain_keep(eagle_context * ctx, int32_t seq_id, int32_t n_past) {
    return eagle_guard(ctx, [&] { return keep(*ctx, seq_id, n_past); });
}
