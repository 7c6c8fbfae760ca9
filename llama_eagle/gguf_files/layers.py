"""Rules for the sizes of a model's layers: experts, heads, rope, windows, state spaces, by metadata and tensors.

Knows what the graphs of llama.cpp assert and divide by (`llama-model.cpp`, `llama-kv-cache.cpp`, `models/`), and
nothing of vocabularies and files.
"""

import numpy as np

from ..errors import ModelError
from .archs import (
    ALL_EXPERTS,
    DOUBLE_STATE,
    EQUAL_HEADS,
    GATED_QUERY,
    GATING,
    LATENT,
    NO_ROPE,
    RANGES,
    ROPE_ALL,
    ROPE_PART,
    SECTIONS,
)
from .metadata import MOST_LAYERS, MOST_SIZE, Metadata

MOST_EXPERTS, MOST_CONTEXT, _MOST_HEADS = 1024, 1 << 30, 1 << 16  # the first is llama.cpp's
_NOT_NEGATIVE = ("_epsilon", "rope.scaling.factor")
_KEY_CONVOLUTION = "blk.{}.ssm_conv1d_k.weight"  # a layer of linear attention: its heads are counted elsewhere
_PROJECTIONS = ("q", "k", "v", "qkv", "kv_a_mqa")
_LOOPS = ("layers_per_stack", "h_cycles", "l_cycles")
_SCALINGS = ("none", "linear", "yarn", "longrope")


def check_layers(meta: Metadata) -> None:
    """Looks at everything that a model's graph is built from. Raises ModelError with the key that is wrong."""
    n_embd = meta.size("embedding_length", 0, 1, MOST_SIZE)
    meta.size("context_length", 1, 1, MOST_CONTEXT)
    meta.size("nextn_predict_layers", 0, 0, meta.n_layer - 1)
    meta.per_layer("feed_forward_length", 0, 0, MOST_SIZE)
    scaling = meta.text(f"{meta.arch}.rope.scaling.type", "linear")
    if scaling not in _SCALINGS:
        raise ModelError(f"{meta.arch}.rope.scaling.type is {scaling[:40]!r}, expected one of {', '.join(_SCALINGS)}")
    for key in ("key_length_mla", "value_length_mla") if meta.arch in LATENT else ():
        if not meta.size(f"attention.{key}", 0, 0, MOST_SIZE):
            raise ModelError(f"{meta.arch}.attention.{key} is 0 or missing")
    _check_experts(meta)
    _check_heads(meta, n_embd)
    _check_state_space(meta, n_embd)
    _check_ranges(meta)


def check_floats(meta: Metadata) -> None:
    """No infinite or absurd number among the architecture's."""
    for key, value in meta.values.items():
        if value.kind not in (6, 12) or value.is_array or not isinstance(value.data, np.ndarray):
            continue
        number = float(value.data[0])
        least = 0.0 if key.endswith(_NOT_NEGATIVE) else -np.inf
        least = np.nextafter(0.0, 1.0) if key.endswith(("rope.freq_base", "rope.freq_base_swa")) else least
        if key.startswith(f"{meta.arch}.") and not least <= number < np.inf:
            raise ModelError(f"{key} is {number}, expected a number from {least} on")


def _check_ranges(meta: Metadata) -> None:
    """What one architecture asserts alone."""
    for key, (least, most) in RANGES.get(meta.arch, {}).items():
        number = meta.number(f"{meta.arch}.{key}")
        if number is None and meta.arch == "afmoe":
            number = 0.0  # its graph needs what its loader does not ask for
        if number is not None and not least <= number <= most:
            raise ModelError(f"{meta.arch}.{key} is {number:g}, expected {least:g} to {most:g}")
    _check_products(meta)
    scale, length = (meta.number(f"{meta.arch}.attention.temperature_{name}") for name in ("scale", "length"))
    if meta.arch in ("deepseek2", "mistral4") and scale and not length:
        raise ModelError(f"{meta.arch}.attention.temperature_scale is {scale:g}, and there is no length for it")


def _check_products(meta: Metadata) -> None:
    """Sizes of single architectures that must multiply up or divide."""
    if meta.arch == "nanbeige" and meta.n_layer * meta.size("num_loops", 1, 1, MOST_LAYERS) > MOST_LAYERS:
        raise ModelError(f"nanbeige.num_loops makes more than {MOST_LAYERS} of {meta.n_layer} layers")
    if meta.arch == "hrm_text":
        stack, high, low = (meta.size(f"hrm.{key}", 0, 1, MOST_LAYERS) for key in _LOOPS)
        if stack * high * (low + 1) != meta.n_layer:
            raise ModelError(f"hrm_text.block_count is {meta.n_layer}, its hrm.* make {stack * high * (low + 1)}")
    pool = meta.size("attention.indexer.kpool", 0, 0, MOST_SIZE)
    top = meta.size("attention.indexer.top_k", 0, 0, MOST_SIZE)
    if meta.arch == "glm5-next" and pool and top % pool:
        raise ModelError(f"{meta.arch}.attention.indexer.top_k is {top}, no multiple of indexer.kpool {pool}")


