// The state of one sequence as bytes: what its caches hold.

#include "eagle_batch.h"
#include "eagle_parts.h"

#include "llama-kv-cache-iswa.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"

#include <algorithm>
#include <cstring>
#include <typeinfo>

namespace {

constexpr uint32_t  STATE_MAGIC   = 0xaf143cd8; // llama.cpp's, of one sequence
constexpr llama_pos MOST_POSITION = 1 << 30;

// reads the bytes of a state without llama.cpp, and never behind their end
class state_reader {
public:
    state_reader(const void * data, size_t size) : at((const uint8_t *) data), left(size) {}

    template <typename T> T take() {
        T value;
        need(sizeof(T), 1);
        memcpy(&value, at, sizeof(T));
        skip(sizeof(T));
        return value;
    }

    void skip(uint64_t size, uint64_t count = 1) {
        need(size, count);
        at   += size * count;
        left -= size * count;
    }

    bool at_end() const {
        return left == 0;
    }

private:
    void need(uint64_t size, uint64_t count) const {
        if (count != 0 && size > left / count) {
            throw eagle_invalid("the state ends too early: it was cut, or is not of this kind of memory");
        }
    }

    const uint8_t * at;
    size_t left;
};

[[noreturn]] void broken(const std::string & what) {
    throw eagle_invalid("the state is damaged, or not of this kind of memory: " + what);
}

// cells that a sequence may take: free ones, and those that are its alone
uint32_t room(const llama_kv_cache & cache, int32_t seq_id) {
    const llama_kv_cells & cells = cache.get_cells(seq_id);
    uint32_t res = cells.size() - cells.get_used();
    for (uint32_t i = 0; i < cells.size(); ++i) {
        res += !cells.is_empty(i) && cells.seq_has(i, seq_id) && cells.seq_count(i) == 1;
    }
    return res;
}

// the keys and values behind the positions describe themselves
void skip_rows(state_reader & in, uint32_t n_cells, bool has_v) {
    const bool v_trans = in.take<uint32_t>() != 0;
    const uint32_t n_layer = in.take<uint32_t>();
    if (n_layer > LLAMA_MAX_LAYERS) {
        broken(std::to_string(n_layer) + " layers");
    }
    for (uint32_t i = 0; i < n_layer; ++i) {
        in.take<int32_t>(); // type
        in.skip(in.take<uint64_t>(), n_cells);
    }
    for (uint32_t i = 0; has_v && i < n_layer; ++i) {
        in.take<int32_t>(); // type
        if (v_trans) {
            const uint64_t size = in.take<uint32_t>();
            in.skip(size * in.take<uint32_t>(), n_cells);
        } else {
            in.skip(in.take<uint64_t>(), n_cells);
        }
    }
}

// llama.cpp takes any position from a state, and never frees a negative one: the last position of a cache, -1 without any
llama_pos check_cache(state_reader & in, const llama_kv_cache & cache, const llama_hparams & hparams, int32_t seq_id, bool window) {
    const uint32_t n_stream = in.take<uint32_t>();
    if (n_stream != cache.get_n_stream()) {
        throw eagle_invalid("the state is of a context with " + std::to_string(n_stream) + " separate caches, this one has " +
                            std::to_string(cache.get_n_stream()) + ": kv_unified or n_seq_max differs");
    }
    std::vector<llama_pos> positions;
    for (uint32_t s = 0; s < n_stream; ++s) {
        const uint32_t count = in.take<uint32_t>();
        if (count == 0) {
            continue;
        }
        if (!positions.empty()) {
            broken("one sequence in two caches");
        }
        if (count > (window ? cache.get_size() : room(cache, seq_id))) {
            throw eagle_full("no free cells for a state of " + std::to_string(count) + " tokens");
        }
        for (uint32_t i = 0; i < count; ++i) {
            positions.push_back(in.take<llama_pos>());
            if (in.take<uint32_t>() != 1) {
                broken("a cell of several sequences");
            }
            in.skip((cache.has_cell_ext() ? sizeof(llama_kv_cell_ext) : 0) + sizeof(llama_seq_id));
        }
        skip_rows(in, count, !hparams.is_mla());
    }
    if (positions.empty()) {
        return -1;
    }
    std::sort(positions.begin(), positions.end());
    if (positions.front() < 0 || positions.back() >= MOST_POSITION || std::adjacent_find(positions.begin(), positions.end()) != positions.end()) {
        broken("its positions");
    }
    return positions.back();
}

llama_pos check_recurrent(state_reader & in) {
    const uint32_t count = in.take<uint32_t>();
    if (count == 0) {
        return -1;
    }
    const llama_pos pos = in.take<llama_pos>();
    if (count != 1 || pos < 0 || pos >= MOST_POSITION || in.take<uint32_t>() != 0) {
        broken("its positions");
    }
    return pos; // the rows behind it are read with their sizes compared
}

const eagle_memory_parts checked_parts(const eagle_context & ctx) {
    eagle_memory_parts parts = eagle_parts_of(ctx);
    if (!parts.known()) {
        throw eagle_invalid(std::string("architecture ") + ctx.model->llama->arch_name() + " has a memory whose state cannot be saved here");
    }
    return parts;
}

// the last position of the sequence; throws where llama.cpp must not see the bytes
llama_pos check_state(const eagle_context & ctx, int32_t seq_id, const void * data, int64_t size) {
    const eagle_memory_parts parts = checked_parts(ctx);
    state_reader in(data, size);
    if (in.take<uint32_t>() != STATE_MAGIC) {
        broken("it does not begin like one");
    }
    in.take<llama_seq_id>();
    std::vector<llama_pos> last;
    for (const llama_kv_cache * cache : parts.caches) {
        last.push_back(check_cache(in, *cache, ctx.model->llama->hparams, seq_id, !last.empty()));
    }
    if (parts.recurrent != nullptr) {
        last.push_back(check_recurrent(in));
    } else if (!in.at_end()) {
        broken("bytes behind its end");
    }
    if (std::count(last.begin(), last.end(), last[0]) != (ptrdiff_t) last.size()) {
        broken("its parts end at different positions");
    }
    const int64_t n_ctx = llama_n_ctx_seq(ctx.llama);
    if (last[0] >= n_ctx) {
        throw eagle_full("the state has " + std::to_string(last[0] + 1) + " tokens, the context holds " + std::to_string(n_ctx));
    }
    return last[0];
}

int64_t state_size(eagle_context & ctx, int32_t seq_id) {
    eagle_committed_sequence(ctx, seq_id);
    checked_parts(ctx);
    eagle_settle(ctx);
    eagle_log_take_error(); // an earlier call's
    const size_t size = llama_state_seq_get_size(ctx.llama, seq_id);
    if (size == 0) {
        throw std::runtime_error("llama.cpp could not measure the state: " + eagle_log_take_error());
    }
    return size;
}

int32_t state_get(eagle_context & ctx, int32_t seq_id, void * out, int64_t size) {
    const int64_t needed = state_size(ctx, seq_id);
    if (size < needed) {
        throw eagle_invalid("a buffer of " + std::to_string(size) + " bytes, the state has " + std::to_string(needed));
    }
    if ((int64_t) llama_state_seq_get_data(ctx.llama, (uint8_t *) out, size, seq_id) != needed) {
        throw std::runtime_error("llama.cpp could not write the state: " + eagle_log_take_error());
    }
    return EAGLE_OK;
}

int32_t state_set(eagle_context & ctx, int32_t seq_id, const void * data, int64_t size) {
    eagle_sequence & seq = eagle_committed_sequence(ctx, seq_id);
    if (data == nullptr || size < 0) {
        throw eagle_invalid("a state of " + std::to_string(size) + " bytes");
    }
    const llama_pos last = check_state(ctx, seq_id, data, size);
    eagle_settle(ctx); // a copy put off would be made over what comes now
    eagle_log_take_error();
    ctx.memory()->seq_rm(seq_id, -1, -1); // an empty state would leave what is there
    seq = {};
    const size_t n_read = llama_state_seq_set_data(ctx.llama, (const uint8_t *) data, size, seq_id);
    if (n_read != (size_t) size || ctx.memory()->seq_pos_max(seq_id) != last) {
        ctx.memory()->seq_rm(seq_id, -1, -1);
        throw std::runtime_error("the state was not taken, and sequence " + std::to_string(seq_id) + " is empty now: " + eagle_log_take_error());
    }
    seq.n_past = last + 1;
    return EAGLE_OK;
}

} // namespace

