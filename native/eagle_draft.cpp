// The draft's half of a step: it sees what is pending, then grows the trees of all turns level by level, so that a step
// takes as many decodes as its deepest tree has levels, whatever the number of sequences.

#include "eagle_growth.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace {

// pairs to encode and decode, rows of several sequences
struct pairs {
    std::vector<int32_t> tokens, seq_ids;
    std::vector<int8_t>  outputs;
    std::vector<float>   features;

    void add(int32_t seq_id, int32_t token, const float * feature, size_t width, bool output) {
        tokens.push_back(token);
        seq_ids.push_back(seq_id);
        outputs.push_back(output);
        features.insert(features.end(), feature, feature + width);
    }

    int32_t size() const {
        return tokens.size();
    }
};

int32_t decode_piece(eagle_context & ctx, const pairs & all, int32_t first, int32_t n) {
    const int32_t code = eagle_encode(&ctx, all.features.data() + first * eagle_feature_width(ctx), n);
    if (code != EAGLE_OK) {
        return code;
    }
    const float * encoded = eagle_hidden(&ctx);
    const std::vector<float> embd(encoded, encoded + (size_t) n * llama_model_n_embd(ctx.model->llama)); // a decode overwrites it
    const eagle_batch batch = { n, all.tokens.data() + first, embd.data(), all.seq_ids.data() + first, nullptr, all.outputs.data() + first };
    return eagle_decode(&ctx, &batch);
}

// the last piece is as large as it can be: rows with outputs come last, and their results must be there afterwards
int32_t decode_pairs(eagle_context & ctx, const pairs & all) {
    const int32_t most = std::min(llama_n_ubatch(ctx.llama), llama_n_batch(ctx.llama));
    for (int32_t first = 0; first < all.size();) {
        const int32_t left = all.size() - first;
        const int32_t n    = left % most != 0 ? left % most : most;
        const int32_t code = decode_piece(ctx, all, first, n);
        if (code != EAGLE_OK) {
            return code;
        }
        first += n;
    }
    return EAGLE_OK;
}

struct drafting {
    eagle_turn & turn;
    std::unique_ptr<eagle_growth> growth;
    int32_t first_row; // of its outputs of the last decode
    bool grows = true;
};

std::unique_ptr<eagle_growth> growth_of(const eagle_context & ctx, const eagle_turn & turn) {
    if (turn.drawn) {
        return eagle_grow_sampled(ctx, turn);
    }
    return turn.shape != nullptr ? eagle_grow_dynamic(ctx, *turn.shape) : eagle_grow_static(ctx, *turn.nodes);
}

// those whose tree is to grow
std::vector<drafting> drafting_turns(const eagle_context & ctx, eagle_turn * const * turns, int32_t n) {
    std::vector<drafting> res;
    for (int32_t i = 0; i < n; ++i) {
        eagle_turn & turn = *turns[i];
        if (turn.shape == nullptr && turn.nodes == nullptr) {
            continue; // the tree is as it is given
        }
        turn.tree.n = turn.tree.n_levels = 0;
        if (eagle_n_pending(&ctx, turn.seq_id) > 0) {
            res.push_back({ turn, growth_of(ctx, turn), (int32_t) res.size() });
        }
    }
    return res;
}

void check(const eagle_context & ctx, const std::vector<drafting> & all) {
    const int32_t most = std::min(llama_n_ubatch(ctx.llama), llama_n_batch(ctx.llama));
    if ((int32_t) all.size() > most) {
        throw eagle_invalid(std::to_string(all.size()) + " trees at once, a batch of the draft has room for " + std::to_string(most) + " roots");
    }
    std::set<int32_t> seen;
    for (const drafting & d : all) {
        eagle_sequence_of(ctx, d.turn.seq_id);
        if (d.turn.n_tokens < 1) {
            throw eagle_invalid("a tree grows behind a root, and the turn has no token");
        }
        if (!seen.insert(d.turn.seq_id).second) {
            throw eagle_invalid("sequence " + std::to_string(d.turn.seq_id) + " has two turns in a step");
        }
        const eagle_pending & pending = ctx.pending[d.turn.seq_id];
        if (pending.n_rows != (int32_t) pending.tokens.size() + 1) {
            throw eagle_invalid("the last token of sequence " + std::to_string(d.turn.seq_id) + " was not observed");
        }
    }
}

// everything pending, the roots last
pairs pending_pairs(const eagle_context & ctx, const std::vector<drafting> & all) {
    const size_t width = eagle_feature_width(ctx);
    pairs res;
    for (const drafting & d : all) {
        const eagle_pending & pending = ctx.pending[d.turn.seq_id];
        for (size_t i = 0; i < pending.tokens.size(); ++i) {
            res.add(d.turn.seq_id, pending.tokens[i], pending.features.data() + i * width, width, false);
        }
    }
    for (const drafting & d : all) {
        const eagle_pending & pending = ctx.pending[d.turn.seq_id];
        res.add(d.turn.seq_id, d.turn.tokens[d.turn.n_tokens - 1], pending.features.data() + pending.tokens.size() * width, width, true);
    }
    return res;
}