def _check_experts(meta: Metadata) -> None:
    count = meta.size("expert_count", 0, 0, MOST_EXPERTS)
    needs_gating = meta.arch in GATING and count > 0
    if meta.size("expert_gating_func", int(not needs_gating), int(needs_gating), 4) == 0 and needs_gating:
        raise ModelError(f"it has no {meta.arch}.expert_gating_func")
    if meta.arch in ("hunyuan-dense", "hunyuan_vl") and count <= 1:
        return
    each = meta.per_layer("expert_used_count", 0, 0, MOST_EXPERTS)
    used = int(each.max())
    groups = meta.size("expert_group_count", 0, 0, MOST_EXPERTS)
    groups_used = meta.size("expert_group_used_count", 0, 0, MOST_EXPERTS)
    fits = 0 < used <= count and groups < count if count else used == groups == 0
    if not fits or (meta.arch in ALL_EXPERTS and not count):
        raise ModelError(f"{meta.arch}.expert_used_count: it uses {used} of {count} experts in {groups} groups")
    if groups > 1 and (count % groups or not 0 < groups_used < groups):
        raise ModelError(
            f"{meta.arch}.expert_group_used_count: it uses {groups_used} of {groups} groups of {count} experts"
        )
    shapes = meta.shapes
    for il in np.flatnonzero(each == 0) if count else ():
        if f"blk.{il}.ffn_gate_inp.weight" in shapes or (il == 0 and not meta.arch.startswith("nemotron_h")):
            raise ModelError(f"{meta.arch}.expert_used_count is 0 in layer {il}, which has experts")


