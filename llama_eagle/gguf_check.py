"""Refuses GGUF files whose metadata would make llama.cpp abort or loop: sizes that no model has, broken vocabularies.

Knows what the loader and the graphs of llama.cpp assert (`llama-model.cpp`, `llama-vocab.cpp`, `models/`), and nothing
that they refuse in a civil way: missing keys and tensors, wrong types and shapes. Reads headers, loads no tensor.
"""

import re
from pathlib import Path

import numpy as np

from .errors import ModelError
from .gguf_archs import ALL_EXPERTS, GATED_QUERY, GATING, NO_ROPE, RANGES, ROPE_ALL, ROPE_PART, SECTIONS
from .gguf_header import STRING, WHOLE, GgufHeader, TensorEntry, Value, read_header

TOKENS = "tokenizer.ggml.tokens"
MOST_LAYERS, MOST_EXPERTS, MOST_SIZE, MOST_CONTEXT = 512, 1024, 1 << 24, 1 << 30  # the first two are llama.cpp's

_NOT_NEGATIVE = ("_epsilon", "rope.scaling.factor")

# type: values and bytes of a block; the types that a matrix product or a table of rows can have
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip
_IDS = {24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8)}  # integers: only in tables of ids
_ID_TABLES = re.compile(r"d2t|t2d|.*tid2eid\.weight")
_F32 = 0

_BYTE, _BYTE_TOKENS = 6, ("llama", "t5", "gpt2", "gemma4", "plamo2")
# tokenizer: ids of begin and end where the file gives none, and whether both are added then
_SPECIAL = {
    "llama": (1, 2, True, False), "bert": (101, None, True, False), "gpt2": (11, 11, False, False),
    "hybriddna": (11, 11, False, False), "whitespace": (11, 11, False, False), "t5": (None, 1, False, True),
    "plamo2": (1, 2, False, False), "gemma4": (None, None, False, False), "rwkv": (None, None, False, False),
}  # fmt: skip


def check_gguf(path: Path) -> None:
    """Looks at a file's header. Raises ModelError, one line with the value found, where llama.cpp must not see it."""
    try:
        header = read_header(path, frozenset({TOKENS}))
        _Rules(header).check()
    except ModelError as error:
        raise ModelError(f"cannot load {path}: {error}") from None


