#pragma once

// A grammar in llama.cpp's own matcher, behind checks that keep every text from aborting or hanging the process.

#include "llama-grammar.h"

#include <bitset>
#include <memory>
#include <string>
#include <vector>

class eagle_grammar {
public:
    // throws eagle_invalid that says what is wrong with the text
    eagle_grammar(const llama_vocab * vocab, const std::string & text);
    eagle_grammar(const eagle_grammar & other);

    // logits of tokens that cannot follow become -INFINITY
    void apply(llama_token_data * tokens, size_t n) const;
    bool allows(llama_token token) const;
    void accept(llama_token token); // throws eagle_invalid for a token that cannot follow
    void reset();
    bool names_tokens() const { return tokens; } // has elements such as <[5]>, so control tokens may be meant

    // what a token may begin with, one byte or two; a hint that spares most of apply(): true is no promise
    struct beginnings {
        std::bitset<256> first;
        std::vector<std::bitset<256>> second; // by the first byte
    };
    beginnings begin();

private:
    struct free_grammar {
        void operator()(llama_grammar * grammar) const { llama_grammar_free_impl(grammar); }
    };
    using handle = std::unique_ptr<llama_grammar, free_grammar>;

    std::bitset<256> next_bytes() const;

    handle start; // as parsed
    handle state;
    bool   tokens = false;
};
