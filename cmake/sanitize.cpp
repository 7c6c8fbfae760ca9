// In sanitized builds only: reports of undefined behaviour go to files, as address reports do. Beside the address
// sanitizer libubsan leaves its log_path unread, and a test that captures stderr would swallow them.

#include <dlfcn.h>

#include <cstdlib>

namespace {

[[maybe_unused]] const bool done = [] {
    const char * path = getenv("LLAMA_EAGLE_UNDEFINED");
    void * library = dlopen("libubsan.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (path != nullptr && library != nullptr) {
        if (auto set_path = (void (*)(const char *)) dlsym(library, "__sanitizer_set_report_path")) {
            set_path(path);
        }
    }
    return true;
}();

} // namespace
