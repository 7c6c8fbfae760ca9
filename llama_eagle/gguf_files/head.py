"""Rules for a draft head's GGUF: `eagle3` and `eagle`, as docs/head-format.md lays them out.

Knows which metadata and tensors of a head contradict each other, and no target: native code compares the two.
"""

from ..errors import ModelError
from .metadata import MOST_LAYERS, MOST_SIZE, Metadata
from .vocab import TOKENS

HEADS = ("eagle", "eagle3")
MOST_FEATURES, LAST_HIDDEN = 64, -1


def check_head(meta: Metadata) -> None:
    """Looks at a head's features, vocabulary and switches. Raises ModelError with the key or tensor that is wrong."""
    features = _features(meta)
    width = meta.size("target_hidden_size", 0, 1, MOST_SIZE)
    if not width:
        raise ModelError(f"it has no {meta.arch}.target_hidden_size: convert the head again")
    switches = {name: meta.flag(name) for name in ("norm_before_residual", "norm_before_fc", "norm_output")}
    wanted = _shapes(meta, features, width)
    shapes = meta.shapes
    for name, shape in wanted.items():
        if name in shapes and shapes[name] != shape:
            raise ModelError(
                f"{name} is {list(shapes[name])}, expected {list(shape)} of {features} features of {width}"
            )
    n_embd = meta.size("embedding_length", 0, 1, MOST_SIZE)
    fuses = "fc.weight" in shapes
    if not fuses and (meta.arch == "eagle" or features != 1 or width != n_embd):
        raise ModelError(f"it has no fc.weight, which {features} features of {width} need for a width of {n_embd}")
    for name in ("fc.bias", "fc_norm.weight", "enc.output_norm.weight"):
        if name in shapes and not fuses:
            raise ModelError(f"it has {name}, and no fc.weight")
    if switches["norm_before_fc"] != ("enc.output_norm.weight" in shapes):
        there = "is there" if "enc.output_norm.weight" in shapes else "is missing"
        raise ModelError(f"{meta.arch}.norm_before_fc is {switches['norm_before_fc']}, enc.output_norm.weight {there}")
    if switches["norm_before_fc"] and "fc_norm.weight" in shapes:
        raise ModelError("it has two norms before fc.weight: enc.output_norm.weight and fc_norm.weight")
    _check_rows(meta, shapes, n_embd)


def _features(meta: Metadata) -> int:
    """How many features the head takes."""
    value = meta.get("target_layers")
    if value is None:
        raise ModelError(f"it has no {meta.arch}.target_layers: convert the head again")
    if not value.is_array or value.count > MOST_FEATURES:
        raise ModelError(
            f"{meta.arch}.target_layers has {value.count} entries, expected a list of 1 to {MOST_FEATURES}"
        )
    layers = meta.sizes("target_layers", value, LAST_HIDDEN, MOST_LAYERS)
    if meta.arch == "eagle" and layers.tolist() != [LAST_HIDDEN]:
        raise ModelError(f"eagle.target_layers is {layers.tolist()}, expected [{LAST_HIDDEN}]")
    return len(layers)


def _shapes(meta: Metadata, features: int, width: int) -> dict[str, tuple[int, ...]]:
    """What the tensors around the features measure, fastest first."""
    n_embd = meta.size("embedding_length", 0, 1, MOST_SIZE)
    if meta.arch == "eagle" and width != n_embd:
        raise ModelError(f"eagle.target_hidden_size is {width}, expected its own width {n_embd}")
    columns = 2 * n_embd if meta.arch == "eagle" else features * width
    return {
        "fc.weight": (columns, n_embd),
        "fc.bias": (n_embd,),
        "enc.output_norm.weight": (columns,),
        "fc_norm.weight": (width, features),
    }


def _check_rows(meta: Metadata, shapes: dict[str, tuple[int, ...]], n_embd: int) -> None:
    """Tables by token ids: a row that is not there would be read."""
    tokens = meta.values.get(TOKENS)
    n_vocab = meta.size("vocab_size", 0, 1, MOST_SIZE) if tokens is None else tokens.count
    n_draft = shapes["d2t"][0] if "d2t" in shapes else n_vocab
    for name, rows in (("token_embd.weight", n_vocab), ("output.weight", n_draft)):
        if name in shapes and shapes[name] != (n_embd, rows):
            raise ModelError(f"{name} is {list(shapes[name])}, expected {[n_embd, rows]} for {rows} tokens")
    if "d2t" in shapes and ("output.weight" not in shapes or not 0 < n_draft <= n_vocab):
        raise ModelError(f"d2t maps {n_draft} of {n_vocab} tokens: it needs an output.weight, and no more than those")
    declared = meta.number(f"{meta.arch}.vocab_size")
    if tokens is not None and declared is not None and declared != n_vocab:
        raise ModelError(f"{meta.arch}.vocab_size is {declared:.0f}, {TOKENS} has {n_vocab} entries")
