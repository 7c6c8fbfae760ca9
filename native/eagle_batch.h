#pragma once

#include "eagle_internal.h"

// no room for the batch: reported as EAGLE_FULL
struct eagle_full : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// a batch with positions and node ids, and what the sequences become when it is decoded
struct eagle_placed_batch {
    llama_batch_ext ext;
    std::vector<eagle_sequence> seqs;
    int32_t n_outputs;
    ggml_flash_attn_rows rows;
};

// throws eagle_invalid or eagle_full
eagle_placed_batch eagle_place_batch(const eagle_context & ctx, const eagle_batch & batch);

// decode it; afterwards the sequences are what it says, or what they were. Throws eagle_full, too
int32_t eagle_decode_placed(eagle_context & ctx, eagle_placed_batch & placed);
