"""DraftPause: stops drafting in a text where the draft is hardly ever right, and tries again at growing intervals.

Counts the steps of one text; knows no model. What counts is the first drafted token, as in draft_watch.py: it depends
neither on the size of the trees nor on what the later tokens were conditioned on. A draft goes wrong in a text that
grew longer than its training, or in a language it never saw.
"""

from collections import deque

WINDOW = 32  # drafted steps that are looked at
LEAST_RIGHT = 2  # of them, to go on
TRIAL = 8  # drafted steps after a pause, of which one must be right
FIRST_PAUSE = 64  # plain steps
LONGEST_PAUSE = 1024


class DraftPause:
    """Says before each step whether to draft; told afterwards what came of it."""

    def __init__(self) -> None:
        self._right: deque[bool] = deque(maxlen=WINDOW)
        self._trial = 0  # steps left of one
        self._left = 0  # plain steps left of a pause
        self._length = FIRST_PAUSE  # of the next pause
        self.pauses = 0

    @property
    def active(self) -> bool:
        """Whether the next step is to be a plain one."""
        return self._left > 0

    def count(self, drafted: int, accepted: int) -> None:
        """Adds a step: how many tokens it drafted, and how many of them were accepted."""
        if not drafted:
            self._left = max(self._left - 1, 0)
            return
        self._right.append(accepted > 0)
        if self._trial:
            self._try(accepted > 0)
        elif len(self._right) == WINDOW and sum(self._right) < LEAST_RIGHT:
            self._begin()

    def _try(self, right: bool) -> None:
        self._trial = 0 if right else self._trial - 1
        if right:
            self._length = FIRST_PAUSE
        elif not self._trial:
            self._begin()

    def _begin(self) -> None:
        self.pauses += 1
        self._left, self._length = self._length, min(2 * self._length, LONGEST_PAUSE)
        self._trial = TRIAL
        self._right.clear()
