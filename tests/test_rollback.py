"""Recurrent states that were taken back: what llama.cpp's rollback would go on from silently, though it is not there,
is refused or cleared.
"""

from collections.abc import Callable

import numpy as np
import pytest

from hybrids import LENGTH, ROLLBACK, check_goes_on, open_context, words
from llama_eagle import AbortedError, Batch, Context, InputError, Model
from llama_eagle.chain import decode_chain, keep_chain
from llama_eagle.errors import NativeError

pytestmark = pytest.mark.native

Hybrid = Callable[[str], Model]
STATES = ("lfm2", "qwen35", "nemotron_h")


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_not_there_clears_the_sequence(name: str, hybrid: Hybrid) -> None:
    """llama.cpp would take any of these back, and go on from a stale snapshot."""
    with open_context(hybrid(name)) as context:
        context.decode(Batch([5, 6, 7, 8, 9]))
        context.decode(Batch([10]))
        context.decode(Batch([11]))
        with pytest.raises(InputError, match="by no token now"):
            context.seq_rm(0, 5)
        check_goes_on(context, 0, [5, 6, 7, 8, 9, 10, 11])
        decode_chain(context, [12, 13, 14])
        keep_chain(context, 10)
        with pytest.raises(NativeError, match="sequence 0 could not be taken back to 9 tokens and was cleared"):
            keep_chain(context, 9)  # the snapshots hold for once
        assert context.n_past() == 0
        context.decode(Batch([5, 6]))
        check_goes_on(context, 0, [5, 6])
        context.clear()
        context.decode(Batch([5, 6, 7]))
        with pytest.raises(InputError, match="cannot be removed"):
            context.seq_rm(0, 0, 2)  # the state would still know them
        context.seq_rm(0, 1)  # the first decode's tokens but one
        check_goes_on(context, 0, [5])


@pytest.mark.parametrize("name", STATES)
def test_snapshots_do_not_outlive_another_sequence(name: str, hybrid: Hybrid) -> None:
    with open_context(hybrid(name)) as context:
        for seq_id in (1, 0, 2):
            context.decode(Batch([5, 6, 7, 8 + seq_id], seq_id=seq_id))
        with pytest.raises(InputError, match="by no token now"):
            context.seq_rm(1, 2)
        for seq_id in (0, 1, 2):
            check_goes_on(context, seq_id, [5, 6, 7, 8 + seq_id])


@pytest.mark.parametrize("name", STATES)
def test_an_aborted_chain_leaves_no_half_state(name: str, hybrid: Hybrid) -> None:
    with open_context(hybrid(name)) as context:
        for seq_id in (0, 1, 2):
            decode_chain(context, [5, 6, 7, 8 + seq_id], seq_id)
            keep_chain(context, 3, seq_id)
        context.abort()
        with pytest.raises(AbortedError):
            context.decode(Batch.join([Batch([9, 10], seq_id=0), Batch([9, 10], seq_id=2)]))
        context.resume()
        assert context.n_past(0) == context.n_past(2) == 0
        if context.n_past(1):  # the other was moved for them, or it was not
            check_goes_on(context, 1, [5, 6, 7])
        for seq_id in (0, 2):
            context.decode(Batch([9], seq_id=seq_id))
            check_goes_on(context, seq_id, [9])


@pytest.mark.parametrize("name", ROLLBACK)
def test_a_sequence_that_was_taken_back_can_be_copied(name: str, hybrid: Hybrid) -> None:
    with open_context(hybrid(name)) as context:
        context.decode(Batch([5, 6, 7], seq_id=1))
        decode_chain(context, [8, 9, 10, 11], 1)
        keep_chain(context, 5, 1)
        context.seq_cp(1, 0)
        context.seq_cp(1, 3)
        with pytest.raises(InputError, match="by no token now"):
            context.seq_rm(0, 4)  # one state for three
        decode_chain(context, [12, 13, 14], 3)
        keep_chain(context, 6, 3)
        for seq_id, text in ((0, []), (3, [12]), (1, [])):
            check_goes_on(context, seq_id, [5, 6, 7, 8, 9, *text])


def test_a_copy_shares_the_state_so_neither_goes_back(hybrid: Hybrid) -> None:
    with open_context(hybrid("lfm2")) as context:
        context.decode(Batch([5, 6, 7]))
        context.seq_cp(0, 1)
        for seq_id in (0, 1):
            with pytest.raises(InputError, match="by no token now"):
                context.seq_rm(seq_id, 2)
        for seq_id in (0, 1):
            check_goes_on(context, seq_id, [5, 6, 7])


@pytest.mark.parametrize("name", STATES)
def test_a_prompt_in_pieces_goes_back_as_far(name: str, hybrid: Hybrid) -> None:
    """Its last tokens are in one piece."""
    for length in range(LENGTH + 2, 15):
        text = list(range(5, 5 + length))
        with open_context(hybrid(name), n_ubatch=LENGTH + 2) as context:
            context.decode(Batch(text))
            context.seq_rm(0, length - LENGTH)
            check_goes_on(context, 0, text[:-LENGTH])


