"""Measured costs, kept in the cache by what they depend on: a pair, a build, the machine and how contexts are made."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable

from ..cache import cache_dir, scratch_dir
from .step_costs import StepCosts

VERSION = 2  # raised when costs are measured in another way


def remembered(depends_on: list[str], measure: Callable[[], StepCosts]) -> StepCosts:
    """Costs from the cache, or measured and kept there. A cache that cannot be read or written is no reason to stop."""
    key = hashlib.sha256("\n".join([str(VERSION), *depends_on]).encode()).hexdigest()[:24]
    note = cache_dir() / "costs" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return StepCosts.from_dict(json.loads(note.read_text(encoding="utf-8")))
    costs = measure()
    with contextlib.suppress(OSError), scratch_dir(note) as folder:
        (folder / note.name).write_text(json.dumps(costs.as_dict()), encoding="utf-8")
        os.replace(folder / note.name, note)
    return costs
