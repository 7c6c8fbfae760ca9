// Batches: every argument is checked here, before llama.cpp sees it, and tree nodes get their ids and positions.

#include "eagle_batch.h"

#include <string>

namespace {

std::string at(int32_t i) {
    return " (token " + std::to_string(i) + " of the batch)";
}

int32_t seq_of(const eagle_context & ctx, const eagle_batch & batch, int32_t i) {
    const int32_t seq_id = batch.seq_ids != nullptr ? batch.seq_ids[i] : 0;
    if (seq_id < 0 || seq_id >= (int32_t) ctx.seqs.size()) {
        throw eagle_invalid("sequence id " + std::to_string(seq_id) + " is not in [0, " + std::to_string(ctx.seqs.size()) + ")" + at(i));
    }
    return seq_id;
}

void place_plain(eagle_sequence & seq, llama_batch_ext::token & token, int32_t i) {
    if (!seq.parents.empty()) {
        throw eagle_invalid("an ordinary token behind " + std::to_string(seq.parents.size()) +
                            " uncommitted nodes: commit a path first" + at(i));
    }
    token.pos[0] = seq.n_past++;
}

void place_node(eagle_sequence & seq, llama_batch_ext::token & token, int32_t parent, int32_t i, int32_t depth_before) {
    const int32_t n_nodes = seq.parents.size();
    if (parent < -1 || parent >= n_nodes) {
        throw eagle_invalid("parent " + std::to_string(parent) + " is no node of the sequence, which has " + std::to_string(n_nodes) + at(i));
    }
    if (seq.n_past == 0) {
        throw eagle_invalid("a tree needs a committed token to grow from" + at(i));
    }
    const int32_t depth = parent < 0 ? 1 : seq.depths[parent] + 1;
    if (depth < seq.max_depth()) {
        throw eagle_invalid("nodes must come in level order: depth " + std::to_string(depth) + " after " + std::to_string(seq.max_depth()) + at(i));
    }
    if (depth <= depth_before) {
        throw eagle_invalid("a later call can only add deeper nodes: depth " + std::to_string(depth) + " is there already" + at(i));
    }
    token.pos[0]      = seq.n_past + depth - 1;
    token.tree.node   = n_nodes;
    token.tree.parent = parent;
    seq.parents.push_back(parent);
    seq.depths.push_back(depth);
}

void check_shape(const eagle_context & ctx, const eagle_batch & batch) {
    const int32_t n_batch = llama_n_batch(ctx.llama);
    if (batch.n_tokens < 1 || batch.n_tokens > n_batch) {
        throw eagle_invalid("a batch of " + std::to_string(batch.n_tokens) + " tokens, the context takes 1 to " + std::to_string(n_batch) + " (n_batch)");
    }
    if (batch.tokens == nullptr) {
        throw eagle_invalid("a batch without tokens");
    }
    if (ctx.model->is_draft() != (batch.embd != nullptr)) {
        throw eagle_invalid(ctx.model->is_draft() ? "a draft decodes tokens with their features: embd is missing"
                                                  : "a target decodes tokens alone: embd is for drafts");
    }
}

void check_outputs(const eagle_context & ctx, int32_t n_outputs) {
    const int32_t limit = ctx.llama->get_cparams().n_outputs_max;
    if (n_outputs > limit) {
        throw eagle_invalid(std::to_string(n_outputs) + " rows of logits asked for, the context keeps at most " + std::to_string(limit) + " (n_outputs_max)");
    }
}

void check_length(const eagle_context & ctx, const eagle_sequence & seq, int32_t seq_id) {
    const int32_t n_ctx = llama_n_ctx_seq(ctx.llama);
    if (seq.n_past + seq.max_depth() > n_ctx) {
        throw eagle_full("sequence " + std::to_string(seq_id) + " would have " + std::to_string(seq.n_past + seq.max_depth()) +
                         " tokens, the context holds " + std::to_string(n_ctx));
    }
}

// drafts need not round alike: a token that they guess otherwise costs nothing but itself
ggml_flash_attn_rows rows_of(const eagle_context & ctx, const eagle_batch & batch) {
    if (batch.rows < EAGLE_ROWS_BY_OUTPUTS || batch.rows > EAGLE_ROWS_SINGLE) {
        throw eagle_invalid("rows " + std::to_string(batch.rows) + " is none of EAGLE_ROWS_BY_OUTPUTS, _PROMPT and _SINGLE");
    }
    if (ctx.model->is_draft()) {
        return GGML_FLASH_ATTN_ANY;
    }
    bool prompt = batch.rows == EAGLE_ROWS_PROMPT;
    for (int32_t i = 0; i < batch.n_tokens && batch.rows == EAGLE_ROWS_BY_OUTPUTS && !prompt; ++i) {
        prompt = batch.outputs != nullptr ? batch.outputs[i] == 0 : i < batch.n_tokens - 1;
    }
    return prompt ? GGML_FLASH_ATTN_TILES : GGML_FLASH_ATTN_SINGLE;
}

} // namespace

eagle_placed_batch eagle_place_batch(const eagle_context & ctx, const eagle_batch & batch) {
    check_shape(ctx, batch);

    eagle_placed_batch res = { llama_batch_ext(ctx.llama), ctx.seqs, 0, rows_of(ctx, batch) };
    const int32_t n_vocab = ctx.model->llama->vocab.n_tokens();
    const int32_t n_embd  = llama_model_n_embd(ctx.model->llama);

    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        const int32_t seq_id = seq_of(ctx, batch, i);
        const int32_t parent = batch.parents != nullptr ? batch.parents[i] : EAGLE_PLAIN;

        llama_batch_ext::token token;
        token.id = batch.tokens[i];
        if (token.id < 0 || token.id >= n_vocab) {
            throw eagle_invalid("token id " + std::to_string(token.id) + " is not in [0, " + std::to_string(n_vocab) + ")" + at(i));
        }
        token.seq_ids.insert(seq_id);
        token.output = batch.outputs != nullptr ? batch.outputs[i] != 0 : i == batch.n_tokens - 1;
        res.n_outputs += token.output;

        if (parent == EAGLE_PLAIN) {
            place_plain(res.seqs[seq_id], token, i);
        } else if (!ctx.tree) {
            throw eagle_invalid("this context cannot verify trees: its memory does not support uncommitted nodes");
        } else {
            place_node(res.seqs[seq_id], token, parent, i, ctx.seqs[seq_id].max_depth());
        }
        if (batch.embd != nullptr) {
            token.has_embd = true;
            token.embd_off = (size_t) i * n_embd;
        }
        res.ext.tokens.push_back(std::move(token));
    }
    for (size_t s = 0; s < res.seqs.size(); ++s) {
        check_length(ctx, res.seqs[s], s);
    }
    check_outputs(ctx, res.n_outputs);

    if (batch.embd != nullptr) {
        res.ext.embd.assign(batch.embd, batch.embd + (size_t) batch.n_tokens * n_embd);
        res.ext.n_embd = n_embd;
    }
    return res;
}
