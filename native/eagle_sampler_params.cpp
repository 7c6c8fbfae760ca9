// Parameters of a sampler: checked before llama.cpp sees them.

#include "eagle_sampler.h"

#include <cmath>
#include <limits>

namespace {

constexpr int32_t max_last_n = 1 << 20;

void require(bool holds, const char * name, double value, const char * wanted) {
    if (!holds) {
        throw eagle_invalid(std::string(name) + " " + std::to_string(value) + " must be " + wanted);
    }
}

} // namespace

const eagle_model & eagle_check_sampler_params(const eagle_model & model, const eagle_sampler_params & p) {
    if (model.is_draft()) {
        throw eagle_invalid("tokens are chosen from a target's logits, and this is a draft");
    }
    const float rep = p.repeat_penalty;
    require(std::isfinite(p.temperature) && p.temperature >= 0, "temperature", p.temperature, "0 or more");
    require(std::isfinite(p.top_p) && p.top_p >= 0 && p.top_p <= 1, "top_p", p.top_p, "in [0, 1]");
    require(std::isfinite(p.min_p) && p.min_p >= 0 && p.min_p <= 1, "min_p", p.min_p, "in [0, 1]");
    require(std::isfinite(p.typical_p) && p.typical_p >= 0 && p.typical_p <= 1, "typical_p", p.typical_p, "in [0, 1]");
    require(std::isfinite(rep) && rep > 0 && std::isfinite(1.0f / rep), "repeat_penalty", rep, "greater than 0");
    require(p.repeat_last_n >= 0 && p.repeat_last_n <= max_last_n, "repeat_last_n", p.repeat_last_n, "in [0, 1048576]");
    require(std::isfinite(p.presence_penalty), "presence_penalty", p.presence_penalty, "finite");
    require(std::isfinite(p.frequency_penalty), "frequency_penalty", p.frequency_penalty, "finite");
    for (int32_t i = 0; i < p.n_bias; ++i) {
        const bool known = p.bias_tokens[i] >= 0 && p.bias_tokens[i] < llama_vocab_n_tokens(llama_model_get_vocab(model.llama));
        require(known, "logit_bias of token", p.bias_tokens[i], "of a token of the vocabulary");
        require(p.bias_values[i] < std::numeric_limits<float>::infinity(), "logit_bias", p.bias_values[i], "finite or -infinity");
    }
    return model;
}
