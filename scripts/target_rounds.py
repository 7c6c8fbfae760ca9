"""Draft and verify rounds on a tiny target: an oracle's chains and trees, and random heads written for it.

The oracle drafts what plain decoding said, up to a wrong node at a known depth, so that paths of every length are
accepted and dropped. Texts must be those of plain decoding; the features that a head is given, those of its text.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from llama_eagle import POST_NORM, Batch, Context, Drafter, DraftTree, EagleError, Model, TreeShape
from llama_eagle.errors import ModelError
from llama_eagle.fit import MEMORY
from llama_eagle.generate import Loop, Step
from llama_eagle.pair import check_pair
from llama_eagle.policy import Fixed
from llama_eagle.slot import Slot
from llama_eagle.step_calls import verify
from target_checks import EXACT, TOKENS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tiny import DraftShape, eagle3_shape, eagle_shape, random_draft
from tiny.target import add_keys, finish

PROMPT, COUNT = TOKENS[:12], 14
ACCEPTED = (4, 2, 0, 1)  # how much of each of the oracle's drafts is right; plain steps follow
DEPTH = 4
SHAPES = {"chain": TreeShape.chain(DEPTH), "trees": TreeShape(8, DEPTH, 3)}
TOLERANCE = 1e-3  # of features, relative to the largest
WITH_CHAINS: dict[str, Any] = {**EXACT, "n_rollback": DEPTH}


class WrongError(Exception):
    """Something was computed, and it is not what it should be."""


@dataclass(frozen=True)
class Oracle:
    """Drafts along `text`, the plain one. wide: each level has a wrong sibling in front, with descendants."""

    text: list[int]
    n_vocab: int
    wide: bool

    def tree(self, at: int, right: int, depth: int) -> DraftTree:
        """Behind token `at` of the text: `depth` levels, the first `right` of which are to be accepted."""
        following = self.text[at + 1 : at + 1 + depth]
        tokens, parents, ours, theirs = [], [], -1, None
        for level, token in enumerate(following):
            along = token if level < right else (token + 1) % self.n_vocab
            rows = [(theirs, token)] if theirs is not None else []
            rows += [(ours, (token + 7) % self.n_vocab)] if self.wide else []
            rows.append((ours, along))
            theirs = len(tokens) if self.wide else None
            tokens += [t for _, t in rows]
            parents += [parent for parent, _ in rows]
            ours = len(tokens) - 1
        return DraftTree.from_lists(self.text[at], tokens, parents)


class GuidedLoop(Loop):
    """Runs the head as ever, but verifies the oracle's trees. `given`: all features that the head was given."""

    def __init__(self, target: Context, draft: Context, shape: TreeShape, oracle: Oracle) -> None:
        super().__init__(target, Drafter(draft), Fixed(shape))
        self.oracle, self.shape, self.guided = oracle, shape, 0
        self.given: list[np.ndarray] = []

    def _call(self, slots: Sequence[Slot]) -> tuple[float, float]:
        slot = slots[0]
        if slot.started and self.guided < len(ACCEPTED) and slot.turn.raw.shape:
            assert self.drafter is not None
            self.drafter.grow(slot.waiting[0], self.shape)
            right = ACCEPTED[self.guided]
            self.guided += 1
            at = len(slot.tokens) - len(PROMPT)
            slot.turn.give(self.oracle.tree(at, right, min(self.shape.depth, DEPTH, slot.left - 1)))
        seconds = super()._call(slots)
        n = len(slot.waiting)
        rows = [*range(n), *(n + node for node in slot.turn.path().nodes)]
        self.given.append(self.target.features(rows))
        return seconds


def rounds(loop: Loop) -> list[Step]:
    """The steps of PROMPT's continuation, the prompt's own first."""
    slot = loop.slots[0]
    loop.begin(slot, PROMPT, limit=COUNT)
    steps = [loop.prefill(slot)]
    while slot.left > 0:
        steps += loop.step([slot])
        if slot.failure is not None:
            raise slot.failure
    return steps


def plain_text(model: Model) -> list[int]:
    """What the target says without drafts."""
    with Context(model, **EXACT) as context:
        return [token for step in rounds(Loop(context)) for token in step.tokens]


def oracle_round(model: Model, text: list[int], wide: bool) -> None:
    """Verifies the oracle's drafts alone. Raises EagleError where the target refuses, WrongError for another text."""
    oracle = Oracle(text, model.info.n_vocab, wide)
    with Context(model, **WITH_CHAINS) as context:
        context.decode(Batch(PROMPT))
        said = [int(context.argmax()[-1])]
        for right in (*ACCEPTED, *[0] * COUNT):
            room = COUNT - len(said) - 1
            if room < 0:
                break
            drafted = len(said) - 1 < sum(ACCEPTED) + len(ACCEPTED) - 1 and said == text[: len(said)]
            tree = oracle.tree(len(said) - 1, right, min(room, DEPTH)) if drafted else _alone(said[-1])
            path = verify(context, tree)
            if drafted and len(path.nodes) != min(right, tree.depth):
                raise WrongError(f"{len(path.nodes)} of {min(right, tree.depth)} right nodes accepted")
            said += [*path.tokens, path.next]
    _compare(said, text)


