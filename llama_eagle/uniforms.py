"""The random numbers of sampling: number i of a seed's stream decides emitted token i, whatever was drafted."""

from .errors import InputError

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
DRAFT, ACCEPT = 1, 2  # streams of a seed besides the tokens' own


def uniform(seed: int, index: int) -> float:
    """Number `index` of the stream of a seed in [0, 2**32), uniform in [0, 1) with 53 bits.

    SplitMix64 (Steele, Lea, Flood 2014) entered at a place: its state after i steps is key + i * gamma.
    """
    return _at(_mix(seed), index)


def step_uniform(seed: int, stream: int, emitted: int, number: int) -> float:
    """A number in [0, 1) of the step that begins behind `emitted` tokens.

    DRAFT: draws the token of node `number`. ACCEPT: makes the step's decision `number`, in the order they come up in.
    """
    return _at(_mix((_mix(seed) + stream) & _MASK), emitted << 20 | number)


def _at(key: int, index: int) -> float:
    return (_mix((key + (index + 1) * _GAMMA) & _MASK) >> 11) * 2.0**-53


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class Uniforms:
    """The stream of a seed from its start; random() gives the next number, as that of numpy's generators does."""

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise InputError(f"seed {seed!r} must be an int in [0, {2**32 - 1}]")
        self.seed = seed
        self.index = 0

    def random(self) -> float:
        """The number of the next emitted token."""
        self.index += 1
        return uniform(self.seed, self.index - 1)
