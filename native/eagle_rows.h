#pragma once

// Arithmetic on one row of logits: argmax, top-k and log-sum-exp. Loops are written in lanes so that compilers
// vectorise them without -ffast-math.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

constexpr int32_t eagle_lanes = 16;

inline float eagle_row_max(const float * x, int32_t n) {
    float lanes[eagle_lanes];
    std::fill_n(lanes, eagle_lanes, -std::numeric_limits<float>::infinity());
    int32_t i = 0;
    for (; i + eagle_lanes <= n; i += eagle_lanes) {
        for (int32_t j = 0; j < eagle_lanes; ++j) {
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        }
    }
    for (; i < n; ++i) {
        lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    }
    return *std::max_element(lanes, lanes + eagle_lanes);
}

// the smallest id wins a tie; -1 when the largest logit is no finite number, as in a row of NaN
inline int32_t eagle_row_argmax(const float * x, int32_t n) {
    const float best = eagle_row_max(x, n);
    return std::isfinite(best) ? (int32_t) (std::find(x, x + n, best) - x) : -1;
}

// e^x for x <= 0: exact to about 2 ulp of float (split into 2^n and a polynomial of degree 6)
inline float eagle_exp(float x) {
    x = x > -87.0f ? x : -87.0f;
    const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; // the nearest whole number, without a call
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t bits = ((int32_t) n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

inline double eagle_row_log_sum_exp(const float * x, int32_t n, float max) {
    float lanes[eagle_lanes] = {};
    int32_t i = 0;
    for (; i + eagle_lanes <= n; i += eagle_lanes) {
        for (int32_t j = 0; j < eagle_lanes; ++j) {
            lanes[j] += eagle_exp(x[i + j] - max);
        }
    }
    double sum = 0.0;
    for (; i < n; ++i) {
        sum += eagle_exp(x[i] - max);
    }
    for (const float lane : lanes) {
        sum += lane;
    }
    return max + std::log(sum);
}

// whether one of eagle_lanes numbers is larger
inline bool eagle_lanes_above(const float * x, float limit) {
    int32_t above = 0;
    for (int32_t j = 0; j < eagle_lanes; ++j) {
        above |= x[j] > limit;
    }
    return above != 0;
}

// ids and log probabilities of the k largest, best first; the smaller id wins a tie
// false when there are no k numbers, or the largest is not finite
inline bool eagle_row_top_k(const float * x, int32_t n, int32_t k, int32_t * ids, float * logp) {
    int32_t count = 0;
    float worst = -std::numeric_limits<float>::infinity();
    for (int32_t i = 0; i < n; ++i) {
        while (count == k && i + eagle_lanes <= n && !eagle_lanes_above(x + i, worst)) {
            i += eagle_lanes; // most of a row
        }
        if (i == n) {
            break;
        }
        if (!(x[i] > worst) && (count == k || std::isnan(x[i]))) {
            continue;
        }
        int32_t at = count < k ? count++ : k - 1;
        for (; at > 0 && x[i] > logp[at - 1]; --at) {
            logp[at] = logp[at - 1];
            ids[at]  = ids[at - 1];
        }
        logp[at] = x[i];
        ids[at]  = i;
        worst = logp[count - 1];
    }
    if (count < k || !std::isfinite(logp[0])) {
        return false;
    }
    const double norm = eagle_row_log_sum_exp(x, n, logp[0]);
    for (int32_t j = 0; j < count; ++j) {
        logp[j] = (float) (logp[j] - norm);
    }
    return true;
}
