// Quantisation of one tensor for a converter. Knows nothing of models and files.

#include "eagle.h"

#include "ggml.h"

#include <algorithm>
#include <cmath>

namespace {

// types that ggml makes from any finite values, without an importance matrix
bool can_quantize(int32_t type) {
    switch (type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q5_1:
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q2_K:
        case GGML_TYPE_Q3_K:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K:
        case GGML_TYPE_IQ4_NL:
        case GGML_TYPE_IQ4_XS:
            return true;
        default:
            return false;
    }
}

} // namespace

int64_t eagle_row_size(int32_t type, int64_t n_per_row) {
    if (!can_quantize(type) || n_per_row < 1 || n_per_row > INT32_MAX || n_per_row % ggml_blck_size((ggml_type) type) != 0) {
        return -1;
    }
    return ggml_row_size((ggml_type) type, n_per_row);
}

int32_t eagle_quantize(int32_t type, const float * src, void * dst, int64_t n_rows, int64_t n_per_row) {
    if (eagle_row_size(type, n_per_row) < 0 || n_rows < 1 || n_rows > INT32_MAX || src == nullptr || dst == nullptr) {
        return EAGLE_INVALID;
    }
    if (!std::all_of(src, src + n_rows * n_per_row, [](float x) { return std::isfinite(x); })) {
        return EAGLE_INVALID;
    }
    ggml_quantize_chunk((ggml_type) type, src, dst, 0, n_rows, n_per_row, nullptr);
    return EAGLE_OK;
}
