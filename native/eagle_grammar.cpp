#include "eagle_grammar.h"

#include "eagle_internal.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t   max_text    = 1 << 20; // bytes
constexpr int32_t  max_nesting = 200;     // of parentheses: the parser recurses
constexpr uint64_t max_repeat  = 2000;    // llama.cpp's own
constexpr size_t   max_rules   = 20000;
constexpr size_t   max_depth   = 3000;    // of first symbols: llama.cpp's own check recurses
constexpr uint64_t max_walk    = 1 << 22; // steps of that check, which visits a rule once for each way to it

[[noreturn]] void refuse(const std::string & why) {
    throw eagle_invalid("grammar: " + why);
}

std::string shown(const std::string & text) {
    const size_t end = std::min(text.find('\n'), (size_t) 40);
    return text.substr(0, end) + (text.size() > end ? " ..." : "");
}

void check_repetition(const char * text) {
    char * end = nullptr;
    const unsigned long long least = strtoull(text, &end, 10);
    const char * comma = end + strspn(end, " \t\r\n");
    const unsigned long long most = *comma == ',' ? strtoull(comma + 1, &end, 10) : least;
    if (*comma == ',' && end == comma + 1) {
        return; // no upper limit
    }
    if (least > max_repeat || most < least) {
        refuse("a repetition of " + std::to_string(least) + " to " + std::to_string(most) + ": at most " + std::to_string(max_repeat) +
               ", and the second number no smaller");
    }
}

// What the parser itself does not refuse: deep nesting, which it follows by recursion, and {3,1}, which never ends.
void check_text(const std::string & text) {
    if (text.size() > max_text) {
        refuse(std::to_string(text.size()) + " bytes are more than " + std::to_string(max_text));
    }
    int32_t nesting = 0;
    char quote = 0; // what ends a literal, a class or a comment
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quote != 0) {
            if (c == '\\' && quote != '\n') {
                ++i;
            } else if (c == quote) {
                quote = 0;
            }
        } else if (c == '"' || c == '[' || c == '#') {
            quote = c == '[' ? ']' : c == '#' ? '\n' : '"';
        } else if (c == '(' && ++nesting > max_nesting) {
            refuse("parentheses are nested more than " + std::to_string(max_nesting) + " deep");
        } else if (c == ')') {
            --nesting;
        } else if (c == '{') {
            check_repetition(text.c_str() + i + 1);
        }
    }
}

const char * skip_space(const char * pos) {
    while (*pos != 0 && strchr(" \t\r\n#", *pos) != nullptr) {
        pos += *pos == '#' ? strcspn(pos, "\r\n") : 1;
    }
    return pos;
}

// llama_grammar_parser::parse() prints what is wrong to stderr; its parts throw it
void parse(llama_grammar_parser & parser, const std::string & text) {
    try {
        for (const char * pos = skip_space(text.c_str()); *pos != 0;) {
            pos = parser.parse_rule(pos);
        }
    } catch (const std::exception & e) {
        const std::string what = e.what();
        const size_t at = what.find(" at ");
        refuse(at == std::string::npos ? shown(what) : what.substr(0, at + 4) + "'" + shown(what.substr(at + 4)) + "'");
    }
    if (parser.symbol_ids.count("root") == 0) {
        refuse("there is no rule named root");
    }
    for (const auto & symbol : parser.symbol_ids) {
        if (symbol.second >= parser.rules.size() || parser.rules[symbol.second].empty()) {
            refuse("the rule " + symbol.first + " is used and not defined");
        }
    }
    if (parser.rules.size() > max_rules) {
        refuse(std::to_string(parser.rules.size()) + " rules are more than " + std::to_string(max_rules));
    }
}

bool is_end(const llama_grammar_element & element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
}

// rules that can be the empty text, to a fixed point
std::vector<bool> find_empty(const llama_grammar_rules & rules) {
    std::vector<bool> empty(rules.size(), false);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = rules.size(); i-- > 0;) {
            bool can = true;
            for (const llama_grammar_element & element : rules[i]) {
                if (is_end(element)) {
                    if (can && !empty[i]) {
                        empty[i] = changed = true;
                    }
                    can = true;
                } else {
                    can = can && element.type == LLAMA_GRETYPE_RULE_REF && empty[element.value];
                }
            }
        }
    }
    return empty;
}

// rules that a rule can begin with
std::vector<uint32_t> first_rules(const llama_grammar_rule & rule, const std::vector<bool> & empty) {
    std::vector<uint32_t> found;
    bool first = true;
    for (const llama_grammar_element & element : rule) {
        if (is_end(element)) {
            first = true;
        } else if (first) {
            const bool refers = element.type == LLAMA_GRETYPE_RULE_REF;
            if (refers) {
                found.push_back(element.value);
            }
            first = refers && empty[element.value];
        }
    }
    return found;
}

// Left recursion, also through rules that are empty in a roundabout way, makes llama.cpp's stacks grow without end. Its
// own check misses those, recurses, and takes a time that doubles with every `a ::= b | b`.
class recursion_check {
public:
    explicit recursion_check(const llama_grammar_parser & parser)
        : parser(parser), empty(find_empty(parser.rules)), states(parser.rules.size()) {}

    void run() {
        for (uint32_t i = 0; i < states.size(); ++i) {
            if (!states[i].done) {
                visit(i);
            }
        }
    }

private:
    struct state {
        bool     open = false;
        bool     done = false;
        size_t   next = 0;
        size_t   depth = 1;
        uint64_t walk = 1;
        std::vector<uint32_t> firsts;
    };

