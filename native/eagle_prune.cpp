// Nodes that a sampler's grammar forbids cannot be accepted: they leave a tree before it is decoded.

#include "eagle_sampler.h"

#include "llama-vocab.h"

namespace {

struct pruning {
    const eagle_sampler & sampler;
    eagle_tree & tree;
    std::vector<bool> inner;  // by node: it has children
    std::vector<std::unique_ptr<eagle_grammar>> states; // by node, behind its token; only of inner ones that are kept
    std::vector<int32_t> kept; // by node: its new number, -1: gone

    pruning(const eagle_sampler & sampler, eagle_tree & tree) : sampler(sampler), tree(tree), inner(tree.n), states(tree.n), kept(tree.n, -1) {
        for (int32_t i = 0; i < tree.n; ++i) {
            if (tree.parents[i] >= 0) {
                inner[tree.parents[i]] = true;
            }
        }
    }

    // what a node's token follows; null where nothing can: its parent is gone or ends the text
    const eagle_grammar * before(int32_t node) const {
        const int32_t parent = tree.parents[node];
        return parent < 0 ? sampler.grammar_state() : states[parent].get();
    }

    void look_at(int32_t node) {
        const eagle_grammar * state = before(node);
        const llama_token     token = tree.tokens[node];
        if (state == nullptr || !sampler.allows(*state, token)) {
            return;
        }
        kept[node] = 0;
        if (inner[node] && !sampler.stops_at(token)) {
            states[node] = std::make_unique<eagle_grammar>(*state);
            states[node]->accept(token);
        }
    }

    void close_gaps() {
        int32_t n = 0;
        for (int32_t i = 0; i < tree.n; ++i) {
            if (kept[i] < 0) {
                continue;
            }
            tree.tokens[n]  = tree.tokens[i];
            tree.parents[n] = tree.parents[i] < 0 ? -1 : kept[tree.parents[i]];
            tree.depths[n]  = tree.depths[i];
            tree.scores[n]  = tree.scores[i];
            kept[i] = n++;
        }
        tree.n = n;
    }
};

} // namespace

void eagle_check_parents(const eagle_tree & tree) {
    for (int32_t i = 0; i < tree.n; ++i) {
        if (tree.parents[i] < -1 || tree.parents[i] >= i) {
            throw eagle_invalid("parent " + std::to_string(tree.parents[i]) + " of node " + std::to_string(i) + " is neither -1 nor an earlier node");
        }
    }
}

int32_t eagle_prune(const eagle_sampler * sampler, eagle_tree * tree) {
    return eagle_guard(sampler, [&]() -> int32_t {
        eagle_check_parents(*tree);
        if (sampler->grammar_state() != nullptr) {
            pruning p(*sampler, *tree);
            for (int32_t i = 0; i < tree->n; ++i) {
                p.look_at(i);
            }
            p.close_gaps();
        }
        return EAGLE_OK;
    });
}
