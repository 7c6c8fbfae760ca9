"""Heads written by upstream's converter, loaded here: the checkpoint's logits, plain decoding's text, and what differs.

    python scripts/upstream_converter.py SOURCE PYTHON TOKENIZER.gguf [--pair TARGET.gguf CHECKPOINT]

SOURCE is llama.cpp without our patches, PYTHON an interpreter with the packages that its convert_hf_to_gguf.py asks for
(torch, transformers). TOKENIZER.gguf is any SmolLM or SmolLM2: its tokenizer is one that upstream's converter knows by
its hash. A tiny random target with that vocabulary and tiny heads go through upstream's converter as f32 and f16, and
through ours; `--pair` likewise, the target of the same tokenizer being there already. Prints, for each head, the largest
difference to the checkpoint's own numbers relative to the largest logit, how the greedy text compares, and every key and
tensor in which the two files differ. Exit status 1 when logits, tensors or a text differ.
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
from tiny import HeadShape, TinyTarget, good_head, head_config, layouts, random_head, target_shape, write_folder  # noqa: E402
from tiny.weights import target_tensors  # noqa: E402

ROWS, STEPS, LIMIT = 12, 3, {"f32": 1e-5, "f16": 5e-3}
LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def metadata(path: Path) -> dict[str, Any]:
    """Every key of a GGUF and its value."""
    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


def write_tokenizer(folder: Path, source: Path) -> None:
    """tokenizer.json of a SmolLM, from a GGUF that has it: byte-level BPE behind a split into single digits."""
    keys = metadata(source)
    texts, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    added = [
        {"id": i, "content": text, "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
        for i, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind != 1
    ]  # fmt: skip
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "added_tokens": added, "normalizer": None, "post_processor": None, "decoder": bytewise,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytewise]},
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
        "llama", n_embd=layouts.HIDDEN, n_layer=12, n_head=2, n_head_kv=1, n_ff=32, n_vocab=n_vocab, bigram=0.5, layer_gain=0.3
    )
    tensors, weights = target_tensors(shape), {}
    for name, tensor in tensors.items():
        part = name.removesuffix(".weight").split(".")
        hf = f"model.layers.{part[1]}.{LAYER[part[2]]}" if part[0] == "blk" else ENDS[part[0]]
        if part[-1] in ("attn_q", "attn_k"):  # pairs back to halves
            tensor = tensor.reshape(-1, shape.head_dim // 2, 2, shape.n_embd).swapaxes(1, 2).reshape(tensor.shape)
        weights[hf + ".weight"] = tensor
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": shape.head_dim,
        "num_hidden_layers": 12, "max_position_embeddings": 2048, "rms_norm_eps": shape.eps, "vocab_size": n_vocab,
        "rope_theta": shape.rope_base, "tie_word_embeddings": False,
    }  # fmt: skip
    return TinyTarget(write_folder(folder, config, weights), shape, tensors)


def tiny_heads(target: TinyTarget) -> Iterator[tuple[str, layouts.Draft]]:
    """Heads that upstream's converter takes; their layer ids are at the top level of the config, or its default."""
    n_vocab = target.shape.n_vocab
    good = HeadShape(
        n_embd=32, n_embd_target=32, n_head=2, n_head_kv=2, n_vocab=n_vocab, n_draft_vocab=n_vocab // 2, layers=(2, 6, 9), eps=EPS,
        n_ctx_train=2048,
    )
    yield "good", specforge(good, good_head(good, target))
    wide = replace(
        good, n_embd=64, n_head=4, own_embeddings=True, norm_before_fc=True, norm_before_residual=True, rope_base=5e5
    )
    yield "own embeddings, both norms", specforge(wide, random_head(wide))
    for name in ("safeailab_eagle3", "angelslim", "speculators"):
        draft = layouts.CASES[name]()
        config = draft.config.get("transformer_layer_config", draft.config)
        config["vocab_size"] = n_vocab
        yield name, draft


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
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
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
            print(f"  tensor {name}: {a.tensor_type.name} {a.data.shape} upstream, {b.tensor_type.name} {b.data.shape} here")
    print(f"  tensors: {len(files[0])} upstream, {len(files[1])} here, {'equal' if same else 'NOT equal'}")
    return same


def check_tiny(upstream: Upstream, tokenizer: Path, folder: Path) -> Iterator[bool]:
    """Every tiny head in f32 and f16."""
    target = write_hf_target(folder / "target", len(metadata(tokenizer)["tokenizer.ggml.tokens"]))
    write_tokenizer(target.path, tokenizer)
    file = upstream.convert(target.path, folder / "target.gguf", "f32")
    model = Model(file)
    for name, draft in tiny_heads(target):
        checkpoint = write_folder(folder / name, draft.config, draft.state)
        for outtype, limit in LIMIT.items():
            theirs = upstream.convert(checkpoint, folder / "theirs.gguf", outtype, target.path)
            convert(checkpoint, file, folder / "ours.gguf", outtype)
            head = Model(theirs, target=model)
            worst = logits_error(head, draft, target.tensors)
            print(f"{name}, {outtype}: {worst:.1e} from the checkpoint's logits")
            yield worst < limit and same_text(model, head)
            yield same_tensors(theirs, folder / "ours.gguf")


def check_pair(upstream: Upstream, target: Path, checkpoint: Path, folder: Path) -> Iterator[bool]:
    """A real head: files compared, and a text with upstream's. Of the target the converter reads sizes and tokenizer."""
    keys, hf = metadata(target), folder / "pair"
    hf.mkdir()
    write_tokenizer(hf, target)
    sizes = {"vocab_size": "vocab_size", "num_hidden_layers": "block_count", "hidden_size": "embedding_length"}
    config = {"model_type": "llama"} | {name: keys[f"llama.{key}"] for name, key in sizes.items()}
    (hf / "config.json").write_text(json.dumps(config), encoding="utf-8")
    print(f"{checkpoint.name}, f16")
    theirs = upstream.convert(checkpoint, folder / "theirs.gguf", "f16", hf)
    convert(checkpoint, target, folder / "ours.gguf", "f16")
    model = Model(target)
    yield same_text(model, Model(theirs, target=model), 128)
    yield same_tensors(theirs, folder / "ours.gguf")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("python", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--pair", type=Path, nargs=2, metavar=("TARGET", "CHECKPOINT"))
    args = parser.parse_args()
    upstream = Upstream(args.source.resolve(), args.python)
    with tempfile.TemporaryDirectory() as name:
        well = list(check_tiny(upstream, args.tokenizer, Path(name)))
        if args.pair:
            well += check_pair(upstream, *args.pair, Path(name))
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
