"""Recurrent states that were taken back: what llama.cpp's rollback would go on from silently, though it is not there,
is refused or cleared.
"""

from collections.abc import Callable

import pytest

from hybrids import LENGTH, ROLLBACK, check_goes_on, open_context
from llama_eagle import AbortedError, Batch, InputError, Model
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
    """Its last tokens are in one piece, also where sequences of other lengths share the decode."""
    model = hybrid(name)
    for length in range(LENGTH + 2, 15):
        texts = [list(range(5, 5 + length)), list(range(50, 57)), list(range(90, 103))]
        with open_context(model, n_ubatch=LENGTH + 2) as context:
            context.decode(Batch.join([Batch(text, seq_id=s) for s, text in enumerate(texts)]))
            for seq_id, text in enumerate(texts):
                context.seq_rm(seq_id, len(text) - LENGTH)
            for seq_id, text in enumerate(texts):
                check_goes_on(context, seq_id, text[:-LENGTH])
