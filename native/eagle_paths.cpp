// The path verifier: a target scores each path of a tree, from the root to a leaf, as a sequence of its own.
//
// A leaf's sequence shares the cells of the prefix; a node that several paths go through is decoded once and belongs to
// all of them. What a node sees follows from sequences and positions alone, so this checks tree attention as much as it
// replaces it. Rows and cells come in the same order as there.

#include "eagle_batch.h"
#include "eagle_verifier.h"

#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"

#include <algorithm>
#include <numeric>

namespace {

// the sequence ids of a tree's leaves, in the order of its nodes
struct leaf_ids {
    int32_t first;
    int32_t n;
};

leaf_ids leaves_of(const eagle_tree & tree, int32_t first) {
    std::vector<bool> inner(tree.n, false);
    for (int32_t node = 0; node < tree.n; ++node) {
        if (tree.parents[node] >= 0) {
            inner[tree.parents[node]] = true;
        }
    }
    return { first, (int32_t) std::count(inner.begin(), inner.end(), false) };
}

// of each node the ids of the leaves below it, a leaf's own id being the only one
std::vector<std::vector<int32_t>> ids_below(const eagle_tree & tree, int32_t first) {
    std::vector<std::vector<int32_t>> res(tree.n);
    int32_t next = first + leaves_of(tree, first).n;
    for (int32_t node = tree.n - 1; node >= 0; --node) { // children come behind their parents
        if (res[node].empty()) {
            res[node].push_back(--next);
        }
        if (tree.parents[node] >= 0) {
            auto & above = res[tree.parents[node]];
            above.insert(above.end(), res[node].begin(), res[node].end());
        }
    }
    return res;
}

std::vector<leaf_ids> assign(const eagle_context & ctx, eagle_turn * const * turns, int32_t n) {
    std::vector<leaf_ids> res;
    int32_t next = ctx.seqs.size();
    for (int32_t i = 0; i < n; ++i) {
        res.push_back(leaves_of(turns[i]->tree, next));
        next += res.back().n;
    }
    const int32_t count = next - (int32_t) ctx.seqs.size();
    if (count > ctx.n_paths) {
        throw eagle_invalid("a step over trees with " + std::to_string(count) + " leaves, the context verifies " + std::to_string(ctx.n_paths) +
                            " paths at once (n_paths): draft fewer nodes, raise n_paths or use tree attention (--verify tree)");
    }
    return res;
}

// in one ubatch no cell that was decoded is looked at again before the path is kept; in a later one a window cache would
// give away those that a longer path has left behind
void check_window(const eagle_context & ctx, int32_t n_tokens, bool has_trees) {
    const int32_t n_ubatch = llama_n_ubatch(ctx.llama);
    if (has_trees && n_tokens > n_ubatch && ctx.model->llama->hparams.swa_type != LLAMA_SWA_TYPE_NONE) {
        throw eagle_invalid("a step of " + std::to_string(n_tokens) + " tokens over a sliding window, whose paths fit into " + std::to_string(n_ubatch) +
                            " (n_ubatch): draft fewer nodes or raise it");
    }
}

// from nodes of tree attention to sequences
void place_paths(eagle_placed_batch & placed, eagle_turn * const * turns, const std::vector<leaf_ids> & leaves) {
    auto token = placed.ext.tokens.begin();
    for (size_t i = 0; i < leaves.size(); ++i) {
        const eagle_turn & turn = *turns[i];
        for (int32_t k = 0; k < turn.n_tokens; ++k, ++token) {
            for (int32_t id = leaves[i].first; id < leaves[i].first + leaves[i].n; ++id) {
                token->seq_ids.insert(id);
            }
        }
        for (const auto & ids : ids_below(turn.tree, leaves[i].first)) {
            token->seq_ids = { ids.begin(), ids.end() };
            token->tree    = {};
            ++token;
        }
        placed.seqs[turn.seq_id].parents.clear();
        placed.seqs[turn.seq_id].depths.clear();
    }
}

void free_ids(eagle_context & ctx, int32_t first, int32_t n) {
    for (int32_t id = first; id < first + n; ++id) {
        ctx.memory()->seq_rm(id, -1, -1);
    }
}

// leaves' ids in use: a failed decode leaves cells to any of them, and llama.cpp cleans up behind a token's first only
struct used_ids {
    eagle_context & ctx;
    int32_t n;
    bool decoded = false;

