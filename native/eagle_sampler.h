#pragma once

// How a token is chosen: llama.cpp's samplers in its default order, then one uniform number.

#include "eagle_drawn.h"
#include "eagle_grammar.h"
#include "eagle_internal.h"

#include <algorithm>
#include <deque>
#include <memory>

// the model; throws eagle_invalid where it is a draft, and for numbers out of their range
const eagle_model & eagle_check_sampler_params(const eagle_model & model, const eagle_sampler_params & params);

struct eagle_sampler {
    eagle_sampler(const eagle_model & model, const eagle_sampler_params & params);
    eagle_sampler(const eagle_sampler & other);

    void reset();
    void prompt(const int32_t * tokens, int32_t n);
    void accept(llama_token token);

    // the candidates that are left of a row of logits, their probabilities in `p`, by ascending id
    const std::vector<llama_token_data> & process(const float * logits);
    // process, choose by the uniform number of the next token, accept
    llama_token draw(const float * logits);

    // the parts of draw(): weights of the candidates that process() left, a token by others, one that a tree has drawn
    std::vector<double> & weights(); // the sampler's own, until the next call
    std::vector<double> & spare(size_t n) { rest.resize(n); return rest; }
    llama_token pick(std::vector<double> & weights);
    void take(llama_token token);

    // number n of the step that begins behind the tokens accepted so far; no stream has one of another's, or of draw()'s
    enum stream { draft_stream = 1, accept_stream = 2 };
    double number(stream which, int32_t n) const;
    float heat() const { return temperature; }
    // the smallest logit that top-k, top-p and min-p would keep of any row; none of more than `few` best is looked at
    float least_kept(const float * logits, int32_t n) const;

    bool is_argmax() const { return argmax; }
    // the grammar behind the text so far, null without one or behind its end; whether it lets a token follow a state of it
    const eagle_grammar * grammar_state() const { return ended ? nullptr : grammar.get(); }
    bool allows(const eagle_grammar & state, llama_token token) const;
    bool stops_at(llama_token token) const;
    int64_t n_draws() const { return draws; }
    int64_t n_emitted() const { return emitted; }

    const eagle_model & model;
    mutable std::string error;
    eagle_drawn drawn; // the tree that waits for its verification

private:
    struct free_chain {
        void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
    };
    using chain = std::unique_ptr<llama_sampler, free_chain>;

    static constexpr size_t few = 256; // candidates that are looked at before all of them

    void add_biases(const eagle_sampler_params & params);
    void read_vocab();
    bool take_best(const float * logits, size_t count);
    void take_all(const float * logits);
    void apply_every();
    void apply_grammar();
    void keep_best(size_t count);
    void finish();
    void see(llama_token token);
    std::vector<llama_token> changed() const;
    template <typename F> void drop(F && which) {
        row.erase(std::remove_if(row.begin(), row.end(), which), row.end());
    }

    const llama_vocab * vocab;
    const int32_t n_vocab;
    const float temperature;
    const int32_t top_k;
    const float top_p;
    const float min_p;
    const bool  typical;
    const bool  stop_eog;
    const uint64_t key;
    bool  argmax = false;   // nothing but the temperature 0
    bool  whole = false;    // nothing but a temperature above it
    bool  ended = false;    // an end token was accepted: a grammar must not be asked any more
    int64_t emitted = 0;
    int64_t draws = 0;

    chain every;            // what changes single logits: biases and penalties
    chain filters;          // what drops candidates, and the temperature
    std::unique_ptr<eagle_grammar> grammar;
    struct beginning {
        uint8_t bytes[2]; // of the token's text
        bool    single;   // it has no second one
        bool    end;      // an end token, which the grammar allows at its end
        bool    silent;   // a control token: its name could match, but no text comes of it
    };
    std::vector<beginning>   begins;  // by token; only with a grammar
    std::vector<llama_token> biased;
    std::deque<llama_token>  recent;  // what the penalties see
    size_t last_n = 0;                // how much of it, 0 without penalties
    std::vector<llama_token_data> row;
    std::vector<double> mass, rest;   // of the candidates in row; kept, for large ones are dear to allocate
};

// number `index` of the stream of a seed, in [0, 1)
double eagle_uniform(uint64_t key, int64_t index);
uint64_t eagle_mix(uint64_t x);
