"""What must hold on a GPU: tree attention, drafting and whole texts there, and what -ngl auto expects of its memory.

`pytest -m gpu` runs them where ggml finds a GPU; LLAMA_EAGLE_GPU_DRY_RUN=1 runs them without one, to test the tests.
Heads of 64 and 128 are what CUDA's flash attention has kernels for.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, Drafter, Engine, Model, SamplingParams, TreeShape
from llama_eagle.audit import Audit
from llama_eagle.devices import devices
from llama_eagle.offload import Part, device_bytes
from test_tree_attention import Case, agrees, make, prefill, text
from tiny import TinyPair, target_shape, write_target
from trees import Plain, ancestors, random_tree

pytestmark = [pytest.mark.native, pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

TYPES = ("f16", "bf16", "q8_0", "q4_0")
HEADS = [("llama", 64), ("llama", 128), ("gemma3", 64)]
WAYS = [("off", "f32", "f32"), ("on", "f32", "f32"), ("off", "q8_0", "f16"), ("off", "f16", "f16")]
WAYS += [("off", "bf16", "bf16"), *(("on", kind, kind) for kind in TYPES)]
PROMPTS = ("Why is the sky blue?", "Write a haiku about the sea.", "How do bees make honey?")
ROUNDING = (
    1.0  # of a logit, in weights of four bits by the number of rows (docs/lossless.md): more than the audit allows
)
TF32 = 2e-3  # relative: CUDA multiplies f32 matrices with ten bits of mantissa


@dataclass(frozen=True)
class OnGpu(Case):
    """A case with the rounding of a GPU; head: numbers of a head."""

    head: int = 64

    def floor(self) -> float:
        return TF32

    def __str__(self) -> str:
        return f"head{self.head}-{super().__str__()}"


CASES = [
    OnGpu(arch, unified, flash, k, v, head=head)
    for arch, head in HEADS
    for unified in (True, False)
    for flash, k, v in WAYS
]


@pytest.fixture(scope="module")
def gpu() -> None:
    """Skips where there is no GPU."""
    if not any(device.is_gpu for device in devices()) and not os.environ.get("LLAMA_EAGLE_GPU_DRY_RUN"):
        pytest.skip("ggml finds no GPU here: `llama-eagle doctor` lists devices")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, gpu: None) -> dict[tuple[str, int], Model]:
    folder = tmp_path_factory.mktemp("gpu")
    return {
        (arch, head): Model(write_target(folder / f"{arch}{head}.gguf", target_shape(arch, seed=7, head_dim=head)).path)
        for arch, head in HEADS
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_trees_equal_their_paths(case: OnGpu, models: dict[tuple[str, int], Model]) -> None:
    model = models[case.arch, case.head]
    rng = np.random.default_rng(1)
    plain = Plain(make(model, case))
    with make(model, case) as context:
        prefix = text(rng, model, case.start)
        prefill(context, prefix)
        for nodes in (9, 31, 5):
            tree = random_tree(rng, nodes, model.info.n_vocab)
            context.decode(Batch(tree))
            assert agrees(plain, prefix, tree, context.logits(), case)
            path = ancestors(tree, int(rng.integers(nodes)))
            context.commit(path)
            prefix += [tree.root, *(int(tree.tokens[i]) for i in path)]
    plain.context.close()


@pytest.mark.parametrize("shape", [TreeShape.chain(4), TreeShape(16, 4, 4)], ids=["chain", "tree"])
def test_drafting_equals_the_cpus(shape: TreeShape, tiny_good_pair: TinyPair) -> None:
    """The same tokens in the same places, but where two scores are too close to tell."""
    trees = []
    for layers in (0, -1):
        target = Model(tiny_good_pair.target.path, gpu_layers=layers)
        head = Model(tiny_good_pair.path, target=target, gpu_layers=layers)
        tokens = np.random.default_rng(3).integers(3, target.info.n_vocab, 41).tolist()
        with Context(target, head.info.features, n_ctx=512) as context, Context(head, n_ctx=1024) as small:
            prefill(context, tokens[:40])
            drafter = Drafter(small)
            drafter.observe(tokens[:40], context.features())
            trees.append(drafter.grow(tokens[40], shape))
    ours, theirs = ({tuple(_path(tree, i)): float(tree.scores[i]) for i in range(len(tree))} for tree in trees)
    shared = ours.keys() & theirs.keys()
    assert len(shared) >= 0.8 * len(ours)
    assert all(abs(ours[path] - theirs[path]) < 0.05 for path in shared)


def _path(tree: Any, node: int) -> list[int]:
    return [int(tree.tokens[i]) for i in ancestors(tree, node)]


@pytest.mark.parametrize(("flash", "kind"), [("off", "f16"), ("on", "f16"), ("on", "bf16")])
@pytest.mark.parametrize("spec", ["tree", "chain"])
def test_the_audit_of_whole_texts(spec: str, flash: str, kind: str, tiny_good_pair: TinyPair) -> None:
    """Head dimension 16, which CUDA's flash attention leaves to the CPU; the next test has another."""
    _audit(tiny_good_pair.target.path, tiny_good_pair.path, spec, {"flash_attn": flash, "type_k": kind, "type_v": kind})


