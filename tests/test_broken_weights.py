"""NaN in the weights of a target or a head: an error and no text, no abort; single NaNs are passed over."""

from pathlib import Path

import numpy as np
import pytest

from gguf_edit import GgufFile
from llama_eagle import Batch, Context, Drafter, DraftTree, EagleError, Model, NativeError, TreeShape, step_calls
from llama_eagle.ffi import C, ffi
from llama_eagle.policy import Fixed
from loops import EXACT, Single
from tiny import TinyPair, target_ids

pytestmark = pytest.mark.native
PROMPT = [65, 66, 67, 68]


def damage(source: Path, target: Path, tensor: str, value: float, count: int = -1) -> Path:
    """A copy of a GGUF whose f32 tensor begins with `count` times `value`; -1: all of it."""
    file = GgufFile(source.read_bytes())
    entry = next(entry for entry in file.tensors if entry.name.decode() == tensor)
    size = int(np.prod(entry.shape)) if count < 0 else count
    data = bytearray(file.data)
    data[entry.offset : entry.offset + 4 * size] = np.full(size, value, np.float32).tobytes()
    file.data = bytes(data)
    target.write_bytes(bytes(file))
    return target


def argmax_code(context: Context) -> int:
    """What eagle_argmax returns."""
    return int(C.eagle_argmax(context.handle, ffi.new("int32_t[]", 64)))


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_a_target_of_nan(value: float, tiny_pair: TinyPair, tmp_path: Path) -> None:
    path = damage(tiny_pair.target.path, tmp_path / "t.gguf", "output_norm.weight", value)
    with Model(path) as model, Context(model, n_ctx=256, **EXACT) as context:
        context.decode(Batch(PROMPT))
        assert argmax_code(context) == C.EAGLE_FAILED
        assert "target computed NaN" in ffi.string(C.eagle_context_error(context.handle)).decode()
        with pytest.raises(NativeError, match="target computed NaN"):
            context.argmax()


def test_no_step_makes_text_of_nan(tiny_pair: TinyPair, tmp_path: Path) -> None:
    path = damage(tiny_pair.target.path, tmp_path / "t.gguf", "output_norm.weight", np.nan)
    with Model(path) as model, Context(model, n_ctx=256, **EXACT) as context:
        loop = Single(context)
        with pytest.raises(NativeError, match="target computed NaN"):
            step_calls.verify(context, DraftTree.from_lists(65, [], []))
        with pytest.raises(NativeError, match="target computed NaN"):
            loop.start(PROMPT)


@pytest.mark.parametrize("tensor", ["output.weight", "fc.weight"])
def test_a_head_of_nan(tensor: str, tiny_pair: TinyPair, tmp_path: Path) -> None:
    path = damage(tiny_pair.path, tmp_path / "h.gguf", tensor, np.nan)
    with Model(tiny_pair.target.path) as model, Model(path, target=model) as head:
        target, draft = Context(model, head.info.features, n_ctx=256, **EXACT), Context(head, n_ctx=512, **EXACT)
        with target, draft:
            loop = Single(target, Drafter(draft), Fixed(TreeShape(16, 4, 4)))
            loop.start(PROMPT)
            with pytest.raises(EagleError, match=r"draft computed NaN.*--spec off"):
                loop.next(8)
            draft.decode(Batch(PROMPT, embd=draft.encode(np.zeros((4, 192), np.float32))))
            with pytest.raises(NativeError, match="draft computed NaN"):
                draft.top_k(4)


def test_one_token_of_nan_is_never_chosen(tiny_pair: TinyPair, tmp_path: Path) -> None:
    """A broken row of the output matrix: its token alone has no logit."""
    path = damage(tiny_pair.path, tmp_path / "h.gguf", "output.weight", np.nan, tiny_pair.head.n_embd)
    with (
        Model(tiny_pair.target.path) as model,
        Model(path, target=model) as head,
        Context(head, n_ctx=256, **EXACT) as draft,
    ):
        draft.decode(Batch(PROMPT, embd=draft.encode(np.ones((4, 192), np.float32))))
        row = draft.logits()[-1]
        assert np.flatnonzero(np.isnan(row)).tolist() == [0]
        ids, logp = draft.top_k(8)
        best = np.argsort(-row[1:], kind="stable")[:8] + 1
        assert ids[0].tolist() == target_ids(tiny_pair.head)[best].tolist()
        assert np.isfinite(logp).all()
        assert draft.argmax().tolist() == [int(best[0])]
