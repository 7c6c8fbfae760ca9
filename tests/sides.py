"""Both sides of a pair as plain data, for tests that compare or describe them: a head and a target of 8 tokens."""

from dataclasses import replace
from typing import Any

from llama_eagle.head_info import HeadInfo, Sizes
from llama_eagle.target_side import TargetSide
from llama_eagle.vocabulary import Vocabulary

TOKENS = [b"<s>", b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
VOCABULARY = Vocabulary("gpt2", "smollm", TOKENS, [3, 1, 1, 1, 1, 1, 1, 1])
SIZES = Sizes(
    hidden=16, ffn=32, layers=1, heads=2, kv_heads=1, head_size=8, parameters=1000, bytes=4000, types={"f32": 9}
)
HEAD = HeadInfo(
    name="head", arch="eagle3", version="3", layout="specforge", sizes=SIZES, features=(2, 6, 9), target_hidden=16,
    rule="top-level ids [2, 6, 9] are inputs", n_vocab=8, n_draft=4, map_end=7, context=512,
    rope={"base": 10000.0, "scaling": "none"}, switches=(), shares=("embeddings",), vocabulary=VOCABULARY,
)  # fmt: skip
TARGET = TargetSide("target.gguf", "llama", n_layer=12, n_embd=16, n_ctx=512, n_vocab=8, vocabulary=VOCABULARY)


def head(**changes: Any) -> HeadInfo:
    """HEAD with changes; `hidden` changes its sizes."""
    if "hidden" in changes:
        changes["sizes"] = replace(SIZES, hidden=changes.pop("hidden"))
    return replace(HEAD, **changes)


def target(**changes: Any) -> TargetSide:
    """TARGET with changes."""
    return replace(TARGET, **changes)


def vocabulary(renamed: dict[int, bytes], **changes: Any) -> Vocabulary:
    """VOCABULARY with other texts for some ids."""
    return replace(VOCABULARY, tokens=[renamed.get(i, text) for i, text in enumerate(TOKENS)], **changes)
