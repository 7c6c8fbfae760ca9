"""Rules for the vocabulary in a GGUF file: what `llama-vocab.cpp` asserts, or would allocate, before it is loaded.

Knows the tokenizers of llama.cpp and their defaults, and nothing of how a text is tokenized.
"""

import numpy as np

from ..errors import ModelError
from .header import STRING
from .metadata import MOST_SIZE, Metadata

TOKENS = "tokenizer.ggml.tokens"
_BYTE, _BYTE_TOKENS = 6, ("llama", "t5", "gpt2", "gemma4", "plamo2")
_ALWAYS_BOS = ("gemma4", "granite-embed-multi-311m")  # pre-tokenizers that add it whatever the file says
# tokenizer: ids of begin and end where the file gives none, and whether both are added then, at most
_SPECIAL = {
    "llama": (1, 2, True, False), "bert": (101, None, True, False), "gpt2": (11, 11, True, False),
    "hybriddna": (11, 11, True, False), "whitespace": (11, 11, True, False), "t5": (None, 1, False, True),
    "plamo2": (1, 2, False, False), "gemma4": (None, None, True, False), "rwkv": (None, None, False, False),
}  # fmt: skip
_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_NONE = ("none", "no_vocab")


def check_vocabulary(meta: Metadata) -> None:
    """Looks at a model's vocabulary. Raises ModelError with the key that is wrong."""
    kind = meta.text("tokenizer.ggml.model")
    if kind in _NONE:
        meta.size("vocab_size", 0, 0, MOST_SIZE)  # that many tokens are made up
        return
    value = meta.values.get(TOKENS)
    if value is None or value.kind != STRING or not isinstance(value.data, list):
        return  # llama.cpp refuses that in a civil way
    tokens = [token or b"[EMPTY_%d]" % i for i, token in enumerate(value.data)]  # as llama.cpp names them
    if not tokens or len(set(tokens)) != len(tokens):
        raise ModelError(f"{TOKENS} has {len(tokens)} entries, {len(set(tokens))} of them different")
    for key in ("token_type", "scores"):
        other = meta.values.get(f"tokenizer.ggml.{key}")
        if other is not None and other.count != len(tokens):
            raise ModelError(f"tokenizer.ggml.{key} has {other.count} entries, {TOKENS} has {len(tokens)}")
    pre = meta.text("tokenizer.ggml.pre")
    if pre == "whitespace" != kind:
        raise ModelError(f"tokenizer.ggml.pre does not go with the tokenizer {kind!r}")
    types = meta.values.get("tokenizer.ggml.token_type")
    if types is not None and kind not in _BYTE_TOKENS and np.any(np.asarray(types.data) == _BYTE):
        raise ModelError(f"tokenizer.ggml.token_type has bytes, which the tokenizer {kind!r} has not")
    if kind == "rwkv":
        _check_prefixes(value.data)
    begin, end, adds_begin, adds_end = _SPECIAL.get(kind, (None, None, False, False))
    always = kind == "gemma4" or pre in _ALWAYS_BOS
    _check_added(meta, "bos", None if always else meta.number("tokenizer.ggml.add_bos_token"), (adds_begin, begin))
    _check_added(meta, "eos", meta.number("tokenizer.ggml.add_eos_token"), (adds_end, end))
    if kind == "bert":
        _check_added(meta, "seperator", meta.number("tokenizer.ggml.add_sep_token"), (True, 102))


def _check_prefixes(tokens: list[bytes]) -> None:
    """The tokenizer `rwkv` never ends where a text begins a token and is none: it steps back to its first byte."""
    whole = {_unescape(token) for token in tokens}
    for token in tokens:
        first = _unescape(token)[:1]
        if first and first not in whole:
            raise ModelError(f"{TOKENS} has {token[:40]!r}, and no token for its first byte {first!r} alone")


def _unescape(token: bytes) -> bytes:
    """The first two bytes at most of a token, as the tokenizer `rwkv` reads it: hex digits are not checked."""
    out, at = bytearray(), 0
    while at < len(token) and len(out) < 2:
        byte = token[at : at + 1]
        at += 1
        if byte == b"\\":
            byte = _ESCAPES.get(token[at : at + 1], token[at : at + 1])
            at += 1
        if byte == b"x" and token[at - 2 : at] == b"\\x":
            high, low = ((d - 87 if d >= 97 else d - 48) for d in (token[at : at + 2] + b"00")[:2])
            byte = bytes([((high << 4) + low) & 255]) if at + 2 <= len(token) else b""
            at += 2
        out += byte
    return bytes(out)


def _check_added(meta: Metadata, name: str, flag: "float | None", default: tuple[bool, "int | None"]) -> None:
    """llama.cpp asserts that a token which it adds to every text exists."""
    added, token = default
    if not (added if flag is None else flag):
        return
    key = f"tokenizer.ggml.{name}_token_id"
    known = (meta.number(key), token)
    n_tokens = meta.values[TOKENS].count
    if not any(token is not None and 0 <= token < n_tokens for token in known):
        given = "there is none" if known[0] is None else f"its id is {known[0]:g} of {n_tokens} tokens"
        raise ModelError(f"it adds a {name} token to every text and {given}: {key}")
