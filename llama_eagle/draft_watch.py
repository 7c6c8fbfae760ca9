"""DraftWatch: warns once when a draft that fits on paper is hardly ever right. Counts steps, knows no model.

What counts is the share of steps whose first drafted token was accepted: it depends neither on the size of the trees
nor on what the later tokens were conditioned on.
"""

import logging

from .generate import Step
from .head_info import HeadInfo

LEAST_DRAFTED = 200  # tokens
LEAST_STEPS = 40  # a large tree has 200 nodes after few steps
LEAST_SHARE = 0.05

log = logging.getLogger("llama_eagle")


class DraftWatch:
    """Counts the steps of an engine, all its generations together."""

    def __init__(self, head: HeadInfo) -> None:
        self._head = head
        self.drafted = 0
        self.steps = 0
        self.right = 0
        self.warned = False

    def count(self, step: Step) -> None:
        """Adds a step; plain ones say nothing of the draft."""
        if not step.drafted:
            return
        self.drafted += step.drafted
        self.steps += 1
        self.right += step.accepted > 0
        enough = self.drafted >= LEAST_DRAFTED and self.steps >= LEAST_STEPS
        if enough and not self.warned and self.right < LEAST_SHARE * self.steps:
            self.warned = True
            log.warning("%s", self._warning())

    def _warning(self) -> str:
        share = f"{self.right / self.steps:.0%} of its first tokens in {self.steps} steps"
        return (
            f"the draft {self._head.name} is hardly ever accepted ({share}), which costs speed and no correctness; "
            f"likely why: {'; '.join(likely_causes(self._head))}"
        )


def likely_causes(head: HeadInfo) -> list[str]:
    """What makes a head that fits on paper guess wrong, the likeliest first."""
    causes = []
    rule = head.rule or ""
    if any(word in rule for word in ("default", "ambiguous", "often mean")):
        causes.append(f"its layer ids {list(head.features)} are a guess ({rule})")
    elif head.arch == "eagle3" and not rule:
        causes.append(f"its layer ids {list(head.features)} may be off by one (the file does not say who chose them)")
    causes += [f"its conversion had to choose: {choice}" for choice in head.choices]
    return [*causes, "it was trained for another fine-tune of the target, or its weights are damaged"]
