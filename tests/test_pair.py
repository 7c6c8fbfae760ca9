"""pair.py: a draft that does not belong is refused before anything is loaded; what is dropped or closed is freed."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gguf_edit import ARRAY, STRING, GgufFile
from llama_eagle import Engine, Model, ModelError, SamplingParams
from llama_eagle import fit as fit_module
from llama_eagle import pair as pair_module
from llama_eagle.errors import ClosedError
from llama_eagle.fit import MEMORY
from llama_eagle.gguf_files import model_header as header_module
from llama_eagle.options import EngineOptions
from llama_eagle.pair import CHAIN, Pair, check_pair
from tiny import (
    HeadShape,
    TinyPair,
    eagle3_shape,
    random_draft,
    random_head,
    target_shape,
    write_head_gguf,
    write_target,
)

pytestmark = pytest.mark.native

TOKENS = "tokenizer.ggml.tokens"


def options(**changes: Any) -> EngineOptions:
    return EngineOptions.of(**{"n_ctx": 256, "n_threads": 1, "spec": "tree", **changes})


def make(pair: TinyPair, **changes: Any) -> Pair:
    return Pair(pair.target.path, pair.path, options(**changes))


def head_file(folder: Path, **changes: Any) -> Path:
    shape = replace(HeadShape(seed=1), **changes)
    return write_head_gguf(folder / "other.gguf", shape, random_head(shape))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are loaded, in order."""
    names: list[str] = []

    class Spy(Model):
        def __init__(self, path: Path, **given: Any) -> None:
            names.append(Path(path).name)
            super().__init__(path, **given)

    monkeypatch.setattr(pair_module, "Model", Spy)
    return names


def test_the_target_is_loaded_first_and_knows_what_the_draft_reads(tiny_pair: TinyPair, loads: list[str]) -> None:
    pair = make(tiny_pair)
    assert loads == [tiny_pair.target.path.name, tiny_pair.path.name]
    assert pair.drafter is not None
    assert pair.drafter.context.model.target is pair.model
    assert pair.target.features_ids == tiny_pair.head.layers
    assert pair.drafter.context.n_ctx >= pair.target.n_ctx + 1024
    assert pair.plain_tokens_per_s is not None
    pair.close()


