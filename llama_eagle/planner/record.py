"""Record: how large drafts were, what they gave and what they cost, of one text or of all. Chooses nothing."""

from dataclasses import dataclass

from ..turn import Drafted

BELIEF = 3.0  # promised tokens for which what was known before counts
MEMORY = 0.98  # of older tokens, a draft later
QUICK, SLOW = 0.06, 0.03  # how far a draft moves the means of its text, and those of all texts
CONFIDENCE = (0.95, 0.8, 0.6, 0.4, 0.2)  # of usual heads in their best guess, each in a fifth of the steps


@dataclass
class Record:
    """Means over drafts, the last ones counting most.

    promised: tokens that the draft's own probabilities promise, of the nodes that are verified. nodes: how many these
    are. extra: what it adds to a step, in tokens that plain decoding gives meanwhile. trust: accepted tokens to a
    promised one.
    """

    promised: float
    nodes: float
    extra: float
    trust: float = 1.0
    pace: float = SLOW

    def __post_init__(self) -> None:
        self._promised, self._accepted = BELIEF, BELIEF * self.trust

    @staticmethod
    def usual(node: float, level: float) -> "Record":
        """Of a usual head whose best guess alone is drafted, and verified where its probability is above its cost.

        node, level: what one adds to a step, in tokens.
        """
        verified = [sure for sure in CONFIDENCE if sure > node]
        share = len(verified) / len(CONFIDENCE)
        return Record(sum(verified) / len(CONFIDENCE), share, level + share * node)

    def of_text(self) -> "Record":
        """What a new text starts from."""
        return Record(self.promised, self.nodes, self.extra, self.trust, QUICK)

    @property
    def gain(self) -> float:
        """Accepted tokens of a draft, as far as can be told."""
        return self.trust * self.promised

    @property
    def surplus(self) -> float:
        """What a draft gains over plain decoding, in tokens."""
        return self.gain - self.extra

    def saw(self, draft: Drafted, extra: float) -> None:
        """Takes in a draft, and what it added to its step."""
        self.promised += self.pace * (draft.promised - self.promised)
        self.nodes += self.pace * (draft.nodes - self.nodes)
        self.extra += self.pace * (extra - self.extra)
        self._promised = MEMORY * self._promised + draft.promised
        self._accepted = MEMORY * self._accepted + draft.accepted
        self.trust = max(self._accepted / self._promised, 0.01)