    ~used_ids() {
        if (!decoded) {
            free_ids(ctx, ctx.seqs.size(), n);
        }
    }
};

void share_prefix(eagle_context & ctx, int32_t seq_id, const leaf_ids & leaves) {
    if (leaves.n > 0) {
        eagle_drop_behind_window(ctx, seq_id);
    }
    for (int32_t id = leaves.first; id < leaves.first + leaves.n; ++id) {
        ctx.memory()->seq_cp(seq_id, id, -1, -1);
    }
}

int32_t decode_paths(eagle_context & ctx, eagle_turn * const * turns, int32_t n) {
    const eagle_turns_batch all(turns, n);
    const eagle_batch batch = all.batch();
    eagle_placed_batch placed = eagle_place_batch(ctx, batch);

    const std::vector<leaf_ids> leaves = assign(ctx, turns, n);
    const int32_t count = leaves.back().first + leaves.back().n - (int32_t) ctx.seqs.size();
    check_window(ctx, batch.n_tokens, count > 0);
    place_paths(placed, turns, leaves);

    used_ids used = { ctx, count };
    for (int32_t i = 0; i < n; ++i) {
        ctx.leaves[turns[i]->seq_id] = leaves[i].first;
        share_prefix(ctx, turns[i]->seq_id, leaves[i]);
    }
    const int32_t code = eagle_decode_placed(ctx, placed);
    used.decoded = code == EAGLE_OK;
    return code;
}

std::vector<llama_kv_cache *> caches_of(const eagle_context & ctx) {
    if (auto * plain = dynamic_cast<llama_kv_cache *>(ctx.memory())) {
        return { plain };
    }
    if (auto * iswa = dynamic_cast<llama_kv_cache_iswa *>(ctx.memory())) {
        return { iswa->get_base(), iswa->get_swa() };
    }
    return {};
}

// attention adds up in memory order: as behind a path of tree attention, the search for free cells goes on behind it, not
// in the holes of rejected nodes. Only the commit of nodes does that, so the path's cells become nodes for a moment
void commit_cells(eagle_context & ctx, int32_t seq_id, int32_t n_path) {
    const int32_t n_past = ctx.seqs[seq_id].n_past;
    for (const llama_kv_cache * cache : caches_of(ctx)) {
        auto & cells = const_cast<llama_kv_cells &>(cache->get_cells(seq_id));
        for (uint32_t i = 0; i < cells.size(); ++i) {
            if (!cells.is_empty(i) && cells.seq_has(i, seq_id) && cells.pos_get(i) >= n_past) {
                const int32_t node = cells.pos_get(i) - n_past;
                cells.tree_set(i, { node, node - 1 });
            }
        }
    }
    std::vector<int32_t> path(n_path);
    std::iota(path.begin(), path.end(), 0);
    ctx.memory()->tree_commit(seq_id, path);
}

struct path_verifier : eagle_verifier {
    int32_t decode(eagle_context & ctx, eagle_turn * const * turns, int32_t n) const override {
        try {
            return decode_paths(ctx, turns, n);
        } catch (const eagle_full & e) {
            ctx.error = e.what();
            return EAGLE_FULL;
        }
    }

    int32_t keep(eagle_context & ctx, const eagle_turn & turn) const override {
        const leaf_ids leaves = leaves_of(turn.tree, ctx.leaves[turn.seq_id]);
        eagle_sequence & seq = ctx.seqs[turn.seq_id];
        if (turn.path.n > 0) {
            const int32_t last = turn.path.nodes[turn.path.n - 1];
            const int32_t leaf = ids_below(turn.tree, leaves.first)[last].front();
            ctx.memory()->seq_cp(leaf, turn.seq_id, seq.n_past, seq.n_past + turn.path.n);
        }
        free_ids(ctx, leaves.first, leaves.n);
        if (turn.path.n > 0) {
            commit_cells(ctx, turn.seq_id, turn.path.n);
        }
        seq.n_past += turn.path.n;
        return EAGLE_OK;
    }
};

} // namespace

const eagle_verifier & eagle_path_verifier() {
    static const path_verifier verifier;
    return verifier;
}

void eagle_check_paths(const eagle_context & ctx) {
    if (!ctx.tree || caches_of(ctx).empty()) {
        throw eagle_invalid(std::string("architecture ") + ctx.model->llama->arch_name() +
                            " keeps a memory whose cells paths cannot share: use n_paths 0 (--verify tree)");
    }
}
