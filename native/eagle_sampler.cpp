// What is left of a row of logits: biases and penalties, grammar, filters. Which one is drawn is in eagle_draw.cpp.

#include "eagle_sampler.h"

#include "eagle_rows.h"
#include "llama-vocab.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

constexpr float greedy = 1e-5f; // a temperature below divides logits out of their range, and means this

bool descending(const llama_token_data & a, const llama_token_data & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

bool by_id(const llama_token_data & a, const llama_token_data & b) {
    return a.id < b.id;
}

// any NaN spoils the order of candidates
void check_row(const float * x, int32_t n) {
    uint32_t bad = 0;
    for (int32_t i = 0; i < n; ++i) {
        bad |= !(x[i] < std::numeric_limits<float>::infinity());
    }
    if (bad != 0 || eagle_row_argmax(x, n) < 0) {
        throw std::runtime_error("the target computed NaN: its weights are broken or its type overflows; try another file of it");
    }
}

} // namespace

eagle_sampler::eagle_sampler(const eagle_model & from, const eagle_sampler_params & p)
    : model(eagle_check_sampler_params(from, p)),
      vocab(llama_model_get_vocab(from.llama)),
      n_vocab(llama_vocab_n_tokens(vocab)),
      temperature(p.temperature < greedy ? 0.0f : p.temperature),
      top_k(p.top_k),
      top_p(p.top_p),
      min_p(p.min_p),
      typical(p.typical_p < 1.0f),
      stop_eog(p.stop_at_eog != 0),
      key(eagle_mix(p.seed)),
      every(llama_sampler_chain_init(llama_sampler_chain_default_params())),
      filters(llama_sampler_chain_init(llama_sampler_chain_default_params())) {
    const bool penalises = p.repeat_last_n > 0 && (p.repeat_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0);
    add_biases(p);
    llama_sampler_chain_add(every.get(), llama_sampler_init_penalties(n_vocab, p.repeat_last_n, p.repeat_penalty,
                                                                      p.frequency_penalty, p.presence_penalty));
    argmax = temperature == 0 && !penalises && !typical && p.grammar == nullptr && llama_sampler_chain_n(every.get()) == 1;
    whole = temperature > 0 && !penalises && !typical && p.grammar == nullptr && llama_sampler_chain_n(every.get()) == 1 &&
            top_k <= 0 && top_p >= 1 && min_p <= 0;
    llama_sampler_chain_add(filters.get(), llama_sampler_init_top_k(p.top_k));
    llama_sampler_chain_add(filters.get(), llama_sampler_init_typical(p.typical_p, 0));
    llama_sampler_chain_add(filters.get(), llama_sampler_init_top_p(p.top_p, 0));
    llama_sampler_chain_add(filters.get(), llama_sampler_init_min_p(p.min_p, 0));
    if (temperature > 0) {
        llama_sampler_chain_add(filters.get(), llama_sampler_init_temp(temperature));
    }
    if (penalises) {
        last_n = p.repeat_last_n;
    }
    if (p.grammar != nullptr) {
        if (vocab->get_type() == LLAMA_VOCAB_TYPE_NONE) {
            throw eagle_invalid("grammar: the model has no vocabulary, only token ids");
        }
        grammar = std::make_unique<eagle_grammar>(vocab, p.grammar);
        read_vocab();
    }
}

eagle_sampler::eagle_sampler(const eagle_sampler & other)
    : model(other.model), vocab(other.vocab), n_vocab(other.n_vocab), temperature(other.temperature), top_k(other.top_k),
      top_p(other.top_p), min_p(other.min_p), typical(other.typical), stop_eog(other.stop_eog), key(other.key), argmax(other.argmax), whole(other.whole), ended(other.ended),
      emitted(other.emitted), draws(other.draws), every(llama_sampler_clone(other.every.get())),
      filters(llama_sampler_clone(other.filters.get())),
      grammar(other.grammar ? std::make_unique<eagle_grammar>(*other.grammar) : nullptr), begins(other.begins),
      biased(other.biased), recent(other.recent), last_n(other.last_n) {}

