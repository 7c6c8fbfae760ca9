"""bench/rows.py and bench/advice.py: medians, ratios, the sentence. No model."""

import pytest

from llama_eagle.bench.advice import advice, flags
from llama_eagle.bench.rows import Row, Sample, overall, ratios, rows, speeds
from llama_eagle.errors import InputError


def sample(mode, rate, index=0, repeat=0, prompts="set", counts=(10, 10)):
    return Sample(prompts, index, repeat, mode, rate, *counts)


def test_speedup_is_the_median_of_ratios_and_not_the_ratio_of_medians():
    plain = [sample("plain", rate, i) for i, rate in enumerate((10.0, 100.0, 50.0))]
    tree = [sample("tree", rate, i, counts=(10, 25)) for i, rate in enumerate((20.0, 110.0, 40.0))]
    assert rows(plain + tree) == [
        Row("set", "plain", 50.0, 1.0, 1.0),
        Row("set", "tree", 40.0, 2.5, pytest.approx(1.1)),
    ]


def test_tokens_a_step_count_all_steps_of_a_set():
    answers = [sample("plain", 1.0), sample("plain", 1.0, 1)]
    answers += [sample("tree", 1.0, counts=(1, 4)), sample("tree", 1.0, 1, counts=(9, 11))]
    assert rows(answers)[1].tokens_per_step == 1.5


def test_repetitions_are_paired():
    """The machine became four times as fast between both: each ratio is of one repetition."""
    answers = [
        sample("plain", 10.0),
        sample("tree", 12.0),
        sample("plain", 40.0, repeat=1),
        sample("tree", 56.0, repeat=1),
    ]
    assert ratios(answers, "tree") == {("set", 0): pytest.approx(1.3)}
    assert speeds(answers, "tree") == {("set", 0): 34.0}


def test_ratios_to_another_mode():
    answers = [sample("plain", 10.0), sample("tree", 12.0), sample("chain", 8.0)]
    assert ratios(answers, "tree", "chain") == {("set", 0): 1.5}


def test_rows_come_by_set_and_mode():
    answers = [sample(mode, 1.0, prompts=p) for p in ("b", "a") for mode in ("plain", "tree")]
    found = [(row.prompts, row.mode) for row in rows([*answers[:2], answers[3], answers[2]])]
    assert found == [("b", "plain"), ("b", "tree"), ("a", "plain"), ("a", "tree")]


def test_an_answer_of_one_token_is_left_out():
    answers = [sample("plain", 0.0, counts=(0, 0)), sample("tree", 0.0, counts=(0, 0))]
    answers += [sample("plain", 10.0, 1), sample("tree", 5.0, 1)]
    assert [row.speedup for row in rows(answers)] == [1.0, 0.5]
    assert overall(answers) == {"plain": 1.0, "tree": 0.5}
    with pytest.raises(InputError, match="set: each answer ended"):
        rows(answers[:2])


def test_overall_counts_prompts_and_not_sets():
    answers = [sample("plain", 1.0, i, prompts=p) for p, i in (("a", 0), ("b", 0), ("b", 1))]
    answers += [sample("tree", rate, i, prompts=p) for p, i, rate in (("a", 0, 9.0), ("b", 0, 2.0), ("b", 1, 3.0))]
    assert overall(answers) == {"plain": 1.0, "tree": 3.0}


OPTIONS = {"draft_nodes": 8, "draft_depth": 5, "draft_top_k": 4, "draft_max": 3, "draft_tree": None}


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ({}, "only plain was measured, 103 tok/s"),
        ({"tree": 1.4, "auto": 1.3}, "use --spec tree --draft-nodes 8 --draft-depth 5 --draft-top-k 4: 1.40x plain "
         "(auto 1.30x)"),
        ({"tree": 1.4, "auto": 1.37}, "use --spec auto, the default: 1.37x plain (tree 1.40x)"),
        ({"chain": 1.2}, "use --spec chain --spec-draft-n-max 3: 1.20x plain"),
        ({"static": 1.2}, "use --spec static: 1.20x plain"),
        ({"chain": 0.88, "tree": 0.5, "auto": 0.99}, "plain is fastest here: drafting costs 12% (chain); "
         "leave the default, auto is at 0.99x, or use --spec off"),
        ({"chain": 0.88}, "plain is fastest here: drafting costs 12% (chain); use --spec off"),
        ({"tree": 1.01}, "plain is fastest here: drafting gains nothing (tree); use --spec off"),
        ({"auto": 0.97}, "plain is fastest here: auto is at 0.97x, so leave the default or use --spec off"),
    ],
)  # fmt: skip
def test_advice(gains, words):
    found = advice({"plain": 1.0, **gains}, OPTIONS, 103.2)
    assert found.startswith(words)
    assert "\n" not in found


def test_flags_of_a_static_shape():
    assert flags("static", {"draft_tree": "4,2"}) == "--spec static --draft-tree 4,2"
    assert flags("auto", OPTIONS) == "--spec auto"
