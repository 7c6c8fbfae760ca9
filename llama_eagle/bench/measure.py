"""The measurement: modes take turns, prompt by prompt. Each mode is an engine; knows engines by their public calls.

All engines are open at once. A machine's speed drifts, so answers that are compared have to lie close in time, and
loading a model for each of them would take longer than the answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import EagleError, InputError
from .prompts import Prompt, PromptSet
from .rows import PLAIN, Sample

MODES = (PLAIN, "chain", "tree", "static", "auto")
_WARM_UP = 8  # tokens of an answer that is not counted: the first one of a context takes longer


@dataclass(frozen=True)
class Text:
    """The ids of a prompt and of an answer. step: the usual size of the batches that the answer was decoded in."""

    prompt: list[int]
    tokens: list[int]
    step: int


@dataclass(frozen=True)
class Answer:
    """One answer, to be timed and to be compared."""

    sample: Sample
    text: Text


@dataclass(frozen=True)
class Request:
    """How each prompt is asked: SamplingParams, and whether it goes without the chat template."""

    params: Any
    raw: bool = False

    def pieces(self, engine: Any, prompt: Prompt) -> Iterator[Any]:
        """Starts an answer. Raises InputError that names the prompt where the engine refuses it."""
        try:
            if self.raw:
                return iter(engine.stream(prompt.text, self.params))
            return iter(engine.chat([{"role": "user", "content": prompt.text}], self.params))
        except EagleError as error:
            raise InputError(f"{prompt.where}: {error}") from error


def parse_modes(text: str) -> tuple[str, ...]:
    """Modes of a list such as plain,tree; plain is added where it is missing. Raises InputError for unknown ones."""
    given = dict.fromkeys(part.strip() for part in text.split(","))
    for mode in given:
        if mode not in MODES:
            raise InputError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return tuple(given) if PLAIN in given else (PLAIN, *given)


def mode_options(mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of the engine of a mode."""
    own = {**options, "spec": "off" if mode == PLAIN else mode}
    if mode != "static":
        own.pop("draft_tree", None)
    return own


def measure(
    engines: Mapping[str, Any], sets: Sequence[PromptSet], request: Request, repeat: int, tick: Callable[[], object]
) -> list[Answer]:
    """Answers of all prompts in all modes, `repeat` times each; `tick` is called after each.

    Each turn begins with another mode. Raises InputError, before anything is timed, for a prompt that does not fit.
    """
    for prompt in (prompt for prompts in sets for prompt in prompts.prompts):
        for engine in engines.values():
            request.pieces(engine, prompt)  # checks, and decodes nothing until it is asked for a piece
    warm_up = replace(request, params=replace(request.params, max_tokens=_WARM_UP))
    for engine in engines.values():
        _exhaust(warm_up.pieces(engine, sets[0].prompts[0]))
    answers = []
    turn = 0
    for prompts in sets:
        for index, prompt in enumerate(prompts.prompts):
            for number in range(repeat):
                for mode in _rotated(tuple(engines), turn):
                    text, sample = _answer(engines[mode], request.pieces(engines[mode], prompt))
                    answers.append(Answer(Sample(prompts.name, index, number, mode, *sample), text))
                    tick()
                turn += 1
    return answers


def _answer(engine: Any, pieces: Iterator[Any]) -> tuple[Text, tuple[float, int, int]]:
    _exhaust(pieces)
    result = engine.result
    spec = result.spec
    rate = result.timings.tokens_per_s if spec.steps else 0.0
    return Text(list(result.prompt), list(result.tokens), _usual_step(spec.shapes)), (rate, spec.steps, spec.emitted)


def _usual_step(shapes: Mapping[str, int]) -> int:
    """Tokens of the most frequent batch among those with drafts: the root and its nodes."""
    sizes = {int(name): steps for name, steps in shapes.items() if name != "plain"}
    return 1 + max(sizes, key=lambda size: sizes[size]) if sizes else 1


def _rotated(modes: tuple[str, ...], turn: int) -> tuple[str, ...]:
    first = turn % len(modes)
    return modes[first:] + modes[:first]


def _exhaust(pieces: Iterator[Any]) -> None:
    for _ in pieces:
        pass