// as llama.cpp's common: the caller's, and those of tokens that the model's file says to suppress
void eagle_sampler::add_biases(const eagle_sampler_params & p) {
    std::vector<llama_logit_bias> biases;
    for (int32_t i = 0; i < p.n_bias; ++i) {
        biases.push_back({ p.bias_tokens[i], p.bias_values[i] });
    }
    int32_t n_suppress = 0;
    const llama_token * suppress = llama_vocab_get_suppress_tokens(vocab, &n_suppress);
    for (int32_t i = 0; i < n_suppress; ++i) {
        biases.push_back({ suppress[i], -std::numeric_limits<float>::infinity() });
    }
    for (const llama_logit_bias & bias : biases) {
        biased.push_back(bias.token);
    }
    if (!biases.empty()) {
        llama_sampler_chain_add(every.get(), llama_sampler_init_logit_bias(n_vocab, (int32_t) biases.size(), biases.data()));
    }
}

void eagle_sampler::read_vocab() {
    begins.resize(n_vocab);
    for (llama_token id = 0; id < n_vocab; ++id) {
        const std::string & piece = vocab->token_to_piece(id);
        beginning & b = begins[id];
        b.bytes[0] = piece.empty() ? 0 : piece[0];
        b.bytes[1] = piece.size() < 2 ? 0 : piece[1];
        b.single   = piece.size() < 2;
        b.end      = vocab->is_eog(id);
        b.silent   = vocab->is_control(id) && !grammar->names_tokens();
    }
}

void eagle_sampler::see(llama_token token) {
    llama_sampler_accept(every.get(), token);
    recent.push_back(token);
    if (recent.size() > last_n) {
        recent.pop_front();
    }
}

void eagle_sampler::reset() {
    llama_sampler_reset(every.get());
    recent.clear();
    if (grammar) {
        grammar->reset();
    }
    ended = false;
    emitted = draws = 0;
}

void eagle_sampler::prompt(const int32_t * tokens, int32_t n) {
    for (int32_t i = 0; i < n; ++i) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            throw eagle_invalid("token id " + std::to_string(tokens[i]) + " is not in the vocabulary of " + std::to_string(n_vocab));
        }
    }
    for (int32_t i = 0; i < n; ++i) {
        see(tokens[i]);
    }
}

void eagle_sampler::accept(llama_token token) {
    if (token < 0 || token >= n_vocab) {
        throw eagle_invalid("token id " + std::to_string(token) + " is not in the vocabulary of " + std::to_string(n_vocab));
    }
    if (grammar) {
        if (ended) {
            throw eagle_invalid("the grammar has ended: no token can follow");
        }
        grammar->accept(token);
        ended = llama_vocab_is_eog(vocab, token);
    }
    see(token);
    ++emitted;
}

bool eagle_sampler::stops_at(llama_token token) const {
    return (stop_eog || grammar) && vocab->get_type() != LLAMA_VOCAB_TYPE_NONE && llama_vocab_is_eog(vocab, token);
}

bool eagle_sampler::allows(const eagle_grammar & state, llama_token token) const {
    if (token < 0 || token >= n_vocab) {
        return false;
    }
    return (begins[token].end || !begins[token].silent) && state.allows(token);
}

const std::vector<llama_token_data> & eagle_sampler::process(const float * logits) {
    if (ended) {
        throw eagle_invalid("the grammar has ended: no token can follow");
    }
    check_row(logits, n_vocab);
    if (whole) {
        row.resize(n_vocab);
        for (llama_token id = 0; id < n_vocab; ++id) {
            row[id] = { id, logits[id] / temperature, 0.0f };
        }
        return row;
    }
    const size_t count = temperature == 0 && !typical ? 1 : top_k > 0 ? (size_t) top_k : 0; // 0: all are needed
    if (count == 0 || count > few || !take_best(logits, count)) {
        take_all(logits);
    }
    keep_best(count);
    finish();
    return row;
}

