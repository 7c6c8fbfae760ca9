"""cli/report.py: the closing line."""

import pytest

from llama_eagle.cli.report import closing_line, full_context, graphs, positions
from llama_eagle.result import Result, SpecStats, Timings


def result(tokens=217, mode="tree", shapes=None, **timings):
    spec = SpecStats(mode=mode, steps=83, drafted=600, accepted=133, emitted=216, shapes=shapes or {"8": 80, "3": 3})
    return Result(tokens=[1] * tokens, spec=spec, timings=Timings(**timings), prompt_tokens=10)


def test_what_was_gained():
    line = closing_line(result(tokens_per_s=155.2, plain_tokens_per_s=118.4), None)
    assert line == "217 tokens, 155 tok/s, 1.31x plain (118), 2.6 tokens a step, trees of 8"


def test_chain_without_a_plain_rate():
    line = closing_line(result(mode="chain", shapes={"3": 80, "plain": 90}, tokens_per_s=9.44), None)
    assert line == "217 tokens, 9.4 tok/s, 2.6 tokens a step, chains of 3"


def test_drafting_declined():
    plain = Result(tokens=[1], timings=Timings(tokens_per_s=118.0))
    assert closing_line(plain, 0.12) == "1 token, 118 tok/s, plain: drafting would have cost 12%, -v explains"


def test_plain():
    assert (
        closing_line(Result(tokens=[1, 2], timings=Timings(tokens_per_s=118.0)), None) == "2 tokens, 118 tok/s, plain"
    )
    assert closing_line(Result(), None) == "0 tokens, plain"


@pytest.mark.parametrize("full", [True, False])
def test_full_context(full):
    answer = result(tokens=55)
    answer.context_full = full
    text = full_context(answer)
    assert (text is not None) == full
    assert text is None or ("64 tokens" in text and "-c" in text)


def test_positions():
    answer = result()
    answer.spec.drafts_by_position = {1024: [10, 21], 0: [4, 10]}
    assert positions(answer) == "tokens a step by position: 2.5 from 0, 2.1 from 1024"


def test_graphs():
    answer = result()
    answer.spec.graphs_built, answer.spec.graphs_reused = 3, 40
    assert graphs(answer) == "graphs: 3 built, 40 used again"
