"""Pair: a loaded target with its draft, their contexts, and whether drafting pays on this machine.

Owns handles; generates nothing.
"""

import json
import logging
import platform
import time
from pathlib import Path
from typing import Any

from .chain import rollback_memory
from .context import Context
from .draft import Drafter
from .draft_watch import DraftWatch
from .errors import EagleError, ModelError
from .ffi import build_info
from .fit import MEMORY, fit
from .gguf_files.identity import file_identity
from .gguf_files.model_header import kept_headers
from .gpu_layers import Layers
from .head_info import HeadInfo, read_head
from .model import Model
from .offload import Part, offload
from .options import EngineOptions
from .planner.measure import measure, measure_plain
from .planner.planner import Planner
from .planner.step_costs import StepCosts
from .planner.store import remembered
from .session_file import build_stamp
from .static_tree import Shape
from .target_side import TargetSide, read_target_side
from .tree import TreeShape

log = logging.getLogger("llama_eagle")

_COSTS_DEPEND_ON = ("n_threads", "n_ubatch", "flash_attn", "type_k", "type_v")
CHAIN = 3  # nodes of the longest chain that auto drafts on a recurrent state
LEAST_FOR_DRAFTS = 24  # tokens that a batch and the context must hold


class Pair:
    """Models and contexts of one target and, unless `draft` is None, its draft head.

    Raises ModelError for a draft that does not belong to the target, by what differs and before anything is loaded.
    """

    def __init__(self, target: Path, draft: Path | None, options: EngineOptions) -> None:
        self.options = options
        self.drafter: Drafter | None = None
        self.watch: DraftWatch | None = None
        self.shape: Shape | None = None
        self.planner: Planner | None = None  # of spec auto
        self.plain_tokens_per_s: float | None = None
        self.calibrate_s = 0.0
        self.gpu_note = ""  # what of the pair is not on the GPUs for want of memory
        self.rollback_memory = ""  # what taking back chains costs, where a recurrent state has to be kept for that
        start = time.perf_counter()
        with kept_headers():
            self._load(target, draft if options.spec != "off" else None)
        self._check_shift()
        self.load_s = time.perf_counter() - start - self.calibrate_s

    def _load(self, target: Path, draft: Path | None) -> None:
        side = check_target(target)
        head = None if draft is None else check_pair(target, draft)
        layers = self._offload(side, target, draft, head)
        plain_s = self._plain_alone(target, layers.plain) if layers.lost and self.options.spec == "auto" else None
        self.model = Model(target, gpu_layers=layers.target)
        if draft is None or head is None:
            self.target = Context(self.model, **self.options.context_params())
        else:
            self.watch = DraftWatch(head)
            self._add_draft(Model(draft, target=self.model, gpu_layers=layers.head))
            if plain_s is not None:
                self._weigh(plain_s, layers.plain)

    def _offload(self, side: TargetSide, target: Path, draft: Path | None, head: HeadInfo | None) -> Layers:
        if draft is None or head is None:
            own, of_head = Part(target, self.options.context_params()), None
        else:
            n_ctx = self.options.n_ctx or side.n_ctx or 0
            own = Part(target, self._target_params(), head.features)
            of_head = Part(draft, self._draft_params(n_ctx))
        layers, self.gpu_note = offload(self.options.gpu_layers, side.n_layer, own, of_head)
        if self.gpu_note:
            log.info(self.gpu_note)
        return layers

    def _plain_alone(self, target: Path, layers: int) -> float | None:
        """Seconds a token without a head and with the layers that it would take; None where nothing can be measured."""
        start = time.perf_counter()
        with Model(target, gpu_layers=layers) as model, Context(model, **self.options.context_params()) as context:
            seconds = measure_plain(context) if min(context.n_batch, context.n_ctx - 1) > 0 else None
        self.calibrate_s += time.perf_counter() - start
        return seconds

    def _weigh(self, plain_s: float, layers: int) -> None:
        """Drops the head and loads the target with `layers`, where no draft is expected to make up for them."""
        rate = 0.0 if self.planner is None else self.planner.draft_rate()
        log.info("with %d layers on the GPU and no head: %.1f tokens/s; drafting: %.1f", layers, 1.0 / plain_s, rate)
        if rate * plain_s > 1.0:
            return
        self._unload_draft()
        path = self.model.path
        self.model.close()
        self.model = Model(path, gpu_layers=layers)
        self.target = Context(self.model, **self.options.context_params())
        self.plain_tokens_per_s = 1.0 / plain_s
        self.gpu_note = "the draft head would take GPU memory from the target and not make up for it: decoding is plain"

    def _target_params(self) -> dict[str, Any]:
        length = self.options.draft_max if self.options.spec == "chain" else CHAIN
        return {**self.options.context_params(), "n_rollback": length, "n_paths": self.options.n_paths()}

    def _draft_params(self, n_ctx: int) -> dict[str, Any]:
        """n_ctx: of the target."""
        # neither the tree's own cells nor its widest level are limited by what the target was given
        most = self.options.most()
        level = most.top_k * self.options.n_parallel
        room = {
            "n_ctx": n_ctx + max(1024, most.depth * level),
            "n_batch": max(self.options.n_batch, level),
            "n_ubatch": max(self.options.n_ubatch, self.options.n_parallel),  # the roots of all go in one
        }
        return {**self.options.context_params(), **room}

    def _add_draft(self, head: Model) -> None:
        self.target = Context(self.model, head.info.features, **self._target_params())
        if not self.target.has_tree:
            self._chains_only()
        self.drafter = Drafter(Context(head, **self._draft_params(self.target.n_ctx)))
        self.shape = self.options.fixed_shape()
        start = time.perf_counter()
        fits = min(self.target.n_batch, self.target.n_ctx - 1)
        if self.options.spec != "auto":
            self.plain_tokens_per_s = 1.0 / measure_plain(self.target) if fits > 0 else None
        elif fits > LEAST_FOR_DRAFTS:
            self.planner = Planner(self._costs, self._limits())
        else:
            self._drop_draft()
        self.calibrate_s += time.perf_counter() - start

    def _limits(self) -> TreeShape:
        most = self.options.most()
        if not self.target.has_tree:
            most = TreeShape(min(CHAIN, most.nodes), min(CHAIN, most.depth), 1)
        return most

    def _costs(self) -> StepCosts:
        """From the cache, or measured: costs are those of this pair, build and machine with these contexts."""
        assert self.drafter is not None
        draft = self.drafter.context.model
        guess = StepCosts.usual(self.model.info.size, draft.info.size)
        if not self.options.calibrate:
            return guess
        params = {name: value for name, value in self.options.context_params().items() if name in _COSTS_DEPEND_ON}
        params["n_threads"] = self.target.n_threads
        files = [file_identity(self.model.path), file_identity(draft.path)]
        machine = [platform.node(), build_stamp(), build_info()]
        try:
            return remembered([*files, *machine, json.dumps(params)], lambda: measure(self.model, draft, **params))
        except EagleError as error:  # such as memory for two contexts more: an answer needs none of it
            log.warning("what steps cost cannot be measured, a guess is corrected as they come: %s", error)
            return guess

    def _chains_only(self) -> None:
        """Raises ModelError where the target takes no chains either, or something else was asked for."""
        name = f"{self.model.path.name} ({self.model.meta('general.architecture')})"
        if not self.target.n_rollback:
            raise ModelError(f"{name} {MEMORY}: use --spec off")
        if self.options.spec in ("tree", "static"):
            raise ModelError(f"{name} verifies chains only, spec is {self.options.spec!r}: use --spec chain or auto")
        if self.options.n_parallel > 1:
            raise ModelError(f"{name} verifies chains of one sequence at a time: use n_parallel 1 or spec off")
        self.rollback_memory = rollback_memory(self.target)
        log.info(self.rollback_memory)

    def _drop_draft(self) -> None:
        """Plain decoding extracts no features and keeps no draft."""
        self._unload_draft()
        self.target = Context(self.model, **self.options.context_params())

    def _unload_draft(self) -> None:
        """Frees the draft, what chooses its shapes, and the target's context, which was made for it."""
        self._close_draft()
        self.drafter = self.watch = self.planner = None
        self.rollback_memory = ""
        self.target.close()

    def _check_shift(self) -> None:
        contexts = [self.target] if self.drafter is None else [self.target, self.drafter.context]
        for context in contexts if self.options.context_shift else []:
            if not context.can_shift:
                self.close()
                raise ModelError(f"{context.model.path.name} cannot shift its context: leave context_shift out")

    def close(self) -> None:
        """Frees everything; closing twice is fine."""
        self._close_draft()
        self.target.close()
        self.model.close()

    def _close_draft(self) -> None:
        if self.drafter is not None:
            self.drafter.context.close()
            self.drafter.context.model.close()


def check_target(target: Path) -> TargetSide:
    """What the target is. Raises ModelError where it is a draft head."""
    side = read_target_side(target)
    if side.is_draft:
        raise ModelError(f"{target} is a draft head, not a target: give it with -md and its target with -m")
    return side


def check_pair(target: Path, draft: Path) -> HeadInfo:
    """What the draft is. Raises ModelError where it does not belong to the target, naming what differs first."""
    head = read_head(draft)
    side = read_target_side(target)
    found = fit(head, side)
    for text in found.notes:
        log.info("%s with %s: %s", draft.name, target.name, text)
    if not found.fits:
        shown = "; ".join(found.problems[:2])
        raise ModelError(f"{draft.name} is no draft for {target.name}: {shown}")
    return head