    void visit(uint32_t from) {
        std::vector<uint32_t> path;
        for (enter(path, from); !path.empty();) {
            state & top = states[path.back()];
            if (top.next < top.firsts.size()) {
                const uint32_t child = top.firsts[top.next++];
                if (states[child].open) {
                    refuse("the rule " + name(child) + " begins with itself (left recursion)");
                }
                if (states[child].done) {
                    add(top, states[child]);
                } else {
                    enter(path, child);
                }
                continue;
            }
            top.open = false;
            top.done = true;
            path.pop_back();
            if (!path.empty()) {
                add(states[path.back()], top);
            }
        }
    }

    void enter(std::vector<uint32_t> & path, uint32_t rule) {
        states[rule].open = true;
        states[rule].firsts = first_rules(parser.rules[rule], empty);
        path.push_back(rule);
    }

    static void add(state & parent, const state & child) {
        parent.depth = std::max(parent.depth, child.depth + 1);
        parent.walk += child.walk;
        if (parent.depth > max_depth || parent.walk > max_walk) {
            refuse("too many ways to begin a rule: give it fewer alternatives or repetitions");
        }
    }

    std::string name(uint32_t rule) const {
        for (const auto & symbol : parser.symbol_ids) {
            if (symbol.second == rule) {
                return symbol.first;
            }
        }
        return std::to_string(rule);
    }

    const llama_grammar_parser & parser;
    const std::vector<bool> empty;
    std::vector<state> states;
};

// the ASCII characters that an element at the top of a stack takes, and whether others can begin there
void add_first(const llama_grammar_element * element, std::bitset<256> & bytes) {
    const bool inverse = element->type == LLAMA_GRETYPE_CHAR_NOT;
    std::bitset<128> named;
    const llama_grammar_element * pos = element;
    do {
        const bool range = pos[1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER;
        const uint32_t last = std::min(range ? pos[1].value : pos->value, (uint32_t) 127);
        for (uint32_t c = pos->value; c <= last; ++c) {
            named.set(c);
        }
        pos += range ? 2 : 1;
    } while (pos->type == LLAMA_GRETYPE_CHAR_ALT);
    for (size_t c = 0; c < 128; ++c) {
        if (named[c] != inverse) {
            bytes.set(c);
        }
    }
}

} // namespace

eagle_grammar::eagle_grammar(const llama_vocab * vocab, const std::string & text) {
    check_text(text);
    llama_grammar_parser parser(vocab);
    parse(parser, text);
    recursion_check(parser).run();
    std::vector<const llama_grammar_element *> rules(parser.c_rules());
    start.reset(llama_grammar_init_impl(vocab, rules.data(), rules.size(), parser.symbol_ids.at("root")));
    if (start == nullptr) {
        refuse("llama.cpp refused it: " + eagle_log_take_error());
    }
    for (const llama_grammar_rule & rule : parser.rules) {
        for (const llama_grammar_element & element : rule) {
            tokens = tokens || element.type == LLAMA_GRETYPE_TOKEN || element.type == LLAMA_GRETYPE_TOKEN_NOT;
        }
    }
    reset();
}

eagle_grammar::eagle_grammar(const eagle_grammar & other)
    : start(llama_grammar_clone_impl(*other.start)), state(llama_grammar_clone_impl(*other.state)),
      tokens(other.tokens) {}

void eagle_grammar::reset() {
    state.reset(llama_grammar_clone_impl(*start));
}

void eagle_grammar::apply(llama_token_data * tokens, size_t n) const {
    llama_token_data_array array = { tokens, n, -1, false };
    llama_grammar_apply_impl(*state, &array);
}

bool eagle_grammar::allows(llama_token token) const {
    llama_token_data one = { token, 0.0f, 0.0f };
    apply(&one, 1);
    return one.logit == 0.0f;
}

void eagle_grammar::accept(llama_token token) {
    if (!allows(token)) {
        throw eagle_invalid("token " + std::to_string(token) + " cannot follow in this grammar");
    }
    llama_grammar_accept_impl(*state, token);
}

std::bitset<256> eagle_grammar::next_bytes() const {
    std::bitset<256> bytes;
    if (state->partial_utf8.n_remain != 0) {
        return bytes.set();
    }
    for (const llama_grammar_stack & stack : llama_grammar_get_stacks(state.get())) {
        if (stack.empty()) {
            continue; // end tokens only
        }
        switch (stack.back()->type) {
            case LLAMA_GRETYPE_CHAR:
            case LLAMA_GRETYPE_CHAR_NOT:
                add_first(stack.back(), bytes);
                break;
            default:
                return bytes.set();
        }
    }
    for (size_t b = 128; b < 256; ++b) {
        bytes.set(b);
    }
    return bytes;
}

eagle_grammar::beginnings eagle_grammar::begin() {
    beginnings found = { next_bytes(), std::vector<std::bitset<256>>(256, std::bitset<256>().set()) };
    if (found.first.all()) {
        return found; // token elements, or the middle of a character
    }
    const llama_grammar_stacks stacks = llama_grammar_get_stacks(state.get());
    for (uint32_t c = 0; c < 128; ++c) {
        if (found.first[c]) {
            llama_grammar_accept(state.get(), c);
            found.second[c] = next_bytes();
            llama_grammar_get_stacks(state.get()) = stacks;
        }
    }
    return found;
}
