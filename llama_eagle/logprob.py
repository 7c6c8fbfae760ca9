"""TokenLogprob: how likely the target held an emitted token, and which ones it held likeliest. Plain data."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenLogprob:
    """Natural logs of the target's probabilities: log softmax of its logits before biases, filters and temperature.

    token, logprob: the emitted one. top: (token, logprob) of the likeliest ones, best first, the smaller id first where
    two are equal; the emitted token need not be among them.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON; minus infinity, of a token that the model itself forbids, as None."""
        top = [{"token": token, "logprob": _finite(logprob)} for token, logprob in self.top]
        return {"token": self.token, "logprob": _finite(self.logprob), "top": top}

    def cut(self, k: int) -> "TokenLogprob":
        """The same with the `k` likeliest tokens at most."""
        return TokenLogprob(self.token, self.logprob, self.top[:k])


def _finite(logprob: float) -> float | None:
    return None if logprob == float("-inf") else logprob
