# _eagle_cffi.py: the declarations of eagle_api.h for cffi's ABI mode. Plain Python, so one wheel serves every version.

set(LLAMA_EAGLE_BINDINGS "${CMAKE_BINARY_DIR}/_eagle_cffi.py")
add_custom_command(
    OUTPUT "${LLAMA_EAGLE_BINDINGS}"
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/native/build_ffi.py" "${LLAMA_EAGLE_BINDINGS}"
    DEPENDS "${CMAKE_SOURCE_DIR}/native/build_ffi.py" "${CMAKE_SOURCE_DIR}/native/eagle_api.h"
    VERBATIM)
add_custom_target(eagle_bindings ALL DEPENDS "${LLAMA_EAGLE_BINDINGS}")

# what this build is, for `llama-eagle doctor`
file(STRINGS "${CMAKE_SOURCE_DIR}/patches/series" LLAMA_EAGLE_SERIES)
list(TRANSFORM LLAMA_EAGLE_SERIES REPLACE "^(....).*" "\\1")
list(JOIN LLAMA_EAGLE_SERIES " " LLAMA_EAGLE_SERIES)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/_build.py" @ONLY CONTENT [[
"""What this build is; written by CMake."""

LLAMA_CPP_COMMIT = "@LLAMA_BUILD_COMMIT@"
PATCHES = "@LLAMA_EAGLE_SERIES@"
]])
