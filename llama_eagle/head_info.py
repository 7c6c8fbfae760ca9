"""HeadInfo: what a draft head is, whether it comes from a GGUF (read here) or from a checkpoint (checkpoint_info.py).

Reads the header and the vocabulary map, no weights; docs/head-format.md lists the keys. Does not know any target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelError
from .gguf_files.head import HEADS, LAST_HIDDEN
from .gguf_files.header import GgufHeader
from .gguf_files.metadata import MOST_LAYERS, Metadata
from .gguf_files.model_header import metadata_of, model_header, named_errors, whole
from .vocabulary import Vocabulary, map_problems, vocabulary_of

_I64 = 27
_TYPES = {  # enum ggml_type
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 10: "q2_K", 11: "q3_K", 12: "q4_K",
    13: "q5_K", 14: "q6_K", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s",
    22: "iq2_s", 23: "iq4_xs", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 30: "bf16",
    34: "tq1_0", 35: "tq2_0", 39: "mxfp4", 40: "nvfp4", 41: "q1_0", 42: "q2_0",
}  # fmt: skip
_TABLES = ("d2t", "rope_freqs.weight")  # no parameters
SHARED = {"token_embd.weight": "embeddings", "output.weight": "output head"}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network and its file. None where it does not say; types: tensors of each type."""

    hidden: int | None
    ffn: int | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    parameters: int
    bytes: int
    types: dict[str, int]


@dataclass(frozen=True)
class HeadInfo:
    """A draft head. features: ids as in docs/head-format.md. map_end: one more than the largest id of d2t, if any.

    rule: how the layer ids were chosen, where that is stored. choices: what else was a guess at conversion.
    rope: base, scaling (the config's word) and factor, None where one factor does not say it.
    shares: what it takes from its target. problems: what keeps it from working with any target.
    """

    name: str
    arch: str
    version: str
    layout: str | None
    sizes: Sizes
    features: tuple[int, ...]
    target_hidden: int | None
    rule: str | None
    n_vocab: int | None
    n_draft: int | None
    map_end: int | None
    context: int | None
    rope: dict[str, Any]
    switches: tuple[str, ...]
    shares: tuple[str, ...]
    vocabulary: Vocabulary | None = None
    choices: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hidden(self) -> int | None:
        """Width of the draft."""
        return self.sizes.hidden


def feature_meanings(features: Sequence[int], n_layer: int | None) -> list[str]:
    """What each feature is, in words. n_layer: of the target, None where it is not known."""
    return [_meaning(i, n_layer) for i in features]


def _meaning(feature: int, n_layer: int | None) -> str:
    if feature == LAST_HIDDEN:
        return "last hidden state, after the final norm"
    if feature == 0:
        return "token embeddings"
    if feature == n_layer:
        return "output of the last layer, before the final norm"
    return f"input of layer {feature}"


def read_head(path: Path) -> HeadInfo:
    """What a head's GGUF says. Raises ModelError where it is broken or no head."""
    if not path.is_file():
        raise ModelError(f"no such model file: {path}")
    with named_errors(path):
        header = model_header(path)
        meta = metadata_of(header)
        if meta.arch not in HEADS:
            raise ModelError(
                f"its architecture is {meta.arch}, it is no draft head: convert an EAGLE checkpoint with "
                "`llama-eagle convert`"
            )
        return _head(path, header, meta)


def _head(path: Path, header: GgufHeader, meta: Metadata) -> HeadInfo:
    vocabulary = vocabulary_of(meta)
    n_vocab = whole(meta, "vocab_size")
    if n_vocab is None and vocabulary is not None:
        n_vocab = len(vocabulary.tokens)
    ids = _read_map(path, header)
    features, problems = _features(meta)
    return HeadInfo(
        name=meta.text("general.name") or path.name,
        arch=meta.arch,
        version=_version(meta),
        layout=meta.text("llama_eagle.conversion.layout") or None,
        sizes=file_sizes(meta, [header]),
        features=features,
        target_hidden=whole(meta, "target_hidden_size"),
        rule=meta.text("llama_eagle.layer_rule") or None,
        n_vocab=n_vocab,
        n_draft=n_vocab if ids is None else len(ids),
        map_end=None if ids is None else int(ids.max()) + 1,
        context=whole(meta, "context_length"),
        rope=_rope(meta),
        switches=_switches(meta),
        shares=tuple(word for name, word in SHARED.items() if name not in meta.shapes),
        vocabulary=vocabulary,
        choices=_choices(meta),
        problems=(*problems, *_missing(meta), *([] if ids is None else map_problems(ids, n_vocab))),
        notes=() if vocabulary else ("it carries no tokenizer: it fits a target by size only",),
    )


