"""The picture of a training: loss and foretold acceptance by rows. Imports matplotlib, which is an extra."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from . import log


def draw(file: str, path: Path) -> None:
    """Writes a PNG of a log; an empty log gives empty axes."""
    rows = log.read(path)
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    seen = [row["rows"] for row in rows]
    for name in ("loss", "held_out_loss"):
        left.plot(seen, [row[name] for row in rows], label=name.replace("_", " "))
    left.set_ylabel("loss a row")
    _accepted(right, rows, seen)
    for axes in (left, right):
        axes.set_xlabel("rows")
        if rows:
            axes.legend()
    figure.savefig(file, dpi=150)


def _accepted(axes: Any, rows: list[dict[str, float]], seen: list[float]) -> None:
    depths = [name for name in (rows[0] if rows else {}) if name.startswith("accept_")]
    for name in depths:
        axes.plot(seen, [row[name] for row in rows], label=f"depth {name.removeprefix('accept_')}")
    axes.set_ylim(0, 1)
    axes.set_ylabel("accepted on held-out answers, foretold")
