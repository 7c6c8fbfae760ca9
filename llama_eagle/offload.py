"""Offload: where the layers of a pair go on this machine, before any of them is loaded.

llama.cpp lays models out without loading them (its no_alloc), which counts weights, caches and buffers of every
architecture as they will be; the choice is gpu_layers.py's. Without a GPU nothing is asked and nothing said.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .context import native_params
from .context_params import ContextParams
from .devices import devices
from .errors import InputError
from .ffi import C, drain_log, ffi
from .gpu_layers import Bytes, Layers, choose_layers, choose_plain, explain

NO_GPU = (
    'no backend of this build finds a GPU: install one with CMAKE_ARGS="-DGGML_CUDA=ON" pip install . '
    "(docs/building.md has the others; `llama-eagle doctor` lists devices), or leave -ngl out"
)


@dataclass(frozen=True)
class Part:
    """A model and how its context will be made: what Model and Context get. features: ids, of a target."""

    path: Path
    params: dict[str, Any]
    features: tuple[int, ...] = ()


def offload(gpu_layers: "int | str", n_layer: int, target: Part, head: "Part | None") -> tuple[Layers, str]:
    """Layers on the GPUs, and what to say of them; "auto" is what their free memory holds. n_layer: of the target.

    Raises InputError where layers are asked for and there is no GPU.
    """
    found = devices()
    has_gpu = any(device.is_gpu for device in found)
    if gpu_layers != "auto":
        if int(gpu_layers) > 0 and not has_gpu:
            raise InputError(f"gpu_layers (-ngl) is {gpu_layers}, and {NO_GPU}")
        return Layers(int(gpu_layers), int(gpu_layers), int(gpu_layers)), ""
    if not has_gpu or any(device.is_gpu and not device.total for device in found):
        return Layers(), ""  # nothing to budget, or nothing known of it: as llama.cpp does by itself
    free = [device.free for device in found]
    try:
        layers = _choose(free, n_layer, target, head)
    except InputError:
        return Layers(), ""  # the files do not load; loading them says why
    return layers, explain(layers, n_layer)


def _choose(free: Bytes, n_layer: int, target: Part, head: "Part | None") -> Layers:
    if head is None:
        return choose_plain(lambda layers: device_bytes((target, layers)), free, n_layer)

    def both(layers: int, of_head: "int | None") -> Bytes:
        return device_bytes((target, layers), *([] if of_head is None else [(head, of_head)]))

    return choose_layers(both, free, n_layer)


def device_bytes(*parts: tuple[Part, int]) -> Bytes:
    """Bytes on each device of a target and, behind it, its head, each with its layers. Raises InputError."""
    kept = [_load(part, layers) for part, layers in parts]
    loads = [load for load, *_ in kept]
    count = C.eagle_device_count()
    used, error = ffi.new("uint64_t[]", max(count, 1)), ffi.new("char[1024]")
    code = C.eagle_device_bytes(loads[0], loads[1] if len(loads) > 1 else ffi.NULL, used, error, 1024)
    drain_log(expected=("",))  # loading says it again
    if code != C.EAGLE_OK:
        raise InputError(ffi.string(error).decode("utf-8", "replace"))
    return [int(used[index]) for index in range(count)]


def _load(part: Part, layers: int) -> tuple[Any, ...]:
    """The native struct, and what it points to."""
    ids, path = np.array(part.features, dtype=np.int32), ffi.new("char[]", os.fsencode(part.path))
    context = native_params(ContextParams.of(**part.params), ids)
    load = ffi.new("eagle_load *", {"path": path, "n_gpu_layers": layers, "context": context[0]})
    return load, ids, path
