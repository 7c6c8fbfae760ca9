# The component `llama_eagle`: all that the wheel takes from the build. llama.cpp's own rules (headers, CMake files) stay out.

foreach(library ${LLAMA_EAGLE_LIBRARIES})
    install(TARGETS ${library}
        LIBRARY DESTINATION llama_eagle/lib COMPONENT llama_eagle NAMELINK_SKIP
        RUNTIME DESTINATION llama_eagle/lib COMPONENT llama_eagle
        ARCHIVE DESTINATION llama_eagle/lib COMPONENT development EXCLUDE_FROM_ALL)
endforeach()
install(FILES "${LLAMA_EAGLE_BINDINGS}" "${CMAKE_BINARY_DIR}/_build.py" DESTINATION llama_eagle COMPONENT llama_eagle)
install(FILES "${LLAMA_EAGLE_SOURCE}/LICENSE" DESTINATION llama_eagle/licenses/llama.cpp COMPONENT llama_eagle)
install(DIRECTORY "${LLAMA_EAGLE_SOURCE}/licenses/" DESTINATION llama_eagle/licenses/llama.cpp COMPONENT llama_eagle)

# one name for all of it, for the wheel's build
add_custom_target(llama_eagle_package DEPENDS eagle_bindings ${LLAMA_EAGLE_LIBRARIES})
