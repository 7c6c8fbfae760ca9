# Settings of every target, ours and llama.cpp's.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# __FILE__ in messages: no path of the build machine, and the same objects wherever the build directory lies
foreach(map "${CMAKE_SOURCE_DIR}=llama-eagle" "${CMAKE_BINARY_DIR}/llama.cpp-source=llama.cpp")
    add_compile_options("$<$<COMPILE_LANG_AND_ID:C,GNU,Clang,AppleClang>:-ffile-prefix-map=${map}>"
                        "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-ffile-prefix-map=${map}>")
endforeach()

# libraries find each other beside themselves, in the build tree and in the wheel alike
if(APPLE)
    set(CMAKE_INSTALL_RPATH "@loader_path")
else()
    set(CMAKE_INSTALL_RPATH "$ORIGIN")
endif()
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

find_program(LLAMA_EAGLE_CCACHE ccache)
mark_as_advanced(LLAMA_EAGLE_CCACHE)
foreach(language C CXX CUDA)
    if(LLAMA_EAGLE_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
        # relative paths, so that another checkout and a temporary build directory hit the same entries
        set(CMAKE_${language}_COMPILER_LAUNCHER
            "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${CMAKE_SOURCE_DIR};CCACHE_NOHASHDIR=1;${LLAMA_EAGLE_CCACHE}")
    endif()
endforeach()