@pytest.mark.parametrize(("flash", "kind"), [("off", "f16"), *(("on", kind) for kind in TYPES)])
def test_the_audit_of_the_embedded_pair(flash: str, kind: str) -> None:
    """Head dimension 64; greedy texts of trees against plain decoding."""
    from llama_eagle.embedded import head_path, target_file  # noqa: PLC0415

    if not target_file().is_file():
        pytest.skip(f"{target_file()} is not fetched: `llama-eagle run` does it")
    _audit(target_file(), head_path(), "tree", {"flash_attn": flash, "type_k": kind, "type_v": kind})


def _audit(target: Path, draft: Path, spec: str, params: dict[str, Any]) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    texts = {}
    for name in ("off", spec):
        with Engine(target, draft, spec=name, n_ctx=512, **params) as engine:
            asked = [engine.chat_prompt([{"role": "user", "content": content}]) for content in PROMPTS]
            texts[name] = [engine.generate(prompt, greedy) for prompt in asked]
    with Engine(target, None, spec="off", n_ctx=512, **params) as plain:
        audit = Audit(plain.pair.target)
        step = 17 if spec == "tree" else 4
        for one, other in zip(texts["off"], texts[spec], strict=True):
            verdict = audit.judge(one.prompt, one.tokens, other.tokens, step)
            close = verdict.gap < 2 * verdict.difference < 2 * ROUNDING
            assert verdict.kind != "error" or close, verdict
    assert sum(result.spec.accepted for result in texts[spec]) > 0


@pytest.mark.parametrize("layers", [1, 3])
def test_a_part_of_the_layers(layers: int, tiny_good_pair: TinyPair) -> None:
    if not any(device.is_gpu for device in devices()):
        pytest.skip("-ngl is refused without a GPU")
    greedy = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    with Engine(tiny_good_pair.target.path, tiny_good_pair.path, spec="tree", n_ctx=512, gpu_layers=layers) as engine:
        assert engine.generate(list(range(60, 72)), greedy).spec.accepted > 0


def test_memory_is_what_was_expected(tiny_good_pair: TinyPair) -> None:
    """What loading takes is what was laid out, within 64 MiB and a tenth; of the embedded target where it is there."""
    from llama_eagle.embedded import target_file  # noqa: PLC0415

    path = target_file() if target_file().is_file() else tiny_good_pair.target.path
    params = {"n_ctx": 4096}
    with Model(path) as model, Context(model, **params):
        pass  # what a backend takes once is taken
    before = [device.free for device in devices() if device.is_gpu]
    with Model(path) as model, Context(model, **params):
        after = [device.free for device in devices() if device.is_gpu]
    expected = [
        used for used, device in zip(device_bytes((Part(path, params), -1)), devices(), strict=True) if device.is_gpu
    ]
    for was, now, used in zip(before, after, expected, strict=True):
        assert abs(was - now - used) < (64 << 20) + used // 10