eagle_memory_parts eagle_parts_of(const eagle_context & ctx) {
    llama_memory_i * memory = ctx.memory();
    const std::type_info & type = typeid(*memory); // the kind itself: what derives from it may keep more
    eagle_memory_parts parts;
    const auto add_iswa = [&](const llama_kv_cache_iswa * iswa) { parts.caches = { iswa->get_base(), iswa->get_swa() }; };
    if (type == typeid(llama_kv_cache)) {
        parts.caches = { static_cast<llama_kv_cache *>(memory) };
    } else if (type == typeid(llama_kv_cache_iswa)) {
        add_iswa(static_cast<llama_kv_cache_iswa *>(memory));
    } else if (type == typeid(llama_memory_recurrent)) {
        parts.recurrent = static_cast<llama_memory_recurrent *>(memory);
    } else if (type == typeid(llama_memory_hybrid)) {
        parts.caches    = { static_cast<llama_memory_hybrid *>(memory)->get_mem_attn() };
        parts.recurrent = static_cast<llama_memory_hybrid *>(memory)->get_mem_recr();
    } else if (type == typeid(llama_memory_hybrid_iswa)) {
        add_iswa(static_cast<llama_memory_hybrid_iswa *>(memory)->get_mem_attn());
        parts.recurrent = static_cast<llama_memory_hybrid_iswa *>(memory)->get_mem_recr();
    }
    return parts;
}

int64_t eagle_state_size(eagle_context * ctx, int32_t seq_id) {
    int64_t size = 0;
    const int32_t code = eagle_guard(ctx, [&]() -> int32_t {
        size = state_size(*ctx, seq_id);
        return EAGLE_OK;
    });
    return code == EAGLE_OK ? size : code;
}

int32_t eagle_state_get(eagle_context * ctx, int32_t seq_id, void * out, int64_t size) {
    return eagle_guard(ctx, [&] { return state_get(*ctx, seq_id, out, size); });
}

int32_t eagle_state_set(eagle_context * ctx, int32_t seq_id, const void * data, int64_t size) {
    return eagle_guard(ctx, [&]() -> int32_t {
        try {
            return state_set(*ctx, seq_id, data, size);
        } catch (const eagle_full & e) {
            ctx->error = e.what();
            return EAGLE_FULL;
        }
    });
}
