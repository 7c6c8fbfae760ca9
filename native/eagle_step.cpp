// A step in one call: a crossing from Python behind a decode finds cold caches and costs.

#include "eagle_internal.h"

#include <chrono>

namespace {

using seconds_clock = std::chrono::steady_clock;

double since(seconds_clock::time_point start) {
    return std::chrono::duration<double>(seconds_clock::now() - start).count();
}

// graphs of both contexts so far
eagle_context_stats count(const eagle_context & target, const eagle_context * draft) {
    eagle_context_stats res, more = {};
    eagle_context_count(&target, &res);
    if (draft != nullptr) {
        eagle_context_count(draft, &more);
    }
    res.n_built  += more.n_built;
    res.n_reused += more.n_reused;
    return res;
}

// the draft sees every token that the target kept; row: of the turn's first token in the target's batch
int32_t observe(eagle_context & target, eagle_context & draft, const eagle_turn & turn, int32_t row) {
    std::vector<int32_t> tokens(turn.tokens, turn.tokens + turn.n_tokens);
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < turn.n_tokens; ++i) {
        rows.push_back(row + i);
    }
    for (int32_t i = 0; i < turn.path.n; ++i) {
        tokens.push_back(turn.path.tokens[i]);
        rows.push_back(row + turn.n_tokens + turn.path.nodes[i]);
    }
    std::vector<float> features(rows.size() * eagle_feature_width(draft));
    int32_t code = eagle_features(&target, rows.data(), rows.size(), features.data());
    if (code != EAGLE_OK) {
        return code;
    }
    code = eagle_observe(&draft, turn.seq_id, tokens.data(), features.data(), tokens.size());
    if (code == EAGLE_OK && draft.pending[turn.seq_id].n_rows > (int32_t) llama_n_ubatch(draft.llama)) {
        code = eagle_catch_up(&draft, turn.seq_id); // a long prompt's features are not kept
    }
    if (code != EAGLE_OK) {
        target.error = draft.error;
    }
    return code;
}

int32_t step(eagle_context & target, eagle_context * draft, eagle_turn * const * turns, int32_t n, eagle_seconds & seconds) {
    if (draft != nullptr && eagle_feature_width(target) != eagle_feature_width(*draft)) {
        throw eagle_invalid("the target gives features of " + std::to_string(eagle_feature_width(target)) + " values, the draft reads " +
                            std::to_string(eagle_feature_width(*draft)) + ": make the context with the draft's features");
    }
    const eagle_context_stats before = count(target, draft);
    auto start = seconds_clock::now();
    int32_t code = draft != nullptr ? eagle_draft(draft, turns, n) : EAGLE_OK;
    if (code != EAGLE_OK) {
        target.error = draft->error;
        return code;
    }
    seconds.draft += since(start);
    start = seconds_clock::now();
    code = eagle_verify(&target, turns, n);
    int32_t row = 0;
    for (int32_t i = 0; i < n && code == EAGLE_OK; ++i) {
        if (draft != nullptr && turns[i]->observed) {
            code = observe(target, *draft, *turns[i], row);
        }
        row += turns[i]->n_tokens + turns[i]->tree.n;
    }
    seconds.verify += since(start);
    const eagle_context_stats after = count(target, draft);
    for (int32_t i = 0; i < n; ++i) {
        turns[i]->n_built  = after.n_built  - before.n_built;
        turns[i]->n_reused = after.n_reused - before.n_reused;
    }
    return code;
}

} // namespace

int32_t eagle_step(eagle_context * target, eagle_context * draft, eagle_turn * const * turns, int32_t n, eagle_seconds * seconds) {
    return eagle_guard(target, [&] { return step(*target, draft, turns, n, *seconds); });
}
