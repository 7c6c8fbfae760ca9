"""Record: how large drafts were and what they gave, of one text or of all. Pure arithmetic; chooses nothing."""

from dataclasses import dataclass

from ..turn import Drafted

BELIEF = 3.0  # promised tokens for which what was known before counts
MEMORY = 0.98  # of older tokens, a draft later
QUICK, SLOW = 0.06, 0.03  # how far a draft moves the means of its text, and those of all texts
CONFIDENCE = (0.95, 0.8, 0.6, 0.4, 0.2)  # of usual heads in their best guess, each in a fifth of the steps


@dataclass
class Record:
    """Means over drafts, the last ones counting most; costs are not among them, for they change with the batch.

    promised: tokens that the draft's own probabilities promise, of the nodes that are verified. nodes: how many these
    are. levels: of the draft. trust: accepted tokens to a promised one.
    """

    promised: float
    nodes: float
    levels: float
    trust: float = 1.0
    pace: float = SLOW

    def __post_init__(self) -> None:
        self._promised, self._accepted = BELIEF, BELIEF * self.trust

    @staticmethod
    def usual(price: float) -> "Record":
        """Of a usual head whose best guess alone is drafted, and verified where its probability is above `price`."""
        verified = [sure for sure in CONFIDENCE if sure > price]
        return Record(sum(verified) / len(CONFIDENCE), len(verified) / len(CONFIDENCE), 1.0)

    def of_text(self) -> "Record":
        """What a new text starts from."""
        return Record(self.promised, self.nodes, self.levels, self.trust, QUICK)

    @property
    def gain(self) -> float:
        """Accepted tokens of a draft, as far as can be told."""
        return self.trust * self.promised

    def saw(self, draft: Drafted) -> None:
        """Takes in a draft."""
        self.promised += self.pace * (draft.promised - self.promised)
        self.nodes += self.pace * (draft.nodes - self.nodes)
        self.levels += self.pace * (draft.levels - self.levels)
        self._promised = MEMORY * self._promised + draft.promised
        self._accepted = MEMORY * self._accepted + draft.accepted
        self.trust = max(self._accepted / self._promised, 0.01)
