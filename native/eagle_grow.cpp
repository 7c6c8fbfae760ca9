// Dynamic growth: EAGLE-2's (arXiv 2406.16858, section 4).
// tree.py's Growth is the same in Python and the definition; tests hold the two equal.

#include "eagle_growth.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

struct candidate {
    int32_t token;
    int32_t parent; // candidate, -1: the root
    int32_t depth;
    float   score;  // cumulative log probability
};

struct dynamic_growth : eagle_growth {
    const eagle_tree_shape shape;
    std::vector<candidate> all;
    std::vector<int32_t>   beam;    // candidates to decode, best first
    std::vector<int32_t>   rows;    // their parents' rows among the outputs of the last decode
    int32_t depth     = 0;          // of the candidates read last
    int32_t parent_id = -1;         // of the beam's first parent in the draft's memory
    int32_t n_decoded = 0;

    explicit dynamic_growth(const eagle_tree_shape & shape) : shape(shape) {}

    int32_t top_k() const override {
        return shape.top_k;
    }

    // indices into [first, all.size()), best first, the smaller one wins a tie
    std::vector<int32_t> best(int32_t first, int32_t count) const {
        std::vector<int32_t> res(all.size() - first);
        std::iota(res.begin(), res.end(), first);
        std::stable_sort(res.begin(), res.end(), [&](int32_t a, int32_t b) { return all[a].score > all[b].score; });
        res.resize(std::min<size_t>(res.size(), count));
        return res;
    }

    void add_children(int32_t parent, const int32_t * ids, const float * logp) {
        const candidate from = parent < 0 ? candidate{ 0, -1, 0, 0.0f } : all[parent];
        for (int32_t j = 0; j < shape.top_k; ++j) {
            const float step = std::min(logp[j], 0.0f); // rounding above zero would put a child before its parent
            all.push_back({ ids[j], parent, from.depth + 1, from.score + step });
        }
    }

    void read(const int32_t * ids, const float * logp, int32_t stride) override {
        const int32_t first = all.size();
        if (++depth == 1) {
            beam = { -1 };
        }
        for (size_t i = 0; i < beam.size(); ++i) {
            add_children(beam[i], ids + i * stride, logp + i * stride);
        }
        beam = best(first, shape.top_k);
        if (shape.prices != nullptr) {
            beam.erase(std::find_if(beam.begin(), beam.end(), [&](int32_t i) { return all[i].score < shape.level; }), beam.end());
        }
        rows.clear();
        for (const int32_t i : beam) {
            rows.push_back((i - first) / shape.top_k);
        }
    }

    eagle_nodes next() override {
        eagle_nodes res;
        if (depth == shape.depth) {
            return res;
        }
        for (size_t i = 0; i < beam.size(); ++i) {
            res.tokens.push_back(all[beam[i]].token);
            res.parents.push_back(parent_id < 0 ? -1 : parent_id + rows[i]);
        }
        res.rows  = rows;
        parent_id = n_decoded;
        n_decoded += beam.size();
        return res;
    }

    // how many of the best nodes gain most
    size_t worthwhile(const std::vector<int32_t> & chosen) const {
        double gain = 0.0, most = 0.0;
        size_t res  = 0;
        for (size_t i = 0; i < chosen.size(); ++i) {
            gain += std::exp((double) all[chosen[i]].score);
            if (gain - shape.prices[i] > most) {
                most = gain - shape.prices[i];
                res  = i + 1;
            }
        }
        return res;
    }

    void write(eagle_tree & tree) const override {
        std::vector<int32_t> chosen = best(0, shape.nodes);
        if (shape.prices != nullptr) {
            chosen.resize(worthwhile(chosen));
        }
        std::sort(chosen.begin(), chosen.end());
        std::vector<int32_t> node_of(all.size(), -1);
        for (size_t i = 0; i < chosen.size(); ++i) {
            const candidate & c = all[chosen[i]];
            node_of[chosen[i]] = i;
            tree.tokens[i]  = c.token;
            tree.parents[i] = c.parent < 0 ? -1 : node_of[c.parent];
            tree.depths[i]  = c.depth;
            tree.scores[i]  = c.score;
        }
        tree.n = chosen.size();
    }
};

} // namespace

std::unique_ptr<eagle_growth> eagle_grow_dynamic(const eagle_context & ctx, const eagle_tree_shape & shape) {
    const int32_t n_logits = ctx.llama->n_logits();
    if (shape.nodes < 1 || shape.depth < 1 || shape.top_k < 1 || shape.top_k > n_logits) {
        throw eagle_invalid("a tree of " + std::to_string(shape.nodes) + " nodes, depth " + std::to_string(shape.depth) + " and top-k of " +
                            std::to_string(shape.top_k) + ": each must be at least 1, top-k at most " + std::to_string(n_logits));
    }
    return std::make_unique<dynamic_growth>(shape);
}
