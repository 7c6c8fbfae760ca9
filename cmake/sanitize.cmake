# LLAMA_EAGLE_SANITIZE: reports of wrong memory accesses and undefined behaviour, in our code and in llama.cpp's alike,
# since a wrong index of ours is often used only there. scripts/sanitize.py builds it and runs things under it.

option(LLAMA_EAGLE_SANITIZE "address and undefined-behaviour sanitizers in all native code" OFF)

if(LLAMA_EAGLE_SANITIZE)
    if(MSVC)
        message(FATAL_ERROR "LLAMA_EAGLE_SANITIZE needs GCC or Clang")
    endif()
    set(sanitize -fsanitize=address,undefined)
    # the vector checks see what the heap does not: an index between size and capacity
    add_compile_definitions(_GLIBCXX_ASSERTIONS _GLIBCXX_SANITIZE_VECTOR)
    foreach(flag ${sanitize} -fno-omit-frame-pointer -g1 -O1)
        add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${flag}>")
    endforeach()
    add_link_options(${sanitize})
endif()

# a report in our own code ends the process; llama.cpp's go on, since some are known (scripts/ubsan.supp)
function(llama_eagle_end_at_reports target)
    if(LLAMA_EAGLE_SANITIZE)
        target_compile_options(${target} PRIVATE -fno-sanitize-recover=all)
        target_sources(${target} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/sanitize.cpp")
        target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
    endif()
endfunction()
