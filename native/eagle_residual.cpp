// Acceptance of drawn trees: multi-round rejection with the residual. residual.py's accept_residual() is the definition,
// and the same law is followed here over the tokens that the target's filters leave, for the residual has no others.

#include "eagle_sampler.h"
#include "eagle_urn.h"

namespace {

// the target's distribution behind one node, and what rejections make of it
struct law {
    eagle_sampler & sampler;
    const std::vector<llama_token_data> & candidates; // by ascending id
    std::vector<double> & p; // weights, whose sum is `total`
    double total;

    law(eagle_sampler & sampler, const float * logits) : sampler(sampler), candidates(sampler.process(logits)), p(sampler.weights()) {
        total = eagle_urn<double>(p.data(), p.size()).total;
    }

    size_t place(int32_t token) const {
        return std::lower_bound(candidates.begin(), candidates.end(), token, [](const llama_token_data & t, int32_t id) { return t.id < id; }) - candidates.begin();
    }

    double of(int32_t token) const {
        const size_t at = place(token);
        return at < candidates.size() && candidates[at].id == token ? p[at] / total : 0.0;
    }

    // a child was rejected. Its earlier siblings are no longer in q, but nor are they in p, which was below q at them
    void reject(const eagle_drawn & drawn, int32_t child) {
        const double factor = total / drawn.left[child];
        std::vector<double> & residual = sampler.spare(p.size());
        for (size_t i = 0; i < p.size(); ++i) {
            residual[i] = std::max(p[i] - factor * drawn.weight(drawn.rows[child], candidates[i].id), 0.0);
        }
        const double left = eagle_urn<double>(residual.data(), residual.size()).total;
        if (left > 0.0) { // else p was q up to rounding
            std::swap(p, residual);
            total = left;
        }
    }
};

struct walk {
    eagle_turn & turn;
    eagle_sampler & sampler;
    const eagle_drawn & drawn;
    std::vector<double> coins; // of this step: accepted tokens move the sampler on
    size_t n_coins = 0;

    explicit walk(eagle_turn & turn) : turn(turn), sampler(*turn.sampler), drawn(turn.sampler->drawn) {
        for (int32_t i = 0; i < turn.tree.n; ++i) {
            coins.push_back(sampler.number(eagle_sampler::accept_stream, i));
        }
    }

    // the accepted child of a node, or -1 and the token that follows it instead
    int32_t child_of(int32_t parent, const float * logits) {
        law law(sampler, logits);
        for (int32_t node = parent + 1; node < turn.tree.n; ++node) {
            if (turn.tree.parents[node] != parent) {
                continue;
            }
            const int32_t token = turn.tree.tokens[node];
            const double  q     = drawn.weight(drawn.rows[node], token) / drawn.left[node];
            if (coins[n_coins++] * q < law.of(token)) {
                sampler.take(token);
                return node;
            }
            law.reject(drawn, node);
        }
        turn.path.next = sampler.pick(law.p);
        return -1;
    }
};

} // namespace

void eagle_descend_drawn(eagle_turn & turn, const float * logits, size_t width) {
    if (turn.sampler == nullptr || !turn.sampler->drawn.is_of(turn.tree)) {
        throw eagle_invalid("the tree is not the one whose tokens were drawn last for its sampler");
    }
    walk walk(turn);
    turn.path.n = 0;
    for (int32_t node = -1; (node = walk.child_of(node, logits + (node + 1) * width)) >= 0;) {
        if (turn.sampler->stops_at(turn.tree.tokens[node])) {
            turn.path.next = turn.tree.tokens[node];
            return;
        }
        turn.path.nodes[turn.path.n]    = node;
        turn.path.tokens[turn.path.n++] = turn.tree.tokens[node];
    }
}
