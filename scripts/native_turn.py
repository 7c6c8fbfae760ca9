"""Random turns for fuzz_calls.py: what sequences do in a step, with arrays exactly as long as eagle_api.h asks."""

import random
from typing import Any, Protocol

from llama_eagle.ffi import ffi


class Numbers(Protocol):
    """Where arguments come from."""

    rng: random.Random
    samplers: list[Any]

    def number(self, *likely: int) -> int:
        """One of the likely numbers, or an odd one."""

    def ints(self, n: int, *likely: int) -> Any:
        """int32[n]."""

    def floats(self, n: int) -> Any:
        """float[n]."""


class Turns:
    """An array of turns. `pointers` and everything behind it live as long as this does."""

    def __init__(self, case: Numbers, n_vocab: int) -> None:
        self._case, self._n_vocab = case, n_vocab
        self._kept: list[Any] = []
        count = case.rng.choice([1, 1, 1, 2, 3, 3])
        order = case.rng.sample(range(3), 3)
        self.turns = [self._turn(order[i] if case.rng.random() < 0.9 else case.number(0, 1, 2)) for i in range(count)]
        self.pointers = ffi.new("eagle_turn *[]", self.turns)
        self.n = count if case.rng.random() < 0.95 else case.rng.choice([0, -1, -(2**31)])

    def _keep(self, made: Any) -> Any:
        self._kept.append(made)
        return made

    def _turn(self, seq_id: int) -> Any:
        case = self._case
        turn = self._keep(ffi.new("eagle_turn *", {"seq_id": seq_id}))
        n = case.number(1, 1, 1, 2, 5)
        n = n if n < 100 else 1
        tokens = self._keep(case.ints(max(n, 1), *range(min(250, self._n_vocab))))
        turn.n_tokens, turn.tokens = n, tokens
        turn.prompt, turn.observed, turn.drawn = (case.rng.random() < p for p in (0.3, 0.8, 0.2))
        turn.chooses = case.rng.random() < 0.9
        turn.sampler = case.rng.choice([*case.samplers, ffi.NULL])
        # each fills in a tree or what it is to be, and says how deep it can be
        kind = case.rng.choice([self._plain, self._given, self._given, self._dynamic, self._dynamic, self._static])
        self._room(turn, kind(turn), case.number(0, 1, 5))
        return turn

    def _room(self, turn: Any, depth: int, k: int) -> None:
        """Arrays for the path, and for log probabilities now and then."""
        case = self._case
        turn.path.nodes, turn.path.tokens = (self._keep(ffi.new("int32_t[]", max(depth, 1))) for _ in range(2))
        if case.rng.random() < 0.3:
            size = (depth + 1) * min(max(k, 1), 4096)
            logp, top = self._keep(ffi.new("float[]", depth + 1)), self._keep(ffi.new("int32_t[]", size))
            top_logp = self._keep(ffi.new("float[]", size))
            turn.scores = self._keep(ffi.new("eagle_scores *", (min(k, 4096), logp, top, top_logp)))

    def _tree(self, turn: Any, nodes: int) -> None:
        """Arrays for a tree of so many nodes."""
        case = self._case
        arrays = [case.ints(nodes, *likely) for likely in (range(250), (-1, 0, 1, 2), (1, 2))]
        for name, array in zip(("tokens", "parents", "depths"), map(self._keep, arrays), strict=True):
            setattr(turn.tree, name, array)
        turn.tree.scores = self._keep(case.floats(nodes))

    def _plain(self, turn: Any) -> int:
        self._tree(turn, 0)
        return 0

    def _given(self, turn: Any) -> int:
        n = self._case.number(1, 3, 6)
        n = n if n < 300 else 1
        self._tree(turn, max(n, 0))
        turn.tree.n = n
        if self._case.rng.random() < 0.7:  # in order at least
            for i in range(n):
                turn.tree.parents[i] = self._case.rng.randrange(-1, i)
        return max(n, 0)

    def _dynamic(self, turn: Any) -> int:
        case = self._case
        nodes, depth, k = case.number(1, 4, 16), case.number(1, 2, 4), case.number(1, 2, 4)
        nodes, depth, k = min(nodes, 300), min(depth, 70), min(k, 300)
        self._tree(turn, max(nodes, 0))
        turn.shape = self._keep(ffi.new("eagle_tree_shape *", (nodes, depth, k)))
        return max(min(nodes, depth), 0)

    def _static(self, turn: Any) -> int:
        case = self._case
        nodes = min(case.number(1, 3, 6), 300)
        parents, ranks = (self._keep(case.ints(max(nodes, 0), *likely)) for likely in ((-1, 0, 1), (0, 1, 2)))
        if case.rng.random() < 0.7:  # a chain, or a level of siblings
            chain = case.rng.random() < 0.5
            for i in range(nodes):
                parents[i], ranks[i] = (i - 1, 0) if chain else (-1, i)
        self._tree(turn, max(nodes, 0))
        turn.nodes = self._keep(ffi.new("eagle_static_shape *", (nodes, parents, ranks)))
        return max(nodes, 0)
