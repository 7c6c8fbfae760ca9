"""scripts/tree_or_chain.py: costs and lengths of a tiny pair, and tables that are worked out by hand."""

import argparse
import json

import pytest

pytestmark = pytest.mark.usefixtures("requires_native")

COST = {  # a plain step takes 10 ms, a further token 1, a draft's first level 2, each later one 1 and half its width
    "model": "m", "past": 256, "first": 2.0,
    "verify": {"1": 10.0, "5": 14.0, "17": 26.0}, "level": {"1": 1.5, "4": 3.0},
}  # fmt: skip
LENGTH = {
    "model": "l", "past": 0, "temp": 0.0,
    "rows": [[1, 1, 1, 1.6], [3, 3, 1, 2.0], [4, 2, 4, 2.2], [16, 3, 4, 2.5]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "ms"), [((1, 1, 1), 13.0), ((3, 3, 1), 18.0), ((4, 2, 4), 19.0), ((3, 2, 8), 17.5), ((19, 1, 1), 31.0)]
)
def test_a_step_costs_its_parts(shape, ms):
    """Verification of root and nodes, the first level, and further ones no wider than the tree."""
    from tree_or_chain import step_ms  # noqa: PLC0415

    assert step_ms(COST, *shape) == pytest.approx(ms)


def test_the_table_names_the_best_within_each_budget():
    from tree_or_chain import table  # noqa: PLC0415

    lines = table(COST, LENGTH).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("| ")}
    assert rows["1.25"] == "| 1.25 | none | 1.00 | none | 1.00 |"
    assert rows["1.5"] == "| 1.5 | chain 1 | 1.60 | none | 1.00 |"
    assert rows["2"] == "| 2 | chain 3 | 2.00 | tree 4 (depth 2, top 4) | 2.20 |"
    assert rows["4"] == "| 4 | chain 3 | 2.00 | tree 16 (depth 3, top 4) | 2.50 |"
    assert lines[-1] == (
        "Fastest: chain 1, 1.60 tokens for 1.30 steps, 1.23x plain; tree 4 (depth 2, top 4), 2.20 tokens for 1.90 "
        "steps, 1.16x plain, which would need 2.34 tokens to equal the chain."
    )


def test_two_slices_give_the_whole():
    from tree_or_chain import scaled  # noqa: PLC0415

    more = {**COST, "verify": {"1": 16.0, "5": 26.0, "17": 50.0}, "first": 3.0, "prompt": {"target": 9.0}}
    whole = scaled(COST, more, 32, [2, 8])
    assert whole["verify"] == {"1": 40.0, "5": 74.0, "17": 146.0}
    assert whole["first"] == 3.0
    assert "prompt" not in whole
    assert "32 layers" in whole["model"]


def test_costs_of_a_pair(tiny_good_pair, tmp_path):
    from tree_or_chain import SIZES, WIDTHS, costs, step_ms  # noqa: PLC0415

    pair = tiny_good_pair
    args = argparse.Namespace(model=pair.target.path, draft=pair.path, past=64, states=tmp_path / "states", repeat=1)
    for _ in range(2):  # the second time from the states that the first one left
        found = json.loads(json.dumps(costs(args)))
        assert [int(size) for size in found["verify"]] == list(SIZES)
        assert [int(width) for width in found["level"]] == list(WIDTHS)
        assert step_ms(found, 8, 3, 4) > 0
        assert found["cell_bytes"]["target"] > found["cell_bytes"]["draft"] > 0
        assert len(list((tmp_path / "states").iterdir())) == 2


def test_lengths_of_a_pair(tiny_good_pair, tmp_path):
    from tree_or_chain import CHAINS, TREES, lengths  # noqa: PLC0415

    pair, file = tiny_good_pair, tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in ("hello there", "the sea", "far away")))
    args = argparse.Namespace(model=pair.target.path, draft=pair.path, prompts=[str(file)], limit=1, n=24, temp=0.0)
    args.past = 20
    found = lengths(args)
    assert [row[:3] for row in found["rows"]] == [[one.nodes, one.depth, one.top_k] for one in [*CHAINS, *TREES]]
    assert all(1 <= row[3] <= 1 + row[1] for row in found["rows"])
    assert max(row[3] for row in found["rows"]) > 1.5
