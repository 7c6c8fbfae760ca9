// A draft tree in one call: EAGLE-2's growth (arXiv 2406.16858, section 4), level by level on the draft's context.
// tree.py's Growth is the same in Python and the definition; tests hold the two equal.

#include "eagle_internal.h"

#include <algorithm>
#include <numeric>

namespace {

struct candidate {
    int32_t token;
    int32_t parent; // candidate, -1: the root
    int32_t depth;
    float   score;  // cumulative log probability
};

struct growth {
    eagle_context & ctx;
    int32_t seq_id;
    int32_t top_k;

    std::vector<candidate> all;
    std::vector<int32_t>   beam;    // candidates to expand, best first
    std::vector<int32_t>   rows;    // their parents' rows among the outputs of the last decode
    std::vector<int32_t>   ids;     // [n_outputs, top_k]
    std::vector<float>     logp;

    // indices into [first, all.size()), best first, the smaller one wins a tie
    std::vector<int32_t> best(int32_t first, int32_t count) const {
        std::vector<int32_t> res(all.size() - first);
        std::iota(res.begin(), res.end(), first);
        std::stable_sort(res.begin(), res.end(), [&](int32_t a, int32_t b) { return all[a].score > all[b].score; });
        res.resize(std::min<size_t>(res.size(), count));
        return res;
    }

    void read_top_k() {
        ids.resize((size_t) ctx.n_outputs * top_k);
        logp.resize(ids.size());
        if (eagle_top_k(&ctx, top_k, ids.data(), logp.data()) < 0) {
            throw eagle_invalid(ctx.error);
        }
    }

    // the children of one node: its row of the outputs
    void add_children(int32_t parent, int32_t row) {
        const candidate from = parent < 0 ? candidate{ 0, -1, 0, 0.0f } : all[parent];
        for (int32_t j = 0; j < top_k; ++j) {
            const float step = std::min(logp[row * top_k + j], 0.0f); // rounding above zero would put a child before its parent
            all.push_back({ ids[row * top_k + j], parent, from.depth + 1, from.score + step });
        }
    }

    void choose_beam(int32_t first) {
        beam = best(first, top_k);
        rows.clear();
        for (const int32_t i : beam) {
            rows.push_back((i - first) / top_k);
        }
    }

    void start(int32_t row) {
        read_top_k();
        add_children(-1, row);
        beam = best(0, top_k);
        rows.assign(beam.size(), row);
    }

    // decode the beam as nodes below the previous one, whose first node has id `parent_id`, -1: below the root
    void expand(int32_t parent_id) {
        const size_t width = llama_model_n_embd(ctx.model->llama);
        const float * hidden = eagle_hidden(&ctx);
        std::vector<float>   embd;
        std::vector<int32_t> tokens, parents, seq_ids(beam.size(), seq_id);
        std::vector<int8_t>  outputs(beam.size(), 1);
        for (size_t i = 0; i < beam.size(); ++i) {
            embd.insert(embd.end(), hidden + rows[i] * width, hidden + (rows[i] + 1) * width);
            tokens.push_back(all[beam[i]].token);
            parents.push_back(parent_id < 0 ? -1 : parent_id + rows[i]);
        }
        const eagle_batch batch = { (int32_t) beam.size(), tokens.data(), embd.data(), seq_ids.data(), parents.data(), outputs.data() };
        const int32_t code = eagle_decode(&ctx, &batch);
        if (code != EAGLE_OK) {
            throw code;
        }
        read_top_k();
        const int32_t first = all.size();
        for (size_t i = 0; i < beam.size(); ++i) {
            add_children(beam[i], i);
        }
        choose_beam(first);
    }
};

int32_t grow(growth & g, int32_t row, int32_t nodes, int32_t depth, eagle_tree & tree) {
    g.start(row);
    int32_t parent_id = -1;
    int32_t next_id   = 0;
    for (int32_t d = 1; d < depth; ++d) {
        const int32_t count = g.beam.size();
        g.expand(parent_id);
        parent_id = next_id;
        next_id += count;
    }
    std::vector<int32_t> chosen = g.best(0, nodes);
    std::sort(chosen.begin(), chosen.end());
    std::vector<int32_t> node_of(g.all.size(), -1);
    for (size_t i = 0; i < chosen.size(); ++i) {
        const candidate & c = g.all[chosen[i]];
        node_of[chosen[i]] = i;
        tree.tokens[i]  = c.token;
        tree.parents[i] = c.parent < 0 ? -1 : node_of[c.parent];
        tree.depths[i]  = c.depth;
        tree.scores[i]  = c.score;
    }
    return chosen.size();
}

} // namespace

int32_t eagle_grow(eagle_context & ctx, int32_t seq_id, const eagle_tree_shape & shape, eagle_tree & tree) {
    growth g = { ctx, seq_id, shape.top_k, {}, {}, {}, {}, {} };
    int32_t code = EAGLE_OK;
    try {
        tree.n = grow(g, ctx.n_outputs - 1, shape.nodes, shape.depth, tree);
    } catch (int32_t failed) {
        code = failed; // a decode, whose text is in the handle
    }
    const int32_t freed = eagle_commit(&ctx, seq_id, nullptr, 0);
    return code != EAGLE_OK ? code : freed;
}
