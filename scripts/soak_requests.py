"""Random requests for soak.py, and the texts that they must have: those of plain decoding, one sequence at a time."""

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from llama_eagle import Batch, Context, Engine, SamplingParams
from llama_eagle.audit import LARGEST_DIFFERENCE
from llama_eagle.sampler import Sampler
from llama_eagle.uniforms import uniform

EXACT: dict[str, Any] = {"n_threads": 1, "type_k": "f32", "type_v": "f32", "flash_attn": "off"}
N_CTX = 512  # the smallest context of a round; no prompt is longer
ROOM = 2 * N_CTX  # the largest: every prompt has room for a whole text there
KEPT = 256  # texts of a target: a thousand would be the largest part of the memory that is watched

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "defaults": {},
    "hot": {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "typical": {"typical_p": 0.8, "temperature": 1.0},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1},
    "greedy penalties": {"temperature": 0.0, "repeat_penalty": 1.2, "repeat_last_n": 16},
    "bias": {"logit_bias": ((101, 2.0), (116, float("-inf")))},
    "stop": {"stop": ("e", "th"), "temperature": 1.2},
    "letters": {"grammar": "root ::= [a-z]*", "temperature": 1.0, "repeat_penalty": 1.1},
    "short": {"grammar": 'root ::= "<" [a-c]{2,9} ">"', "temperature": 2.0},
    "schema": {"json_schema": '{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}', "temperature": 1.0},
}


@dataclass(frozen=True)
class Wanted:
    """A request: prompt ids and how its text is chosen. given: what the text begins with, of a fork its original's."""

    prompt: tuple[int, ...]
    params: SamplingParams
    given: tuple[int, ...] = ()


def random_params(rng: random.Random) -> SamplingParams:
    """A setting, a seed of a few, a limit that is often reached."""
    values = dict(SETTINGS[rng.choice(list(SETTINGS))])
    ends = "grammar" in values or "json_schema" in values
    limit = rng.choice([0, 1, 2, 7, 20, 40, 60, 90])
    return SamplingParams(seed=rng.randrange(6), max_tokens=limit, ignore_eos=not ends and rng.random() < 0.5, **values)


def random_wanted(rng: random.Random) -> Wanted:
    """A prompt that begins as others do: one of few texts, cut anywhere, rarely as long as the context."""
    source = random.Random(rng.randrange(4))
    length = rng.choice([1, 2, 3, 31, 32, 33, 64, rng.randrange(4, 130), rng.randrange(4, 130), N_CTX - 20, N_CTX])
    return Wanted(tuple(source.randrange(3, 250) for _ in range(length)), random_params(rng))


class Plain:
    """Texts of plain decoding on a target, kept; and whether a difference from them is a floating-point tie."""

    def __init__(self, target: Path) -> None:
        self.engine = Engine(target, None, n_ctx=ROOM, spec="off", **EXACT)
        self._texts: OrderedDict[Wanted, list[int]] = OrderedDict()

    def close(self) -> None:
        """Frees the target."""
        self.engine.close()

    def text(self, wanted: Wanted, n_ctx: int = ROOM) -> list[int]:
        """The tokens that a request must have in a context of n_ctx, of which the last is not decoded any more."""
        if wanted not in self._texts:
            if len(self._texts) == KEPT:
                self._texts.popitem(last=False)
            self._texts[wanted] = self._generate(wanted)
        return self._texts[wanted][: n_ctx + 1 - len(wanted.prompt)]

    def _generate(self, wanted: Wanted) -> list[int]:
        if not wanted.given:
            return self.engine.generate(list(wanted.prompt), wanted.params).tokens
        original = self.engine.submit(list(wanted.prompt), replace(wanted.params, max_tokens=ROOM))
        original.result.tokens += wanted.given  # it never runs
        fork = original.fork(wanted.params)
        original.stop()
        return fork.wait().tokens

    def is_tie(self, wanted: Wanted, tokens: Sequence[int]) -> bool:
        """Whether noise of the size that lies between two scorings of the same text makes the sampler choose either."""
        plain = self.text(wanted)
        at = next((i for i, (a, b) in enumerate(zip(plain, tokens, strict=False)) if a != b), -1)
        if at < 0:
            return False
        rows = [self._logits([*wanted.prompt, *plain[:at]], step) for step in (1, 16)]
        difference = float(np.abs(rows[0] - rows[1]).max())
        noise = 4 * max(difference, 1e-6 * float(np.abs(rows[0]).max()))
        drawn = self._draws(wanted, plain[:at], rows[0], noise)
        return difference < LARGEST_DIFFERENCE and {plain[at], tokens[at]} <= drawn

    def _logits(self, tokens: list[int], step: int) -> np.ndarray:
        with Context(self.engine.pair.model, n_ctx=ROOM, **EXACT) as context:
            for first in range(0, len(tokens), step):
                context.decode(Batch(tokens[first : first + step]))
            return np.array(context.logits()[-1])

    def _draws(self, wanted: Wanted, text: list[int], row: np.ndarray, noise: float) -> set[int]:
        rng = np.random.default_rng(0)
        with Sampler(self.engine.pair.model, wanted.params) as sampler:
            sampler.prompt(list(wanted.prompt))
            for token in text:
                sampler.accept(token)
            number = uniform(sampler.params.seed or 0, len(text))
            tables = [sampler.distribution(row + rng.uniform(-noise, noise, len(row))) for _ in range(64)]
        return {int(np.searchsorted(np.cumsum(table), number, side="right")) for table in tables}
