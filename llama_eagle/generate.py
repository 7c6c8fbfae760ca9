"""The loop: draft, verify, accept, commit, for any number of sequences. Plain decoding is an empty tree.

Knows token ids only: text, stop strings and end tokens are the engine's business, as is which sequence runs when.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from . import step_calls
from .context import Context
from .draft import Drafter
from .drawn_tree import drawn
from .errors import ContextFullError, InputError
from .leaves import within_leaves
from .logprob import TokenLogprob
from .policy import Fixed, Policy
from .sampler import Sampler
from .slot import Seconds, Slot
from .static_tree import Shape


class Step(NamedTuple):
    """One step: emitted tokens, how many of them were drafted (they come first), and the tree's size and depth.

    logprobs: of each emitted token, where they are wanted. graphs: built for it, and used again, in both contexts.
    """

    tokens: tuple[int, ...]
    accepted: int
    drafted: int
    depth: int
    logprobs: tuple[TokenLogprob, ...] = ()
    graphs: tuple[int, int] = (0, 0)


class Loop:
    """Decodes the sequences of a target, with a drafter or without.

    A step is one decode of the target: a piece of one prompt, or the trees of all sequences that have a root. Prompts
    go alone, so that their batches are the same whatever else runs. accept: as in EngineOptions.
    """

    def __init__(
        self,
        target: Context,
        drafter: Drafter | None = None,
        policy: Policy | None = None,
        n_slots: int = 1,
        accept: str = "match",
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.policy: Policy = policy or Fixed(None)
        self.accept = accept
        self.slots = [Slot(seq_id) for seq_id in range(n_slots)]

    def begin(self, slot: Slot, tokens: list[int], sampler: Sampler | None = None, limit: int = 2**63) -> None:
        """Makes a slot ready for a prompt, of which it or another one may have decoded a prefix already.

        sampler: chooses the tokens behind it and has seen it; without one they are the argmaxes. limit: of tokens to
        emit. Raises InputError for an empty prompt and ContextFullError for one that does not fit.
        """
        if not tokens:
            raise InputError("the prompt has no tokens")
        if len(tokens) > self.target.n_ctx:
            raise ContextFullError(f"a prompt of {len(tokens)} tokens, the context holds {self.target.n_ctx}")
        donor = max(self.slots, key=lambda other: other.common(tokens))
        if self.drafter is not None and donor.follows and donor.common(tokens) > 1:
            self.drafter.catch_up(donor.seq_id)
        if donor.common(tokens) > slot.common(tokens):
            self._copy(donor, slot)
        keep = len(slot.tokens)
        if not self._goes_on(slot, tokens):
            keep = self._rewind(slot, max(slot.common(tokens) - 1, 0))  # features and logits of one are needed again
        slot.tokens, slot.waiting = tokens[:keep], tokens[keep:]
        self.occupy(slot, sampler, limit)

    def occupy(self, slot: Slot, sampler: Sampler | None, limit: int) -> None:
        """Gives a slot, whose tokens are set, to a text."""
        slot.sampler, slot.left, slot.failure = sampler, limit, None
        slot.busy, slot.started, slot.seconds, slot.plan = True, False, Seconds(), None

    def _goes_on(self, slot: Slot, tokens: list[int]) -> bool:
        """Whether a prompt continues all that a slot has decoded, so that nothing need be taken back."""
        n, seq_id = len(slot.tokens), slot.seq_id
        if not 0 < n < len(tokens) or slot.common(tokens) < n or self.target.n_past(seq_id) != n:
            return False
        if self.target.n_nodes(seq_id):
            return False
        if self.drafter is None:
            return True
        # nothing pending: the draft has seen another token behind these
        return slot.follows and self.drafter.pending(seq_id) > 0 and self.drafter.follows(n, seq_id)

    def _copy(self, donor: Slot, slot: Slot) -> None:
        """Gives a slot what another one has decoded; the cells are shared."""
        self.target.seq_cp(donor.seq_id, slot.seq_id)
        if self.drafter is not None:
            self.drafter.rewind(0, slot.seq_id)
            self.drafter.context.seq_cp(donor.seq_id, slot.seq_id)
        slot.tokens, slot.follows = list(donor.tokens), False

    def _rewind(self, slot: Slot, keep: int) -> int:
        """Keeps the first `keep` tokens at most, and says how many."""
        # the draft may lag behind by a step, and an aborted decode may have cost either its cache
        keep = min(keep, self.target.n_past(slot.seq_id))
        if self.drafter is not None:
            keep = min(keep, self.drafter.context.n_past(slot.seq_id))
        if self.target.n_nodes(slot.seq_id):
            self.target.rollback(slot.seq_id)
        try:
            self.target.seq_rm(slot.seq_id, keep)
        except InputError:  # a window or a state that has no past: start over
            keep = 0
            self.target.seq_rm(slot.seq_id, 0)
        if self.drafter is not None:
            self.drafter.rewind(keep, slot.seq_id)
        slot.follows = self.drafter is not None
        return keep

    def release(self, slot: Slot) -> None:
        """Its text is over; what it decoded stays for a prompt that begins alike, until the room is needed."""
        slot.busy, slot.sampler, slot.waiting = False, None, []
        if slot.shifted:  # its cells saw what is gone
            self.drop(slot)

    def shift(self, slot: Slot, keep: int) -> None:
        """Context shift: drops half of what lies behind the first `keep` tokens, in both caches at once."""
        discard = (len(slot.tokens) - keep) // 2
        if self.drafter is not None:
            self.drafter.catch_up(slot.seq_id)  # may be aborted: neither cache has moved then
        slot.shifted = True
        self.target.shift(keep, discard, slot.seq_id)
        if self.drafter is not None:
            self.drafter.shift(keep, discard, slot.seq_id)
            slot.follows = self.drafter.follows(len(slot.tokens) - discard, slot.seq_id)
        del slot.tokens[keep : keep + discard]

    def drop(self, slot: Slot) -> None:
        """Frees the cells of a slot."""
        self._rewind(slot, 0)
        slot.tokens, slot.shifted = [], False

    def free(self) -> int:
        """Tokens for which there is room besides what waits; prefixes that sequences share count once for each."""
        return self.target.n_ctx - sum([len(slot.tokens) + len(slot.waiting) for slot in self.slots])

    def room(self, slot: Slot) -> int:
        """Tokens that the target can still decode of a sequence."""
        return self.target.n_ctx - len(slot.tokens)

    def prefill(self, slot: Slot) -> Step:
        """Decodes the next piece of a prompt. Behind the last one the first token is emitted, else none."""
        start = time.perf_counter()
        piece = slot.waiting[: min(self.target.n_batch, self.target.n_ubatch)]
        last = len(piece) == len(slot.waiting)
        slot.turn.piece(piece, last=last)
        self._call([slot])
        if not last:
            slot.tokens += piece
            slot.waiting = slot.waiting[len(piece) :]
        step = self._advance(slot) if last else Step((), 0, 0, 0)
        slot.seconds.prefill += time.perf_counter() - start
        return step

    def step(self, slots: Sequence[Slot]) -> list[Step]:
        """One step behind the roots of several slots; each needs room() for a token at least."""
        calibrating = self.policy.prepare()
        start = time.perf_counter()
        # a window cache keeps the cells of paths for one ubatch only
        batch = min(self.target.n_batch, self.target.n_ubatch) if self.target.n_paths else self.target.n_batch
        share = min(batch - len(slots), self.free()) // len(slots)
        for slot in slots:
            slot.plan = slot.plan or self.policy.begin()
        plans = [slot.plan for slot in slots]
        for slot, wanted in zip(slots, self.policy.shapes(plans), strict=True):
            slot.turn.root(slot.waiting[0])
            shape = self._within(wanted, slot, share)
            slot.turn.draft(shape if shape is None else self._verifiable(shape, len(slots)))
        drafting, verifying = self._call(slots)
        self.policy.saw(plans, [slot.turn for slot in slots], drafting, verifying)
        steps = [self._advance(slot) for slot in slots]
        seconds = time.perf_counter() - start
        for slot in slots:
            slot.seconds.calibrate += calibrating
            slot.seconds.decode += seconds
            slot.seconds.draft += drafting
            slot.seconds.verify += verifying
        return steps

    def _within(self, shape: Shape | None, slot: Slot, share: int) -> Shape | None:
        """What policy wants, cut to what is left of answer, context and batch."""
        depth = min(slot.left, self.room(slot)) - 1
        if shape is None or not slot.follows or min(depth, share) < 1:
            return None
        if self.accept == "residual" and slot.samples:
            shape = drawn(shape)
        return shape.within(min(depth, share), min(self.room(slot) - 1, share))

    def _verifiable(self, shape: Shape, count: int) -> Shape | None:
        """The shape cut to the paths that the target can verify of one of `count` sequences, if it is limited."""
        if self.target.n_paths == 0:
            return shape
        most = self.target.n_paths // count
        return within_leaves(shape, most) if most > 0 else None

    def _call(self, slots: Sequence[Slot]) -> tuple[float, float]:
        for slot in slots:
            slot.turn.chosen_by(slot.sampler)
            slot.turn.observed(slot.follows)
        draft = self.drafter.context if self.drafter is not None else None
        try:
            return step_calls.step(self.target, draft, [slot.turn for slot in slots])
        except BaseException:
            for slot in slots:
                self._recover(slot)
            raise

    def _advance(self, slot: Slot) -> Step:
        """Takes over what a turn decoded and chose."""
        turn = slot.turn
        accepted, root, drafted, depth = turn.outcome()
        slot.tokens += slot.waiting
        slot.tokens += accepted
        slot.failure = turn.failed()
        if slot.failure is not None:
            slot.waiting = []
            return Step((), 0, 0, 0)
        slot.started, slot.waiting = True, [root]
        slot.left -= 1 + len(accepted)
        return Step((*accepted, root), len(accepted), drafted, depth, turn.logprobs(), turn.graphs())

    def _recover(self, slot: Slot) -> None:
        """After a failed step: what a cache lost is to be decoded again, and a draft that lost something pauses."""
        keep = min(self.target.n_past(slot.seq_id), len(slot.tokens))
        if self.target.n_nodes(slot.seq_id):
            self.target.rollback(slot.seq_id)
        if keep < self.target.n_past(slot.seq_id):
            try:
                self.target.seq_rm(slot.seq_id, keep)
            except InputError:  # as in _rewind
                self.target.seq_rm(slot.seq_id, 0)
                keep = 0
        slot.tokens, slot.waiting = slot.tokens[:keep], slot.tokens[keep:] + slot.waiting
        slot.follows = slot.follows and self.drafter is not None and self.drafter.follows(keep, slot.seq_id)
