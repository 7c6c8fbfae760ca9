"""Heads written by upstream's converter, loaded here: the checkpoint's logits, plain decoding's text, and what differs.

    python scripts/upstream_converter.py SOURCE PYTHON TOKENIZER.gguf [--pair TARGET.gguf CHECKPOINT]

SOURCE is llama.cpp without our patches, PYTHON an interpreter with the packages that its convert_hf_to_gguf.py asks for
(torch, transformers). TOKENIZER.gguf is any SmolLM or SmolLM2: its tokenizer is one that upstream's converter knows by
its hash. A tiny random target with that vocabulary and tiny heads go through upstream's converter and through ours;
`--pair` likewise, its target being a GGUF of that family. Prints, for each head, the largest difference to the
checkpoint's own logits relative to the largest, how the greedy text compares, and every key and tensor in which the two
files differ, in f32 and f16. Exit status 1 when logits, tensors or a text differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import loops  # noqa: E402
from heads import EXACT, error  # noqa: E402
from llama_eagle import Batch, Context, Model, TreeShape  # noqa: E402
from llama_eagle.conversion.converter import convert  # noqa: E402
from reference.checkpoint_net import EPS, CheckpointNet  # noqa: E402
from tiny import (  # noqa: E402
    HeadShape,
    TinyTarget,
    good_head,
    head_config,
    layouts,
    random_head,
    target_shape,
    write_folder,
)
from tiny.weights import target_tensors  # noqa: E402

ROWS, STEPS, LIMIT = 12, 3, 1e-4
LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
LEFTOVER = "verifier_norm.weight"  # of speculators' training: upstream's converter stops at it
NORMAL = 1  # token type of all but the special ones
ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def metadata(path: Path) -> dict[str, Any]:
    """Every key of a GGUF and its value."""
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


def write_tokenizer(folder: Path, source: Path) -> None:
    """tokenizer.json of a SmolLM, from a GGUF that has it: byte-level BPE behind a split into single digits."""
    keys = metadata(source)
    texts, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    flags = {"special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    added = [
        {"id": i, "content": text, **flags}
        for i, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind != NORMAL
    ]
    digits = {"type": "Digits", "individual_digits": True}
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "added_tokens": added, "normalizer": None, "post_processor": None, "decoder": bytewise,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, bytewise]},
        "model": {
            "type": "BPE", "vocab": {text: i for i, text in enumerate(texts)}, "merges": keys["tokenizer.ggml.merges"],
            "byte_fallback": False, "fuse_unk": False,
        },
    }  # fmt: skip
    special = {f"{name}_token": texts[keys[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    special["pad_token"] = texts[keys["tokenizer.ggml.padding_token_id"]]
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, **special}
    settings["chat_template"] = keys["tokenizer.chat_template"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def write_hf_target(folder: Path, n_vocab: int) -> TinyTarget:
    """A tiny LlamaForCausalLM as an HF folder without a tokenizer; the tensors have GGUF's names and pairs."""
    shape = target_shape(
        "llama",
        n_embd=layouts.HIDDEN,
        n_layer=12,
        n_head=2,
        n_head_kv=1,
        n_ff=32,
        n_vocab=n_vocab,
        bigram=0.5,
        layer_gain=0.3,
    )
    tensors, weights = target_tensors(shape), {}
    for name, tensor in tensors.items():
        part = name.removesuffix(".weight").split(".")
        hf = f"model.layers.{part[1]}.{LAYER[part[2]]}" if part[0] == "blk" else ENDS[part[0]]
        turned = part[-1] in ("attn_q", "attn_k")
        weights[hf + ".weight"] = halves(tensor, shape.head_dim) if turned else tensor
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": shape.head_dim,
        "num_hidden_layers": 12, "max_position_embeddings": 2048, "rms_norm_eps": shape.eps, "vocab_size": n_vocab,
        "rope_theta": shape.rope_base, "tie_word_embeddings": False,
    }  # fmt: skip
    return TinyTarget(write_folder(folder, config, weights), shape, tensors)


