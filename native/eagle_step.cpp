// The two halves of a step in one call each: a crossing from Python behind a decode finds cold caches and costs.

#include "eagle_sampler.h"

#include <algorithm>

namespace {

void check_draft(const eagle_context & ctx) {
    if (!ctx.model->is_draft()) {
        throw eagle_invalid("a tree grows on a draft, and this is a target");
    }
}

void check_shape(const eagle_context & ctx, const eagle_tree_shape & shape) {
    const int32_t n_logits = ctx.llama->n_logits();
    if (shape.nodes < 1 || shape.depth < 1 || shape.top_k < 1 || shape.top_k > n_logits) {
        throw eagle_invalid("a tree of " + std::to_string(shape.nodes) + " nodes, depth " + std::to_string(shape.depth) + " and top-k of " +
                            std::to_string(shape.top_k) + ": each must be at least 1, top-k at most " + std::to_string(n_logits));
    }
}

// encode and decode pairs; the last one gives the output that a tree grows from
int32_t decode_pairs(eagle_context & ctx, int32_t seq_id, const eagle_pairs & pairs) {
    const int32_t code = eagle_encode(&ctx, pairs.features, pairs.n);
    if (code != EAGLE_OK) {
        return code;
    }
    const float * encoded = eagle_hidden(&ctx);
    const std::vector<float>   embd(encoded, encoded + (size_t) pairs.n * llama_model_n_embd(ctx.model->llama)); // a decode overwrites it
    const std::vector<int32_t> seq_ids(pairs.n, seq_id);
    const eagle_batch batch = { pairs.n, pairs.tokens, embd.data(), seq_ids.data(), nullptr, nullptr };
    return eagle_decode(&ctx, &batch);
}

void check_sampler(const eagle_context & ctx, const eagle_sampler * sampler) {
    if (sampler != nullptr && sampler->model.llama != ctx.model->llama) {
        throw eagle_invalid("the sampler is of another model than the context");
    }
}

int32_t decode_tree(eagle_context & ctx, int32_t seq_id, int32_t root, const eagle_tree & tree) {
    const int32_t n = tree.n + 1;
    std::vector<int32_t> tokens(n, root), parents(n, EAGLE_PLAIN);
    std::copy_n(tree.tokens, tree.n, tokens.begin() + 1);
    std::copy_n(tree.parents, tree.n, parents.begin() + 1);
    const std::vector<int32_t> seq_ids(n, seq_id);
    const std::vector<int8_t>  outputs(n, 1);
    const eagle_batch batch = { n, tokens.data(), nullptr, seq_ids.data(), parents.data(), outputs.data() };
    return eagle_decode(&ctx, &batch);
}

// what follows a row: the argmax, or the sampler's draw
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
// when the path comes to it. Returns the rows of root and nodes.
std::vector<int32_t> descend(const eagle_tree & tree, choice & choice, eagle_path & path) {
    std::vector<int32_t> rows = { 0 };
    const int32_t room = path.n;
    path.n    = 0;
    path.next = choice.behind(0);
    for (int32_t node = 0; node < tree.n && !choice.stops_at(path.next); ++node) {
        if (tree.parents[node] == rows.back() - 1 && tree.tokens[node] == path.next) {
            if (path.n == room) {
                throw eagle_invalid("the tree is deeper than its depths say: " + std::to_string(room));
            }
            path.nodes[path.n]    = node;
            path.tokens[path.n++] = path.next;
            rows.push_back(node + 1);
            path.next = choice.behind(node + 1);
        }
    }
    return rows;
}

} // namespace

int32_t eagle_draft(eagle_context * ctx, int32_t seq_id, const eagle_pairs * pairs, const eagle_tree_shape * shape, eagle_tree * tree) {
    return eagle_guard(ctx, [&]() -> int32_t {
        check_draft(*ctx);
        check_shape(*ctx, *shape);
        const int32_t code = decode_pairs(*ctx, seq_id, *pairs);
        return code != EAGLE_OK ? code : eagle_grow(*ctx, seq_id, *shape, *tree);
    });
}

int32_t eagle_draft_static(eagle_context * ctx, int32_t seq_id, const eagle_pairs * pairs, const eagle_static_shape * shape, eagle_tree * tree) {
    return eagle_guard(ctx, [&]() -> int32_t {
        check_draft(*ctx);
        std::vector<int32_t> depths = eagle_check_static(*ctx, *shape);
        const int32_t code = decode_pairs(*ctx, seq_id, *pairs);
        return code != EAGLE_OK ? code : eagle_grow_static(*ctx, seq_id, *shape, std::move(depths), *tree);
    });
}

int32_t eagle_verify(eagle_context * ctx, int32_t seq_id, int32_t root, const eagle_tree * tree, eagle_sampler * sampler, eagle_path * path) {
    return eagle_guard(ctx, [&]() -> int32_t {
        check_sampler(*ctx, sampler);
        int32_t code = decode_tree(*ctx, seq_id, root, *tree);
        if (code != EAGLE_OK) {
            return code;
        }
        choice choice(*ctx, sampler);
        const std::vector<int32_t> rows = descend(*tree, choice, *path);
        code = eagle_features(ctx, rows.data(), rows.size(), path->features);
        return code != EAGLE_OK ? code : eagle_commit(ctx, seq_id, path->nodes, path->n);
    });
}
