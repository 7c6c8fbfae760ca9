"""pair.py: a head that takes GPU layers from its target must make up for them."""

from pathlib import Path
from typing import Any

import pytest

from llama_eagle import Model
from llama_eagle import pair as pair_module
from llama_eagle.gpu_layers import Layers
from llama_eagle.options import EngineOptions
from llama_eagle.pair import Pair
from llama_eagle.planner.planner import Planner
from tiny import TinyPair

pytestmark = pytest.mark.native


@pytest.mark.parametrize(("draft_rate", "keeps"), [(0.0, False), (1e9, True)])
def test_a_head_that_costs_layers_must_make_up_for_them(
    draft_rate: float, keeps: bool, tiny_pair: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain decoding at the same memory is measured first, and loaded again where no draft is expected to beat it."""
    asked: list[int] = []

    class Spy(Model):
        def __init__(self, path: Path, **given: Any) -> None:
            asked.append(given["gpu_layers"])
            super().__init__(path, **given)

    monkeypatch.setattr(pair_module, "Model", Spy)
    monkeypatch.setattr(pair_module, "offload", lambda *given: (Layers(2, -1, 4), "the head takes memory"))
    monkeypatch.setattr(Planner, "draft_rate", lambda planner: draft_rate)
    pair = Pair(tiny_pair.target.path, tiny_pair.path, EngineOptions(n_ctx=256, n_threads=1))
    assert asked == [4, 2, -1] + ([] if keeps else [4])
    assert (pair.drafter is not None) == keeps
    assert (pair.gpu_note == "the head takes memory") == keeps
    assert keeps or "not make up for it" in pair.gpu_note
    assert pair.target.features_ids == (tiny_pair.head.layers if keeps else ())
    pair.close()
