"""Context: a model's memory and its decode and encode calls, mirroring llama.h.

Calls of one context from several threads wait for each other; abort() may come from any thread at any time.
"""

import os
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from .batch import Batch
from .checks import matrix, vector, whole
from .context_params import CACHE_TYPES, FLASH_ATTENTION, ContextParams
from .errors import ClosedError, InputError, NativeError
from .ffi import OF_DRAFTS, C, check, drain_log, ffi, own
from .model import POST_NORM, Model
from .sequence_state import SequenceState


@dataclass(frozen=True)
class ContextStats:
    """Counters since the context was made: calls, tokens decoded, graphs reused and built."""

    n_decode: int
    n_encode: int
    n_tokens: int
    n_reused: int
    n_built: int


def default_threads() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def native_params(params: ContextParams, features: np.ndarray) -> Any:
    """The struct eagle_context_params. features: int32[n], whose memory it points to."""
    raw = ffi.new("eagle_context_params *")
    for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_paths", "n_outputs_max", "n_rollback"):
        setattr(raw, name, getattr(params, name))
    raw.n_threads = params.n_threads or default_threads()
    raw.flash_attn = FLASH_ATTENTION[params.flash_attn]
    raw.type_k = CACHE_TYPES[params.type_k]
    raw.type_v = CACHE_TYPES[params.type_v]
    raw.kv_unified = int(params.kv_unified)
    raw.swa_full = int(params.swa_full)
    raw.n_features = len(features)
    raw.features = ffi.cast("int32_t *", features.ctypes.data)
    return raw


