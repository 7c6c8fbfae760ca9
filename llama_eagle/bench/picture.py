"""The picture of a run: speed by prompts and modes, and the costs of a decode where they were measured.

Imports matplotlib, which is an extra: only what draws imports this.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .rows import Sample, ratios, speeds

_DOTS = {"s": 8, "color": "black", "alpha": 0.5, "zorder": 3}


def draw(file: str, samples: Sequence[Sample], costs: Any = None) -> None:
    """Writes a PNG. costs: StepCosts, or None."""
    figure = Figure(figsize=(10 if costs is not None else 7, 4), layout="constrained")
    axes = figure.subplots(1, 2 if costs is not None else 1, squeeze=False)[0]
    _bars(axes[0], samples)  # makes the figure's legend, which names modes only
    if costs is not None:
        _curve(axes[1], costs)
    figure.savefig(file, dpi=150)


def _bars(axes: Any, samples: Sequence[Sample]) -> None:
    """A group of bars for each set of prompts; a dot for each prompt."""
    sets = list(dict.fromkeys(sample.prompts for sample in samples))
    modes = list(dict.fromkeys(sample.mode for sample in samples))
    width = 0.8 / len(modes)
    for number, mode in enumerate(modes):
        for group, prompts in enumerate(sets):
            of_set = [sample for sample in samples if sample.prompts == prompts]
            values = list(speeds(of_set, mode).values())
            x = group + (number - (len(modes) - 1) / 2) * width
            axes.bar(x, median(values), width * 0.9, color=f"C{number}", label=mode if group == 0 else None)
            axes.scatter([x] * len(values), values, **_DOTS)
            gain = median(ratios(of_set, mode).values())
            axes.annotate(f"{gain:.2f}x", (x, max(values)), (0, 4), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks(range(len(sets)), sets)
    axes.set_ylabel("tokens a second")
    axes.set_title("Bars: medians; dots: prompts; numbers: speed over plain", fontsize=9)
    axes.margins(y=0.15)
    axes.figure.legend(loc="outside lower left", ncols=len(modes))


def _curve(axes: Any, costs: Any) -> None:
    """Milliseconds of one decode by its size, and of a chain that fits."""
    sizes = np.arange(1, 18)
    decode = np.array([1000 * costs.verify(size) for size in sizes])
    draft = np.array([0.0] + [1000 * costs.draft(nodes, 1) for nodes in range(1, len(sizes))])
    axes.plot(sizes, decode, "o-", label="decode")
    axes.plot(sizes, decode + draft, "o--", label="decode and draft a chain")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens in a decode")
    axes.set_ylabel("milliseconds")
    axes.set_title("What auto measured", fontsize=9)
    axes.legend()
