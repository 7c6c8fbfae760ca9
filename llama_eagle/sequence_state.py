"""SequenceState: the part of a Context that treats a sequence's memory as a whole: its bytes, and context shift.

Knows no file format (session_file.py) and no text: what the tokens were is the caller's to remember.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .checks import whole
from .errors import InputError, NativeError
from .ffi import C, check, ffi


class SequenceState(ABC):
    """Methods of Context."""

    lock: Any
    n_seq_max: int
    ends: dict[int, tuple[int, int]]

    @property
    @abstractmethod
    def handle(self) -> Any:
        """The native pointer."""

    def _sequence(self, seq_id: int) -> int:
        return whole("sequence id", seq_id, 0, self.n_seq_max - 1)

    def state(self, seq_id: int = 0) -> bytes:
        """What the memory holds of a sequence, for set_state() of a context of the same model and the same K/V types,
        flash attention, kv_unified and, unless unified, n_seq_max; n_ctx and the sequence's id may differ.

        A window cache gives what the next token sees, so a restored one cannot be gone back in. Raises InputError
        while the sequence has uncommitted nodes, and for memories without this (DSA, MSA, DeepSeek 4).
        """
        self._sequence(seq_id)
        with self.lock:
            size = int(C.eagle_state_size(self.handle, seq_id))
            check(min(size, C.EAGLE_OK), self.handle)
            data = np.empty(size, dtype=np.uint8)
            check(C.eagle_state_get(self.handle, seq_id, ffi.cast("void *", data.ctypes.data), size), self.handle)
        return data.tobytes()

    def set_state(self, data: bytes | bytearray | memoryview, seq_id: int = 0) -> None:
        """Makes a sequence what state() returned; what it held before is gone, n_past() is that of the state.

        Raises InputError for other bytes and ContextFullError without enough free cells: the sequence is as it was
        then; and NativeError where llama.cpp fails, for example over another K/V type: the sequence is empty then.
        Keys and values are not looked at: bytes that may have been damaged need a checksum (session_file.py).
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InputError(f"a state is bytes, not {type(data).__name__}")
        self._sequence(seq_id)
        raw = ffi.from_buffer("char[]", data)
        with self.lock:
            handle = self.handle
            self.ends.pop(seq_id, None)
            check(C.eagle_state_set(handle, seq_id, raw, len(raw)), handle)

    @property
    def can_shift(self) -> bool:
        """Whether shift() works here; where it does not, shift() says why."""
        with self.lock:
            code = int(C.eagle_can_shift(self.handle))
            if code < 0:
                raise NativeError(ffi.string(C.eagle_context_error(self.handle)).decode("utf-8", "replace"))
            return bool(code)

    def shift(self, keep: int, discard: int, seq_id: int = 0) -> None:
        """Context shift: drops the positions [keep, keep + discard) and moves the later tokens down by `discard`.

        Keys are rotated to their new positions (llama_memory_seq_rm, llama_memory_seq_add), nothing is decoded again:
        the kept tokens still carry what they saw of the dropped ones, so logits are not those of a fresh decode of the
        shorter text. Raises InputError where the model or memory cannot, while the sequence has uncommitted nodes or
        shares cells with a copy, and unless 0 <= keep, 1 <= discard, keep + discard < n_past(seq_id).
        """
        self._sequence(seq_id)
        whole("keep", keep)
        whole("discard", discard)
        with self.lock:
            self.ends.pop(seq_id, None)
            check(C.eagle_seq_shift(self.handle, seq_id, keep, discard), self.handle)
