#pragma once

// The caches and states that a context's memory is made of, for calls that need more than llama.h tells.

#include "eagle_internal.h"

#include "llama-kv-cache.h"
#include "llama-memory-recurrent.h"

// in the order in which llama.cpp writes their state; of other kinds of memory nothing is listed
struct eagle_memory_parts {
    std::vector<llama_kv_cache *> caches;
    llama_memory_recurrent * recurrent = nullptr;

    bool known() const {
        return !caches.empty() || recurrent != nullptr;
    }
};

eagle_memory_parts eagle_parts_of(const eagle_context & ctx);

// do now what llama.cpp puts off until the next decode: moved positions and copies between caches
void eagle_settle(eagle_context & ctx);
