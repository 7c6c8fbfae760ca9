"""TextPlan: whether the next step of one text drafts. Plain decoding tries a draft again at growing intervals."""

from ..tree import TreeShape
from .record import Record

TRIAL = 3  # drafts in a row of one try
FIRST_WAIT, LAST_WAIT = 16, 128  # plain steps between two tries
REFRESH = 32  # drafts between two plain steps, which keep the cost of one known
REPLAN = 12  # drafts between two shapes


class TextPlan:
    """What is remembered of a text between its steps."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.shape: TreeShape | None = None
        self._age = 0  # drafts with this shape
        self._drafts = 0  # since a plain step
        self._plain = 0  # steps since the last draft
        self._wait = FIRST_WAIT
        self._trial = 0  # drafts left of a try

    def drafts(self, pays: bool) -> bool:
        """Whether to draft now, where drafting pays or does not as far as is known; to be asked before each step."""
        if pays:
            self._wait, self._plain, self._trial = FIRST_WAIT, 0, 0
            self._drafts = (self._drafts + 1) % REFRESH
            return self._drafts > 0
        if self._trial:
            self._trial -= 1
            return True
        self._plain += 1
        if self._plain < self._wait:
            return False
        self._plain, self._wait, self._trial = 0, min(2 * self._wait, LAST_WAIT), TRIAL - 1
        return True

    @property
    def is_stale(self) -> bool:
        """Whether a shape is to be found for the next draft; to be asked before each of them."""
        stale = self._age % REPLAN == 0
        self._age += 1
        return stale
