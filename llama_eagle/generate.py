"""The loop: draft, verify, accept, commit. Yields the accepted tokens of each step; plain decoding is an empty tree.

Knows token ids only: text, stop strings and end tokens are the engine's business.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .acceptance import Path
from .batch import Batch
from .context import Context
from .draft import Drafter, Shape
from .errors import InputError
from .sampler import Sampler
from .step_calls import verify
from .tree import DraftTree


class Policy(Protocol):
    """Chooses the next draft tree; any may follow any other in the middle of a text."""

    def shape(self) -> Shape | None:
        """The next tree's limits or nodes, or None for a plain step."""


@dataclass(frozen=True)
class Fixed:
    """Always the same shape; None never drafts."""

    value: Shape | None

    def shape(self) -> Shape | None:
        """The given shape."""
        return self.value


class Step(NamedTuple):
    """One step: emitted tokens, how many of them were drafted (they come first), and the tree's size and depth."""

    tokens: tuple[int, ...]
    accepted: int
    drafted: int
    depth: int


@dataclass
class Seconds:
    """Time spent in each part of the loop, in seconds."""

    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    decode: float = 0.0


@dataclass
class Loop:
    """Generates tokens of one sequence on a target, with a drafter or without.

    `tokens` are those the target has decoded; the next root is not among them.
    """

    target: Context
    drafter: Drafter | None = None
    policy: Policy = field(default_factory=lambda: Fixed(None))
    tokens: list[int] = field(default_factory=list)
    seconds: Seconds = field(default_factory=Seconds)
    sampler: Sampler | None = None

    def prefill(self, prompt: list[int], sampler: Sampler | None = None) -> int:
        """Decodes a prompt, of which a prefix may be in the cache already, in pieces. Returns the first root.

        sampler: a fresh one, which chooses that root and the tokens behind it; without one they are the argmaxes.
        Raises InputError for an empty prompt and ContextFullError for one that does not fit.
        """
        if not prompt:
            raise InputError("the prompt has no tokens")
        start = time.perf_counter()
        self._rewind(prompt)
        step = min(self.target.n_batch, self.target.n_ubatch)
        while len(self.tokens) < len(prompt):
            piece = prompt[len(self.tokens) : len(self.tokens) + step]
            self.target.decode(Batch(piece))
            self.tokens.extend(piece)
            if self.drafter is not None:
                self.drafter.observe(piece, self.target.features())
                self.drafter.catch_up()
        root = self._first(prompt, sampler)
        self.seconds.prefill = time.perf_counter() - start
        return root

    def _first(self, prompt: list[int], sampler: Sampler | None) -> int:
        self.sampler = sampler
        if sampler is None or sampler.is_argmax:
            return int(self.target.argmax()[-1])
        sampler.prompt(prompt)
        return sampler.sample(self.target)

    def _rewind(self, prompt: list[int]) -> None:
        """Keeps the common prefix of cache and prompt, one token less: its features and logits are needed again."""
        common = 0
        for cached, wanted in zip(self.tokens, prompt, strict=False):
            if cached != wanted:
                break
            common += 1
        # the draft may lag behind by a step, and an aborted decode may have cost either its cache
        keep = min(max(common - 1, 0), self.target.n_past(), self.drafter.context.n_past() if self.drafter else common)
        try:
            if self.target.n_nodes():
                self.target.rollback()
            self.target.seq_rm(0, keep)
        except InputError:  # a window or a state that has no past: start over
            self.target.clear()
            keep = 0
        if self.drafter is not None:
            self.drafter.rewind(keep)
        self.tokens = prompt[:keep]

    def steps(self, root: int, limit: int) -> Iterator[Step]:
        """Emits `root` and then steps until `limit` tokens were emitted; the caller may stop earlier.

        Ends early when the context is full. Raises InputError when another prompt was decoded between two steps.
        """
        text = self.tokens  # a prefill puts another list there
        yield Step((root,), 0, 0, 0)
        emitted = 1
        start = time.perf_counter()
        while emitted < limit and self.room() > 0:
            step = self.step(root, limit - emitted)
            self.seconds.decode += time.perf_counter() - start
            emitted += len(step.tokens)
            root = step.tokens[-1]
            yield step
            if self.tokens is not text:
                raise InputError("another generation began on this context: finish or close one before the next")
            start = time.perf_counter()

    def room(self) -> int:
        """Tokens that the target can still decode."""
        return self.target.n_ctx - len(self.tokens)

    def step(self, root: int, limit: int) -> Step:
        """One step behind `root`, emitting at most `limit` tokens."""
        start = time.perf_counter()
        tree = self._draft(root, limit)
        drafted = time.perf_counter()
        path, features = verify(self.target, tree, self.sampler)
        decoded = [root, *path.tokens]
        self.tokens.extend(decoded)
        if self.drafter is not None:
            self.drafter.observe(decoded, features)
        self.seconds.draft += drafted - start
        self.seconds.verify += time.perf_counter() - drafted
        return _step(tree, path)

    def _draft(self, root: int, limit: int) -> DraftTree:
        shape = self.policy.shape()
        room = self.room() - 1
        depth = min(room, limit - 1, self.target.n_batch - 1)
        if self.drafter is None or shape is None or depth < 1:
            return DraftTree.from_lists(root, [], [], [])
        return self.drafter.grow(root, shape.within(depth, min(room, self.target.n_batch - 1)))


def _step(tree: DraftTree, path: Path) -> Step:
    return Step((*path.tokens, path.next), len(path.nodes), len(tree), tree.depth)
