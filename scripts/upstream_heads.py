"""Heads converted here, loaded by upstream's unpatched library: are the draft logits the same?

    python scripts/upstream_heads.py SOURCE BUILD [--pair TARGET.gguf CHECKPOINT]

SOURCE is llama.cpp without our patches (`fetch_llama_cpp.py`), BUILD a build of it with shared libraries. Tiny heads of
every layout that upstream's loader knows are converted as f32, f16 and q8_0, `--pair` likewise; both libraries get the
same features of the target and the same tokens, a prompt and three steps that feed back their own output. Prints one
line a head with the largest difference relative to the largest logit. Heads with our additions come last: what upstream
says about them. It refuses all but one: `norm_output` alone is a key that it does not read. Exit status 1 when a
difference exceeds LIMIT or a head with another addition loads.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from heads import EXACT, error  # noqa: E402
from llama_eagle import Batch, Context, Model  # noqa: E402
from llama_eagle.conversion.converter import convert  # noqa: E402
from tiny import layouts, target_shape, write_folder, write_target  # noqa: E402

ROWS, STEPS, LIMIT = 12, 3, 1e-4
OUTTYPES = ("f32", "f16", "q8_0")
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    "partial": {"partial_rotary_factor": 0.5},
}  # fmt: skip
UNREAD, NARROW = "norm_output alone", "narrower than its target"
WIDE = 64  # hidden size of the target of NARROW
Floats = npt.NDArray[np.float32]


class Upstream:
    """upstream_logits.cpp, compiled against the build."""

    def __init__(self, source: Path, build: Path, folder: Path) -> None:
        self.program, self.folder = folder / "upstream_logits", folder
        include = [f"-I{source / part}" for part in ("include", "ggml/include", "src")]
        link = [f"-L{build}/bin", f"-Wl,-rpath,{build}/bin", "-lllama", "-lggml", "-lggml-base"]
        code = Path(__file__).with_suffix("").with_name("upstream_logits.cpp")
        subprocess.run(["c++", "-std=c++17", "-O1", *include, code, *link, "-o", self.program], check=True)

    def logits(self, target: Path, head: Path, tokens: npt.NDArray[np.int32], features: Floats) -> Floats:
        """float32 [ROWS + STEPS, vocabulary]. Raises RuntimeError with what upstream says."""
        given, got = self.folder / "input", self.folder / "output"
        sizes = np.array([ROWS, STEPS, features.shape[1]], dtype=np.int32)
        given.write_bytes(sizes.tobytes() + tokens.tobytes() + features.tobytes())
        done = subprocess.run([self.program, target, head, given, got], check=False, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise RuntimeError(lines[0].split(": ", 1)[-1])
        return np.fromfile(got, dtype=np.float32).reshape(ROWS + STEPS, -1)


def here(target: Path, head: Path) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """Random tokens, the target's features before each, and our logits of all rows over the target's vocabulary."""
    model = Model(head, target=Model(target))
    assert model.target is not None
    tokens = np.random.default_rng(3).integers(3, 250, 1 + ROWS + STEPS).astype(np.int32)
    with Context(model.target, model.info.features, **EXACT) as context:
        context.decode(Batch(tokens[:ROWS]))
        features = context.features().copy()
    tokens = tokens[1:]
    with Context(model, **EXACT) as context:
        context.decode(Batch(tokens[:ROWS], embd=context.encode(features), outputs=[1] * ROWS))
        logits = [context.logits()]
        for token in tokens[ROWS:]:
            context.decode(Batch([token], embd=context.hidden()[-1:]))
            logits.append(context.logits())
    d2t = [np.asarray(tensor.data) for tensor in GGUFReader(head).tensors if tensor.name == "d2t"]
    scattered = np.full((ROWS + STEPS, model.target.info.n_vocab), -np.inf, dtype=np.float32)
    scattered[:, d2t[0] if d2t else slice(None)] = np.concatenate(logits)
    return tokens, features, scattered


def difference(upstream: Upstream, target: Path, head: Path) -> float:
    """Largest difference of the two libraries' logits relative to the largest; inf where other tokens have none."""
    tokens, features, ours = here(target, head)
    theirs = upstream.logits(target, head, tokens, features)
    known = np.isfinite(ours)
    return error(ours[known], theirs[known]) if np.array_equal(known, np.isfinite(theirs)) else np.inf


