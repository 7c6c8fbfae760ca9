// Sampled growth: the nodes are given, and the i-th child of a node is the i-th token drawn, without replacement, from
// the draft's distribution behind it. residual.py's proposal() and draw_children() are the definition.

#include "eagle_rows.h"
#include "eagle_sampler.h"
#include "eagle_static.h"
#include "eagle_urn.h"

namespace {

struct sampled_growth : eagle_static_growth {
    const eagle_context & ctx;
    const eagle_sampler & sampler;
    eagle_drawn & drawn;

    sampled_growth(const eagle_context & ctx, const eagle_static_shape & shape, eagle_sampler & sampler) :
        eagle_static_growth(shape, ctx.llama->n_logits()), ctx(ctx), sampler(sampler), drawn(sampler.drawn) {
        drawn.width = ctx.llama->n_logits();
        drawn.t2d   = ctx.t2d;
        drawn.parents.assign(shape.parents, shape.parents + shape.nodes);
        drawn.rows.assign(shape.nodes, -1);
        drawn.left.assign(shape.nodes, 0.0);
        drawn.tokens.clear();
        drawn.weights.clear();
    }

    int32_t top_k() const override {
        return 0;
    }

    void read_rows(const float * logits) override {
        for (int32_t i = first; i < last; ++i) {
            if (drawn.rows[i] < 0) {
                draw_siblings(i, logits + (size_t) parent_row(i) * drawn.width);
            }
        }
        drawn.tokens.assign(tokens.begin(), tokens.begin() + last);
    }

    // of a node that is the first of its parent's
    void draw_siblings(int32_t node, const float * logits) {
        const int32_t row    = drawn.weights.size() / drawn.width;
        const int32_t parent = shape.parents[node];
        add_weights(logits);
        std::vector<float> left(drawn.weights.begin() + (size_t) row * drawn.width, drawn.weights.end());
        eagle_urn<float> urn(left.data(), left.size());
        const double whole = urn.total;
        for (int32_t i = node; i < last; ++i) {
            if (shape.parents[i] == parent) {
                drawn.rows[i] = row;
                drawn.left[i] = urn.total;
                const int32_t id = urn.find(sampler.number(eagle_sampler::draft_stream, i));
                urn.take_out(id);
                tokens[i] = ctx.d2t.empty() ? id : ctx.d2t[id];
                const double p = drawn.weights[(size_t) row * drawn.width + id] / whole;
                scores[i] = (parent < 0 ? 0.0f : scores[parent]) + (float) std::min(std::log(p), 0.0);
            }
        }
    }

    void add_weights(const float * logits) {
        const float best = eagle_row_max(logits, drawn.width);
        if (!std::isfinite(best)) {
            throw std::runtime_error("the draft computed NaN: its weights or the target's are broken, or a type overflows; decode without it (--spec off)");
        }
        const float inverse = 1.0f / sampler.heat();
        const float least   = sampler.least_kept(logits, drawn.width);
        const size_t start = drawn.weights.size();
        drawn.weights.resize(start + drawn.width);
        float * out = drawn.weights.data() + start;
        for (int32_t i = 0; i < drawn.width; ++i) {
            out[i] = eagle_exp((logits[i] - best) * inverse);
        }
        for (int32_t i = 0; i < drawn.width; ++i) { // never 0: there is always one more token to draw
            out[i] = logits[i] >= least ? out[i] : std::max(out[i] * 1e-6f, 1e-38f);
        }
    }
};

} // namespace

bool eagle_drawn::is_of(const eagle_tree & tree) const {
    return tree.n == (int32_t) tokens.size() && std::equal(tokens.begin(), tokens.end(), tree.tokens) && std::equal(parents.begin(), parents.end(), tree.parents);
}

double eagle_drawn::weight(int32_t row, int32_t token) const {
    const int32_t id = t2d == nullptr ? token : token < (int32_t) t2d->size() ? (*t2d)[token] : -1;
    return id < 0 || id >= width ? 0.0 : weights[(size_t) row * width + id];
}

std::unique_ptr<eagle_growth> eagle_grow_sampled(const eagle_context & ctx, const eagle_turn & turn) {
    if (turn.nodes == nullptr) {
        throw eagle_invalid("tokens are drawn for given nodes, and the tree is a dynamic one");
    }
    if (turn.sampler == nullptr || turn.sampler->heat() <= 0) {
        throw eagle_invalid("tokens are drawn at their sampler's temperature, and there is none above 0");
    }
    if (!ctx.d2t.empty() && ctx.t2d == nullptr) {
        throw eagle_invalid("tokens cannot be drawn: the draft's d2t maps two ids to one token");
    }
    return std::make_unique<sampled_growth>(ctx, *turn.nodes, *turn.sampler);
}