class Context(SequenceState):
    """The memory of one model. `features`: ids of layer inputs to extract (0 the embeddings, n_layer the last output),
    or POST_NORM, the last hidden state after the final norm.

    Further keyword arguments are ContextParams. Raises InputError for bad values and NativeError when llama.cpp fails.
    """

    def __init__(self, model: Model, features: tuple[int, ...] = (), **params: Any) -> None:
        if not isinstance(model, Model):
            raise InputError(f"a context needs a Model, got {type(model).__name__}")
        self.model = model
        self.features_ids = _feature_ids(features, model.info.n_layer)
        # floats of one token's features: those a draft takes, or those a target gives
        info = model.info
        self.feature_width = (
            len(info.features) * info.n_embd_target if info.is_draft else len(self.features_ids) * info.n_embd
        )
        self.lock = threading.RLock()
        self._handle: Any = None
        self._abort = ffi.new("int32_t *")
        self.ends: dict[int, tuple[int, int]] = {}  # sequence -> last token and its row, if the last decode was of it
        self.params = ContextParams.of(**params)
        self._ids = np.array(self.features_ids, dtype=np.int32)
        raw = native_params(self.params, self._ids)
        raw.abort_flag = self._abort
        error = ffi.new("char[1024]")
        with model.lock:
            pointer = C.eagle_context_init(model.handle, raw, error, 1024)
            drain_log(OF_DRAFTS if model.info.is_draft else ())
            if pointer == ffi.NULL:
                raise NativeError(f"no context for {model.path.name}: {ffi.string(error).decode('utf-8', 'replace')}")
            self._handle = own(pointer, C.eagle_context_free, model, self._abort)
            model.add_user(self)
        info = ffi.new("eagle_context_info *")
        C.eagle_context_describe(pointer, info)
        self.n_ctx = info.n_ctx_seq
        self.n_batch = info.n_batch
        self.n_ubatch = info.n_ubatch
        self.n_seq_max = info.n_seq_max
        self.n_paths = raw.n_paths
        self.n_logits = info.n_logits
        self.n_threads = info.n_threads
        self.has_tree = bool(info.has_tree)
        self.n_rollback = info.n_rollback  # 0 where the architecture's state cannot go back
        self.state_bytes = info.state_bytes
        self.snapshot_bytes = info.snapshot_bytes

    @property
    def handle(self) -> Any:
        """The native pointer. Raises ClosedError after close()."""
        if self._handle is None:
            raise ClosedError(f"the context of {self.model.path.name} is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle is None

    def close(self) -> None:
        """Frees the context; closing twice is fine."""
        with self.lock:
            if self._handle is not None:
                ffi.release(self._handle)
                self._handle = None

    def __enter__(self) -> "Context":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def decode(self, batch: Batch) -> None:
        """llama_decode. Raises InputError, ContextFullError, AbortedError (nothing of it is kept), NativeError."""
        if not isinstance(batch, Batch):
            raise InputError(f"decode takes a Batch, got {type(batch).__name__}")
        if batch.embd is not None and batch.embd.shape[1] != self.model.info.n_embd:
            raise InputError(f"embd rows have width {batch.embd.shape[1]}, the draft takes {self.model.info.n_embd}")
        with self.lock:
            handle = self.handle
            self.ends = {}
            check(C.eagle_decode(handle, batch.native()), handle)
            if self.model.info.is_draft:
                self.ends = batch.ends()

    def encode(self, features: np.ndarray) -> np.ndarray:
        """llama_encode of a draft: float32 [n, n_features * n_embd_target] -> its inputs g, float32 [n, n_embd].

        Rows go through in pieces of n_ubatch.
        """
        rows = self._feature_rows(features)
        out = np.empty((len(rows), self.model.info.n_embd), dtype=np.float32)
        with self.lock:
            self.ends = {}
            for first in range(0, len(rows), self.n_ubatch):
                part = rows[first : first + self.n_ubatch]
                check(C.eagle_encode(self.handle, ffi.cast("float *", part.ctypes.data), len(part)), self.handle)
                out[first : first + len(part)] = self._read(
                    C.eagle_hidden(self.handle), len(part), self.model.info.n_embd
                )
        return out

    def _feature_rows(self, features: np.ndarray) -> np.ndarray:
        info = self.model.info
        if not info.is_draft:
            raise InputError(f"{self.model.path.name} is no draft: only drafts encode features")
        width = self.feature_width
        rows = matrix("features", features)
        if rows.shape[1] != width or not len(rows):
            raise InputError(f"features must have shape [n, {width}], got {rows.shape}")
        return rows

    @staticmethod
    def _read(pointer: Any, rows: int, width: int) -> np.ndarray:
        if pointer == ffi.NULL or rows == 0:
            return np.zeros((0, width), dtype=np.float32)
        buffer = ffi.buffer(pointer, rows * width * 4)
        return np.frombuffer(buffer, dtype=np.float32).reshape(rows, width)

    def logits(self) -> np.ndarray:
        """float32 [n_outputs, n_logits] of the last decode (a copy)."""
        with self.lock:
            return self._read(C.eagle_logits(self.handle), C.eagle_n_outputs(self.handle), self.n_logits).copy()

    def hidden(self) -> np.ndarray:
        """Of a draft: float32 [n_outputs, n_embd], the states that feed the next level (a copy)."""
        with self.lock:
            return self._read(
                C.eagle_hidden(self.handle), C.eagle_n_outputs(self.handle), self.model.info.n_embd
            ).copy()

    def argmax(self) -> np.ndarray:
        """int32 [n_outputs]: the most likely token of each output row; the smallest id wins a tie."""
        with self.lock:
            ids = np.empty(C.eagle_n_outputs(self.handle), dtype=np.int32)
            code = C.eagle_argmax(self.handle, ffi.cast("int32_t *", ids.ctypes.data))
            check(min(code, C.EAGLE_OK), self.handle)
        return ids

    def top_k(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best tokens of each output row: target ids int32 [n_outputs, k] and log probabilities float32."""
        whole("k", k, 1, self.n_logits)
        with self.lock:
            n = C.eagle_n_outputs(self.handle)
            ids = np.empty((n, k), dtype=np.int32)
            logp = np.empty((n, k), dtype=np.float32)
            pointers = ffi.cast("int32_t *", ids.ctypes.data), ffi.cast("float *", logp.ctypes.data)
            check(min(C.eagle_top_k(self.handle, k, *pointers), C.EAGLE_OK), self.handle)
        return ids, logp

    def features(self, rows: np.ndarray | list[int] | None = None) -> np.ndarray:
        """float32 [n, n_features * n_embd] of the last decode's tokens, or of the given rows of its batch (a copy)."""
        with self.lock:
            n_rows = C.eagle_n_rows(self.handle)
            index = vector("rows", range(n_rows) if rows is None else rows, np.int32)
            if len(index) and not 0 <= index.min() <= index.max() < n_rows:
                raise InputError(f"rows {index.tolist()} of features: the last decode had {n_rows}")
            out = np.empty((len(index), self.feature_width), dtype=np.float32)
            pointer = ffi.cast("int32_t *", index.ctypes.data)
            check(C.eagle_features(self.handle, pointer, len(index), ffi.cast("float *", out.ctypes.data)), self.handle)
        return out

    def commit(self, path: Any, seq_id: int = 0) -> None:
        """Keeps a path of uncommitted nodes (a Path, or ids from the root) and frees the sequence's other nodes."""
        nodes = vector("path", getattr(path, "nodes", path), np.int32)
        self._sequence(seq_id)
        with self.lock:
            self.ends.pop(seq_id, None)
            check(
                C.eagle_commit(self.handle, seq_id, ffi.cast("int32_t *", nodes.ctypes.data), len(nodes)), self.handle
            )

    def rollback(self, seq_id: int = 0) -> None:
        """Frees every uncommitted node of a sequence."""
        self.commit((), seq_id)

    def seq_rm(self, seq_id: int, p0: int, p1: int = -1) -> None:
        """llama_memory_seq_rm: removes positions [p0, p1). Raises InputError where the memory cannot."""
        self._sequence(seq_id)
        whole("p0", p0)
        whole("p1", p1)
        with self.lock:
            self.ends.pop(seq_id, None)
            check(C.eagle_seq_rm(self.handle, seq_id, p0, p1), self.handle)

    def seq_cp(self, src: int, dst: int) -> None:
        """llama_memory_seq_cp: dst becomes a copy of src."""
        self._sequence(src)
        self._sequence(dst)
        with self.lock:
            self.ends.pop(dst, None)
            check(C.eagle_seq_cp(self.handle, src, dst), self.handle)

    def n_past(self, seq_id: int = 0) -> int:
        """Committed tokens of a sequence."""
        return self._count(C.eagle_seq_n_past, seq_id)

    def n_nodes(self, seq_id: int = 0) -> int:
        """Uncommitted nodes of a sequence."""
        return self._count(C.eagle_seq_n_nodes, seq_id)

    def cells_used(self, seq_id: int = 0, *, window: bool = False) -> int:
        """Cells in use of the cache that holds a sequence; `window`: of its sliding-window cache."""
        with self.lock:
            return int(C.eagle_cells_used(self.handle, self._sequence(seq_id), int(window)))

    def _count(self, function: Any, seq_id: int) -> int:
        with self.lock:
            return int(function(self.handle, self._sequence(seq_id)))

    def clear(self) -> None:
        """Forgets all sequences."""
        with self.lock:
            self.ends = {}
            check(C.eagle_clear(self.handle), self.handle)

    def abort(self) -> None:
        """Stops a running decode soon, from any thread; decodes raise AbortedError until resume()."""
        self._abort[0] = 1

    def resume(self) -> None:
        """Allows decodes again after abort()."""
        self._abort[0] = 0

    def stats(self) -> ContextStats:
        """Counters of this context."""
        raw = ffi.new("eagle_context_stats *")
        with self.lock:
            C.eagle_context_count(self.handle, raw)
        return ContextStats(raw.n_decode, raw.n_encode, raw.n_tokens, raw.n_reused, raw.n_built)


def _feature_ids(features: Any, n_layer: int) -> tuple[int, ...]:
    ids = vector("features", features, np.int32).tolist()
    if len(ids) > C.EAGLE_MAX_FEATURES:
        raise InputError(f"{len(ids)} features, at most {C.EAGLE_MAX_FEATURES}")
    return tuple(whole("feature", i, POST_NORM, n_layer) for i in ids)
