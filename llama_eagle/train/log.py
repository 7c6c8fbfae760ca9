"""The training's log: a CSV file with a line for each point at which the head was judged."""

import csv
from pathlib import Path
from typing import Any

COLUMNS = ("step", "rows", "seconds", "unroll", "loss", "rows_per_s", "held_out_loss", "tokens_per_step")


def append(path: Path, values: dict[str, Any], rates: list[float]) -> None:
    """Adds a line; rates: the foretold acceptance of each depth."""
    depths = {f"accept_{depth}": f"{value:.4f}" for depth, value in enumerate(rates, 1)}
    new = not path.exists()
    with open(path, "a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, *depths])
        if new:
            writer.writeheader()
        writer.writerow({name: _short(values[name]) for name in COLUMNS} | depths)


def read(path: Path) -> list[dict[str, float]]:
    """The lines as numbers, none where the file is missing."""
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