def halves(matrix: Any, head_dim: int) -> Any:
    """Rows of q or k [out, in] from GGUF's order of rotation, pairs, to Hugging Face's."""
    return matrix.reshape(-1, head_dim // 2, 2, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def tiny_heads(target: TinyTarget) -> Iterator[tuple[str, layouts.Draft]]:
    """Heads that upstream's converter takes; their layer ids are at the top level of the config, or its default."""
    n_vocab = target.shape.n_vocab
    sizes: dict[str, Any] = {"n_embd": 32, "n_embd_target": 32, "n_head": 2, "n_head_kv": 2, "n_ctx_train": 2048}
    good = HeadShape(**sizes, n_vocab=n_vocab, n_draft_vocab=n_vocab // 2, layers=(2, 6, 9), eps=EPS)
    yield "good", specforge(good, good_head(good, target))
    wide = replace(
        good, n_embd=64, n_head=4, own_embeddings=True, norm_before_fc=True, norm_before_residual=True, rope_base=5e5
    )
    yield "own embeddings, both norms", specforge(wide, random_head(wide))
    for name in ("safeailab_eagle3", "angelslim", "speculators"):
        draft = layouts.CASES[name]()
        config = draft.config.get("transformer_layer_config", draft.config)
        config["vocab_size"] = n_vocab
        yield name, replace(draft, state={k: v for k, v in draft.state.items() if k != LEFTOVER})


def specforge(shape: HeadShape, state: dict[str, Any]) -> layouts.Draft:
    """A head of SpecForge as a layouts.Draft."""
    return layouts.Draft(head_config(shape), state, "eagle3", "specforge", shape.layers, ("midlayer.",), head_dim=16)


class Upstream:
    """Upstream's converter, as a command."""

    def __init__(self, source: Path, python: Path) -> None:
        self.command = [str(python.absolute()), str(source / "convert_hf_to_gguf.py")]

    def convert(self, folder: Path, out: Path, outtype: str, target: Path | None = None) -> Path:
        more = [] if target is None else ["--target-model-dir", str(target)]
        command = [*self.command, str(folder), "--outfile", str(out), "--outtype", outtype, *more]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise SystemExit(
                f"upstream's converter does not take {folder.name}: {done.stderr.strip().splitlines()[-1]}"
            )
        return out


def logits_error(head: Model, draft: layouts.Draft, tensors: dict[str, Any]) -> float:
    """Largest difference of a prompt's and three chained steps' logits to the checkpoint's own."""
    embeddings = draft.state.get("embed_tokens.weight", tensors["token_embd.weight"])
    net = CheckpointNet(draft, embeddings, tensors["output.weight"])
    rng = np.random.default_rng(5)
    tokens = list(rng.integers(3, 250, ROWS))
    features = rng.standard_normal((ROWS, head.info.n_embd_target * len(draft.layers))).astype(np.float32)
    expected, worst = net.encode(features.astype(np.float64)), 0.0
    with Context(head, **EXACT) as context:
        context.decode(Batch(tokens, embd=context.encode(features)))
        for _ in range(1 + STEPS):
            fed, logits = net.run(tokens, expected)
            worst = max(worst, error(context.logits()[-1], logits[-1]))
            tokens.append(int(net.target_ids[logits[-1].argmax()]))
            expected = np.concatenate([expected, fed[-1:]])
            context.decode(Batch(tokens[-1:], embd=context.hidden()[-1:]))
    return worst


def same_text(target: Model, head: Model, count: int = 48) -> bool:
    """Prints how a greedy answer with drafts compares to plain decoding; True where they are equal."""
    pair = loops.Loaded(target, head)
    plain = loops.text(loops.run(pair.plain(), loops.prompt(20), count))
    steps = loops.run(pair.loop(TreeShape(16, 4, 4)), loops.prompt(20), count)
    same = loops.text(steps) == plain
    print(f"  text: {'the same' if same else 'ANOTHER'}, {len(plain)} tokens in {len(steps)} steps")
    return same


def same_tensors(upstream: Path, ours: Path) -> bool:
    """Prints every difference of two GGUFs; True where tensors are equal in name, type, shape and bytes."""
    theirs, own = metadata(upstream), metadata(ours)
    for key in sorted(theirs.keys() | own.keys()):
        if theirs.get(key) != own.get(key) and not key.startswith(("GGUF.", "llama_eagle.")):
            print(f"  {key}: upstream {str(theirs.get(key))[:60]!r}, here {str(own.get(key))[:60]!r}")
    files = [{t.name: t for t in GGUFReader(path).tensors} for path in (upstream, ours)]
    same = True
    for name in sorted(files[0].keys() | files[1].keys()):
        a, b = (file.get(name) for file in files)
        if a is None or b is None:
            same = False
            print(f"  tensor {name}: only {'here' if a is None else 'upstream'}")
        elif a.tensor_type != b.tensor_type or a.data.shape != b.data.shape or not np.array_equal(a.data, b.data):
            same = False
            kinds = [f"{t.tensor_type.name} {t.data.shape}" for t in (a, b)]
            print(f"  tensor {name}: upstream {kinds[0]}, here {kinds[1]}")
    print(f"  tensors: {len(files[0])} upstream, {len(files[1])} here, {'equal' if same else 'NOT equal'}")
    return same


def same_files(upstream: Upstream, folders: tuple[Path, Path], target: Path, work: Path) -> Iterator[bool]:
    """Converts (checkpoint, HF target) with upstream and the checkpoint here; theirs.gguf stays in f32."""
    checkpoint, hf = folders
    for outtype in ("f16", "f32"):
        theirs = upstream.convert(checkpoint, work / "theirs.gguf", outtype, hf)
        convert(checkpoint, target, work / "ours.gguf", outtype)
        print(f"{checkpoint.name}, {outtype}", flush=True)
        yield same_tensors(theirs, work / "ours.gguf")


def check_tiny(upstream: Upstream, tokenizer: Path, work: Path) -> Iterator[bool]:
    """Every tiny head: files, logits, a text."""
    target = write_hf_target(work / "target", len(metadata(tokenizer)["tokenizer.ggml.tokens"]))
    write_tokenizer(target.path, tokenizer)
    file = upstream.convert(target.path, work / "target.gguf", "f32")
    model = Model(file)
    for name, draft in tiny_heads(target):
        checkpoint = write_folder(work / name, draft.config, draft.state)
        yield from same_files(upstream, (checkpoint, target.path), file, work)
        head = Model(work / "theirs.gguf", target=model)
        worst = logits_error(head, draft, target.tensors)
        print(f"  logits: {worst:.1e} from the checkpoint's")
        yield worst < LIMIT and same_text(model, head)


def check_pair(upstream: Upstream, target: Path, checkpoint: Path, work: Path) -> Iterator[bool]:
    """A real head: files, and a text. Of its target upstream's converter reads sizes and tokenizer alone."""
    keys, hf = metadata(target), work / "pair"
    hf.mkdir()
    write_tokenizer(hf, target)
    sizes = {"vocab_size": "vocab_size", "num_hidden_layers": "block_count", "hidden_size": "embedding_length"}
    config = {"model_type": "llama"} | {name: keys[f"llama.{key}"] for name, key in sizes.items()}
    (hf / "config.json").write_text(json.dumps(config), encoding="utf-8")
    yield from same_files(upstream, (checkpoint, hf), target, work)
    model = Model(target)
    yield same_text(model, Model(work / "theirs.gguf", target=model), 128)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("python", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--pair", type=Path, nargs=2, metavar=("TARGET", "CHECKPOINT"))
    args = parser.parse_args()
    upstream = Upstream(args.source.resolve(), args.python)
    with tempfile.TemporaryDirectory() as work:
        well = list(check_tiny(upstream, args.tokenizer, Path(work)))
        if args.pair:
            well += check_pair(upstream, *args.pair, Path(work))
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