@pytest.mark.parametrize("name", STATES)
def test_chains_of_unequal_lengths_are_cleared_rather_than_wrong(name: str, hybrid: Hybrid) -> None:
    """A later piece of the decode may move a state that an earlier one finished, and it moves without its snapshots."""
    with open_context(hybrid(name)) as context:
        context.decode(Batch.join([Batch([5, 6 + s], seq_id=s) for s in (0, 1, 2, 3)]))
        chains = {1: [7, 8, 9], 2: [7], 0: [7, 8, 9]}
        context.decode(Batch.join([Batch(chain, seq_id=s) for s, chain in chains.items()]))
        for seq_id in (0, 1):
            with pytest.raises(NativeError, match=r"was cleared.*by no token now"):
                keep_chain(context, 3, seq_id)
            assert context.n_past(seq_id) == 0
        check_goes_on(context, 2, [5, 8, 7])
        check_goes_on(context, 3, [5, 9])


@pytest.mark.parametrize("name", STATES)
def test_a_new_sequence_behind_an_abort_begins_with_no_state(name: str, hybrid: Hybrid) -> None:
    """The aborted decode took the free cell between its two for cleared."""
    with open_context(hybrid(name)) as context:
        for seq_id in (0, 1, 2):
            context.decode(Batch([5, 6, 7, 8], seq_id=seq_id))
        context.seq_rm(1, 0)
        context.abort()
        with pytest.raises(AbortedError):
            context.decode(Batch.join([Batch([9], seq_id=0), Batch([9], seq_id=2)]))
        context.resume()
        for seq_id in (3, 1, 0, 2):
            context.decode(Batch([20 + seq_id], seq_id=seq_id))
            check_goes_on(context, seq_id, [20 + seq_id])


@pytest.mark.parametrize("name", STATES)
def test_a_cleared_sequence_has_nothing_pending(name: str, hybrid: Hybrid) -> None:
    with open_context(hybrid(name)) as context:
        context.decode(Batch([5, 6, 7, 8]))
        keep_chain(context, 2)
        context.seq_rm(0, 0, 100)  # an end of its own
        context.decode(Batch([5]))
        check_goes_on(context, 0, [5])


class Ledger:
    """What the sequences of a context must hold, kept beside it through any order of calls."""

    def __init__(self, context: Context, seed: int) -> None:
        self.context, self.rng = context, np.random.default_rng(seed)
        self.texts: dict[int, list[int]] = {s: [] for s in range(context.n_seq_max)}

    def some(self) -> list[int]:
        return [int(s) for s in self.rng.permutation(len(self.texts))[: self.rng.integers(1, len(self.texts) + 1)]]

    def chains(self) -> None:
        """Chains of one length or of several in one decode, aborted or not, then parts of them kept."""
        length = int(self.rng.integers(1, LENGTH + 2))
        new = {s: words(self.rng, length) for s in self.some() if len(self.texts[s]) < 40}
        if new and self.rng.random() < 0.3:
            new[next(iter(new))] += words(self.rng, int(self.rng.integers(1, 9)))
        batches = [Batch(chain, seq_id=s) for s, chain in new.items()]
        if not new:
            return
        if self.rng.random() < 0.2:
            self.context.abort()
            with pytest.raises(AbortedError):
                self.context.decode(Batch.join(batches))
            self.context.resume()
            for seq_id, text in self.texts.items():
                self.texts[seq_id] = text[: self.context.n_past(seq_id)]
                assert self.texts[seq_id] in ([], text)
            return
        self.context.decode(Batch.join(batches))
        for seq_id, chain in new.items():
            self.texts[seq_id] += chain
            self.keep(seq_id, len(chain))

    def keep(self, seq_id: int, new: int) -> None:
        kept = len(self.texts[seq_id]) - int(self.rng.integers(0, min(new, LENGTH + 1)))
        try:
            keep_chain(self.context, kept, seq_id)
        except NativeError:
            kept = 0
        self.texts[seq_id] = self.texts[seq_id][:kept]

    def copy(self) -> None:
        src, dst = self.some()[0], self.some()[0]
        self.context.seq_cp(src, dst)
        self.texts[dst] = list(self.texts[src])

    def clear(self) -> None:
        seq_id = self.some()[0]
        self.context.seq_rm(seq_id, 0)
        self.texts[seq_id] = []


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("n_ubatch", [512, LENGTH + 2])
def test_any_order_of_calls(name: str, n_ubatch: int, hybrid: Hybrid) -> None:
    with open_context(hybrid(name), n_ctx=512, n_seq_max=5, n_ubatch=n_ubatch) as context:
        for seed in (1, 2):
            context.clear()
            ledger = Ledger(context, seed)
            for _ in range(60):
                ledger.rng.choice([ledger.chains, ledger.chains, ledger.chains, ledger.copy, ledger.clear])()
                for seq_id, text in ledger.texts.items():
                    assert context.n_past(seq_id) == len(text)
            for seq_id, text in ledger.texts.items():
                check_goes_on(context, seq_id, text)
