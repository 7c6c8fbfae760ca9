#pragma once

// Drawing by weight from many tokens: sums of blocks say where to look, and are added up in lanes, which vectorise.

#include <algorithm>
#include <cstddef>
#include <vector>

template <typename T> struct eagle_urn {
    static constexpr size_t block = 256;
    static constexpr size_t lanes = 16;

    T * weights;
    size_t n;
    std::vector<double> sums; // of blocks
    double total = 0.0;

    eagle_urn(T * weights, size_t n) : weights(weights), n(n), sums((n + block - 1) / block) {
        for (size_t i = 0; i < sums.size(); ++i) {
            sums[i] = sum_of(i);
        }
        add_up();
    }

    // the token at a place in [0, 1) of the sum; never one of weight 0
    size_t find(double place) const {
        double wanted = place * total;
        size_t i = 0;
        for (; i + 1 < sums.size() && wanted >= sums[i]; ++i) {
            wanted -= sums[i];
        }
        while (i > 0 && sums[i] == 0.0) {
            --i; // only rounding leads to a block of which nothing is left
        }
        return find_in(i, wanted);
    }

    void take_out(size_t token) {
        weights[token] = 0;
        sums[token / block] = sum_of(token / block);
        add_up();
    }

private:
    size_t end_of(size_t i) const {
        return std::min(n, (i + 1) * block);
    }

    double sum_of(size_t i) const {
        double parts[lanes] = {};
        size_t j = i * block;
        for (; j + lanes <= end_of(i); j += lanes) {
            for (size_t k = 0; k < lanes; ++k) {
                parts[k] += weights[j + k];
            }
        }
        double sum = 0.0;
        for (; j < end_of(i); ++j) {
            sum += weights[j];
        }
        for (const double part : parts) {
            sum += part;
        }
        return sum;
    }

    void add_up() {
        total = 0.0;
        for (const double sum : sums) {
            total += sum;
        }
    }

    // the first of a block's tokens up to which the weights exceed `wanted`
    size_t find_in(size_t i, double wanted) const {
        double sum  = 0.0;
        size_t last = i * block;
        for (size_t j = i * block; j < end_of(i); ++j) {
            if (weights[j] > 0) {
                last = j;
                sum += weights[j];
                if (sum > wanted) {
                    break;
                }
            }
        }
        return last;
    }
};
