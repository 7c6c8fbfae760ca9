// What models would take of the devices: llama.cpp lays out weights, caches and buffers without allocating any of them.

#include "eagle_internal.h"

#include "ggml-backend.h"

#include <algorithm>

namespace {

struct free_context {
    void operator()(eagle_context * ctx) const {
        eagle_context_free(ctx);
    }
};

int32_t index_of(ggml_backend_dev_t dev) {
    for (int32_t i = 0; i < eagle_device_count(); ++i) {
        if (ggml_backend_dev_get(i) == dev) {
            return i;
        }
    }
    return -1;
}

void add_bytes(eagle_model & model, const eagle_load & load, uint64_t * bytes) {
    char error[1024];
    const std::unique_ptr<eagle_context, free_context> ctx(eagle_context_init(&model, &load.context, error, sizeof(error)));
    if (ctx == nullptr) {
        throw eagle_invalid(error);
    }
    ctx->llama->sched_reserve(); // features are asked for behind llama.cpp's own reservation, and keep their tensors alive
    for (const auto & [buft, use] : llama_get_memory_breakdown(ctx->llama)) {
        const int32_t index = ggml_backend_buft_is_host(buft) ? -1 : index_of(ggml_backend_buft_get_device(buft));
        if (index >= 0) {
            bytes[index] += use.total();
        }
    }
}

void measure(const eagle_load & target, const eagle_load * draft, uint64_t * bytes) {
    std::fill_n(bytes, eagle_device_count(), 0);
    const auto model = eagle_model_outline(target.path, target.n_gpu_layers, nullptr);
    if (draft != nullptr) {
        const auto head = eagle_model_outline(draft->path, draft->n_gpu_layers, model.get());
        add_bytes(*head, *draft, bytes);
    }
    add_bytes(*model, target, bytes);
}

} // namespace

int32_t eagle_device_bytes(const eagle_load * target, const eagle_load * draft, uint64_t * bytes, char * error, int32_t error_size) {
    try {
        measure(*target, draft, bytes);
        return EAGLE_OK;
    } catch (const std::exception & e) {
        eagle_copy_text(e.what(), error, error_size);
    } catch (...) {
        eagle_copy_text("unknown exception in llama.cpp", error, error_size);
    }
    return EAGLE_FAILED;
}
