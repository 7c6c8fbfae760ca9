#pragma once

// The recurrent part of a memory. It keeps one state a sequence, which every decode overwrites; with rollback, also the
// states behind each of the last tokens of the decode ("snapshots").

#include "eagle_internal.h"

#include "llama-memory-recurrent.h"

// where the states of the sequences lie, and how far back of what is stored there each of them is
struct eagle_state_places {
    std::vector<int32_t>  tails;
    std::vector<uint32_t> rs_idx;
};

// the recurrent part, alone or in a hybrid memory; nullptr: there is none
llama_memory_recurrent * eagle_recurrent(const eagle_context & ctx);

// tokens that a chain may be taken back by: as asked for, 0 where the memory cannot
int32_t eagle_rollback_limit(const eagle_context & ctx, int32_t asked);

// bytes of the states of all sequences with their snapshots; 0: there are none
int64_t eagle_state_bytes(const eagle_context & ctx);

eagle_state_places eagle_state_look(const eagle_context & ctx);

// after a decode, whose batch brought the sequences from those of the context to `seqs`: which snapshots they have now
void eagle_state_decoded(const eagle_context & ctx, const llama_batch_ext & batch, std::vector<eagle_sequence> & seqs);

// after a failed decode: whether the state of a sequence that the batch left alone has been moved, perhaps unfinished
bool eagle_state_moved(const eagle_context & ctx, const eagle_state_places & before, int32_t seq_id);

// after a failed decode, once what it damaged was cleared: free cells hold no state that a new sequence could begin with
void eagle_state_failed(const eagle_context & ctx);

// refuse what a state cannot forget; the snapshots hold for one removal
void eagle_state_check_rm(const eagle_context & ctx, const eagle_sequence & seq, int32_t p0, int32_t p1);

// a sequence that was taken back stores its state anew, so that others may share it
void eagle_state_settle(const eagle_context & ctx, int32_t seq_id);
