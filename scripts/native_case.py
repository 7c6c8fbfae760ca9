"""The handles of one case of fuzz_calls.py, and random calls of the C ABI on them.

Arrays are exactly as long as eagle_api.h asks and kept alive during the call; numbers are anything.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from llama_eagle.ffi import C, ffi
from native_turn import Turns
from soak_requests import SETTINGS

CALLS = 80  # of a case
ODD = [-(2**31), -1000, -3, -2, -1, 0, 1, 2, 255, 256, 257, 2**16, 2**31 - 1]
ODD_FLOATS = [-1.0, 0.0, 1e-30, 1e30, 2.0, float("nan"), float("inf")]
LIMITS = ["temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty"]
SIZES = ["n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_outputs_max", "n_threads", "n_paths", "n_rollback"]


class Case:
    """The handles of a case and the calls on them."""

    def __init__(self, folder: Path, rng: random.Random, verbose: bool) -> None:
        self.rng, self.verbose = rng, verbose
        self.error = ffi.new("char[512]")
        self.target = self._model(folder / "target.gguf", ffi.NULL)
        self.draft = self._model(folder / "head.gguf", self.target)
        self.info = {m: self._describe(m) for m in (self.target, self.draft)}
        ids = self.info[self.draft]
        features = list(ids.features[0 : ids.n_features])
        if rng.random() < 0.1:  # not those of the draft
            features = rng.choice([[], features[:1], [*range(self.info[self.target].n_layer), -1]])
        self.n_features = len(features)
        ways = {"n_paths": rng.choice([0, 0, 12]), "n_rollback": rng.choice([0, 4])}
        self.contexts = [self._context(self.target, features, **ways), self._context(self.draft, [])]
        self.samplers = [self._sampler({}), self._sampler({"temperature": 1.0, "repeat_penalty": 1.1})]

    def _model(self, path: Path, target: Any) -> Any:
        params = ffi.new("eagle_model_params *", {"n_gpu_layers": 0, "use_mmap": 1, "target": target})
        return C.eagle_model_load(os.fsencode(path), params, self.error, 512)

    def _describe(self, model: Any) -> Any:
        info = ffi.new("eagle_model_info *")
        C.eagle_model_describe(model, info)
        return info

    def _context(self, model: Any, features: list[int], **changes: int) -> Any:
        kept = ffi.new("int32_t[]", features or 1)
        values = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 32, "n_seq_max": 3, "n_threads": 1, "kv_unified": 1}
        values |= {"flash_attn": -1, "n_features": len(features), **changes}
        params = ffi.new("eagle_context_params *", values)
        params.features = kept
        return C.eagle_context_init(model, params, self.error, 512)

    def _sampler(self, values: dict[str, Any], biases: list[tuple[int, float]] | None = None) -> Any:
        plain = {"top_p": 1.0, "typical_p": 1.0, "repeat_penalty": 1.0, "repeat_last_n": 64}
        ids = ffi.new("int32_t[]", [token for token, _ in biases or []] or 1)
        numbers = ffi.new("float[]", [value for _, value in biases or []] or 1)
        text = values.pop("grammar", None)
        params = ffi.new("eagle_sampler_params *", {**plain, **values, "n_bias": len(biases or [])})
        kept = ffi.NULL if text is None else ffi.new("char[]", text.encode())
        params.bias_tokens, params.bias_values, params.grammar = ids, numbers, kept
        return C.eagle_sampler_init(self.target, params, self.error, 512)

    def number(self, *likely: int) -> int:
        """One of the likely numbers, or an odd one."""
        return self.rng.choice(likely) if likely and self.rng.random() < 0.85 else self.rng.choice(ODD)

    def ints(self, n: int, *likely: int) -> Any:
        """int32[n] of such numbers; odd ones are rare, so that some arrays are good."""
        good = self.rng.random() < 0.8
        return ffi.new("int32_t[]", [self.rng.choice(likely) if good else self.number(*likely) for _ in range(n)])

    def floats(self, n: int) -> Any:
        """float[n], now and then with what is no number."""
        values = np.random.default_rng(self.rng.randrange(2**32)).normal(0, 2, n).astype(np.float32)
        if n and self.rng.random() < 0.1:
            values[self.rng.randrange(n)] = self.rng.choice([float("nan"), float("inf"), -float("inf"), 3e38])
        return ffi.new("float[]", values.tolist())

    def context(self) -> tuple[Any, Any]:
        """One of the contexts and its model's description."""
        which = self.rng.randrange(2)
        return self.contexts[which], self.info[self.draft if which else self.target]

    def decode(self) -> Any:
        context, info = self.context()
        n = self.number(1, 1, 2, 5, 9, 33, 64)
        room = n if 0 < n < 1000 else 1
        batch = ffi.new("eagle_batch *", {"n_tokens": n})
        maybe = self.rng.random
        tokens = self.ints(room, *range(info.n_vocab))
        ids = self.ints(room, *self.rng.choice([(0,), (0, 1, 2)])) if maybe() < 0.7 else ffi.NULL
        parents = self.ints(room, *self.rng.choice([(-2,), (-1,), (-1, 0, 1, 2, 3)])) if maybe() < 0.6 else ffi.NULL
        rows = self.number(0, 0, 1, 2)
        outputs = ffi.new("int8_t[]", [self.rng.randrange(2) for _ in range(room)]) if maybe() < 0.6 else ffi.NULL
        wanted = info.is_draft != (maybe() < 0.05)
        embd = self.floats(room * info.n_embd) if wanted else ffi.NULL
        batch.tokens, batch.seq_ids, batch.parents, batch.outputs, batch.embd = tokens, ids, parents, outputs, embd
        batch.rows = rows
        return C.eagle_decode(context, batch)

    def encode(self) -> Any:
        context, info = self.context()
        n = self.number(1, 2, 8, 32)
        width = info.n_features * info.n_embd_target or 1
        return C.eagle_encode(context, self.floats((n if 0 < n < 1000 else 1) * width), n)

    def memory(self) -> Any:
        context, _ = self.context()
        a, b, c = (self.number(0, 1, 2, 5) for _ in range(3))
        n = self.number(0, 0, 1, 2, 3)
        path = self.ints(max(n, 1) if n < 1000 else 1, *range(6))
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_commit(context, a, path, n if n < 1000 else 1),
            lambda: C.eagle_commit(context, self.rng.randrange(3), path, 0),
            lambda: C.eagle_seq_rm(context, a, b, c),
            lambda: C.eagle_seq_rm(context, self.rng.randrange(3), 0, -1),
            lambda: C.eagle_seq_cp(context, a, b),
            lambda: C.eagle_seq_n_past(context, a) + C.eagle_seq_n_nodes(context, a),
            lambda: C.eagle_cells_used(context, a, b),
            lambda: C.eagle_clear(context) if self.rng.random() < 0.2 else 0,
        ]
        return self.rng.choice(calls)()

    def results(self) -> Any:
        context, info = self.context()
        n, rows = C.eagle_n_outputs(context), C.eagle_n_rows(context)
        k = self.number(1, 3, info.n_logits)
        size = max(n, 1) * (k if 0 < k <= info.n_logits else 1)
        count = self.number(0, 1, 2, rows)
        fits = count if 0 <= count < 1000 else 0
        width = 0 if info.is_draft else self.n_features * info.n_embd
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_argmax(context, ffi.new("int32_t[]", max(n, 1))),
            lambda: C.eagle_top_k(context, k, ffi.new("int32_t[]", size), ffi.new("float[]", size)),
            lambda: C.eagle_features(context, self.ints(fits, *range(max(rows, 1))), fits, self.floats(fits * width)),
            lambda: C.eagle_features(context, ffi.NULL, rows, self.floats(rows * width)),
            lambda: ffi.buffer(C.eagle_logits(context), n * info.n_logits * 4)[:] if n else 0,
        ]
        return self.rng.choice(calls)()

    def sample(self) -> Any:
        sampler, token = self.rng.choice(self.samplers), ffi.new("int32_t *")
        n_vocab = self.info[self.target].n_vocab
        context, n = self.contexts[0], self.number(0, 1, 9)
        room = n if 0 <= n < 1000 else 1
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_sample(sampler, self.rng.choice(self.contexts), self.number(0, 1, 2), token),
            lambda: C.eagle_sample(sampler, context, max(C.eagle_n_outputs(context) - 1, 0), token),
            lambda: C.eagle_sampler_accept(sampler, self.number(*range(n_vocab))),
            lambda: C.eagle_sampler_prompt(sampler, self.ints(room, *range(n_vocab)), room),
            lambda: C.eagle_sampler_reset(sampler),
            lambda: C.eagle_sampler_candidates(
                sampler, self.floats(n_vocab), ffi.new("int32_t[]", n_vocab), ffi.new("float[]", n_vocab)
            ),
        ]
        return self.rng.choice(calls)()

    def another_sampler(self) -> Any:
        """A clone or a new one in place of one."""
        values = dict(self.rng.choice(list(SETTINGS.values())))
        for name in ("stop", "logit_bias", "json_schema"):  # not the native sampler's
            values.pop(name, None)
        if self.rng.random() < 0.3:
            values[self.rng.choice(LIMITS)] = self.rng.choice(ODD_FLOATS)
        if self.rng.random() < 0.3:
            values[self.rng.choice(["top_k", "repeat_last_n"])] = self.number()
        biases = [
            (self.number(5, 260), self.rng.choice([1.0, -1e38, *ODD_FLOATS])) for _ in range(self.rng.randrange(3))
        ]
        made = self._sampler(values, biases) if self.rng.random() < 0.7 else C.eagle_sampler_clone(self.samplers[0])
        if made != ffi.NULL:
            at = self.rng.randrange(2)
            C.eagle_sampler_free(self.samplers[at])
            self.samplers[at] = made
        return made

    def another_context(self) -> Any:
        """With odd parameters; freed at once."""
        names = self.rng.sample([*SIZES, "flash_attn", "type_k", "type_v"], self.rng.randrange(1, 4))
        changes = {name: self.number(0, 1, 2, 8, 30) for name in names}
        changes |= {name: 2**13 for name in SIZES if changes.get(name, 0) >= 2**16}  # more takes long, and memory
        features = [self.number(0, 2, -1, 6) for _ in range(self.rng.choice([0, 1, 3]))]
        made = self._context(self.rng.choice([self.target, self.draft]), features, **changes)
        if made != ffi.NULL:
            C.eagle_context_free(made)
        return made

    def text(self) -> Any:
        model = self.rng.choice([self.target, self.draft])
        size = self.rng.choice([0, 1, 3, 64])
        token, level = self.number(*range(270)), ffi.new("int32_t *")
        text = bytes(self.rng.randrange(1, 256) for _ in range(self.rng.randrange(20)))
        raw = ffi.new("char[]", text)
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_model_piece(model, token, ffi.new("char[]", size), size, self.rng.randrange(2)),
            lambda: C.eagle_model_is_eog(model, token),
            lambda: C.eagle_model_tokenize(model, raw, len(text), ffi.new("int32_t[]", size), size, 1, token & 1),
            lambda: C.eagle_log_next(ffi.new("char[]", size), size, level),
            lambda: C.eagle_model_meta(model, b"general.architecture", ffi.new("char[]", size), size),
            lambda: C.eagle_quantize(
                self.number(0, 1, 2, 8, 12, 30), self.floats(256), ffi.new("char[]", 2048), 1, 256
            ),
        ]
        return self.rng.choice(calls)()

    def step(self) -> Any:
        """Draft trees, their verification, or both."""
        turns = Turns(self, self.info[self.target].n_vocab)
        target, draft = self.contexts if self.rng.random() < 0.95 else self.rng.choices(self.contexts, k=2)
        maybe_draft = draft if self.rng.random() < 0.8 else ffi.NULL
        seconds = ffi.new("eagle_seconds *")
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_step(target, maybe_draft, turns.pointers, turns.n, seconds),
            lambda: C.eagle_step(target, draft, turns.pointers, turns.n, seconds),
            lambda: C.eagle_draft(draft, turns.pointers, turns.n),
            lambda: C.eagle_verify(target, turns.pointers, turns.n),
            lambda: C.eagle_prune(self.rng.choice(self.samplers), ffi.addressof(turns.turns[0], "tree")),
        ]
        return self.rng.choice([calls[0], *calls])()

    def pending(self) -> Any:
        """What a draft has still to see."""
        context, info = self.contexts[1] if self.rng.random() < 0.9 else self.contexts[0], self.info[self.draft]
        width = info.n_features * info.n_embd_target
        seq, n = self.number(0, 1, 2), self.number(1, 2, 5, 40)
        room = n if 0 < n < 1000 else 0
        n = min(n, 1000)
        waits = max(C.eagle_n_pending(context, seq), 0)
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_observe(context, seq, self.ints(room, *range(250)), self.floats(room * width), room or n),
            lambda: C.eagle_catch_up(context, seq),
            lambda: C.eagle_forget(context, seq),
            lambda: C.eagle_pending_read(context, seq, self.ints(waits, 0), self.floats(waits * width)),
        ]
        return self.rng.choice([calls[0], *calls])()

    def chain(self) -> Any:
        context, _ = self.context()
        seq, n, keep = self.number(0, 1, 2), self.number(1, 2, 4), self.number(1, 3, 6)
        n = min(n, 1000)
        calls: list[Callable[[], Any]] = [
            lambda: C.eagle_chain_decode(context, seq, self.ints(max(n, 1), *range(250)), n),
            lambda: C.eagle_chain_keep(context, seq, keep),
            lambda: C.eagle_can_shift(context),
            lambda: C.eagle_seq_shift(context, seq, keep, self.number(1, 2, 5)),
        ]
        return self.rng.choice(calls)()

    def state(self) -> Any:
        """Bytes of a sequence, now and then changed, into this context or the other one."""
        context, _ = self.context()
        seq = self.number(0, 1, 2)
        size = C.eagle_state_size(context, seq)
        if size <= 0 or self.rng.random() < 0.1:
            data = bytes(self.rng.randrange(256) for _ in range(self.rng.choice([0, 1, 8, 64])))
        else:
            raw = ffi.new("char[]", size)
            asked = size if self.rng.random() < 0.9 else self.rng.randrange(size)
            code = C.eagle_state_get(context, seq, raw, asked)
            data = bytes(ffi.buffer(raw)) if code == 0 else b""
        data = self._changed(data)
        into = context if self.rng.random() < 0.8 else self.rng.choice(self.contexts)
        return C.eagle_state_set(into, self.number(0, 1, 2), ffi.from_buffer(data) if data else ffi.NULL, len(data))

    def _changed(self, data: bytes) -> bytes:
        chance, changed = self.rng.random(), bytearray(data)
        if not data or chance < 0.4:
            return data
        if chance < 0.6:
            return data[: self.rng.randrange(len(data))]
        for _ in range(self.rng.randrange(1, 4)):  # the front describes, the rest are values
            at = self.rng.randrange(min(len(data), self.rng.choice([32, 256, 2**20])))
            changed[at] = self.rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        return bytes(changed)

    def run(self) -> None:
        """The calls, then everything is freed."""
        kinds = [self.decode] * 6 + [self.encode, self.memory, self.memory, self.results, self.results, self.sample]
        kinds += [self.another_sampler, self.another_context, self.text, *[self.step] * 6]
        kinds += [self.pending, self.pending, self.chain, self.state]
        for _ in range(CALLS):
            kind = self.rng.choice(kinds)
            if self.verbose:
                print(kind.__name__, end=" ", flush=True)
            result = kind()
            if self.verbose:
                print(result if isinstance(result, int) else "", flush=True)
        for sampler in self.samplers:
            C.eagle_sampler_free(sampler)
        for context in self.contexts:
            C.eagle_context_free(context)
        C.eagle_model_free(self.draft)
        C.eagle_model_free(self.target)