def _read_map(path: Path, header: GgufHeader) -> np.ndarray | None:
    entry = next((entry for entry in header.tensors if entry.name == "d2t"), None)
    if entry is None:
        return None
    if entry.kind != _I64 or len(entry.shape) != 1 or not 0 < entry.shape[0] < 1 << 24:
        raise ModelError(f"d2t is {list(entry.shape)} of type {_type(entry.kind)}, expected one row of i64")
    begin = header.data_start + entry.offset
    if begin + 8 * entry.shape[0] > header.size:
        raise ModelError("d2t ends after the file: it was cut")
    with path.open("rb") as file:
        file.seek(begin)
        ids = np.frombuffer(file.read(8 * entry.shape[0]), np.int64)
    if len(ids) != entry.shape[0]:
        raise ModelError("d2t ends after the file: it was cut")
    return ids


def _features(meta: Metadata) -> tuple[tuple[int, ...], list[str]]:
    value = meta.get("target_layers")
    if value is not None:
        return tuple(meta.sizes("target_layers", value, LAST_HIDDEN, MOST_LAYERS).tolist()), []
    if meta.arch == "eagle":
        return (LAST_HIDDEN,), []
    return (), [f"it has no {meta.arch}.target_layers: it does not say which features it reads"]


def _missing(meta: Metadata) -> list[str]:
    """The first tensor that every head has and this one lacks."""
    needed = [f"blk.0.{part}.weight" for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down")]
    needed += ["fc.weight"] if meta.arch == "eagle" else ["output_norm.weight"]
    return [f"tensor {name} is missing" for name in needed if name not in meta.shapes][:1]


def _version(meta: Metadata) -> str:
    if meta.arch == "eagle":
        return "1"  # EAGLE-2 uses the same network
    return "3.1" if "fc_norm.weight" in meta.shapes or meta.flag("norm_output") else "3"


def _switches(meta: Metadata) -> tuple[str, ...]:
    on = [key for key in ("norm_before_residual", "norm_before_fc", "norm_output") if meta.flag(key)]
    return (*on, "fc_norm") if "fc_norm.weight" in meta.shapes else tuple(on)


def _choices(meta: Metadata) -> tuple[str, ...]:
    """Texts that the converter left about guesses: `llama_eagle.*_rule` without that of the layers."""
    keys = [key for key in meta.values if key.startswith("llama_eagle.") and key.endswith("_rule")]
    return tuple(meta.text(key) for key in sorted(keys) if key != "llama_eagle.layer_rule")


def _rope(meta: Metadata) -> dict[str, Any]:
    kind = meta.text(f"{meta.arch}.rope.scaling.type").replace("none", "default")
    factors = any(name.endswith("rope_freqs.weight") for name in meta.shapes)
    return {
        "base": meta.number(f"{meta.arch}.rope.freq_base"),
        "scaling": meta.text("llama_eagle.rope_type") or kind or ("by table" if factors else "default"),
        "factor": meta.number(f"{meta.arch}.rope.scaling.factor"),
    }


def file_sizes(meta: Metadata, headers: Sequence[GgufHeader]) -> Sizes:
    """Sizes of a network by its keys, and of its file by the headers of all its parts."""
    heads, hidden = whole(meta, "attention.head_count"), whole(meta, "embedding_length")
    entries = [entry for header in headers for entry in header.tensors]
    types = [_type(entry.kind) for entry in entries]
    return Sizes(
        hidden=hidden,
        ffn=whole(meta, "feed_forward_length"),
        layers=whole(meta, "block_count"),
        heads=heads,
        kv_heads=whole(meta, "attention.head_count_kv") or heads,
        head_size=whole(meta, "attention.key_length") or (hidden // heads if hidden and heads else None),
        parameters=sum(prod(entry.shape) for entry in entries if entry.name not in _TABLES),
        bytes=sum(header.size for header in headers),
        types={name: types.count(name) for name in sorted(set(types))},
    )


def _type(kind: int) -> str:
    return _TYPES.get(kind, f"type {kind}")
