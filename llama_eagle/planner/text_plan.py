"""TextPlan: whether the next step of one text drafts. It keeps an account of the tokens that drafting gained or lost.

A draft pays in what it gained over plain decoding, or takes what it lost, and drafting goes on while there is something
left. A new text is lent what earlier ones promise it. Plain steps save a little for the next try, so that a text for
which drafts never pay loses no more than that, and the more a try loses the longer is the wait for another one.
"""

from ..tree import TreeShape
from .record import Record

LENT = 5  # drafts of a usual text
MOST, LEAST = 2.0, 1.0  # tokens on an account; what a new text has at least
SAVED = 0.005  # tokens a plain step
REFRESH = 32  # drafts between two plain steps, which keep the cost of one known
REPLAN = 12  # drafts between two shapes


class TextPlan:
    """What is remembered of a text between its steps."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.shape: TreeShape | None = None
        self.account = min(max(LENT * record.surplus, LEAST), MOST)
        self._drafts = 0
        self._tried = False

    def drafts(self) -> bool:
        """Whether to draft now; to be asked before each step."""
        if self.account <= 0.0:
            self.account += SAVED
            return False
        self._drafts += 1
        return self._drafts % REFRESH > 0

    def gained(self, tokens: float, late: float = 0.0) -> None:
        """Takes in what a draft gained over plain decoding, a negative number for a loss.

        late: tokens that catching up took. Of a further try it is the price; on its prompt a text catches up once.
        """
        price = late if self._tried else 0.0
        self._tried = True
        self.account = min(self.account + tokens - price, MOST)

    @property
    def is_stale(self) -> bool:
        """Whether a shape is to be found for the next draft."""
        return self._drafts % REPLAN == 1
