"""EngineOptions: how models are loaded and how drafts are made. Plain data with its checks; no model is touched."""

from dataclasses import dataclass, replace
from typing import Any

from .checks import whole
from .context_params import CACHE_TYPES, FLASH_ATTENTION
from .errors import InputError
from .leaves import most_leaves
from .static_tree import Shape, StaticTree
from .tree import TreeShape

SPEC_MODES = ("auto", "tree", "static", "chain", "off")
VERIFIERS = ("tree", "paths")
MAX_SEQUENCES = 256  # of llama.cpp
ACCEPT_RULES = ("match", "residual")


@dataclass(frozen=True)
class EngineOptions:
    """n_ctx 0: the target's trained context. n_threads 0: all processors. gpu_layers "auto": what the GPUs' free
    memory holds; -1: all.

    n_parallel: how many sequences run at once; they share n_ctx. context_shift: a full context drops half of what lies
    behind its first `keep` tokens and goes on, where the model can; the text then ends at max_tokens or an end token.

    spec: auto plans each step and drafts only where it pays; tree, static, chain and off are as they say.
    draft_nodes, draft_depth, draft_top_k bound a tree; None: 16, 5 and 4, for auto 63, 8 and 8. draft_max is the length
    of a chain; draft_tree is what StaticTree.parse() takes, None for EAGLE-1's.

    calibrate: auto measures what steps cost before the first of them, once for a pair and machine and for 2 s at most;
    False: it begins with a guess.

    verify: tree is tree attention; paths gives each path of a tree a sequence id. There are 256 in all, so at most 128
    sequences can have any, and trees are cut to as many leaves as there are ids for each.

    accept: match takes the draft's best tokens where the target draws them, so that a seed's text is that of plain
    decoding; residual draws the draft's tokens and rejects by the residual, which keeps the distribution only. Where
    nothing is drawn, at temperature 0 and without drafts, both are the same.
    """

    n_ctx: int = 0
    gpu_layers: int | str = "auto"
    n_threads: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_parallel: int = 1
    context_shift: bool = False
    keep: int = 0
    flash_attn: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    spec: str = "auto"
    draft_nodes: int | None = None
    draft_depth: int | None = None
    draft_top_k: int | None = None
    draft_max: int = 3
    draft_tree: str | None = None
    calibrate: bool = True
    verify: str = "tree"
    accept: str = "match"

    def __post_init__(self) -> None:
        _choice("spec", self.spec, SPEC_MODES)
        _choice("verify", self.verify, VERIFIERS)
        _choice("accept", self.accept, ACCEPT_RULES)
        _choice("flash_attn", self.flash_attn, tuple(FLASH_ATTENTION))
        _choice("type_k", self.type_k, tuple(CACHE_TYPES))
        _choice("type_v", self.type_v, tuple(CACHE_TYPES))
        for name, least, most in _RANGES:
            if getattr(self, name) is not None or name not in _TREE:
                whole(name, getattr(self, name), least, most)
        if self.gpu_layers != "auto":
            whole("gpu_layers", self.gpu_layers)
        if self.context_shift and self.n_parallel > 1:
            raise InputError(
                f"context_shift works for one sequence, and n_parallel is {self.n_parallel}: leave one out"
            )
        if self.draft_tree is not None and self.spec != "static":
            raise InputError(
                f"draft_tree {self.draft_tree!r} is a static shape and spec is {self.spec!r}: leave one of them out"
            )
        if self.spec == "static":
            self._static_tree()
        if self.verify == "paths" and self.n_parallel > MAX_SEQUENCES // 2:
            raise InputError(
                f"n_parallel {self.n_parallel} leaves no sequence id for a path each: at most {MAX_SEQUENCES // 2}, or "
                "verify 'tree'"
            )

    def _static_tree(self) -> StaticTree:
        try:
            return StaticTree.parse(_STATIC if self.draft_tree is None else self.draft_tree)
        except InputError as error:
            raise InputError(f"draft_tree {self.draft_tree!r}: {error}") from None

    @staticmethod
    def of(**values: Any) -> "EngineOptions":
        """Options by name; draft_tree alone means spec "static". Raises InputError for an unknown one."""
        known = EngineOptions.__dataclass_fields__
        for name in values:
            if name not in known:
                raise InputError(f"unknown option {name!r}; known: {', '.join(known)}")
        if values.get("draft_tree") is not None:
            values.setdefault("spec", "static")
        return EngineOptions(**values)

    def most(self) -> TreeShape:
        """What bounds a dynamic tree."""
        usual = _MOST if self.spec == "auto" else TreeShape()
        given = {field: getattr(self, name) for name, field in _TREE.items() if getattr(self, name) is not None}
        return replace(usual, **given)

    def fixed_shape(self) -> Shape | None:
        """The shape that spec names, or None for off and auto."""
        if self.spec == "tree":
            return self.most()
        if self.spec == "static":
            return self._static_tree()
        return TreeShape.chain(self.draft_max) if self.spec == "chain" else None

    def n_paths(self) -> int:
        """Leaves that a step can have over all sequences; 0 without paths."""
        if self.verify == "tree":
            return 0
        shape = self.fixed_shape()
        leaves = most_leaves(shape or self.most())
        return min(max(leaves, 1) * self.n_parallel, MAX_SEQUENCES - self.n_parallel)

    def context_params(self) -> dict[str, Any]:
        """The part that contexts of target and draft take."""
        names = ("n_ctx", "n_threads", "n_batch", "n_ubatch", "flash_attn", "type_k", "type_v")
        return {"n_seq_max": self.n_parallel, **{name: getattr(self, name) for name in names}}


_STATIC = "eagle1"  # without a draft_tree
_MOST = TreeShape(nodes=63, depth=8, top_k=8)  # of auto: 64 rows are the last for which attention rounds row by row
_TREE = {"draft_nodes": "nodes", "draft_depth": "depth", "draft_top_k": "top_k"}
_RANGES = (
    ("n_ctx", 0, 1 << 24),
    ("n_threads", 0, 512),
    ("n_batch", 1, 1 << 16),
    ("n_ubatch", 1, 1 << 16),
    ("n_parallel", 1, MAX_SEQUENCES),
    ("keep", 0, 1 << 24),
    ("draft_nodes", 1, 256),
    ("draft_depth", 1, 64),
    ("draft_top_k", 1, 64),
    ("draft_max", 1, 64),
)


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
