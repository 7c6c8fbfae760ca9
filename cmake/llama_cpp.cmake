# The pinned and patched llama.cpp below the build directory, and its targets `llama` and `ggml`.

set(LLAMA_EAGLE_SOURCE "${CMAKE_BINARY_DIR}/llama.cpp-source")

file(GLOB patch_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/patches/*.patch")
file(GLOB patch_scripts "${CMAKE_SOURCE_DIR}/scripts/*patch*.py" "${CMAKE_SOURCE_DIR}/scripts/fetch_llama_cpp.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${CMAKE_SOURCE_DIR}/LLAMA_CPP_VERSION" "${CMAKE_SOURCE_DIR}/patches/series" ${patch_files} ${patch_scripts})

execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env --unset=PYTHONSAFEPATH
            "${Python_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/scripts/patches.py" apply "${LLAMA_EAGLE_SOURCE}"
            --source "${LLAMA_EAGLE_LLAMA_CPP}"
    RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "there is no patched llama.cpp to build, see the lines above")
endif()

file(STRINGS "${CMAKE_SOURCE_DIR}/LLAMA_CPP_VERSION" pin REGEX "^commit=")
string(REGEX REPLACE "^commit=(.........).*" "\\1" LLAMA_BUILD_COMMIT "${pin}")
set(BUILD_COMMIT "${LLAMA_BUILD_COMMIT}")

foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP)
    set(LLAMA_BUILD_${part} OFF)
endforeach()

# llama.cpp's own defaults, which it sets only when it adds ggml itself
set(GGML_LLAMAFILE_DEFAULT ON)
set(GGML_CUDA_GRAPHS_DEFAULT ON)

if(LLAMA_EAGLE_PORTABLE)
    set(BUILD_SHARED_LIBS ON)
    set(GGML_NATIVE OFF)
    set(GGML_BACKEND_DL ON)
    set(GGML_CPU_ALL_VARIANTS ON)
    add_subdirectory("${LLAMA_EAGLE_SOURCE}/ggml" ggml EXCLUDE_FROM_ALL)
    # names of our own: another package's libggml may be in the process. Backends are opened by path and keep theirs.
    foreach(library ggml ggml-base)
        set_target_properties(${library} PROPERTIES OUTPUT_NAME "llama_eagle_${library}")
        set_property(TARGET ${library} PROPERTY VERSION)
        set_property(TARGET ${library} PROPERTY SOVERSION)
    endforeach()
endif()

set(BUILD_SHARED_LIBS OFF)
add_subdirectory("${LLAMA_EAGLE_SOURCE}" llama.cpp EXCLUDE_FROM_ALL)
target_include_directories(llama PRIVATE "${CMAKE_SOURCE_DIR}/native")
