"""Writes a checkpoint folder with random weights, in a producer's layout and of a real target's sizes.

    python scripts/random_head.py specforge -m TARGET.gguf -o FOLDER
    llama-eagle convert FOLDER --target TARGET.gguf -o HEAD.gguf
    python scripts/audit.py PROMPTS.jsonl -m TARGET.gguf -md HEAD.gguf

Such a head is slow and must never be wrong. Layouts are those of tests/tiny/layouts.py, scaled by the tensors' names.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llama_eagle.errors import EagleError
from llama_eagle.gguf_files.model_header import metadata_of, model_header, whole
from llama_eagle.target_side import target_side

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tiny import bf16, layouts, write_folder

SHORT = {
    "eagle1": "vicuna",
    "safeailab": "safeailab_eagle3",
    "specforge": "specforge",
    "speculators": "speculators",
    "eagle31": "speculators_eagle31",
}
DRAFT_VOCAB = 4096
TINY_LAYERS = 12  # of the target that the tiny layouts' layer ids are for


@dataclass(frozen=True)
class Sizes:
    """Sizes of a head: those of a layer of its target."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    n_vocab: int
    n_draft_vocab: int
    n_layer: int


def read_sizes(path: Path, n_draft_vocab: int = DRAFT_VOCAB) -> Sizes:
    """Sizes of a target's GGUF; no draft vocabulary is larger than its own. Raises ModelError where it lacks them."""
    meta = metadata_of(model_header(path))
    side = target_side(path.name, meta)
    heads = whole(meta, "attention.head_count") or 1
    return Sizes(
        hidden=side.n_embd,
        ffn=whole(meta, "feed_forward_length") or 4 * side.n_embd,
        heads=heads,
        kv_heads=whole(meta, "attention.head_count_kv") or heads,
        head_dim=side.n_embd // heads,
        n_vocab=side.n_vocab or 0,
        n_draft_vocab=min(n_draft_vocab, side.n_vocab or 0),
        n_layer=side.n_layer,
    )


def scaled_config(config: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The config with a target's sizes, nested parts included."""
    given = {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.ffn,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.n_vocab,
        "draft_vocab_size": sizes.n_draft_vocab,
    }
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            out[key] = scaled_config(value, sizes)
        elif key == "eagle_aux_hidden_state_layer_ids":
            out[key] = [i if i <= 2 else i * sizes.n_layer // TINY_LAYERS for i in value]  # 1 and 2 tell ids apart
        else:
            out[key] = given.get(key, value) if value is not None else None
    return out


def scaled_shape(name: str, shape: tuple[int, ...], sizes: Sizes) -> tuple[int, ...]:
    """The shape of a tensor at a target's sizes, by its name and its tiny shape."""
    part = name.split(".")[-2]
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "gate_proj": sizes.ffn, "up_proj": sizes.ffn}
    rows |= {"q_norm": sizes.head_dim, "k_norm": sizes.head_dim, "embed_tokens": sizes.n_vocab}
    rows["lm_head"] = sizes.n_vocab if shape[0] == layouts.VOCAB else sizes.n_draft_vocab
    columns = {"o_proj": queries, "down_proj": sizes.ffn}
    scaled = [size // layouts.HIDDEN * sizes.hidden for size in shape]
    return (rows.get(part, scaled[0]), *(columns.get(part, size) for size in scaled[1:]))


def random_tensors(state: dict[str, npt.NDArray[Any]], sizes: Sizes, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Weights of the scale a trained head has: bfloat16, with another random vocabulary map."""
    rng = np.random.default_rng(seed)
    kept = np.sort(rng.permutation(sizes.n_vocab)[: sizes.n_draft_vocab])
    out: dict[str, npt.NDArray[Any]] = {}
    for name, tensor in state.items():
        if name == "d2t":
            out[name] = kept - np.arange(len(kept))
        elif name == "t2d":
            out[name] = np.isin(np.arange(sizes.n_vocab), kept)
        else:
            shape = scaled_shape(name, tensor.shape, sizes)
            values = rng.standard_normal(shape, dtype=np.float32)
            out[name] = bf16(values / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1 * values + name.endswith("weight"))
    return out


def main() -> int:
    known = {**layouts.CASES, **{short: layouts.CASES[name] for short, name in SHORT.items()}}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", choices=sorted(known), metavar="LAYOUT", help=", ".join(sorted(known)))
    parser.add_argument("-m", dest="model", type=Path, required=True, help="the target's GGUF")
    parser.add_argument("-o", dest="out", type=Path, required=True, help="the folder to write")
    parser.add_argument(
        "--draft-vocab", type=int, default=DRAFT_VOCAB, help="tokens that a head of its own chooses among"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        sizes = read_sizes(args.model, args.draft_vocab)
    except EagleError as error:
        parser.error(f"{args.model}: {error}")
    draft = known[args.layout]()
    write_folder(args.out, scaled_config(draft.config, sizes), random_tensors(draft.state, sizes, args.seed))
    print(f"{args.out}: {draft.layout}, EAGLE-{draft.version}, {sizes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