// Biases, penalties and the grammar change single logits, and the filters begin with the largest `count`. So the largest of
// the row as it came are enough, with every token that biases or penalties change; unless too few of them are above all
// that were left out, and then false.
bool eagle_sampler::take_best(const float * logits, size_t count) {
    const std::vector<llama_token> more = changed();
    const size_t n = std::min<size_t>(count + more.size() + 1 + (grammar ? few : 0), n_vocab);
    row.clear();
    for (llama_token id = 0; id < n_vocab; ++id) {
        if (row.size() < n || logits[id] > row.front().logit) {
            if (row.size() == n) {
                std::pop_heap(row.begin(), row.end(), descending);
                row.pop_back();
            }
            row.push_back({ id, logits[id], 0.0f });
            std::push_heap(row.begin(), row.end(), descending);
        }
    }
    const float least = n < (size_t) n_vocab ? row.front().logit : -INFINITY;
    std::sort(row.begin(), row.end(), by_id);
    for (const llama_token id : more) {
        const llama_token_data token = { id, logits[id], 0.0f };
        const auto at = std::lower_bound(row.begin(), row.end(), token, by_id);
        if (at == row.end() || at->id != id) {
            row.insert(at, token);
        }
    }
    apply_every();
    if (grammar) {
        apply_grammar();
    }
    return (size_t) std::count_if(row.begin(), row.end(), [&](const llama_token_data & t) { return t.logit > least; }) >= count;
}

void eagle_sampler::take_all(const float * logits) {
    row.resize(n_vocab);
    for (llama_token id = 0; id < n_vocab; ++id) {
        row[id] = { id, logits[id], 0.0f };
    }
    apply_every();
    if (grammar) {
        apply_grammar();
    }
}

// tokens whose logits biases and penalties change, ascending
std::vector<llama_token> eagle_sampler::changed() const {
    std::vector<llama_token> ids(recent.begin(), recent.end());
    ids.insert(ids.end(), biased.begin(), biased.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

void eagle_sampler::apply_every() {
    llama_token_data_array array = { row.data(), row.size(), -1, false };
    llama_sampler_apply(every.get(), &array);
}

void eagle_sampler::apply_grammar() {
    if (row.size() > few + few / 2) { // worth looking at first bytes
        const eagle_grammar::beginnings begin = grammar->begin();
        drop([&](const llama_token_data & t) {
            const beginning & b = begins[t.id];
            return !b.end && !(begin.first[b.bytes[0]] && (b.single || begin.second[b.bytes[0]][b.bytes[1]]));
        });
    }
    drop([&](const llama_token_data & t) { return begins[t.id].silent && !begins[t.id].end; });
    grammar->apply(row.data(), row.size());
    drop([](const llama_token_data & t) { return t.logit == -INFINITY; });
}

// Without candidates of -infinity, which spoil typical-p's entropy, and for it without those whose probability is 0 in
// float; at temperature 0 just the largest, the smallest id winning a tie: top-k, top-p and min-p never drop it.
void eagle_sampler::keep_best(size_t count) {
    float max = -INFINITY;
    for (const llama_token_data & t : row) {
        max = std::max(max, t.logit);
    }
    if (!std::isfinite(max)) {
        throw eagle_invalid(max > 0 ? "biases or penalties raise a logit to infinity: use smaller ones"
                            : grammar ? "no token can follow: the grammar, the biases and the vocabulary leave none"
                                      : "no token is left: the biases forbid all");
    }
    const float least = std::max(typical ? max - 80.0f : -INFINITY, -std::numeric_limits<float>::max());
    drop([&](const llama_token_data & t) { return !(t.logit >= least); });
    if (count > 0) {
        // top-k itself, with ties in order: sorted rows are taken as they are
        const size_t k = std::min(row.size(), count);
        std::partial_sort(row.begin(), row.begin() + k, row.end(), descending);
        row.resize(k);
    }
}

void eagle_sampler::finish() {
    llama_token_data_array array = { row.data(), row.size(), -1, top_k > 0 };
    llama_sampler_apply(filters.get(), &array);
    row.resize(array.size);
    if (temperature == 0) {
        row.front() = *std::min_element(row.begin(), row.end(), descending);
        row.resize(1);
    }
    if (!std::is_sorted(row.begin(), row.end(), by_id)) {
        std::sort(row.begin(), row.end(), by_id);
    }
}