def tiny_heads() -> Iterator[tuple[str, layouts.Draft]]:
    """Heads of every layout, option and rope that upstream's loader knows."""
    for name in ("safeailab_eagle3", "specforge", "angelslim", "speculators", "modelopt"):
        yield name, layouts.CASES[name]()
    plain, rng = layouts.safeailab_eagle3(), np.random.default_rng(4)
    table, fc = (rng.normal(size=(n, layouts.HIDDEN)).astype(np.float32) for n in (layouts.VOCAB, 3 * WIDE))
    owner = replace(plain, state={**plain.state, "embed_tokens.weight": table})
    yield "own embeddings", owner
    yield NARROW, replace(owner, state={**owner.state, "fc.weight": fc.T})
    unmapped = {name: value for name, value in plain.state.items() if name not in ("d2t", "t2d", "lm_head.weight")}
    whole = {key: value for key, value in plain.config.items() if key != "draft_vocab_size"}
    yield "whole vocabulary", replace(plain, config=whole, state={**unmapped, "lm_head.weight": table})
    yield "the target's output", replace(plain, config=whole, state=unmapped)
    query = "midlayer.self_attn.q_proj.weight"  # divided: attention looks at many positions, so their turns show
    soft = replace(plain, state={**plain.state, query: plain.state[query] / 30})
    for name, change in ROPES.items():
        yield f"rope {name}", replace(soft, config={**plain.config, **change})


def additions() -> Iterator[tuple[str, layouts.Draft]]:
    """Heads that only our patches know how to run, UNREAD the last."""
    for name in ("tensorrt_list", "vllm_layers", "last_hidden", "speculators_eagle31"):
        yield name, layouts.CASES[name]()
    plain = layouts.safeailab_eagle3()
    bias = np.ones(layouts.HIDDEN, dtype=np.float32)
    yield "fc bias", replace(plain, state={**plain.state, "fc.bias": bias})
    newest = layouts.speculators_eagle31()
    config = {key: value for key, value in newest.config.items() if key != "fc_norm"}
    state = {name: value for name, value in newest.state.items() if not name.startswith("fc_norm")}
    yield UNREAD, replace(newest, config=config, state=state)


def compare(name: str, measure: Callable[[str], float]) -> bool:
    """Prints a line for one head; True where all is well."""
    found = [measure(outtype) for outtype in OUTTYPES]
    print(f"{name:30} " + "  ".join(f"{t} {x:.1e}" for t, x in zip(OUTTYPES, found, strict=True)), flush=True)
    return max(found) < LIMIT


def refused(name: str, measure: Callable[[str], float]) -> bool:
    """Prints what upstream says about a head with an addition; True where that is what is expected."""
    try:
        print(f"{name:30} loads, other by {measure('f32'):.1e}", flush=True)
    except RuntimeError as refusal:
        print(f"{name:30} refused: {refusal}", flush=True)
        return name != UNREAD
    return name == UNREAD


def run(args: argparse.Namespace, folder: Path) -> bool:
    upstream = Upstream(args.source.resolve(), args.build.resolve(), folder)
    sizes: dict[str, Any] = {"n_layer": 12, "n_head": 2, "n_head_kv": 1, "n_ff": 32, "n_vocab": layouts.VOCAB}
    plain, wide = (
        write_target(folder / f"target{width}.gguf", target_shape("llama", n_embd=width, **sizes)).path
        for width in (layouts.HIDDEN, WIDE)
    )

    def measure(checkpoint: Path, target: Path) -> Callable[[str], float]:
        def converted(outtype: str) -> float:
            convert(checkpoint, target, folder / "head.gguf", outtype)
            return difference(upstream, target, folder / "head.gguf")

        return converted

    well = []
    for judge, heads in ((compare, tiny_heads()), (refused, additions())):
        for name, draft in heads:
            checkpoint = write_folder(folder / name, draft.config, draft.state)
            well.append(judge(name, measure(checkpoint, wide if name == NARROW else plain)))
    if args.pair:
        well.append(compare(args.pair[1].name, measure(args.pair[1], args.pair[0])))
    return all(well)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--pair", type=Path, nargs=2, metavar=("TARGET", "CHECKPOINT"))
    with tempfile.TemporaryDirectory() as folder:
        return 0 if run(parser.parse_args(), Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
