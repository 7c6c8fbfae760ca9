"""Vocabulary: what the tokens of a file are called, where two part, and whether a map between two can be one.

Tokenizes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .gguf_files.metadata import Metadata
from .gguf_files.vocab import TOKENS

_NORMAL = (1, 6)  # enum llama_token_type: words and bytes; the others are control, user-defined, unused and unknown


@dataclass(frozen=True)
class Vocabulary:
    """kind and pre: `tokenizer.ggml.model` and `.pre`. types: one a token or none, as llama.cpp numbers them."""

    kind: str
    pre: str
    tokens: Sequence[bytes] = field(repr=False)
    types: "Sequence[int] | np.ndarray" = field(repr=False, default=())

    def is_normal(self, token: int) -> bool:
        """Whether text is made of a token; special ones are renamed by fine-tunes."""
        return token >= len(self.types) or self.types[token] in _NORMAL


@dataclass(frozen=True)
class Differences:
    """Ids whose texts differ. words: how many of them are words or bytes; first: the first of these, or of all."""

    count: int
    words: int
    first: int


def vocabulary_of(meta: Metadata) -> Vocabulary | None:
    """The vocabulary in a file's header, None without one. Raises ModelError where it is of another type."""
    value = meta.values.get(TOKENS)
    if value is None or not isinstance(value.data, list) or not value.data:
        return None
    types = meta.values.get("tokenizer.ggml.token_type")
    usable = types is not None and types.is_array and types.count == value.count
    known = types.data if types is not None and usable and isinstance(types.data, np.ndarray) else ()
    return Vocabulary(meta.text("tokenizer.ggml.model"), meta.text("tokenizer.ggml.pre"), value.data, known)


def map_problems(ids: np.ndarray, n_vocab: int | None) -> list[str]:
    """What is wrong with d2t, int64[n_draft], the target id of each draft id. n_vocab: the target's, None: unknown."""
    problems = []
    outside = np.flatnonzero((ids < 0) | (ids >= (n_vocab or 1 << 31)))
    if outside.size:
        first = outside[0]
        problems.append(f"d2t[{first}] points at token {ids[first]}, outside the target's {n_vocab or 'any'} tokens")
    found, counts = np.unique(ids, return_counts=True)
    if found.size != ids.size:
        problems.append(f"d2t maps {counts.max()} draft tokens to the same target token {found[counts.argmax()]}")
    return problems


def differences(one: Vocabulary, other: Vocabulary) -> Differences | None:
    """Where two vocabularies of one size part, None where they are equal."""
    if one.tokens == other.tokens:  # at the speed of memory: 128k texts in a few ms
        return None
    ids = [i for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)) if a != b]
    words = [i for i in ids if one.is_normal(i) and other.is_normal(i)]
    return Differences(len(ids), len(words), (words or ids)[0]) if ids else None
