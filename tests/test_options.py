"""Options of an engine: defaults that work, wrong values refused by name, the shape that `spec` means."""

from typing import Any

import pytest

from llama_eagle import ContextParams, InputError, StaticTree, TreeShape
from llama_eagle.options import SPEC_MODES, EngineOptions

pytestmark = pytest.mark.native

EAGLE_1 = StaticTree.parse("eagle1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_ctx", -1),
        ("n_ctx", (1 << 24) + 1),
        ("n_ctx", 512.0),
        ("n_threads", 513),
        ("n_batch", 0),
        ("n_ubatch", 0),
        ("draft_nodes", 0),
        ("draft_nodes", 257),
        ("draft_depth", 65),
        ("draft_top_k", "4"),
        ("draft_max", True),
        ("gpu_layers", "all"),
        ("gpu_layers", None),
        ("spec", "fast"),
        ("spec", ["tree"]),
        ("accept", "best"),
        ("flash_attn", True),
        ("type_k", "f15"),
        ("type_v", None),
    ],
)
def test_wrong_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name) as caught:
        EngineOptions.of(**{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values"),
    [("n_ctx", (0, 1 << 24)), ("n_threads", (0, 512)), ("draft_nodes", (1, 256)), ("gpu_layers", ("auto", -1, 0, 99))],
)
def test_limits_are_included(name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        assert getattr(EngineOptions.of(**{name: value}), name) == value


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"'n_gpu_layers'; known: n_ctx, gpu_layers"):
        EngineOptions.of(n_gpu_layers=3)


def test_the_shape_that_spec_names() -> None:
    sizes = {"draft_nodes": 30, "draft_depth": 6, "draft_top_k": 5, "draft_max": 7}
    shapes = {mode: EngineOptions(spec=mode, **sizes).fixed_shape() for mode in SPEC_MODES}
    dynamic = {"auto": None, "off": None, "tree": TreeShape(30, 6, 5), "chain": TreeShape(7, 7, 1)}
    assert shapes == {**dynamic, "static": EAGLE_1}


def test_a_static_shape() -> None:
    assert EngineOptions.of(draft_tree="3,2").spec == "static"
    assert EngineOptions.of(draft_tree="3,2").fixed_shape() == StaticTree.by_level([3, 2])
    assert EngineOptions.of(draft_tree=None).spec == "auto"
    for spec in ("tree", "auto", "off"):
        with pytest.raises(InputError, match="draft_tree '3,2' is a static shape and spec is"):
            EngineOptions.of(draft_tree="3,2", spec=spec)
    for wrong in ("3,0", 5, "nowhere"):
        with pytest.raises(InputError, match=f"draft_tree {wrong!r}: "):
            EngineOptions.of(draft_tree=wrong)


def test_a_context_takes_its_part() -> None:
    given = {"n_ctx": 512, "n_threads": 3, "n_batch": 64, "n_ubatch": 32, "flash_attn": "off", "type_k": "f32"}
    params = EngineOptions(**given, type_v="q8_0", spec="off").context_params()
    assert params == {**given, "type_v": "q8_0", "n_seq_max": 1}
    taken = ContextParams.of(**{**params, "type_v": "f16"})
    assert (taken.n_ctx, taken.n_batch, taken.flash_attn, taken.type_k) == (512, 64, "off", "f32")


def test_options_do_not_change() -> None:
    with pytest.raises(AttributeError):
        EngineOptions().n_ctx = 5  # type: ignore[misc]
