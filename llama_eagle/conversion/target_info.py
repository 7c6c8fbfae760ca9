"""TargetInfo: what a draft needs to know of its target: sizes and tokenizer, from a GGUF or from an HF folder's config.

Reads metadata only, loads no weights, and does not need llama.cpp. An HF folder's tokenizer is not read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError, ModelError
from ..gguf_files.head import HEADS
from .checkpoint import read_json
from .config_fields import count, mapping, switch

# What the reader of the gguf package raises on broken files.
BROKEN = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, RecursionError)
# Where configs of models for more than text keep the language model's part.
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True)
class MetaValue:
    """One GGUF metadata value with its type, so that it can be written again unchanged."""

    key: str
    value: Any
    type: gguf.GGUFValueType
    item: gguf.GGUFValueType | None


@dataclass(frozen=True)
class TargetInfo:
    """Sizes, `tokenizer.*` metadata without chat templates (empty: not known), and `tied`: the head is the embedding.

    path: the GGUF file, or the folder with config.json.
    """

    path: Path
    arch: str
    n_layer: int
    n_embd: int
    n_vocab: int
    n_ctx: int
    tied: bool
    tokenizer: tuple[MetaValue, ...]


class BoundedReader(gguf.GGUFReader):
    """Stops at the end of the file, where the plain reader goes on for as long as a hostile length says."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> npt.NDArray[Any]:
        if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
            raise ValueError("it ends too early")
        return super()._get(offset, dtype, count, override_order)


def read_target(path: str | Path) -> TargetInfo:
    """Read a target's GGUF (the first shard of a split one) or HF folder. Raises ModelError if it says too little."""
    path = Path(path)
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise ModelError(f"target {path} does not exist; give the target's GGUF file, HF folder or hub id")
    try:
        return _read_info(BoundedReader(path), path)
    except ModelError:
        raise
    except (*BROKEN, OSError) as error:
        why = " ".join(str(error).split())
        raise ModelError(f"target {path} is no readable GGUF file ({why}); download it again") from None


def _read_info(reader: gguf.GGUFReader, path: Path) -> TargetInfo:
    arch = _value(reader, "general.architecture", path)
    if not isinstance(arch, str) or not arch.isprintable():
        raise ModelError(f"target {path} has the architecture {arch!r}; download it again")
    if arch in HEADS:
        raise ModelError(f"target {path} is itself a draft (architecture {arch}); give the model that it drafts for")
    tokens = reader.get_field("tokenizer.ggml.tokens")
    if tokens is None:
        raise ModelError(f"target {path} has no tokenizer.ggml.tokens; give a GGUF that carries its tokenizer")
    # llama.cpp does not count the layers of multi-token prediction as layers of the model.
    extra = reader.get_field(f"{arch}.nextn_predict_layers")
    tensors = {tensor.name for tensor in reader.tensors}
    return TargetInfo(
        path=path,
        arch=arch,
        n_layer=_integer(reader, f"{arch}.block_count", path) - (int(extra.contents()) if extra else 0),
        n_embd=_integer(reader, f"{arch}.embedding_length", path),
        n_vocab=len(tokens.data),
        n_ctx=_integer(reader, f"{arch}.context_length", path),
        tied="token_embd.weight" in tensors and "output.weight" not in tensors,
        tokenizer=tuple(_tokenizer(reader)),
    )


def _read_folder(path: Path) -> TargetInfo:
    try:
        config = read_json(path / "config.json")
        nested = next((mapping(config, key) for key in TEXT_CONFIGS if mapping(config, key)), {})
        flat = {**config, **nested}
        return TargetInfo(
            path=path,
            arch=str(flat.get("model_type") or ""),
            n_layer=count(flat, "num_hidden_layers"),
            n_embd=count(flat, "hidden_size"),
            n_vocab=count(flat, "vocab_size"),
            n_ctx=count(flat, "max_position_embeddings", 1),
            tied=switch("tie_word_embeddings", nested, config) is True,
            tokenizer=(),
        )
    except CheckpointError as error:
        words = str(error).replace("an EAGLE checkpoint has one", "give the target's GGUF file or HF folder")
        words = words.replace("is this the draft's own config?", "give the target's GGUF file instead")
        raise ModelError(f"target {path}: {words}") from None


def _value(reader: gguf.GGUFReader, key: str, path: Path) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise ModelError(f"target {path} has no metadata key {key}; download it again")
    return field.contents()


def _integer(reader: gguf.GGUFReader, key: str, path: Path) -> int:
    value = _value(reader, key, path)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 < value < 1 << 31:
        raise ModelError(f"target {path} has {key} = {value!r}; expected a positive number below 2^31")
    return int(value)


def _tokenizer(reader: gguf.GGUFReader) -> list[MetaValue]:
    found = []
    for key, field in reader.fields.items():
        if not key.startswith("tokenizer.") or key.startswith("tokenizer.chat_template"):
            continue
        value = field.contents()
        if isinstance(value, list) and not value:
            continue  # an empty array says nothing, and the writer refuses it
        item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        found.append(MetaValue(key, value, field.types[0], item))
    return found
