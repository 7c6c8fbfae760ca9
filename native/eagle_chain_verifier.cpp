// Chains on memories that hold no trees: drafts are decoded as ordinary tokens, and the rejected ones taken back.

#include "eagle_verifier.h"

namespace {

// the decoded tokens of a turn as a chain; throws where its tree is none
void check(const eagle_context & ctx, const eagle_turn & turn) {
    for (int32_t i = 0; i < turn.tree.n; ++i) {
        if (turn.tree.parents[i] != i - 1) {
            throw eagle_invalid("this target's memory holds no trees: node " + std::to_string(i) + " is no child of the one before, draft a chain");
        }
    }
    if (turn.tree.n > 0) {
        eagle_check_chain(ctx, 1 + turn.tree.n);
    }
}

struct chain_verifier : eagle_verifier {
    int32_t decode(eagle_context & ctx, eagle_turn * const * turns, int32_t n) const override {
        for (int32_t i = 0; i < n; ++i) {
            check(ctx, *turns[i]);
            if (turns[i]->tree.n > 0 && n > 1) {
                throw eagle_invalid("chains of several sequences at once on a recurrent state are not supported: run one sequence");
            }
        }
        const eagle_turns_batch all(turns, n);
        eagle_batch batch = all.batch();
        batch.parents = nullptr; // ordinary tokens all
        return eagle_decode(&ctx, &batch);
    }

    int32_t keep(eagle_context & ctx, const eagle_turn & turn) const override {
        const int32_t rejected = turn.tree.n - turn.path.n;
        return rejected == 0 ? EAGLE_OK : eagle_chain_keep(&ctx, turn.seq_id, ctx.seqs[turn.seq_id].n_past - rejected);
    }
};

} // namespace

const eagle_verifier & eagle_chain_verifier() {
    static const chain_verifier verifier;
    return verifier;
}
