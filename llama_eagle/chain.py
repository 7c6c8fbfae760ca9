"""Chains on targets whose memory holds no trees: decode a root and draft tokens, then keep what was accepted.

Recurrent and hybrid states go back by llama.cpp's rollback (n_rollback of the context), once after a decode; sequences
that share it need chains of one length, or llama.cpp decodes in pieces and moves states without what they go back to.
Knows nothing of what is accepted, nor of where drafts come from.
"""

from typing import Any

import numpy as np

from .checks import vector, whole
from .context import Context
from .ffi import C, check, ffi

_MIB = 1 << 20


def decode_chain(context: Context, tokens: Any, seq_id: int = 0) -> None:
    """Decodes a root and its draft tokens, int [1 + n], as ordinary tokens with a row of logits each.

    Raises InputError for more draft tokens than context.n_rollback, by the architecture's name where that is 0.
    """
    chain = vector("chain", tokens, np.int32)
    whole("sequence id", seq_id, 0, context.n_seq_max - 1)
    with context.lock:
        context.ends = {}
        pointer = ffi.cast("int32_t *", chain.ctypes.data)
        check(C.eagle_chain_decode(context.handle, seq_id, pointer, len(chain)), context.handle)


def keep_chain(context: Context, n_past: int, seq_id: int = 0) -> None:
    """Keeps the first n_past tokens of a sequence, of which the last decode's first one must be one.

    Raises NativeError where the memory cannot go back; the sequence is empty then, so that no wrong text can follow.
    """
    whole("n_past", n_past, 1)
    whole("sequence id", seq_id, 0, context.n_seq_max - 1)
    with context.lock:
        check(C.eagle_chain_keep(context.handle, seq_id, n_past), context.handle)


def rollback_memory(context: Context) -> str:
    """What the recurrent state of a context takes, and what rollback costs of it; "" where there is no such state."""
    if not context.state_bytes:
        return ""
    name = context.model.meta("general.architecture")
    sequences = "1 sequence" if context.n_seq_max == 1 else f"{context.n_seq_max} sequences"
    text = f"{name}: recurrent state of {sequences} {context.state_bytes / _MIB:.3g} MiB"
    if not context.n_rollback:
        return f"{text}, no rollback"
    cost, each = context.n_rollback * context.snapshot_bytes / _MIB, context.snapshot_bytes / _MIB
    return f"{text}, {cost:.3g} of it to take back chains of {context.n_rollback} ({each:.3g} a token)"