class _Rules:
    """The rules, over one header. Sizes of an architecture are looked up without its prefix."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._values = header.values
        self.arch = self._text("general.architecture")

    def check(self) -> None:
        """Applies all rules, those first that name what is wrong best."""
        if not self.arch:
            raise ModelError("it has no general.architecture: it is no model, or it was damaged")
        self._check_floats()
        for entry in self._header.tensors:
            self._check_tensor(entry)
        if f"{self.arch}.block_count" in self._values:  # a vocabulary alone, or another kind of file
            self._check_sizes()
            self._check_experts()
            self._check_heads()
            self._check_ranges()
        self._check_vocabulary()

    def _text(self, key: str, default: str = "") -> str:
        value = self._values.get(key)
        if value is None:
            return default
        if value.is_array or not isinstance(value.data, bytes):
            raise ModelError(f"{key} is no text")
        text = value.data.decode("utf-8", "replace")
        if not text.isprintable():
            raise ModelError(f"{key} is {text[:40]!r}")
        return text

    def _size(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number of the architecture. Raises ModelError unless it is in [least, most]."""
        value = self._values.get(f"{self.arch}.{key}")
        return default if value is None else int(self._sizes(key, value, least, most)[0])

    def _sizes(self, key: str, value: Value, least: int, most: int) -> np.ndarray:
        name = f"{self.arch}.{key}"
        if value.kind not in WHOLE or not isinstance(value.data, np.ndarray) or not value.count:
            raise ModelError(f"{name} is no whole number")
        wrong = value.data[(value.data < least) | (value.data > most)]
        if wrong.size:
            raise ModelError(f"{name} is {int(wrong[0])}, expected {least} to {most}")
        return value.data.astype(np.int64)

    def _per_layer(self, key: str, default: "np.ndarray | int", least: int, most: int) -> np.ndarray:
        """One number a layer; one for all is repeated."""
        value = self._values.get(f"{self.arch}.{key}")
        found = np.asarray(default) if value is None else self._sizes(key, value, least, most)
        if value is not None and value.is_array and len(found) != self.n_layer:
            raise ModelError(f"{self.arch}.{key} has {len(found)} entries, the model has {self.n_layer} layers")
        return np.broadcast_to(found, (self.n_layer,)).astype(np.int64)

    def _check_floats(self) -> None:
        for key, value in self._values.items():
            if value.kind not in (6, 12) or value.is_array or not isinstance(value.data, np.ndarray):
                continue
            number = float(value.data[0])
            least = 0.0 if key.endswith(_NOT_NEGATIVE) else -np.inf
            least = np.nextafter(0.0, 1.0) if key.endswith(("rope.freq_base", "rope.freq_base_swa")) else least
            if key.startswith(f"{self.arch}.") and not least <= number < np.inf:
                raise ModelError(f"{key} is {number}, expected a number from {least} on")

    def _check_tensor(self, entry: TensorEntry) -> None:
        """Type, shape and extent."""
        types = _IDS if _ID_TABLES.fullmatch(entry.name) else _BLOCKS
        if entry.kind not in types:
            raise ModelError(f"tensor {entry.name} is of type {entry.kind}, which a model cannot compute with")
        values, size = types[entry.kind]
        count = 1
        for length in entry.shape:
            if not 0 < length < 1 << 40:
                raise ModelError(f"tensor {entry.name} has the shape {list(entry.shape)}")
            count *= length
        if entry.shape[0] % values:
            raise ModelError(f"tensor {entry.name} has rows of {entry.shape[0]}, its type needs multiples of {values}")
        vector = len(entry.shape) == 1 and types is _BLOCKS
        if entry.kind != _F32 and (vector or entry.name.endswith(("_norm.weight", ".bias"))):
            raise ModelError(f"tensor {entry.name} is of type {entry.kind}, norms and biases must be f32")
        end = self._header.data_start + entry.offset + count // values * size
        if end > self._header.size:
            raise ModelError(f"tensor {entry.name} ends at byte {end}, the file has {self._header.size}: it was cut")

    def _check_sizes(self) -> None:
        self.n_layer = self._size("block_count", 0, 1, MOST_LAYERS)
        self.n_embd = self._size("embedding_length", 0, 1, MOST_SIZE)
        self._size("context_length", 1, 1, MOST_CONTEXT)
        self._size("nextn_predict_layers", 0, 0, self.n_layer - 1)
        self._per_layer("feed_forward_length", 0, 0, MOST_SIZE)
        kinds = ("none", "linear", "yarn", "longrope")
        scaling = self._text(f"{self.arch}.rope.scaling.type", "linear")
        if scaling not in kinds:
            raise ModelError(f"{self.arch}.rope.scaling.type is {scaling[:40]!r}, expected one of {', '.join(kinds)}")

    def _check_ranges(self) -> None:
        """What one architecture asserts alone."""
        for key, (least, most) in RANGES.get(self.arch, {}).items():
            number = self._number(f"{self.arch}.{key}")
            if number is None and self.arch == "afmoe":
                number = 0.0  # its graph needs what its loader does not ask for
            if number is not None and not least <= number <= most:
                raise ModelError(f"{self.arch}.{key} is {number:g}, expected {least:g} to {most:g}")
        scale, length = (self._number(f"{self.arch}.attention.temperature_{name}") for name in ("scale", "length"))
        if self.arch in ("deepseek2", "mistral4") and scale and not length:
            raise ModelError(f"{self.arch}.attention.temperature_scale is {scale:g}, and there is no length for it")

    def _number(self, key: str) -> "float | None":
        value = self._values.get(key)
        usable = value is not None and value.count and isinstance(value.data, np.ndarray)
        return float(value.data[0]) if value is not None and usable else None

    def _check_experts(self) -> None:
        count = self._size("expert_count", 0, 0, MOST_EXPERTS)
        self._size("expert_gating_func", 1, int(self.arch in GATING and count > 0), 4)
        if self.arch in ("hunyuan-dense", "hunyuan_vl") and count <= 1:
            return
        used = int(self._per_layer("expert_used_count", 0, 0, MOST_EXPERTS).max())
        groups = self._size("expert_group_count", 0, 0, MOST_EXPERTS)
        groups_used = self._size("expert_group_used_count", 0, 0, MOST_EXPERTS)
        fits = 0 < used <= count and groups < count if count else used == groups == 0
        if not fits or (self.arch in ALL_EXPERTS and not count):
            raise ModelError(f"it uses {used} of {count} experts in {groups} groups")
        if groups > 1 and (count % groups or not 0 < groups_used < groups):
            raise ModelError(f"it uses {groups_used} of {groups} groups of {count} experts")

    def _check_heads(self) -> None:
        heads = self._per_layer("attention.head_count", 0, 0, 1 << 16)
        shared = self._per_layer("attention.head_count_kv", heads, 0, 1 << 16)
        odd = (shared > 0) & (heads > 0) & (heads % np.maximum(shared, 1) != 0)
        if odd.any():
            il = int(np.argmax(odd))
            raise ModelError(f"layer {il} has {heads[il]} heads over {shared[il]} heads of keys, which is no multiple")
        if not heads[0]:
            return  # no attention, or none that this knows
        if f"{self.arch}.attention.key_length" not in self._values and self.n_embd < heads[0]:
            raise ModelError(f"{self.arch}.attention.head_count is {heads[0]}, its width is {self.n_embd}")
        key = self._check_rope("", self.n_embd // int(heads[0]))
        keys = {key, self._check_rope("_swa", key)}
        self._check_sections()
        self._check_window()
        if self.arch in ROPE_ALL or self.arch in ROPE_PART:
            self._check_projections(heads, shared, keys)

    def _check_rope(self, suffix: str, head: int) -> int:
        """Head sizes and rope of all layers or, with the suffix, of windowed ones. Returns the length of a key."""
        key = self._size(f"attention.key_length{suffix}", head, 1, MOST_SIZE)
        value = self._size(f"attention.value_length{suffix}", head, 1, MOST_SIZE)
        given = f"{self.arch}.rope.dimension_count{suffix}" in self._values
        turned = self._size(f"rope.dimension_count{suffix}", key, int(self.arch not in NO_ROPE), MOST_SIZE)
        equal = self.arch in ROPE_ALL or self.arch in ROPE_PART
        if equal and key != value:
            raise ModelError(f"keys of {key} and values of {value} numbers, {self.arch} needs one length{suffix}")
        if given and (turned % 2 or turned > key or (self.arch in ROPE_ALL and turned != key)):
            raise ModelError(f"{self.arch}.rope.dimension_count{suffix} is {turned}, a head has {key} numbers")
        plain = key if self.arch == "deepseek2" and not suffix else 0
        latent = self._size(f"attention.key_length_mla{suffix}", 0, 0, MOST_SIZE) or plain
        if 0 < latent <= turned:
            raise ModelError(f"{self.arch} has keys of {latent} numbers{suffix}, and rope turns {turned}")
        return key

    def _check_sections(self) -> None:
        """The parts of a head that rope turns by time, height and width."""
        value = self._values.get(f"{self.arch}.rope.dimension_sections")
        sections = np.zeros(1) if value is None else self._sizes("rope.dimension_sections", value, 0, MOST_SIZE)
        if self.arch in SECTIONS and not sections[:3].any():
            raise ModelError(f"{self.arch}.rope.dimension_sections is {sections.tolist()}, one must be positive")

    def _check_window(self) -> None:
        """A windowed cache needs windowed layers: true ones of a list, or all but each n-th."""
        width = self._size("attention.sliding_window", 1, 0, MOST_CONTEXT)
        value = self._values.get(f"{self.arch}.attention.sliding_window_pattern")
        if not width or value is None or not isinstance(value.data, np.ndarray):
            return
        if not value.data.any() if value.is_array else value.data[0] == 1:
            raise ModelError(f"{self.arch}.attention.sliding_window is {width}, and its pattern has no such layer")

    def _check_projections(self, heads: np.ndarray, shared: np.ndarray, keys: set[int]) -> None:
        """Some architectures load matrices by the model's width and cut them by heads afterwards."""
        shapes = {entry.name: entry.shape for entry in self._header.tensors}
        for il in range(self.n_layer):
            fused = int(heads[il] + 2 * shared[il])
            for part, count in (("q", int(heads[il])), ("k", int(shared[il])), ("v", int(shared[il])), ("qkv", fused)):
                rows = shapes.get(f"blk.{il}.attn_{part}.weight", (0, 0))[-1]
                fits = {count * key for key in keys}
                if self.arch in GATED_QUERY and part == "q":
                    fits = {2 * size for size in fits}
                if rows and rows not in fits:
                    raise ModelError(f"blk.{il}.attn_{part}.weight gives {rows} numbers, its {count} heads {min(fits)}")

    def _check_vocabulary(self) -> None:
        value = self._values.get(TOKENS)
        if value is None or value.kind != STRING or not isinstance(value.data, list):
            return
        tokens = [token or b"[EMPTY_%d]" % i for i, token in enumerate(value.data)]  # as llama.cpp names them
        if not tokens or len(set(tokens)) != len(tokens):
            raise ModelError(f"{TOKENS} has {len(tokens)} entries, {len(set(tokens))} of them different")
        for key in ("token_type", "scores"):
            other = self._values.get(f"tokenizer.ggml.{key}")
            if other is not None and other.count != len(tokens):
                raise ModelError(f"tokenizer.ggml.{key} has {other.count} entries, {TOKENS} has {len(tokens)}")
        kind = self._text("tokenizer.ggml.model")
        if self._text("tokenizer.ggml.pre") == "whitespace" != kind:
            raise ModelError(f"tokenizer.ggml.pre does not go with the tokenizer {kind!r}")
        types = self._values.get("tokenizer.ggml.token_type")
        if types is not None and kind not in _BYTE_TOKENS and np.any(np.asarray(types.data) == _BYTE):
            raise ModelError(f"tokenizer.ggml.token_type has bytes, which the tokenizer {kind!r} has not")
        begin, end, adds_begin, adds_end = _SPECIAL.get(kind, (None, None, False, False))
        self._check_added("bos", begin, adds_begin, len(tokens))
        self._check_added("eos", end, adds_end, len(tokens))

    def _check_added(self, name: str, default: "int | None", added: bool, n_tokens: int) -> None:
        """llama.cpp asserts that a token which it adds to every text exists."""
        flag = self._number(f"tokenizer.ggml.add_{name}_token")
        if not (added if flag is None else flag):
            return
        known = (self._number(f"tokenizer.ggml.{name}_token_id"), default)
        if not any(token is not None and 0 <= token < n_tokens for token in known):
            raise ModelError(f"it adds a {name} token to every text and has none: tokenizer.ggml.{name}_token_id")
