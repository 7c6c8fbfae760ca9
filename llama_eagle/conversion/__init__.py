"""Conversion: draft checkpoints of every layout become GGUF heads. The entry is converter.convert()."""