def test_a_header_is_read_once(tiny_pair: TinyPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check costs no second reading: half a million strings take a while."""
    reads: list[str] = []
    real = header_module.read_header
    monkeypatch.setattr(header_module, "read_header", lambda path, keep: reads.append(path.name) or real(path, keep))
    make(tiny_pair).close()
    assert sorted(reads) == sorted([tiny_pair.target.path.name, tiny_pair.path.name])


def head_for(model: Model, folder: Path) -> Path:
    return random_draft(eagle3_shape(n_vocab=model.info.n_vocab, features=(0, 1, 3))).write(folder / "head.gguf")


@pytest.mark.parametrize(("spec", "length"), [("chain", 2), ("auto", CHAIN)])
def test_a_state_that_goes_back_takes_chains(
    spec: str, length: int, hybrid: Callable[[str], Model], tmp_path: Path
) -> None:
    target = hybrid("lfm2").path
    pair = Pair(target, head_for(hybrid("lfm2"), tmp_path), options(spec=spec, draft_max=2))
    assert pair.target.n_rollback == length
    assert f"chains of {length}" in pair.rollback_memory
    pair.close()


def test_auto_on_a_state_measures_chains(
    hybrid: Callable[[str], Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path))
    pair = Pair(hybrid("lfm2").path, head_for(hybrid("lfm2"), tmp_path), options(spec="auto"))
    assert pair.planner is not None
    shape = pair.planner.shapes([pair.planner.begin()])[0]
    assert shape is None or (shape.top_k == 1 and shape.depth <= CHAIN)
    pair.close()


@pytest.mark.parametrize("spec", ["tree", "static"])
def test_trees_on_a_state_are_refused_by_name(spec: str, hybrid: Callable[[str], Model], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"\(lfm2\) verifies chains only, spec is '{spec}': use --spec chain or auto"):
        Pair(hybrid("lfm2").path, head_for(hybrid("lfm2"), tmp_path), options(spec=spec))


@pytest.mark.parametrize("arch", ["jamba", "qwen3next"])
def test_a_state_that_cannot_go_back_is_refused_by_name(
    arch: str, hybrid: Callable[[str], Model], tmp_path: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = head_for(hybrid(arch), tmp_path)
    with pytest.raises(ModelError, match=rf"\({arch}\) {MEMORY}: use --spec off"):
        Pair(hybrid(arch).path, head, options(spec="chain"))
    assert loads == []  # known by its name
    monkeypatch.setattr(fit_module, "CHAINS", {arch})
    with pytest.raises(ModelError, match=rf"\({arch}\) {MEMORY}: use --spec off"):
        Pair(hybrid(arch).path, head, options(spec="chain"))  # and found out if it were not


def test_without_drafting_the_draft_is_not_looked_at(tiny_pair: TinyPair, loads: list[str]) -> None:
    pair = Pair(tiny_pair.target.path, Path("nowhere.gguf"), options(spec="off"))
    assert loads == [tiny_pair.target.path.name]
    assert pair.drafter is pair.watch is pair.shape is None
    assert pair.target.features_ids == ()
    pair.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_vocab": 280, "n_draft_vocab": 200}, "for a vocabulary of 280 tokens, the target has 272"),
        ({"n_embd_target": 96, "own_embeddings": True}, "features of 96 numbers, the target's have 64"),
        ({"layers": (2, 3, 9)}, "reads layer 9, the target has 6"),
    ],
)
def test_a_draft_that_does_not_belong(
    tiny_pair: TinyPair, tmp_path: Path, loads: list[str], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=rf"other\.gguf is no draft for target\.gguf: .*{words}"):
        Pair(tiny_pair.target.path, head_file(tmp_path, **changes), options())
    assert loads == []


def test_a_draft_for_other_tokens(tiny_pair: TinyPair, tmp_path: Path, loads: list[str]) -> None:
    file = GgufFile(tiny_pair.path.read_bytes())
    _, item, texts = file.keys[TOKENS]
    file.keys[TOKENS] = (ARRAY, item, [*texts[:97], b"strange", *texts[98:]])
    other = tmp_path / "other.gguf"
    other.write_bytes(bytes(file))
    with pytest.raises(ModelError, match="token 97 is 'strange' for the draft and 'a' for the target"):
        Pair(tiny_pair.target.path, other, options())
    assert loads == []


def test_a_renamed_special_token_is_no_reason(tiny_pair: TinyPair, tmp_path: Path) -> None:
    file = GgufFile(tiny_pair.path.read_bytes())
    _, item, texts = file.keys[TOKENS]
    file.keys[TOKENS] = (ARRAY, item, [*texts[:257], b"<|turn|>", *texts[258:]])
    other = tmp_path / "other.gguf"
    other.write_bytes(bytes(file))
    assert check_pair(tiny_pair.target.path, other).n_vocab == 272


def test_the_wrong_way_round(tiny_pair: TinyPair, loads: list[str]) -> None:
    target, draft = tiny_pair.target.path, tiny_pair.path
    with pytest.raises(ModelError, match="is a draft head, not a target"):
        Pair(draft, target, options())
    with pytest.raises(ModelError, match="architecture is llama, it is no draft head"):
        Pair(target, target, options())
    assert loads == []
    with pytest.raises(ModelError, match="is a draft head, not a target"):
        Pair(draft, None, options())
    with pytest.raises(ModelError, match=r"no such model file: nowhere\.gguf"):
        Pair(target, Path("nowhere.gguf"), options())


def test_a_broken_draft_is_one_line(tiny_pair: TinyPair, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    for raw in (b"", b"GGUF", tiny_pair.path.read_bytes()[:300], b"x" * 1000):
        other.write_bytes(raw)
        with pytest.raises(ModelError, match=r"cannot load .*other\.gguf: ") as caught:
            Pair(tiny_pair.target.path, other, options())
        assert "\n" not in str(caught.value)


def test_a_context_too_small_to_measure_drops_the_draft(tiny_pair: TinyPair) -> None:
    pair = make(tiny_pair, spec="auto", n_batch=16)
    assert pair.drafter is pair.planner is None
    pair.close()


def test_close_frees_everything_once(tiny_pair: TinyPair) -> None:
    pair = make(tiny_pair)
    assert pair.drafter is not None
    handles = (pair.drafter.context, pair.drafter.context.model, pair.target, pair.model)
    pair.close()
    pair.close()
    assert all(handle.closed for handle in handles)
    with pytest.raises(ClosedError):
        pair.model.tokenize("x")


@pytest.mark.parametrize("spec", ["tree", "chain"])
def test_a_useless_draft_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, spec: str) -> None:
    """A random head fits on paper. It counts over all generations of the engine; the text stays the target's."""
    target = write_target(tmp_path / "t.gguf", target_shape("llama", seed=11))
    shape = HeadShape(seed=12)
    draft = write_head_gguf(tmp_path / "h.gguf", shape, random_head(shape))
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    given: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "draft_nodes": 8}
    with caplog.at_level(logging.WARNING, "llama_eagle"), Engine(target.path, draft, spec=spec, **given) as engine:
        texts = [engine.generate(list(range(first, first + 10)), params).tokens for first in (60, 90, 120)]
        assert engine.pair.watch is not None
        assert engine.pair.watch.drafted >= 200
    warned = [record.getMessage() for record in caplog.records if "hardly ever accepted" in record.getMessage()]
    assert len(warned) == 1
    assert "layer ids" in warned[0]
    with Engine(target.path, None, spec="off", n_ctx=256, n_threads=1) as plain:
        assert [plain.generate(list(range(first, first + 10)), params).tokens for first in (60, 90, 120)] == texts


def test_a_draft_that_guesses_is_not(tiny_good_pair: TinyPair, caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "spec": "tree"}
    with (
        caplog.at_level(logging.WARNING, "llama_eagle"),
        Engine(tiny_good_pair.target.path, tiny_good_pair.path, **given) as engine,
    ):
        engine.generate(list(range(60, 70)), SamplingParams(temperature=0, max_tokens=150, ignore_eos=True))
        assert engine.pair.watch is not None
        assert engine.pair.watch.steps >= 40
    assert not [record for record in caplog.records if "hardly ever" in record.getMessage()]


def test_layer_rules_reach_the_warning(tiny_pair: TinyPair, tmp_path: Path) -> None:
    file = GgufFile(tiny_pair.path.read_bytes())
    file.keys["llama_eagle.layer_rule"] = (STRING, b"the config names none, so the default")
    other = tmp_path / "other.gguf"
    other.write_bytes(bytes(file))
    assert check_pair(tiny_pair.target.path, other).rule == "the config names none, so the default"
