#pragma once

// eagle_api.h for compilers: guards, linkage and visibility around the declarations that cffi reads.

#include <stdint.h>

#if defined(__GNUC__)
#    pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

#include "eagle_api.h"

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#    pragma GCC visibility pop
#endif
