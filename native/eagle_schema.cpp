// JSON schemas become grammars with llama.cpp's own translation, which is in its `common` library: CMake takes the few
// files that it needs, and the two functions they want of the rest of that library are here.

#include "eagle_internal.h"

#include "json-schema-to-grammar.h"

#include <stdexcept>

std::string string_repeat(const std::string & text, size_t n) {
    std::string out;
    out.reserve(text.size() * n);
    for (size_t i = 0; i < n; ++i) {
        out += text;
    }
    return out;
}

// What the translation leaves out it prints as a warning, and accepts any string there. It joins nothing but its warnings
// with "; ", so here they become the error that they should be.
std::string string_join(const std::vector<std::string> & values, const std::string & separator) {
    if (separator == "; ") {
        throw std::invalid_argument(values.front());
    }
    std::string out;
    for (size_t i = 0; i < values.size(); ++i) {
        out += (i > 0 ? separator : "") + values[i];
    }
    return out;
}

std::vector<std::string> string_split(const std::string & text, const std::string & delimiter) {
    std::vector<std::string> parts;
    size_t start = 0;
    for (size_t end; (end = text.find(delimiter, start)) != std::string::npos; start = end + delimiter.size()) {
        parts.push_back(text.substr(start, end - start));
    }
    parts.push_back(text.substr(start));
    return parts;
}

int32_t eagle_schema_grammar(const char * schema, char * text, int32_t size) {
    try {
        const std::string grammar = json_schema_to_grammar(common_json::parse(schema), true);
        eagle_copy_text(grammar, text, size);
        return (int32_t) grammar.size();
    } catch (const std::exception & e) {
        eagle_copy_text(e.what(), text, size);
        return EAGLE_INVALID;
    }
}