// the next level's nodes of one turn, into a batch of all
void add_level(const eagle_context & ctx, drafting & d, const float * hidden, pairs & level, std::vector<int32_t> & parents) {
    const size_t width = llama_model_n_embd(ctx.model->llama);
    const eagle_nodes nodes = d.growth->next();
    const int32_t first = level.size();
    for (size_t i = 0; i < nodes.tokens.size(); ++i) {
        level.add(d.turn.seq_id, nodes.tokens[i], hidden + (d.first_row + nodes.rows[i]) * width, width, true);
        parents.push_back(nodes.parents[i]);
    }
    d.grows     = !nodes.tokens.empty();
    d.first_row = first;
}

// what the draft says behind the nodes of one turn; k: tokens of a row in ids and logp
void read(eagle_context & ctx, drafting & d, const std::vector<int32_t> & ids, const std::vector<float> & logp, int32_t k) {
    const size_t first = d.first_row;
    if (d.growth->top_k() == 0) {
        d.growth->read_rows(eagle_logits(&ctx) + first * ctx.llama->n_logits());
    } else {
        d.growth->read(ids.data() + first * k, logp.data() + first * k, k);
    }
}

int32_t grow(eagle_context & ctx, std::vector<drafting> & all) {
    std::vector<int32_t> ids;
    std::vector<float>   logp;
    while (true) {
        int32_t k = 0;
        for (const drafting & d : all) {
            k = d.grows ? std::max(k, d.growth->top_k()) : k;
        }
        ids.resize((size_t) ctx.n_outputs * k);
        logp.resize(ids.size());
        const int32_t rows = k > 0 ? eagle_top_k(&ctx, k, ids.data(), logp.data()) : EAGLE_OK;
        if (rows < 0) {
            return rows;
        }
        pairs level;
        std::vector<int32_t> parents;
        for (drafting & d : all) {
            if (d.grows) {
                read(ctx, d, ids, logp, k);
                ++d.turn.tree.n_levels;
                add_level(ctx, d, eagle_hidden(&ctx), level, parents);
            }
        }
        if (level.size() == 0) {
            return EAGLE_OK;
        }
        const eagle_batch batch = { level.size(), level.tokens.data(), level.features.data(), level.seq_ids.data(), parents.data(), level.outputs.data() };
        const int32_t code = eagle_decode(&ctx, &batch);
        if (code != EAGLE_OK) {
            return code;
        }
    }
}

float promised(const eagle_tree & tree) {
    float res = 0.0f;
    for (int32_t i = 0; i < tree.n; ++i) {
        res += std::exp(tree.scores[i]);
    }
    return res;
}

int32_t draft(eagle_context & ctx, eagle_turn * const * turns, int32_t n) {
    if (!ctx.model->is_draft()) {
        throw eagle_invalid("a tree grows on a draft, and this is a target");
    }
    std::vector<drafting> all = drafting_turns(ctx, turns, n);
    check(ctx, all);
    if (all.empty()) {
        return EAGLE_OK;
    }
    int32_t code = decode_pairs(ctx, pending_pairs(ctx, all));
    code = code != EAGLE_OK ? code : eagle_guard(&ctx, [&] { return grow(ctx, all); });
    for (drafting & d : all) {
        ctx.pending[d.turn.seq_id] = {}; // after a failure, too: what the memory holds is a true beginning
        const std::string error = ctx.error;
        const int32_t freed = eagle_commit(&ctx, d.turn.seq_id, nullptr, 0);
        if (code != EAGLE_OK) {
            ctx.error = error;
        }
        code = code != EAGLE_OK ? code : freed;
        if (code == EAGLE_OK) {
            d.growth->write(d.turn.tree);
            d.turn.tree.promised = promised(d.turn.tree);
        }
    }
    return code;
}

int32_t catch_up(eagle_context & ctx, int32_t seq_id) {
    eagle_sequence_of(ctx, seq_id);
    eagle_pending & pending = ctx.pending[seq_id];
    const size_t  width = eagle_feature_width(ctx);
    const int32_t n     = pending.tokens.size();
    pairs all;
    for (int32_t i = 0; i < n; ++i) {
        all.add(seq_id, pending.tokens[i], pending.features.data() + i * width, width, i == n - 1);
    }
    const int32_t code = decode_pairs(ctx, all);
    if (code != EAGLE_OK) {
        pending = {};
        return code;
    }
    pending.tokens.clear();
    pending.features.erase(pending.features.begin(), pending.features.begin() + n * width);
    pending.n_rows -= n;
    return EAGLE_OK;
}

} // namespace

int32_t eagle_draft(eagle_context * ctx, eagle_turn * const * turns, int32_t n) {
    return eagle_guard(ctx, [&] { return draft(*ctx, turns, n); });
}

int32_t eagle_catch_up(eagle_context * ctx, int32_t seq_id) {
    return eagle_guard(ctx, [&]() -> int32_t {
        if (!ctx->model->is_draft()) {
            throw eagle_invalid("features are for a draft to see, and this is a target");
        }
        return catch_up(*ctx, seq_id);
    });
}
