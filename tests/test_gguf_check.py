"""Every valid file passes, and files with mutated metadata never kill the process, whatever llama.cpp makes of them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gguf_edit import check_refused, rewrite
from llama_eagle.embedded import head_path, target_file
from llama_eagle.gguf_files.check import check_gguf
from processes import run_python
from tiny import PRESETS, TinyPair

Tiny = Callable[..., Any]


@pytest.mark.parametrize("arch", PRESETS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_tiny_targets_pass(arch: str, dtype: str, tiny_target: Tiny) -> None:
    check_gguf(tiny_target(arch, dtype=dtype).path)


def test_the_embedded_pair_passes() -> None:
    check_gguf(head_path())
    if not target_file().is_file():
        pytest.skip(f"{target_file()} was not fetched")
    start = time.perf_counter()
    check_gguf(target_file())
    assert time.perf_counter() - start < 2  # 0.1 on an idle machine


def test_a_file_without_an_architecture(tiny_target: Tiny, tmp_path: Path) -> None:
    path = rewrite(tiny_target("llama").path, tmp_path / "bad.gguf", {"general.architecture": None})
    check_refused(path, "no general.architecture")


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
