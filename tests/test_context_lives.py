"""Contexts opened and closed thousands of times, under other threads, and dropped: nothing leaks, nothing crashes.

Each in a process of its own.
"""

from collections.abc import Callable

import pytest

from processes import run_python
from tiny import TinyPair, TinyTarget

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]
CLOSING = """
model = Model(path)
outcomes = []
def work(context):
    try:
        while True:
            context.decode(Batch([1, 2, 3]))
            context.logits(), context.features(), context.top_k(2)
            context.seq_rm(0, 0)
    except EagleError as error:
        outcomes.append(type(error).__name__)
for _ in range(40):
    context = Context(model, (1,), n_ctx=256, n_threads=1)
    threads = [threading.Thread(target=work, args=(context,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.003)
    context.close()
    for thread in threads:
        thread.join()
assert set(outcomes) <= {"ClosedError", "ContextFullError"} and len(outcomes) == 80, outcomes
model.close()
"""


def test_closing_under_other_threads(tiny_target: Tiny) -> None:
    run_python(CLOSING, tiny_target("llama").path)


CYCLES = """
model = Model(path)
count = int(sys.argv[2])
def cycles(n):
    for i in range(n):
        with Context(model, (1, 6) if i % 2 else (), n_ctx=256, n_batch=32, n_threads=1) as context:
            if i % 50 == 0:
                context.decode(Batch([1, 2, 3]))
    return rss()
before = cycles(count // 5)
grown = cycles(count) - before
print(f"{grown:.1f} MiB more after {count} contexts")
assert grown < 8, f"{grown:.1f} MiB more after {count} contexts"
"""


@pytest.mark.parametrize("count", [800, pytest.param(10_000, marks=pytest.mark.slow)])
def test_opening_and_closing_leaks_nothing(count: int, tiny_target: Tiny) -> None:
    print(run_python(CYCLES, tiny_target("llama").path, str(count), timeout=600))


MODELS = """
def cycles(n):
    for _ in range(n):
        with Model(path) as target, Model(sys.argv[2], target=target) as draft:
            context = Context(draft, n_ctx=256, n_threads=1)
            context.decode(Batch([1, 2], embd=np.zeros((2, 64))))
            context.close()
    return rss()
before = cycles(40)
grown = cycles(150) - before
assert grown < 8, f"{grown:.1f} MiB more after 150 pairs"
"""


def test_opening_and_closing_pairs_leaks_nothing(tiny_pair: TinyPair) -> None:
    run_python(MODELS, tiny_pair.target.path, tiny_pair.path)


DROPPED = """
def once():
    Context(Model(path), (2,), n_ctx=256, n_threads=1).decode(Batch([1]))
for _ in range(30):
    once()
model = Model(path)
kept = Context(model, n_ctx=256, n_threads=1)
del model
gc.collect()
kept.decode(Batch([1]))
"""


def test_dropping_without_closing(tiny_target: Tiny) -> None:
    run_python(DROPPED, tiny_target("llama").path)