def _check_heads(meta: Metadata, n_embd: int) -> None:
    heads = meta.per_layer("attention.head_count", 0, 0, _MOST_HEADS)
    shared = meta.per_layer("attention.head_count_kv", heads, 0, _MOST_HEADS)
    odd = (shared > 0) & (heads > 0) & (heads % np.maximum(shared, 1) != 0)
    if odd.any():
        il = int(np.argmax(odd))
        raise ModelError(f"layer {il} has {heads[il]} heads over {shared[il]} heads of keys, which is no multiple")
    _check_headless(meta, heads)
    if not heads[0]:
        return  # no attention, or none that this knows
    if meta.get("attention.key_length") is None and n_embd < heads[0]:
        raise ModelError(f"{meta.arch}.attention.head_count is {heads[0]}, its width is {n_embd}")
    whole = _check_rope(meta, "", n_embd // int(heads[0]))
    windowed = _check_rope(meta, "_swa", *whole)
    _check_sections(meta)
    _check_window(meta)
    latent = meta.size("attention.key_length_mla", 0, 0, MOST_SIZE) > 0
    if whole == windowed or (latent and not meta.size("attention.key_length_mla_swa", 0, 0, MOST_SIZE)):
        sizes = [whole]
    else:
        sizes = [whole, windowed]
    fits = [_check_projections(meta, il, (int(heads[il]), int(shared[il])), sizes) for il in range(meta.n_layer)]
    for i, suffix in enumerate(("", "_swa")[: len(sizes)]):
        if any(fits) and not any(i in layer for layer in fits):
            key, value = sizes[i]
            raise ModelError(
                f"no layer's attn_k and attn_v fit {meta.arch}.attention.key_length{suffix} {key} and "
                f"value_length{suffix} {value}"
            )


def _check_headless(meta: Metadata, heads: np.ndarray) -> None:
    """Layers with a query matrix divide by their number of heads, and all by that of the first layer."""
    shapes = meta.shapes
    for il in range(meta.n_layer):
        if heads[0] and (heads[il] or _KEY_CONVOLUTION.format(il) in shapes):
            continue
        for part in ("q", "qkv", "q_a", "q_b", "k"):
            if f"blk.{il}.attn_{part}.weight" in shapes:
                raise ModelError(
                    f"{meta.arch}.attention.head_count is {heads.min()} in layer {il if heads[0] else 0}, "
                    f"and there is a tensor blk.{il}.attn_{part}.weight"
                )


def _check_rope(meta: Metadata, suffix: str, head: int, head_value: "int | None" = None) -> tuple[int, int]:
    """Head sizes and rope of all layers or, with the suffix, of windowed ones. Returns the lengths of key and value."""
    key = meta.size(f"attention.key_length{suffix}", head, 1, MOST_SIZE)
    value = meta.size(f"attention.value_length{suffix}", head if head_value is None else head_value, 1, MOST_SIZE)
    given = meta.get(f"rope.dimension_count{suffix}") is not None
    turned = meta.size(f"rope.dimension_count{suffix}", key, int(meta.arch not in NO_ROPE), MOST_SIZE)
    if (meta.arch in ROPE_ALL or meta.arch in ROPE_PART or meta.arch in EQUAL_HEADS) and key != value:
        raise ModelError(f"keys of {key} and values of {value} numbers, {meta.arch} needs one length{suffix}")
    if given and (turned % 2 or turned > key or (meta.arch in ROPE_ALL and turned != key)):
        raise ModelError(f"{meta.arch}.rope.dimension_count{suffix} is {turned}, a head has {key} numbers")
    plain = key if meta.arch in ("deepseek2", "mistral4") and not suffix else 0
    latent = meta.size(f"attention.key_length_mla{suffix}", 0, 0, MOST_SIZE) or plain
    if 0 < latent <= turned:
        raise ModelError(f"{meta.arch} has keys of {latent} numbers{suffix}, and rope turns {turned}")
    return key, value


def _check_sections(meta: Metadata) -> None:
    """The parts of a head that rope turns by time, height and width."""
    value = meta.get("rope.dimension_sections")
    sections = np.zeros(1) if value is None else meta.sizes("rope.dimension_sections", value, 0, MOST_SIZE)
    if meta.arch in SECTIONS and not sections[:3].any():
        raise ModelError(f"{meta.arch}.rope.dimension_sections is {sections.tolist()}, one must be positive")


def _check_window(meta: Metadata) -> None:
    """A windowed cache needs windowed layers: true ones of a list, or all but each n-th."""
    width = meta.size("attention.sliding_window", 1, 0, MOST_CONTEXT)
    value = meta.get("attention.sliding_window_pattern")
    if not width or value is None or not isinstance(value.data, np.ndarray):
        return
    if not value.data.any() if value.is_array else value.data[0] == 1:
        raise ModelError(f"{meta.arch}.attention.sliding_window is {width}, and its pattern has no such layer")


def _check_projections(meta: Metadata, il: int, counts: tuple[int, int], sizes: list[tuple[int, int]]) -> list[int]:
    """Some graphs cut by heads what the loader takes by the model's width, and the cache's rows are heads by lengths.

    counts: heads of queries and of keys. sizes: lengths of key and value, of plain layers and of windowed ones.
    Returns which sizes fit, none for a layer without such matrices. Raises ModelError where none of them fits.
    """
    heads, shared = counts
    shapes = meta.shapes
    if _KEY_CONVOLUTION.format(il) in shapes:
        return []
    latent = meta.size("attention.key_length_mla", 0, 0, MOST_SIZE)
    if not latent and f"blk.{il}.attn_kv_b.weight" in shapes and heads != shared:
        raise ModelError(f"layer {il} has {heads} heads over {shared} of keys, and blk.{il}.attn_kv_b.weight makes all")
    query = 2 if meta.arch in GATED_QUERY else 1  # ... holds a gate, too
    found = {part: shapes.get(f"blk.{il}.attn_{part}.weight", (0, 0))[-1] for part in _PROJECTIONS}
    fits, wrong = [], ""
    for i, (key, value) in enumerate(sizes):
        fused = heads * key + shared * (key + value)
        wanted = {"q": heads * key * query, "k": shared * key, "v": shared * value, "qkv": fused}
        wanted = {"kv_a_mqa": shared * key} if latent else wanted
        odd = [part for part, rows in wanted.items() if found[part] not in (0, rows)]
        if not odd and any(found[part] for part in wanted):
            fits.append(i)
        if odd and not wrong:
            wrong = (
                f"blk.{il}.attn_{odd[0]}.weight gives {found[odd[0]]} numbers, {heads} heads of queries and "
                f"{shared} of keys, {key} and {value} long, take {wanted[odd[0]]}"
            )
    if wrong and not fits:
        raise ModelError(wrong)
    return fits


def _check_state_space(meta: Metadata, n_embd: int) -> None:
    """Mamba and its kin: the inner size is cut by heads and groups, and a convolution's state is its rows."""
    inner = meta.size("ssm.inner_size", 0, 0, MOST_SIZE)
    groups = meta.size("ssm.group_count", 0, 0, MOST_SIZE)
    heads = meta.size("ssm.time_step_rank", 0, 0, MOST_SIZE)
    state = meta.size("ssm.state_size", 0, 0, MOST_SIZE)
    width = meta.size("ssm.conv_kernel", 0, 0, MOST_SIZE)
    if meta.arch in DOUBLE_STATE and inner != 2 * n_embd:
        raise ModelError(f"{meta.arch}.ssm.inner_size is {inner}, expected twice the width {n_embd}")
    shapes = meta.shapes
    convolutions = [f"blk.{il}.ssm_conv1d.weight" for il in range(meta.n_layer)]
    for name in (name for name in convolutions if name in shapes):
        if shapes[name] != (width, inner + 2 * groups * state):
            raise ModelError(
                f"{name} is {list(shapes[name])}, ssm.conv_kernel {width}, ssm.inner_size {inner}, ssm.group_count "
                f"{groups} and ssm.state_size {state} make it {[width, inner + 2 * groups * state]}"
            )
        parts = [count for count in (groups, heads) if groups]
        if any(count == 0 or inner % count for count in parts) or (groups and heads % groups):
            raise ModelError(f"{meta.arch}.ssm.inner_size {inner} is not cut by {heads} heads in {groups} groups")
