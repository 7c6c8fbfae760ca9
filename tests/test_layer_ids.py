"""layer_ids.py: which layers feed a draft, by the rule of the place where the ids stand."""

import pytest

from llama_eagle.conversion.layer_ids import (
    IDS,
    LayerIds,
    check_layer_ids,
    default_layer_ids,
    given_layer_ids,
    read_layer_ids,
)  # fmt: skip
from llama_eagle.errors import CheckpointError, InputError


@pytest.mark.parametrize(
    ("top", "nested", "expected", "words"),
    [
        ([2, 18, 36], None, (2, 18, 36), "inputs"),
        ([30, 2, 18], None, (2, 18, 30), "inputs"),
        ([1, 46, 90], None, (1, 46, 90), "often mean outputs"),
        (None, [1, 17, 33], (2, 18, 34), "+1"),
        (None, [32, 1, 17], (2, 18, 33), "+1"),
        (None, [2, 30, 34], (2, 30, 34), "ambiguous"),
        ([3, 18, 34], [1, 17, 33], (3, 18, 34), "top-level"),
    ],
)
def test_ids_follow_the_rule_of_their_place(top, nested, expected, words):
    found = read_layer_ids({IDS: top}, {IDS: nested})
    assert found is not None
    assert found.ids == expected
    assert words in found.rule


def test_silent_configs_name_none():
    assert read_layer_ids({}, {}) is None
    assert read_layer_ids({IDS: None}, {IDS: []}) is None


@pytest.mark.parametrize(("n_layer", "expected"), [(36, (2, 18, 33)), (12, (2, 6, 9)), (4, (1, 2, 2))])
def test_the_default_depends_on_the_target(n_layer, expected):
    found = default_layer_ids(n_layer)
    assert found.ids == expected
    assert "warning" in found.rule
    with pytest.raises(CheckpointError, match="does not fit 2 layers"):
        default_layer_ids(2)


@pytest.mark.parametrize("ids", [[2, "3", 18], [2, True, 18], "2,3"])
def test_ids_that_are_no_numbers_are_refused(ids):
    with pytest.raises(CheckpointError, match="list of layer numbers"):
        read_layer_ids({IDS: ids}, {})
    with pytest.raises(CheckpointError, match=r"eagle_config\..*list of layer numbers"):
        read_layer_ids({}, {IDS: ids})


def test_negative_ids_of_a_config_are_refused():
    with pytest.raises(CheckpointError, match="fit no target"):
        read_layer_ids({IDS: [-1, 2, 18]}, {})


def test_given_ids_keep_their_order_and_may_name_the_last_hidden_state():
    assert given_layer_ids((9, 2, -1)).ids == (9, 2, -1)
    for wrong in ((), (2, 2), (-2,)):
        with pytest.raises(InputError, match="--target-layers"):
            given_layer_ids(wrong)


@pytest.mark.parametrize(
    ("ids", "count", "n_layer", "words"),
    [
        ((2, 18), 3, 36, "2 layers"),
        ((2, 18, 37), 3, 36, "36 layers"),
        ((2, 2, 18), 3, 36, "do not fit"),
        ((2, 2, 18), 3, None, "do not fit"),
    ],
)
def test_ids_that_fit_no_target_are_refused(ids, count, n_layer, words):
    with pytest.raises(CheckpointError, match=words):
        check_layer_ids(LayerIds(ids, "a rule"), count, n_layer)


def test_the_last_layers_output_fits():
    check_layer_ids(LayerIds((2, 18, 36), "a rule"), 3, 36)
    check_layer_ids(LayerIds((2, 18, 512), "a rule"), 3, None)
