"""One sentence about what to do with the figures. Pure."""

from collections.abc import Mapping
from typing import Any

from .rows import PLAIN

AUTO = "auto"
_GAIN = 1.02  # less is within what two runs of the same thing differ by
_CLOSE = 0.97  # so near to the best a default is better left alone
_FLAGS = {
    "chain": (("draft_max", "--spec-draft-n-max"),),
    "tree": (("draft_nodes", "--draft-nodes"), ("draft_depth", "--draft-depth"), ("draft_top_k", "--draft-top-k")),
    "static": (("draft_tree", "--draft-tree"),),
}


def advice(gains: Mapping[str, float], options: Mapping[str, Any], plain_rate: float) -> str:
    """What to use on this machine.

    gains: each mode's ratio to plain. options: the engine's, by name. plain_rate: plain tokens a second.
    """
    drafts = {mode: gain for mode, gain in gains.items() if mode != PLAIN}
    if not drafts:
        return f"only plain was measured, {plain_rate:.0f} tok/s: compare it with --modes plain,chain,tree,auto"
    best = max(drafts, key=lambda mode: drafts[mode])
    if drafts[best] < _GAIN:
        return _plain(drafts)
    auto = drafts.get(AUTO)
    if auto is not None and auto >= max(_GAIN, _CLOSE * drafts[best]):
        return f"use --spec auto, the default: {auto:.2f}x plain{_beside(drafts, AUTO)}"
    return f"use {flags(best, options)}: {drafts[best]:.2f}x plain{_beside(drafts, best)}"


def flags(mode: str, options: Mapping[str, Any]) -> str:
    """The flags of `llama-eagle run` that choose a mode as it was measured."""
    values = [f"{flag} {options[name]}" for name, flag in _FLAGS.get(mode, ()) if options.get(name) is not None]
    return " ".join([f"--spec {mode}", *values])


def _plain(drafts: Mapping[str, float]) -> str:
    fixed = {mode: gain for mode, gain in drafts.items() if mode != AUTO}
    auto = f"auto is at {drafts[AUTO]:.2f}x" if AUTO in drafts else ""
    if not fixed:
        return f"plain is fastest here: {auto}, so leave the default or use --spec off"
    best = max(fixed, key=lambda mode: fixed[mode])
    loss = 1.0 - fixed[best]
    costs = f"drafting costs {loss:.0%} ({best})" if loss >= 0.005 else f"drafting gains nothing ({best})"
    return f"plain is fastest here: {costs}; {f'leave the default, {auto}, or ' if auto else ''}use --spec off"


def _beside(drafts: Mapping[str, float], chosen: str) -> str:
    others = [f"{mode} {gain:.2f}x" for mode, gain in drafts.items() if mode != chosen]
    return f" ({', '.join(others)})" if others else ""
