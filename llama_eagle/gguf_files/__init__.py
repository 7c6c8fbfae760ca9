"""What a GGUF says of itself, read and checked before llama.cpp, which some files make abort, opens it.

The entries are check.check_gguf() and model_header.model_header().
"""
