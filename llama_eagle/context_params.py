"""ContextParams: sizes and switches of a context with their checks. Plain data; knows no model."""

from dataclasses import dataclass, fields
from typing import Any

from .checks import INT32, whole
from .errors import InputError

FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}

_RANGES = {
    "n_batch": (1, INT32),
    "n_ubatch": (1, INT32),
    "n_seq_max": (1, 256),
    "n_threads": (0, 512),
    "n_rollback": (0, 256),
    "n_paths": (0, 255),
}


@dataclass(frozen=True)
class ContextParams:
    """Sizes and switches of a context; names as in llama_context_params.

    n_ctx 0: the model's trained context. n_outputs_max 0: n_batch. n_threads 0: all processors.
    n_rollback: the greatest length of a chain that chain.py verifies; a recurrent state keeps itself that often.

    n_paths: of a target; 0 verifies trees by tree attention, else each path of a tree gets a sequence id, and a step
    takes trees with that many leaves over all sequences. llama.cpp has 256 ids, n_seq_max of which are taken.
    """

    n_ctx: int = 0
    n_batch: int = 512
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_paths: int = 0
    n_outputs_max: int = 0
    n_threads: int = 0
    flash_attn: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    kv_unified: bool = True
    swa_full: bool = False
    n_rollback: int = 0

    @staticmethod
    def of(**values: Any) -> "ContextParams":
        """Checked parameters. Raises InputError for an unknown name or a value out of range."""
        known = {field.name: field for field in fields(ContextParams)}
        for name, value in values.items():
            if name not in known:
                raise InputError(f"unknown context parameter {name!r}; known: {', '.join(known)}")
            if known[name].type is int:
                whole(name, value, *_RANGES.get(name, (0, INT32)))
            if known[name].type is bool and not isinstance(value, bool):
                raise InputError(f"{name} must be True or False, got {value!r}")
        for name, table in (("flash_attn", FLASH_ATTENTION), ("type_k", CACHE_TYPES), ("type_v", CACHE_TYPES)):
            if name in values and (not isinstance(values[name], str) or values[name] not in table):
                raise InputError(f"{name} must be one of {', '.join(table)}, got {values[name]!r}")
        params = ContextParams(**values)
        if params.flash_attn == "off" and params.type_v.startswith(("q", "iq")):
            raise InputError(f"a V cache of {params.type_v} needs flash attention: leave it on or keep V in f16")
        return params
