"""VocabMatrix: where a draft's embeddings and output head come from: its own file, the target's rows, or shared.

Decides by names, shapes and the vocabulary map; reads no values. A shared matrix is not written: the loader takes the
target's.
"""

from dataclasses import dataclass

from ..errors import CheckpointError, ModelError
from .checkpoint import Checkpoint
from .fusion import TargetNeededError
from .layout import EAGLE, Layout
from .overrides import Overrides
from .spec import HeadSpec
from .target_info import TargetInfo
from .vocab_map import Ids

EMBEDDINGS, HEAD = "embed_tokens.weight", "lm_head.weight"
TARGET_EMBEDDINGS, TARGET_HEAD = "the target's embeddings", "the target's head"


@dataclass(frozen=True)
class VocabMatrix:
    """`source` (a tensor of the checkpoint, TARGET_EMBEDDINGS or TARGET_HEAD) becomes `name`; `rows`: None is all."""

    name: str
    shape: tuple[int, int]
    source: str
    rows: Ids | None = None

    @property
    def of_target(self) -> bool:
        """Whether it is read from the target."""
        return self.source in (TARGET_EMBEDDINGS, TARGET_HEAD)


class VocabMatrices:
    """Chooses both matrices. `found`: what is written; `used`: names that are accounted for; `notes`: what was done."""

    def __init__(self, checkpoint: Checkpoint, spec: HeadSpec, target: TargetInfo | None, ids: Ids | None) -> None:
        self.found: list[VocabMatrix] = []
        self.used: set[str] = {name for name in (EMBEDDINGS, HEAD, "d2t") if name in checkpoint}
        self.notes: list[str] = []
        self._checkpoint, self._spec, self._target, self._ids = checkpoint, spec, target, ids

    def choose(self, layout: Layout, width: int, overrides: Overrides) -> None:
        """Fills the lists. width: the target's hidden size. Raises CheckpointError, ModelError, TargetNeededError."""
        self._check_own()
        if layout.arch == EAGLE:
            self._choose_eagle(overrides.with_embeddings)
            return
        self._embeddings(width, overrides.with_embeddings)
        self._head(width, overrides.with_embeddings)

    def _choose_eagle(self, copied: bool) -> None:
        """EAGLE-1 and EAGLE-2 train neither: both are the target's (SafeAILab eagle/model/cnets1.py)."""
        if not copied:
            there = [name for name in (EMBEDDINGS, HEAD) if name in self._checkpoint]
            if there:
                self.notes.append(
                    f"{' and '.join(there)}: taken for a copy of the target's and left out (--with-embeddings keeps it)"
                )
            return
        whole = (self._spec.vocab, self._spec.hidden)
        for name, own, other in (
            ("token_embd.weight", EMBEDDINGS, TARGET_EMBEDDINGS),
            ("output.weight", HEAD, TARGET_HEAD),
        ):
            self._add(VocabMatrix(name, whole, own if own in self._checkpoint else other))

    def _embeddings(self, width: int, copied: bool) -> None:
        spec = self._spec
        if EMBEDDINGS in self._checkpoint:
            self._add(VocabMatrix("token_embd.weight", (spec.vocab, spec.hidden), EMBEDDINGS))
            return
        if spec.hidden != width:
            raise ModelError(
                f"a draft without embed_tokens needs the target's hidden size: {spec.hidden} and {width} do not fit"
            )
        if copied:
            self._add(VocabMatrix("token_embd.weight", (spec.vocab, spec.hidden), TARGET_EMBEDDINGS))
            return
        self.notes.append("no embed_tokens.weight: the target's embeddings are shared")

    def _head(self, width: int, copied: bool) -> None:
        spec, shape = self._spec, (self._spec.draft_vocab, self._spec.hidden)
        if HEAD in self._checkpoint:
            self._add(VocabMatrix("output.weight", shape, HEAD))
            return
        if spec.tied and EMBEDDINGS in self._checkpoint:
            self._add(VocabMatrix("output.weight", shape, EMBEDDINGS, self._ids))
            self.notes.append("no lm_head.weight: the draft's embeddings are its head (tie_word_embeddings)")
            return
        if spec.hidden != width:
            raise ModelError(
                f"the draft shares the target's head, but its hidden size is {spec.hidden} and the target's {width}"
            )
        source = TARGET_EMBEDDINGS if spec.tied else TARGET_HEAD
        if spec.tied and self._ids is None and self._target is None:
            raise TargetNeededError("the draft's head is the target's embeddings, which may or may not be its head")
        differs = spec.tied and self._target is not None and not self._target.tied
        if self._ids is None and not copied and not differs:
            self.notes.append("no lm_head.weight: the target's is the head")
            return
        self._add(VocabMatrix("output.weight", shape, source, self._ids))
        rows = "" if self._ids is None else f", {spec.draft_vocab} rows by d2t"
        self.notes.append(f"no lm_head.weight: {source} copied{rows}")

    def _add(self, matrix: VocabMatrix) -> None:
        if matrix.of_target:
            if self._target is None:
                raise TargetNeededError(f"{matrix.source}, to be written as {matrix.name}, must be read from it")
            if self._target.n_embd != matrix.shape[1]:
                raise ModelError(
                    f"{matrix.source} cannot be the draft's: widths {self._target.n_embd} and {matrix.shape[1]} differ"
                )
        self.found.append(matrix)

    def _check_own(self) -> None:
        spec = self._spec
        for name, rows in ((EMBEDDINGS, spec.vocab), (HEAD, spec.draft_vocab)):
            expected = (rows, spec.hidden)
            if name in self._checkpoint and self._checkpoint.shape(name) != expected:
                raise CheckpointError(
                    f"tensor {name} is {list(self._checkpoint.shape(name))}; config.json calls for {list(expected)}"
                )
