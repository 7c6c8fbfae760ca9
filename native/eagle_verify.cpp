// The target's half of a step: one decode of all turns, then in each tree the path along the target's own tokens.

#include "eagle_rows.h"
#include "eagle_sampler.h"
#include "eagle_verifier.h"

#include <algorithm>
#include <set>

namespace {

struct tree_verifier : eagle_verifier {
    int32_t decode(eagle_context & ctx, eagle_turn * const * turns, int32_t n) const override {
        const eagle_turns_batch all(turns, n);
        const eagle_batch batch = all.batch();
        return eagle_decode(&ctx, &batch);
    }

    int32_t keep(eagle_context & ctx, const eagle_turn & turn) const override {
        return eagle_commit(&ctx, turn.seq_id, turn.path.nodes, turn.path.n);
    }
};

void check(const eagle_context & ctx, eagle_turn * const * turns, int32_t n) {
    std::set<int32_t> seen;
    for (int32_t i = 0; i < n; ++i) {
        const eagle_turn & turn = *turns[i];
        if (turn.n_tokens < 1 || turn.tree.n < 0 || turn.tree.n > (int32_t) llama_n_batch(ctx.llama) || (turn.tree.n > 0 && !turn.chooses)) {
            throw eagle_invalid("a turn decodes at least one token, and a tree only behind a root that chooses");
        }
        eagle_check_parents(turn.tree);
        if (turn.sampler != nullptr && turn.sampler->model.llama != ctx.model->llama) {
            throw eagle_invalid("the sampler is of another model than the context");
        }
        if (turn.scores != nullptr && turn.scores->k < 0) {
            throw eagle_invalid("log probabilities of " + std::to_string(turn.scores->k) + " tokens: 0 or more");
        }
        if (!seen.insert(turn.seq_id).second) {
            throw eagle_invalid("sequence " + std::to_string(turn.seq_id) + " has two turns in a step");
        }
    }
}

// what follows a row of logits: the argmax, or the sampler's draw
struct choice {
    eagle_context & ctx;
    eagle_sampler * sampler;

    choice(eagle_context & ctx, eagle_sampler * sampler) : ctx(ctx), sampler(sampler) {
        if (sampler != nullptr && sampler->is_argmax()) {
            this->sampler = nullptr;
        }
    }

    int32_t behind(int32_t row) {
        return sampler != nullptr ? sampler->draw(eagle_logits(&ctx) + (size_t) row * ctx.llama->n_logits()) : eagle_argmax_of(ctx, row);
    }

