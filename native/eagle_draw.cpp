// One of the candidates: by a number of the seed's stream, whatever was drafted.

#include "eagle_rows.h"
#include "eagle_sampler.h"
#include "eagle_urn.h"

#include <algorithm>
#include <cmath>
#include <functional>

// SplitMix64 (Steele, Lea, Flood 2014), whose stream can be entered anywhere: key + index * gamma, mixed
uint64_t eagle_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

double eagle_uniform(uint64_t key, int64_t index) {
    return (double) (eagle_mix(key + ((uint64_t) index + 1) * 0x9e3779b97f4a7c15ull) >> 11) * 0x1.0p-53;
}

llama_token eagle_sampler::draw(const float * logits) {
    process(logits);
    return pick(weights());
}

std::vector<double> & eagle_sampler::weights() {
    float lanes[eagle_lanes];
    std::fill_n(lanes, eagle_lanes, -INFINITY);
    for (size_t i = 0; i < row.size(); ++i) {
        float & max = lanes[i % eagle_lanes];
        max = row[i].logit > max ? row[i].logit : max;
    }
    const float max = *std::max_element(lanes, lanes + eagle_lanes);
    if (!std::isfinite(max)) {
        throw eagle_invalid("the temperature raises a logit to infinity: use a larger one");
    }
    mass.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
        mass[i] = eagle_exp(row[i].logit - max);
    }
    return mass;
}

llama_token eagle_sampler::pick(std::vector<double> & weights) {
    const eagle_urn<double> urn(weights.data(), weights.size());
    const llama_token token = row[urn.find(eagle_uniform(key, emitted))].id;
    take(token);
    return token;
}

void eagle_sampler::take(llama_token token) {
    ++draws;
    accept(token);
}

double eagle_sampler::number(stream which, int32_t n) const {
    return eagle_uniform(eagle_mix(key + which), emitted << 20 | n);
}

float eagle_sampler::least_kept(const float * logits, int32_t n) const {
    if (top_k <= 0 && top_p >= 1 && min_p <= 0) {
        return -INFINITY;
    }
    const size_t count = std::min<size_t>(top_k > 0 ? std::min<size_t>(top_k, few) : few, n);
    std::vector<float> best(count); // a heap, the smallest in front
    std::transform(logits, logits + count, best.begin(), [](float x) { return std::isnan(x) ? -INFINITY : x; });
    std::make_heap(best.begin(), best.end(), std::greater<float>());
    for (int32_t i = (int32_t) count; i < n; ++i) {
        if (logits[i] > best.front()) {
            std::pop_heap(best.begin(), best.end(), std::greater<float>());
            best.back() = logits[i];
            std::push_heap(best.begin(), best.end(), std::greater<float>());
        }
    }
    std::sort(best.begin(), best.end(), std::greater<float>());
    double sum = 0.0;
    for (const float x : best) {
        sum += std::exp((double) x - best[0]);
    }
    size_t kept = 0;
    for (double reached = 0.0; kept < count && reached < top_p * sum; ++kept) {
        reached += std::exp((double) best[kept] - best[0]);
    }
    const bool  all = top_k <= 0 && top_p >= 1; // the best looked at are not all that are kept
    const float least = all ? -INFINITY : best[std::max<size_t>(kept, 1) - 1];
    return min_p > 0 ? std::max(least, best[0] + std::log(min_p)) : least;
}
