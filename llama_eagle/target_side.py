"""TargetSide: what of a target a draft has to fit, read from the header of its GGUF in milliseconds.

The converter reads more (TargetInfo): it copies the tokenizer.
"""

from dataclasses import dataclass
from pathlib import Path

from .errors import ModelError
from .gguf_files.head import HEADS
from .gguf_files.metadata import Metadata
from .gguf_files.model_header import metadata_of, model_header, named_errors, whole
from .vocabulary import Vocabulary, vocabulary_of


@dataclass(frozen=True)
class TargetSide:
    """A target's architecture and sizes; None where the file does not say. n_layer leaves multi-token heads out."""

    name: str
    arch: str
    n_layer: int
    n_embd: int
    n_ctx: int | None
    n_vocab: int | None
    vocabulary: Vocabulary | None
    tied: bool = False  # its head is its embeddings

    @property
    def is_draft(self) -> bool:
        """Whether it is no target at all."""
        return self.arch in HEADS


def read_target_side(path: Path) -> TargetSide:
    """Reads a target's header (the first shard's of a split one). Raises ModelError where it says too little."""
    if not path.is_file():
        raise ModelError(f"no such model file: {path}")
    with named_errors(path):
        return target_side(path.name, metadata_of(model_header(path)))


def target_side(name: str, meta: Metadata) -> TargetSide:
    """The side of a header that was read. Raises ModelError where a size is missing."""
    vocabulary = vocabulary_of(meta)
    layers, width = whole(meta, "block_count"), whole(meta, "embedding_length")
    if layers is None or width is None:
        missing = "block_count" if layers is None else "embedding_length"
        raise ModelError(f"it has no {meta.arch}.{missing}: it is no language model")
    return TargetSide(
        name=name,
        arch=meta.arch,
        n_layer=layers - (whole(meta, "nextn_predict_layers") or 0),
        n_embd=width,
        n_ctx=whole(meta, "context_length"),
        n_vocab=whole(meta, "vocab_size") if vocabulary is None else len(vocabulary.tokens),
        vocabulary=vocabulary,
        tied="token_embd.weight" in meta.shapes and "output.weight" not in meta.shapes,
    )