    bool stops_at(int32_t token) const {
        return sampler != nullptr && sampler->stops_at(token);
    }
};

// acceptance.py's accept_tokens(): level order, so one pass finds the whole path, and a row is asked for its token only
// when the path comes to it. row: of the root among the outputs.
void descend(eagle_turn & turn, choice & choice, int32_t row) {
    const eagle_tree & tree = turn.tree;
    eagle_path & path = turn.path;
    path.n    = 0;
    path.next = choice.behind(row);
    int32_t last = -1;
    for (int32_t node = 0; node < tree.n && !choice.stops_at(path.next); ++node) {
        if (tree.parents[node] == last && tree.tokens[node] == path.next) {
            path.nodes[path.n]    = node;
            path.tokens[path.n++] = path.next;
            last = node;
            path.next = choice.behind(row + 1 + node);
        }
    }
}

// log probabilities of a token and of the likeliest ones; at: its index among those that the turn emits
void score(const eagle_scores & scores, const float * row, int32_t n, int32_t token, int32_t at) {
    const float max = eagle_row_max(row, n);
    if (!std::isfinite(max)) {
        throw std::runtime_error("a row of logits has no log probabilities");
    }
    scores.logp[at] = (float) (row[token] - eagle_row_log_sum_exp(row, n, max));
    int32_t * top      = scores.top + (size_t) at * scores.k;
    float   * top_logp = scores.top_logp + (size_t) at * scores.k;
    const int32_t k = std::min(scores.k, n);
    std::fill(top, top + scores.k, -1);
    if (k > 0 && !eagle_row_top_k(row, n, k, top, top_logp)) {
        throw std::runtime_error("a row of logits has fewer than " + std::to_string(k) + " numbers");
    }
}

// of the path and the token behind it, however they were chosen. row: of the root among the outputs
void score_path(eagle_context & ctx, const eagle_turn & turn, int32_t row) {
    const int32_t width  = ctx.llama->n_logits();
    const float * logits = eagle_logits(&ctx) + (size_t) row * width;
    const eagle_path & path = turn.path;
    for (int32_t i = 0; i <= path.n; ++i) {
        const size_t behind = i == 0 ? 0 : 1 + path.nodes[i - 1];
        score(*turn.scores, logits + behind * width, width, i < path.n ? path.tokens[i] : path.next, i);
    }
}

// a failure concerns this turn alone
void choose(eagle_context & ctx, eagle_turn & turn, int32_t row) {
    choice choice(ctx, turn.sampler);
    turn.code = eagle_guard(&ctx, [&]() -> int32_t {
        if (turn.drawn && turn.tree.n > 0) {
            const size_t width = ctx.llama->n_logits();
            eagle_descend_drawn(turn, eagle_logits(&ctx) + row * width, width);
        } else {
            descend(turn, choice, row);
        }
        if (turn.scores != nullptr) {
            score_path(ctx, turn, row);
        }
        return EAGLE_OK;
    });
    if (turn.code != EAGLE_OK) {
        turn.path.n = 0;
        eagle_copy_text(ctx.error, turn.error, sizeof(turn.error));
    }
}

int32_t verify(eagle_context & ctx, eagle_turn * const * turns, int32_t n) {
    check(ctx, turns, n);
    for (int32_t i = 0; i < n; ++i) {
        eagle_turn & turn = *turns[i];
        const bool prunes = turn.sampler != nullptr && turn.tree.n > 0 && !turn.drawn; // what was drawn is rejected by its rule
        if (prunes && eagle_prune(turn.sampler, &turn.tree) != EAGLE_OK) {
            throw std::runtime_error(turn.sampler->error);
        }
    }
    const eagle_verifier & verifier = ctx.n_paths > 0 ? eagle_path_verifier() : ctx.tree ? eagle_tree_verifier() : eagle_chain_verifier();
    const int32_t code = verifier.decode(ctx, turns, n);
    if (code != EAGLE_OK) {
        return code;
    }
    int32_t row = 0;
    for (int32_t i = 0; i < n; ++i) {
        eagle_turn & turn = *turns[i];
        turn.code   = EAGLE_OK;
        turn.path.n = 0;
        if (turn.chooses) {
            choose(ctx, turn, row);
            row += 1 + turn.tree.n;
            const int32_t kept = verifier.keep(ctx, turn);
            if (kept != EAGLE_OK) {
                return kept;
            }
        }
    }
    return EAGLE_OK;
}

} // namespace

eagle_turns_batch::eagle_turns_batch(eagle_turn * const * turns, int32_t n) {
    for (int32_t i = 0; i < n; ++i) {
        const eagle_turn & turn = *turns[i];
        rows = turn.prompt ? EAGLE_ROWS_PROMPT : rows;
        tokens.insert(tokens.end(), turn.tokens, turn.tokens + turn.n_tokens);
        tokens.insert(tokens.end(), turn.tree.tokens, turn.tree.tokens + turn.tree.n);
        parents.resize(parents.size() + turn.n_tokens, EAGLE_PLAIN);
        parents.insert(parents.end(), turn.tree.parents, turn.tree.parents + turn.tree.n);
        outputs.resize(outputs.size() + turn.n_tokens, 0);
        outputs.back() = turn.chooses != 0;
        outputs.resize(outputs.size() + turn.tree.n, 1);
        seq_ids.resize(tokens.size(), turn.seq_id);
    }
}

const eagle_verifier & eagle_tree_verifier() {
    static const tree_verifier verifier;
    return verifier;
}

int32_t eagle_verify(eagle_context * ctx, eagle_turn * const * turns, int32_t n) {
    return eagle_guard(ctx, [&] { return verify(*ctx, turns, n); });
}
