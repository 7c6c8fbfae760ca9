"""Hostile metadata is refused before llama.cpp sees it, and every valid file passes."""

import math
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from gguf_edit import ARRAY, BOOL, F32, I32, STRING, U32, GgufFile
from llama_eagle import gguf_check
from llama_eagle.embedded import head_path, target_file
from llama_eagle.errors import ModelError
from llama_eagle.gguf_check import check_gguf
from llama_eagle.gguf_header import read_header
from processes import run_python
from tiny import PRESETS, HeadShape, TinyPair, random_head, write_head_gguf

Tiny = Callable[..., Any]


@pytest.mark.parametrize("arch", PRESETS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_tiny_targets_pass(arch: str, dtype: str, tiny_target: Tiny) -> None:
    check_gguf(tiny_target(arch, dtype=dtype).path)


@pytest.mark.parametrize("head", [HeadShape(), HeadShape(n_draft_vocab=272), HeadShape(own_embeddings=True)], ids=str)
def test_heads_pass(head: HeadShape, tmp_path: Path) -> None:
    check_gguf(write_head_gguf(tmp_path / "head.gguf", head, random_head(head)))


def test_the_embedded_pair_passes() -> None:
    check_gguf(head_path())
    if not target_file().is_file():
        pytest.skip(f"{target_file()} was not fetched")
    start = time.perf_counter()
    check_gguf(target_file())
    assert time.perf_counter() - start < 2  # 0.1 on an idle machine


def test_a_large_vocabulary_is_quick(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama")
    writer.add_token_list([f"token {i}" for i in range(150_000)])
    writer.add_token_merges([f"token {i}" for i in range(250_000)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    start = time.perf_counter()
    check_gguf(tmp_path / "big.gguf")
    assert time.perf_counter() - start < 5  # 0.2 on an idle machine


def test_the_block_sizes_are_those_of_gguf() -> None:
    known = {**gguf_check._BLOCKS, **gguf_check._IDS}
    sizes = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: sizes[kind] for kind in known if kind in sizes} == {k: v for k, v in known.items() if k in sizes}


def rewrite(source: Path, target: Path, changes: dict[str, tuple[Any, ...] | None]) -> Path:
    """Writes `source` with other metadata; None removes a key."""
    parts = GgufFile(source.read_bytes())
    for key, value in changes.items():
        if value is None:
            del parts.keys[key]
        else:
            parts.keys[key] = value
    target.write_bytes(bytes(parts))
    return target


def tokens(*texts: bytes) -> tuple[int, int, list[bytes]]:
    """A vocabulary of 272 with these texts at its end."""
    return ARRAY, STRING, [b"%d" % i for i in range(272 - len(texts))] + list(texts)


HOSTILE: list[tuple[str, dict[str, tuple[Any, ...] | None], str]] = [
    ("llama", {"general.architecture": None}, "general.architecture"),
    ("llama", {"general.alignment": (U32, 0)}, "general.alignment is 0"),
    ("llama", {"llama.block_count": (U32, 0)}, "block_count is 0"),
    ("llama", {"llama.block_count": (U32, 513)}, "block_count is 513"),
    ("llama", {"llama.block_count": (I32, -1)}, "block_count is -1"),
    ("llama", {"llama.block_count": (F32, 6.0)}, "block_count is no whole number"),
    ("llama", {"llama.block_count": (ARRAY, U32, [])}, "block_count is no whole number"),
    ("llama", {"llama.embedding_length": (U32, 0)}, "embedding_length is 0"),
    ("llama", {"llama.context_length": (U32, 2**32 - 1)}, "context_length is 4294967295"),
    ("llama", {"llama.nextn_predict_layers": (U32, 7)}, "nextn_predict_layers is 7"),
    ("llama", {"llama.attention.layer_norm_rms_epsilon": (F32, math.nan)}, "is nan"),
    ("llama", {"llama.attention.layer_norm_rms_epsilon": (F32, -1e-5)}, "is -1e-05|is -9.99"),
    ("llama", {"llama.rope.freq_base": (F32, 0.0)}, "freq_base is 0.0"),
    ("llama", {"llama.rope.scaling.type": (STRING, b"bent")}, "'bent'"),
    ("llama", {"llama.attention.head_count": (U32, 5)}, "5 heads over 2"),
    ("llama", {"llama.attention.head_count": (ARRAY, U32, [4, 4])}, "has 2 entries"),
    ("llama", {"llama.expert_count": (U32, 4)}, "0 of 4 experts"),
    ("llama", {"llama.expert_used_count": (U32, 2)}, "2 of 0 experts"),
    ("llama", {"llama.rope.dimension_count": (U32, 8)}, "dimension_count is 8"),
    ("qwen2", {"qwen2.attention.key_length": (U32, 8)}, "keys of 8 and values of 16"),
    ("qwen2", {"qwen2.attention.head_count": (U32, 2)}, "attn_q.weight"),
    ("gemma2", {"gemma2.rope.dimension_count": (U32, 0)}, "dimension_count is 0"),
    ("gemma2", {"gemma2.rope.dimension_count": (U32, 7)}, "dimension_count is 7"),
    ("gemma3", {"gemma3.attention.sliding_window_pattern": (ARRAY, BOOL, [False] * 6)}, "no such layer"),
    ("llama", {"tokenizer.ggml.tokens": tokens(b"a", b"a")}, "271 of them different"),
    ("llama", {"tokenizer.ggml.tokens": tokens(b"", b"[EMPTY_270]")}, "271 of them different"),
    ("llama", {"tokenizer.ggml.token_type": (ARRAY, I32, [1] * 271)}, "has 271 entries"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"t5"), "tokenizer.ggml.add_bos_token": (BOOL, True),
               "tokenizer.ggml.bos_token_id": None}, "adds a bos token"),
    ("llama", {"tokenizer.ggml.pre": (STRING, b"whitespace")}, "does not go with"),
    ("llama", {"tokenizer.ggml.model": (STRING, b"bert"),
               "tokenizer.ggml.token_type": (ARRAY, I32, [6] * 272)}, "bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "changes", "words"), HOSTILE, ids=lambda value: str(value)[:60])
def test_hostile_metadata(
    arch: str, changes: dict[str, tuple[Any, ...] | None], words: str, tiny_target: Tiny, tmp_path: Path
) -> None:
    path = rewrite(tiny_target(arch).path, tmp_path / "bad.gguf", changes)
    with pytest.raises(ModelError, match=words) as caught:
        check_gguf(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("kind", 26, "cannot compute"),  # i32
        ("kind", 99, "cannot compute"),
        ("kind", 2, "multiples of 32|ends at byte|rows of"),
        ("shape", [0, 272], "has the shape"),
        ("shape", [2**60, 2**60], "has the shape"),
        ("shape", [2**39, 2**39, 2**39, 2**39], "ends at byte"),
        ("shape", [1] * 5, "5 dimensions"),
        ("offset", 2**63, "ends at byte"),
        ("name", b"x" * 64, "expected 1 to 63 bytes"),
    ],
)
def test_hostile_tensors(field: str, value: Any, words: str, tiny_target: Tiny, tmp_path: Path) -> None:
    parts = GgufFile(tiny_target("llama", n_embd=48, n_head=3, n_head_kv=3).path.read_bytes())
    setattr(parts.tensors[0], field, value)
    (tmp_path / "bad.gguf").write_bytes(bytes(parts))
    with pytest.raises(ModelError, match=words):
        check_gguf(tmp_path / "bad.gguf")


def test_a_norm_in_half_precision(tiny_target: Tiny, tmp_path: Path) -> None:
    parts = GgufFile(tiny_target("llama").path.read_bytes())
    norm = next(entry for entry in parts.tensors if entry.name == b"output_norm.weight")
    norm.kind = 1
    (tmp_path / "bad.gguf").write_bytes(bytes(parts))
    with pytest.raises(ModelError, match="must be f32"):
        check_gguf(tmp_path / "bad.gguf")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"GGUF",
        b"GGUF" + struct.pack("=IQQ", 1, 0, 0),
        b"GGUF" + struct.pack("=IQQ", 3, 2**63, 0),
        b"GGUF" + struct.pack("=IQQ", 3, 0, 2**63),
        b"GGUF" + struct.pack("=IQQQ", 3, 0, 1, 2**63),
        b"GGUF" + struct.pack("=IQQQ1sI", 3, 0, 1, 1, b"k", 77),
        b"GGUF" + struct.pack("=IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1),
        b"GGUF" + struct.pack("=IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 2**62),
        b"GGUF" + struct.pack("=IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 2**24),
        b"GGUF" + struct.pack("=IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 2**62),
        b"GGUF" + struct.pack("=IQQQ1sIBQ1sIB", 3, 0, 2, 1, b"k", 0, 1, 1, b"k", 0, 1),
        b"GGUF" + struct.pack("=IQQQ1sIB", 3, 0, 1, 1, b"\xff", 0, 1),
    ],
    ids=lambda raw: raw.hex()[:60],
)
def test_broken_headers(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError):
        read_header(path)


def test_every_cut_is_refused(tiny_target: Tiny, tmp_path: Path) -> None:
    raw = tiny_target("llama").path.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [*range(0, GgufFile(raw).header_size, 61), len(raw) - 1]:
        path.write_bytes(raw[:size])
        with pytest.raises(ModelError):
            check_gguf(path)


MUTATE = """
first = int(sys.argv[2])
target = Path(sys.argv[3]) if len(sys.argv) > 3 else None
good, size = path.read_bytes(), int(sys.argv[4]) if len(sys.argv) > 4 else 2500
broken = path.with_name(f"broken{first}.gguf")

def use(model):
    model.detokenize(model.tokenize("hello <|im_end|>")) if model.info.n_vocab else None
    with Context(model, n_ctx=256, n_threads=1) as context:
        if model.info.is_draft:
            rows = np.ones((2, model.info.n_embd_target * len(model.info.features)), np.float32)
            context.decode(Batch([1, 2], embd=context.encode(rows)))
        else:
            context.decode(Batch([i % model.info.n_vocab for i in (1, 2, 3)]))

outcomes = {"fine": 0, "refused": 0}
for seed in range(first, first + 100):
    rng, raw = np.random.default_rng(seed), bytearray(good)
    for _ in range(1 + seed % 3):
        at = int(rng.integers(len(raw) if seed % 10 == 0 else size))
        raw[at] = rng.choice([raw[at] ^ (1 << int(rng.integers(8))), 0, 255, int(rng.integers(256))])
    broken.write_bytes(raw)
    print(seed, end=" ", flush=True)
    try:
        with Model(target) if target else Model(broken, use_mmap=False) as model:
            if target:
                with Model(broken, target=model, use_mmap=False) as draft:
                    use(draft)
            else:
                use(model)
        outcomes["fine"] += 1
    except EagleError as error:
        assert "\\n" not in str(error), error
        outcomes["refused"] += 1
print(outcomes)
assert min(outcomes.values()) > 5, outcomes
"""


@pytest.mark.native
@pytest.mark.usefixtures("requires_native")
@pytest.mark.parametrize("arch", PRESETS)
def test_mutated_targets_never_kill_the_process(arch: str, tiny_target: Tiny) -> None:
    """Flipped and replaced bytes of the header in a process of its own; a signal fails, and the seed was printed."""
    run_python(MUTATE, tiny_target(arch).path, str(100 * sorted(PRESETS).index(arch)))


@pytest.mark.native
@pytest.mark.usefixtures("requires_native")
def test_mutated_heads_never_kill_the_process(tiny_pair: TinyPair) -> None:
    run_python(MUTATE, tiny_pair.path, "1000", tiny_pair.target.path)


SCALARS = """
sys.path.insert(0, sys.argv[2])
from gguf_edit import GgufFile
parts = GgufFile(path.read_bytes())
broken = path.with_name("scalars.gguf")
values = {4: (0, 1, 3, 2**31, 2**32 - 1), 6: (-1.0, 0.0, float("nan"), float("inf"))}
for key, value in list(parts.keys.items()):
    for other in values.get(value[0], ()):
        print(key, other, end=", ", flush=True)
        parts.keys[key] = (value[0], other)
        broken.write_bytes(bytes(parts))
        try:
            with Model(broken, use_mmap=False) as model, Context(model, n_ctx=256, n_threads=1) as context:
                model.tokenize("hello")
                context.decode(Batch([1, 2, 3]))
        except EagleError:
            pass
    parts.keys[key] = value
"""


@pytest.mark.native
@pytest.mark.usefixtures("requires_native")
@pytest.mark.parametrize("arch", PRESETS)
def test_absurd_numbers_never_kill_the_process(arch: str, tiny_target: Tiny) -> None:
    """Every number of the metadata at its ends, one by one."""
    run_python(SCALARS, tiny_target(arch).path, Path(__file__).parent)
