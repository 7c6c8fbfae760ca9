# libllama_eagle: the C ABI with llama.cpp inside. Only eagle_* is visible, so another llama.cpp in the process is no matter.

file(GLOB native_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/native/*.cpp")
add_library(llama_eagle SHARED ${native_sources})
target_include_directories(llama_eagle PRIVATE "${CMAKE_SOURCE_DIR}/native" "${LLAMA_EAGLE_SOURCE}/src")
target_link_libraries(llama_eagle PRIVATE llama llama_eagle_schema)
# GCC vectorises no comparison of floats that might raise an exception; nobody asks for one
target_compile_options(llama_eagle PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-trapping-math>")
llama_eagle_end_at_reports(llama_eagle)

# JSON schema to grammar: the few files of llama.cpp's `common` that it takes, for eagle_schema.cpp
add_library(llama_eagle_schema STATIC)
foreach(file json-schema-to-grammar json-schema json trie unicode)
    target_sources(llama_eagle_schema PRIVATE "${LLAMA_EAGLE_SOURCE}/common/${file}.cpp")
endforeach()
target_include_directories(llama_eagle_schema
    PUBLIC "${LLAMA_EAGLE_SOURCE}/common" PRIVATE "${LLAMA_EAGLE_SOURCE}/vendor")
target_link_libraries(llama_eagle_schema PUBLIC llama)
set_target_properties(llama_eagle PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib"
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib"
    WINDOWS_EXPORT_ALL_SYMBOLS ON
    LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/exports.map")

if(APPLE)
    target_link_options(llama_eagle PRIVATE "LINKER:-exported_symbol,_eagle_*")
elseif(NOT WIN32)
    target_link_options(llama_eagle PRIVATE
        "LINKER:--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map" "LINKER:--exclude-libs,ALL" "LINKER:--no-undefined")
endif()

# every library the wheel carries
set(LLAMA_EAGLE_LIBRARIES llama_eagle)
if(LLAMA_EAGLE_PORTABLE)
    get_property(ggml_targets DIRECTORY "${LLAMA_EAGLE_SOURCE}/ggml/src" PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${ggml_targets})
        get_target_property(type ${target} TYPE)
        if(type MATCHES "SHARED_LIBRARY|MODULE_LIBRARY")
            list(APPEND LLAMA_EAGLE_LIBRARIES ${target})
        endif()
    endforeach()
endif()

if(NOT APPLE AND NOT WIN32)
    foreach(library ${LLAMA_EAGLE_LIBRARIES})
        # nodelete: Python closes the library while it exits, and OpenMP's threads must not lose their code
        target_link_options(${library} PRIVATE "LINKER:-z,nodelete" "LINKER:-Bsymbolic")
    endforeach()
endif()
