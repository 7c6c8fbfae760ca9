"""The loop over time: kept prefixes, windows, interrupts and aborts leave both caches true to the text."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from llama_eagle import AbortedError, Batch, step_calls
from llama_eagle.generate import Step
from llama_eagle.policy import Fixed
from llama_eagle.static_tree import Shape
from loops import SHAPES, Loaded, check_draft, check_target, load, prompt, run, text
from tiny import TinyPair, random_pair, target_shape

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def good(tiny_good_pair: TinyPair) -> Loaded:
    return load(tiny_good_pair)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """gemma3, window of 16: the head gets nothing accepted but by luck."""
    return load(random_pair(tmp_path_factory.mktemp("window"), shape=target_shape("gemma3", n_ctx_train=1024)))


PROMPTS: dict[str, Callable[[list[int]], list[int]]] = {
    "the same": lambda t: t[:30],
    "a prefix": lambda t: t[:12],
    "a turn more": lambda t: [*t, *prompt(9, 5)],
    "a token more": lambda t: [*t, 5],
    "all of it": lambda t: t,
    "another end": lambda t: [*t[:25], *prompt(20, 6)],
    "in the answer": lambda t: [*t[:40], *prompt(20, 7)],
    "something else": lambda t: prompt(33, 8),
    "one token": lambda t: t[:1],
}


@pytest.mark.parametrize("then", PROMPTS)
@pytest.mark.parametrize("shape", ["tree16", "chain4", None])
def test_reusing_a_prefix_changes_nothing(good: Loaded, shape: str | None, then: str) -> None:
    loop = good.loop(SHAPES[shape] if shape else None)
    first = text(run(loop, prompt(30), 31))
    second = PROMPTS[then]([*prompt(30), *first[:-1]])
    again = text(run(loop, second, 30))
    assert again == text(run(good.plain(), second, 30))
    check_draft(loop)


def test_reuse_saves_decoding(good: Loaded) -> None:
    loop = good.loop(SHAPES["tree16"])
    run(loop, prompt(100), 1)
    before = loop.target.stats().n_tokens
    loop.start([*prompt(100), 5, 6])
    assert loop.target.stats().n_tokens - before == 2
    before = loop.target.stats().n_tokens
    loop.start([*prompt(100), 5, 7])
    assert loop.target.stats().n_tokens - before == 2  # the new one, and the last one shared


def test_no_accepted_token_is_decoded_again(good: Loaded) -> None:
    """One target decode a step; its tokens are the root and the nodes of the tree, nothing else."""
    loop = good.loop(SHAPES["tree16"])
    root = loop.start(prompt(40))
    start = loop.target.stats()
    assert start.n_tokens == 40
    steps = list(loop.steps(root, 80))[1:]
    end = loop.target.stats()
    assert end.n_decode - start.n_decode == len(steps)
    assert end.n_tokens - start.n_tokens == sum(1 + step.drafted for step in steps)
    assert sum(step.accepted for step in steps) > len(steps)
    assert len(loop.tokens) == loop.target.n_past() == loop.target.cells_used() == 40 + 79
    drafted = loop.drafter.context.stats()  # type: ignore[union-attr]
    assert drafted.n_encode <= len(steps) + 1


def test_plain_steps_between_drafted_ones(good: Loaded) -> None:
    class Alternate(Fixed):
        """Drafts every third step."""

        count = 0

        def shapes(self, texts: Sequence[Any]) -> list[Shape | None]:
            Alternate.count += 1
            return [self.value if Alternate.count % 3 == 0 else None]

    loop = good.loop(None)
    loop.policy = Alternate(SHAPES["tree16"])
    assert text(run(loop, prompt(30), 60)) == text(run(good.plain(), prompt(30), 60))
    check_draft(loop)


def test_stopping_early_and_going_on(good: Loaded) -> None:
    loop = good.loop(SHAPES["tree16"])
    steps: Iterator[Step] = loop.steps(loop.start(prompt(30)), 50)
    for _ in range(4):
        next(steps)
    del steps
    assert text(run(loop, prompt(35), 30)) == text(run(good.plain(), prompt(35), 30))


class Wrecked(Fixed):
    """A policy that fails at a given step, as Ctrl-C would."""

    def __init__(self, at: int) -> None:
        super().__init__(SHAPES["tree16"])
        self.steps = iter(range(at))

    def shapes(self, texts: Sequence[Any]) -> list[Shape | None]:
        if next(self.steps, None) is None:
            raise KeyboardInterrupt
        return [self.value]


@pytest.mark.parametrize("at", [0, 1, 5])
def test_an_interrupt_between_steps(good: Loaded, at: int) -> None:
    loop = good.loop(None)
    loop.policy = Wrecked(at)
    with pytest.raises(KeyboardInterrupt):
        run(loop, prompt(30), 50)
    loop.policy = Fixed(SHAPES["tree16"])
    longer = [*loop.tokens, 5]
    assert text(run(loop, longer, 30)) == text(run(good.plain(), longer, 30))
    check_draft(loop)


@pytest.mark.parametrize("when", ["before", "behind"])
def test_an_interrupt_inside_a_step(good: Loaded, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = good.loop(SHAPES["tree16"])
    steps = loop.steps(loop.start(prompt(30)), 50)
    for _ in range(4):
        next(steps)
    native = step_calls.step

    def interrupt(*args: Any) -> None:
        if when == "behind":
            native(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(step_calls, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    monkeypatch.undo()
    longer = [*loop.tokens, 5]
    assert text(run(loop, longer, 30)) == text(run(good.plain(), longer, 30))
    check_draft(loop)


@pytest.mark.parametrize("who", ["target", "draft"])
def test_abort_and_resume(good: Loaded, who: str) -> None:
    loop = good.loop(SHAPES["tree16"])
    steps = loop.steps(loop.start(prompt(30)), 50)
    for _ in range(4):
        next(steps)
    context = loop.target if who == "target" else loop.drafter.context  # type: ignore[union-attr]
    context.abort()
    with pytest.raises(AbortedError):
        next(steps)
    context.resume()
    longer = [*loop.tokens, 5]
    assert text(run(loop, longer, 30)) == text(run(good.plain(), longer, 30))
    check_draft(loop)


@pytest.mark.parametrize("shape", ["tree16", "tree40", "chain4", None])
def test_a_window_cache(windowed: Loaded, shape: str | None) -> None:
    loop, plain = windowed.loop(SHAPES[shape] if shape else None, n_ctx=1024), windowed.plain(n_ctx=1024)
    assert text(run(loop, prompt(280), 70)) == text(run(plain, prompt(280), 70))
    check_target(loop, windowed)


@pytest.mark.parametrize("back", [290, 200, 20, 299])
def test_a_rewind_in_a_window_cache(windowed: Loaded, back: int) -> None:
    """What the window forgot is decoded again, never missing."""
    loop = windowed.loop(SHAPES["tree16"], n_batch=64, n_ubatch=32)
    run(loop, prompt(350), 20)
    second = [*prompt(350)[:back], *prompt(30, 4)]
    assert text(run(loop, second, 30)) == text(run(windowed.plain(), second, 30))
    check_target(loop, windowed)


def test_an_aborted_prefill_of_a_window_cache(windowed: Loaded) -> None:
    """The batch overwrote what the window held; going on must not pretend that it is still there."""
    loop = windowed.loop(None, n_ctx=8192, n_batch=8192, n_ubatch=64)
    run(loop, prompt(300), 1)
    stopper = threading.Thread(target=lambda: (time.sleep(0.2), loop.target.abort()))
    stopper.start()
    with pytest.raises(AbortedError):
        loop.target.decode(Batch(prompt(7000, 3)))
    stopper.join()
    loop.target.resume()
    second = [*prompt(300), 5]
    assert text(run(loop, second, 20)) == text(run(windowed.plain(), second, 20))
    check_target(loop, windowed)
