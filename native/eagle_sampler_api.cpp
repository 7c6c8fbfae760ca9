// The C ABI of samplers: arguments checked, exceptions kept inside.

#include "eagle_sampler.h"

eagle_sampler * eagle_sampler_init(const eagle_model * model, const eagle_sampler_params * params, char * error, int32_t error_size) {
    try {
        return new eagle_sampler(*model, *params);
    } catch (const std::exception & e) {
        eagle_copy_text(e.what(), error, error_size);
        return nullptr;
    }
}

eagle_sampler * eagle_sampler_clone(const eagle_sampler * sampler) {
    try {
        return new eagle_sampler(*sampler);
    } catch (const std::exception & e) {
        sampler->error = e.what();
        return nullptr;
    }
}

void eagle_sampler_free(eagle_sampler * sampler) {
    delete sampler;
}

const char * eagle_sampler_error(const eagle_sampler * sampler) {
    return sampler->error.c_str();
}

int32_t eagle_sampler_reset(eagle_sampler * sampler) {
    return eagle_guard(sampler, [&] {
        sampler->reset();
        return EAGLE_OK;
    });
}

int32_t eagle_sampler_prompt(eagle_sampler * sampler, const int32_t * tokens, int32_t n) {
    return eagle_guard(sampler, [&] {
        sampler->prompt(tokens, n);
        return EAGLE_OK;
    });
}

int32_t eagle_sampler_accept(eagle_sampler * sampler, int32_t token) {
    return eagle_guard(sampler, [&] {
        sampler->accept(token);
        return EAGLE_OK;
    });
}

int32_t eagle_sampler_describe(const eagle_sampler * sampler, eagle_sampler_info * info) {
    *info = { sampler->n_emitted(), sampler->n_draws(), sampler->is_argmax() ? 1 : 0 };
    return EAGLE_OK;
}

int32_t eagle_sampler_candidates(eagle_sampler * sampler, const float * logits, int32_t * ids, float * scaled) {
    return eagle_guard(sampler, [&]() -> int32_t {
        const std::vector<llama_token_data> & left = sampler->process(logits);
        for (size_t i = 0; i < left.size(); ++i) {
            ids[i]    = left[i].id;
            scaled[i] = left[i].logit;
        }
        return (int32_t) left.size();
    });
}

int32_t eagle_sample(eagle_sampler * sampler, eagle_context * ctx, int32_t row, int32_t * token) {
    return eagle_guard(ctx, [&]() -> int32_t {
        if (sampler->model.llama != ctx->model->llama) {
            throw eagle_invalid("the sampler is of another model than the context");
        }
        if (row < 0 || row >= ctx->n_outputs) {
            throw eagle_invalid("row " + std::to_string(row) + " of " + std::to_string(ctx->n_outputs) + " outputs");
        }
        *token = sampler->draw(eagle_logits(ctx) + (size_t) row * ctx->llama->n_logits());
        return EAGLE_OK;
    });
}

double eagle_sampler_uniform(uint32_t seed, int64_t index) {
    return eagle_uniform(eagle_mix(seed), index);
}
