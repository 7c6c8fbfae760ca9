"""Devices: what ggml's backends of this build found on this machine, with their free memory. Loads no model."""

from dataclasses import dataclass
from typing import Any

from .ffi import C, ffi

_KINDS = {0: "CPU", 1: "GPU", 2: "integrated GPU", 3: "accelerator", 4: "meta"}  # ggml_backend_dev_type
_GPUS = ("GPU", "integrated GPU")


@dataclass(frozen=True)
class Device:
    """free, total: bytes; both 0 where the device does not say."""

    name: str
    description: str
    kind: str
    free: int
    total: int

    @property
    def is_gpu(self) -> bool:
        """Whether layers can be put on it."""
        return self.kind in _GPUS


def devices() -> list[Device]:
    """All devices, in ggml's order; free memory is that of now."""
    return [_device(index) for index in range(C.eagle_device_count())]


def _device(index: int) -> Device:
    name, description = ffi.new("char[128]"), ffi.new("char[256]")
    free, total, kind = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("int32_t *")
    C.eagle_device_describe(index, name, 128, description, 256, free, total, kind)
    return Device(_text(name), _text(description), _KINDS.get(kind[0], "unknown kind"), int(free[0]), int(total[0]))


def _text(buffer: Any) -> str:
    return str(ffi.string(buffer).decode("utf-8", "replace")).strip()
