// A static draft tree in one call: the nodes are given, the draft fills in their tokens, one decode a level.
// draft.py's grow_static() is the same in Python and the definition; tests hold the two equal.

#include "eagle_internal.h"

#include <algorithm>
#include <set>
#include <utility>

namespace {

struct growth {
    eagle_context & ctx;
    const int32_t seq_id;
    const eagle_static_shape & shape;
    eagle_tree & tree;

    const std::vector<int32_t> depths;
    std::vector<bool>    has_child;
    std::vector<int32_t> rows; // by node: its row among the outputs of its level
    std::vector<int32_t> ids;  // by node: what the draft's memory calls it
    int32_t root_row;
    int32_t n_decoded = 0;

    growth(eagle_context & ctx, int32_t seq_id, const eagle_static_shape & shape, std::vector<int32_t> depths, eagle_tree & tree) :
        ctx(ctx), seq_id(seq_id), shape(shape), tree(tree), depths(std::move(depths)), has_child(shape.nodes), rows(shape.nodes),
        ids(shape.nodes), root_row(ctx.n_outputs - 1) {
        for (int32_t i = 0; i < shape.nodes; ++i) {
            if (shape.parents[i] >= 0) {
                has_child[shape.parents[i]] = true;
            }
        }
    }

    int32_t parent_row(int32_t node) const {
        return shape.parents[node] < 0 ? root_row : rows[shape.parents[node]];
    }

    // tokens of nodes [first, last), a whole level, from the outputs of their parents
    void fill(int32_t first, int32_t last) {
        const int32_t k = 1 + *std::max_element(shape.ranks + first, shape.ranks + last);
        std::vector<int32_t> best((size_t) ctx.n_outputs * k);
        std::vector<float>   logp(best.size());
        if (eagle_top_k(&ctx, k, best.data(), logp.data()) < 0) {
            throw eagle_invalid(ctx.error);
        }
        for (int32_t i = first; i < last; ++i) {
            const size_t  at     = (size_t) parent_row(i) * k + shape.ranks[i];
            const int32_t parent = shape.parents[i];
            tree.tokens[i]  = best[at];
            tree.parents[i] = parent;
            tree.depths[i]  = depths[i];
            tree.scores[i]  = (parent < 0 ? 0.0f : tree.scores[parent]) + std::min(logp[at], 0.0f);
        }
    }

    // decode the nodes of [first, last) that have children; there is at least one
    int32_t expand(int32_t first, int32_t last) {
        const size_t width = llama_model_n_embd(ctx.model->llama);
        const float * hidden = eagle_hidden(&ctx);
        std::vector<float>   embd;
        std::vector<int32_t> tokens, parents;
        for (int32_t i = first; i < last; ++i) {
            if (has_child[i]) {
                embd.insert(embd.end(), hidden + parent_row(i) * width, hidden + (parent_row(i) + 1) * width);
                parents.push_back(shape.parents[i] < 0 ? -1 : ids[shape.parents[i]]);
                rows[i] = tokens.size();
                ids[i]  = n_decoded++;
                tokens.push_back(tree.tokens[i]);
            }
        }
        const std::vector<int32_t> seq_ids(tokens.size(), seq_id);
        const std::vector<int8_t>  outputs(tokens.size(), 1);
        const eagle_batch batch = { (int32_t) tokens.size(), tokens.data(), embd.data(), seq_ids.data(), parents.data(), outputs.data() };
        return eagle_decode(&ctx, &batch);
    }

    int32_t run() {
        for (int32_t first = 0; first < shape.nodes;) {
            const int32_t last = std::upper_bound(depths.begin(), depths.end(), depths[first]) - depths.begin();
            fill(first, last);
            const int32_t code = last < shape.nodes ? expand(first, last) : EAGLE_OK;
            if (code != EAGLE_OK) {
                return code;
            }
            first = last;
        }
        tree.n = shape.nodes;
        return EAGLE_OK;
    }
};

} // namespace

// depths of the nodes; refuses what is no tree in level order
std::vector<int32_t> eagle_check_static(const eagle_context & ctx, const eagle_static_shape & shape) {
    const int32_t n_logits = ctx.llama->n_logits();
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

int32_t eagle_grow_static(eagle_context & ctx, int32_t seq_id, const eagle_static_shape & shape, std::vector<int32_t> depths, eagle_tree & tree) {
    const int32_t code  = growth(ctx, seq_id, shape, std::move(depths), tree).run();
    const int32_t freed = eagle_commit(&ctx, seq_id, nullptr, 0);
    return code != EAGLE_OK ? code : freed;
}
