// What a draft still has to see of each sequence. The pairing is EAGLE's: cell i of the draft holds (feature of position
// i, token at position i + 1).

#include "eagle_internal.h"

#include <algorithm>

namespace {

eagle_pending & pending_of(eagle_context & ctx, int32_t seq_id) {
    if (!ctx.model->is_draft()) {
        throw eagle_invalid("features are for a draft to see, and this is a target");
    }
    eagle_sequence_of(ctx, seq_id);
    return ctx.pending[seq_id];
}

void observe(eagle_context & ctx, int32_t seq_id, const int32_t * tokens, const float * features, int32_t n) {
    eagle_pending & pending = pending_of(ctx, seq_id);
    if (n < 1) {
        throw eagle_invalid("nothing to observe: " + std::to_string(n) + " tokens");
    }
    const bool follows = pending.n_rows > 0; // the first token is the one behind the last row
    pending.tokens.insert(pending.tokens.end(), tokens + (follows ? 0 : 1), tokens + n);
    pending.features.insert(pending.features.end(), features, features + (size_t) n * eagle_feature_width(ctx));
    pending.n_rows += n;
}

} // namespace

int32_t eagle_observe(eagle_context * ctx, int32_t seq_id, const int32_t * tokens, const float * features, int32_t n) {
    return eagle_guard(ctx, [&]() -> int32_t {
        observe(*ctx, seq_id, tokens, features, n);
        return EAGLE_OK;
    });
}

int32_t eagle_forget(eagle_context * ctx, int32_t seq_id) {
    return eagle_guard(ctx, [&]() -> int32_t {
        pending_of(*ctx, seq_id) = {};
        return EAGLE_OK;
    });
}

int32_t eagle_n_pending(const eagle_context * ctx, int32_t seq_id) {
    return seq_id < 0 || seq_id >= (int32_t) ctx->pending.size() ? 0 : ctx->pending[seq_id].n_rows;
}

int32_t eagle_pending_read(const eagle_context * ctx, int32_t seq_id, int32_t * tokens, float * features) {
    if (eagle_n_pending(ctx, seq_id) == 0) {
        return 0;
    }
    const eagle_pending & pending = ctx->pending[seq_id];
    std::copy(pending.tokens.begin(), pending.tokens.end(), tokens);
    std::copy(pending.features.begin(), pending.features.end(), features);
    return pending.tokens.size();
}
