"""A model that carries no vocabulary decodes ids, and says so where text is asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gguf_edit import STRING, GgufFile
from llama_eagle import Batch, Context, Model, ModelError
from tiny import TinyTarget

pytestmark = pytest.mark.native
Tiny = Callable[..., TinyTarget]


def test_a_model_without_a_vocabulary(tiny_target: Tiny, tmp_path: Path) -> None:
    parts = GgufFile(tiny_target("llama").path.read_bytes())
    parts.keys["tokenizer.ggml.model"] = (STRING, b"none")
    (tmp_path / "bare.gguf").write_bytes(bytes(parts))
    with Model(tmp_path / "bare.gguf") as model, Context(model, n_ctx=256) as context:
        context.decode(Batch([1, 2, 3]))
        for call in (lambda: model.tokenize("a"), lambda: model.piece(1), lambda: model.detokenize([1])):
            with pytest.raises(ModelError, match="has no vocabulary"):
                call()
