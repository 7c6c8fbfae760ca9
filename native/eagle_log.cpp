// llama.cpp's log, kept in a bounded queue until Python asks: no callback ever enters the interpreter.

#include "eagle_internal.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>

namespace {

struct line {
    int32_t level;
    std::string text;
};

std::mutex        log_mutex;
std::deque<line>  log_lines;
std::string       log_partial;
std::string       log_error;
int32_t           log_level_min = GGML_LOG_LEVEL_WARN;
int32_t           log_level_last = GGML_LOG_LEVEL_INFO;

constexpr size_t max_lines = 4096;

void log_line(int32_t level, const std::string & text) {
    // the first names the cause, those behind it say only who gave up because of it
    if (level == GGML_LOG_LEVEL_ERROR && log_error.empty()) {
        log_error = text;
    }
    if (level < log_level_min) {
        return;
    }
    if (log_lines.size() == max_lines) {
        log_lines.pop_front();
    }
    log_lines.push_back({ level, text });
}

void log_callback(ggml_log_level level, const char * text, void *) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    if (level != GGML_LOG_LEVEL_CONT) {
        log_level_last = level;
    }
    log_partial += text;
    for (size_t end; (end = log_partial.find('\n')) != std::string::npos; log_partial.erase(0, end + 1)) {
        log_line(log_level_last, log_partial.substr(0, end));
    }
}

struct log_install {
    log_install() {
        llama_log_set(log_callback, nullptr);
    }
} install;

} // namespace

void eagle_copy_text(const std::string & text, char * out, int32_t size) {
    if (out == nullptr || size <= 0) {
        return;
    }
    const size_t n = std::min<size_t>(text.size(), size - 1);
    memcpy(out, text.data(), n);
    out[n] = '\0';
}

std::string eagle_log_take_error() {
    const std::lock_guard<std::mutex> lock(log_mutex);
    std::string res;
    std::swap(res, log_error);
    return res;
}

int32_t eagle_log_next(char * text, int32_t size, int32_t * level) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    if (log_lines.empty()) {
        return -1;
    }
    const line next = log_lines.front();
    log_lines.pop_front();
    *level = next.level;
    eagle_copy_text(next.text, text, size);
    return next.text.size();
}

void eagle_log_level(int32_t level) {
    const std::lock_guard<std::mutex> lock(log_mutex);
    log_level_min = level;
}