def _alone(root: int) -> DraftTree:
    return DraftTree.from_lists(root, [], [])


def head_round(model: Model, head: Model, text: list[int], shape: TreeShape) -> None:
    """Texts with the head's drafts, then with the oracle's; no trees where only chains go. Raises as oracle_round()."""
    for guided in (False, True):
        with (
            Context(model, head.info.features, **WITH_CHAINS) as target,
            Context(head, **{**EXACT, "n_ctx": 1280}) as draft,
        ):
            if not target.has_tree and target.n_rollback and shape.top_k > 1:
                return
            if not target.has_tree and not target.n_rollback:
                raise ModelError(f"architecture {model.meta('general.architecture')} {MEMORY}")
            oracle = Oracle(text, model.info.n_vocab, shape.top_k > 1)
            loop = GuidedLoop(target, draft, shape, oracle)
            loop.guided = 0 if guided else len(ACCEPTED)
            steps = rounds(loop)
            _compare([token for step in steps for token in step.tokens], text)
            accepted = tuple(step.accepted for step in steps[1 : 1 + len(ACCEPTED)])
            if guided and accepted[:3] != ACCEPTED[:3]:
                raise WrongError(f"accepted {accepted} of {ACCEPTED}")
            _compare_features(model, head, loop.slots[0].tokens, np.concatenate(loop.given))


def _compare(said: list[int], text: list[int]) -> None:
    if said != text:
        same = next((i for i, pair in enumerate(zip(said, text, strict=False)) if pair[0] != pair[1]), "length")
        raise WrongError(f"text differs at {same}")


def _compare_features(model: Model, head: Model, tokens: list[int], given: np.ndarray) -> None:
    """What the rounds' decodes gave for each token is what one decode of the whole text gives."""
    with Context(model, head.info.features, **EXACT) as context:
        context.decode(Batch(tokens))
        expected = context.features()
    error = float(np.abs(given - expected).max() / np.abs(expected).max())
    if not error <= TOLERANCE:
        raise WrongError(f"features differ by {error:.1e}")


def write_head(path: Path, model: Model, features: tuple[int, ...]) -> Path:
    """A random head of the target's sizes: `eagle` for the post-norm feature, else `eagle3`."""
    sizes: dict[str, Any] = {"n_embd": model.info.n_embd, "n_embd_target": model.info.n_embd}
    sizes |= {"n_vocab": model.info.n_vocab, "n_draft_vocab": min(96, model.info.n_vocab)}
    shape: DraftShape = eagle_shape(**sizes) if features == (POST_NORM,) else eagle3_shape(features=features, **sizes)
    draft = random_draft(shape)
    writer = gguf.GGUFWriter(path, shape.arch)
    add_keys(writer, shape.arch, draft.keys)
    writer.add_tokenizer_model("none")
    for name, values in draft.tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    finish(writer)
    return path


def heads(n_layer: int) -> dict[str, tuple[int, ...]]:
    """Columns of the table and the features of the head that fills them; the default ones clipped to inner layers."""
    inner = tuple(sorted(min(max(i, 0), n_layer - 1) for i in (2, n_layer // 2, n_layer - 3)))
    return {"eagle": (POST_NORM,), "eagle3": inner, "last": (n_layer,)}


def check_rounds(model: Model, folder: Path, row: dict[str, str]) -> None:
    """Fills chain, trees, eagle, eagle3 and, where a round fails, last."""
    text = plain_text(model)
    row["chain"], _ = _outcome(lambda: oracle_round(model, text, False))
    _worsen(row, "trees", _outcome(lambda: oracle_round(model, text, True))[0])
    for column, features in heads(model.info.n_layer).items():
        path = write_head(folder / f"{column}.gguf", model, features)
        _worsen(row, column, _head_outcome(model, path, text, row))


def _head_outcome(model: Model, path: Path, text: list[int], row: dict[str, str]) -> str:
    def rounds() -> None:
        head = Model(path, target=model)
        for shape in SHAPES.values():
            head_round(model, head, text, shape)

    found, reason = _outcome(rounds)
    if reason not in row["remark"]:
        row["remark"] = "; ".join(filter(None, (row["remark"], reason)))
    try:
        check_pair(model.path, path)
        fits = True
    except ModelError:
        fits = False
    if fits != (found != "no"):
        return f"WRONG (fit says {'yes' if fits else 'no'}, the library {found})"
    return found


def _outcome(action: Callable[[], None]) -> tuple[str, str]:
    """The cell, and the words of a refusal."""
    try:
        action()
    except EagleError as error:
        return "no", str(error).split(": ")[-1]
    except WrongError as error:
        return f"WRONG ({error})", ""
    return "yes", ""


def _worsen(row: dict[str, str], column: str, found: str) -> None:
    """Keeps an earlier doubt of the column; a head that is refused says nothing of what was proven of its feature."""
    if found.startswith("WRONG") or (row[column] == "yes" and column != "last"):
        row[column] = found
