// Static growth: the nodes are given, the draft fills in their tokens; only those that have children are decoded.
// draft.py's grow_static() is the same in Python and the definition; tests hold the two equal.

#include "eagle_static.h"

#include <algorithm>
#include <set>
#include <utility>

namespace {

// depths of the nodes; refuses what is no tree in level order
std::vector<int32_t> check(const eagle_static_shape & shape, int32_t n_logits) {
    if (shape.nodes < 1) {
        throw eagle_invalid("a static tree of " + std::to_string(shape.nodes) + " nodes: at least 1");
    }
    std::vector<int32_t> depths;
    std::set<std::pair<int32_t, int32_t>> seen;
    for (int32_t i = 0; i < shape.nodes; ++i) {
        const int32_t parent = shape.parents[i];
        const int32_t rank   = shape.ranks[i];
        const std::string node = "node " + std::to_string(i) + " of the static tree: ";
        if (parent < -1 || parent >= i) {
            throw eagle_invalid(node + "parent " + std::to_string(parent) + " is neither -1 nor an earlier node");
        }
        if (rank < 0 || rank >= n_logits) {
            throw eagle_invalid(node + "rank " + std::to_string(rank) + " is not in [0, " + std::to_string(n_logits) + ")");
        }
        if (!seen.insert({ parent, rank }).second) {
            throw eagle_invalid(node + "its parent has two children of rank " + std::to_string(rank));
        }
        depths.push_back(parent < 0 ? 1 : depths[parent] + 1);
        if (i > 0 && depths[i] < depths[i - 1]) {
            throw eagle_invalid(node + "depth " + std::to_string(depths[i]) + " behind " + std::to_string(depths[i - 1]) + ", use level order");
        }
    }
    return depths;
}

} // namespace

eagle_static_growth::eagle_static_growth(const eagle_static_shape & shape, int32_t n_logits) :
    shape(shape), depths(check(shape, n_logits)), has_child(shape.nodes), tokens(shape.nodes), scores(shape.nodes), rows(shape.nodes), ids(shape.nodes) {
    for (int32_t i = 0; i < shape.nodes; ++i) {
        if (shape.parents[i] >= 0) {
            has_child[shape.parents[i]] = true;
        }
    }
    last = end_of_level(0);
}

int32_t eagle_static_growth::end_of_level(int32_t node) const {
    return std::upper_bound(depths.begin(), depths.end(), depths[node]) - depths.begin();
}

int32_t eagle_static_growth::parent_row(int32_t node) const {
    return shape.parents[node] < 0 ? 0 : rows[shape.parents[node]];
}

int32_t eagle_static_growth::top_k() const {
    return 1 + *std::max_element(shape.ranks + first, shape.ranks + last);
}

void eagle_static_growth::read(const int32_t * best, const float * logp, int32_t stride) {
    for (int32_t i = first; i < last; ++i) {
        const size_t  at     = (size_t) parent_row(i) * stride + shape.ranks[i];
        const int32_t parent = shape.parents[i];
        tokens[i] = best[at];
        scores[i] = (parent < 0 ? 0.0f : scores[parent]) + std::min(logp[at], 0.0f);
    }
}

eagle_nodes eagle_static_growth::next() {
    eagle_nodes res;
    if (last == shape.nodes) {
        return res;
    }
    for (int32_t i = first; i < last; ++i) {
        if (has_child[i]) {
            res.rows.push_back(parent_row(i));
            res.parents.push_back(shape.parents[i] < 0 ? -1 : ids[shape.parents[i]]);
            rows[i] = res.tokens.size();
            ids[i]  = n_decoded++;
            res.tokens.push_back(tokens[i]);
        }
    }
    first = last;
    last  = end_of_level(first);
    return res;
}

void eagle_static_growth::write(eagle_tree & tree) const {
    std::copy(tokens.begin(), tokens.end(), tree.tokens);
    std::copy(depths.begin(), depths.end(), tree.depths);
    std::copy(scores.begin(), scores.end(), tree.scores);
    std::copy_n(shape.parents, shape.nodes, tree.parents);
    tree.n = shape.nodes;
}

std::unique_ptr<eagle_growth> eagle_grow_static(const eagle_context & ctx, const eagle_static_shape & shape) {
    return std::make_unique<eagle_static_growth>(shape, ctx.llama->n_logits());
}
