"""Trains an EAGLE-3 head for a target that is a GGUF: its own answers, its own features, a head as checkpoint and GGUF.

Only head, unroll, loss, optimizers and what is built on them need torch, the extra `train`. Imports nothing itself.
"""
