"""Models: refusals by name, closed handles, and files that are broken; never a native abort."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_eagle import ClosedError, Context, EagleError, InputError, Model, ModelError
from processes import run_python
from tiny import (
    BOS,
    CHAT_TEMPLATE,
    EOS,
    HeadShape,
    TinyPair,
    TinyTarget,
    random_head,
    target_shape,
    write_head_gguf,
    write_target,
)

pytestmark = pytest.mark.native
Tiny = Callable[..., TinyTarget]


@pytest.fixture(scope="module")
def model(tiny_target: Tiny) -> Model:
    return Model(tiny_target("llama").path)


def test_sizes_and_metadata(model: Model, tiny_target: Tiny) -> None:
    info, shape = model.info, tiny_target("llama").shape
    assert (info.n_vocab, info.n_logits, info.n_embd, info.n_layer) == (
        shape.n_vocab,
        shape.n_vocab,
        shape.n_embd,
        shape.n_layer,
    )
    assert (info.token_bos, info.token_eos, info.add_bos, info.is_draft) == (BOS, EOS, False, False)
    assert (info.features, info.n_ctx_train, info.is_recurrent) == ((), shape.n_ctx_train, False)
    assert info.n_params == sum(t.size for t in tiny_target("llama").tensors.values())
    assert model.meta("general.architecture") == "llama"
    assert model.meta("tokenizer.chat_template") == CHAT_TEMPLATE
    assert model.meta("no.such.key") is None
    assert model.meta("") is None
    assert model.draft_map() is None


def test_a_draft_describes_itself(tiny_pair: TinyPair) -> None:
    with Model(tiny_pair.target.path) as target, Model(tiny_pair.path, target=target) as draft:
        info = draft.info
        assert info.is_draft
        assert info.features == tiny_pair.head.layers
        assert info.n_embd_target == 64
        assert (info.n_logits, info.n_vocab) == (192, 272)
        offsets = tiny_pair.state["d2t"]
        np.testing.assert_array_equal(draft.draft_map(), offsets + np.arange(len(offsets)))


@pytest.mark.parametrize(
    "text",
    ["", "hello world", "a\0b", "\ud800", "naïve 🦙 日本", "<|im_start|>x", "the " * 5000],
    ids=lambda t: repr(t[:9]),
)
def test_any_text_goes_there_and_back(model: Model, text: str) -> None:
    tokens = model.tokenize(text)
    raw = b"".join(model.piece(t) for t in tokens)
    assert raw == text.encode("utf-8", "surrogatepass")
    assert model.detokenize(tokens) == raw.decode("utf-8", "replace")


def test_control_tokens(model: Model) -> None:
    assert 257 not in model.tokenize("<|im_start|>")
    assert model.tokenize("<|im_start|>", parse_special=True) == [257]
    assert model.piece(257) == b""
    assert model.piece(257, special=True) == b"<|im_start|>"
    assert model.is_eog(EOS)
    assert not model.is_eog(65)


BAD_TOKENS: list[Any] = [-1, 272, 2**40, -(2**40), "a", None, 1.0, [1], b"a"]


@pytest.mark.parametrize("token", BAD_TOKENS, ids=repr)
@pytest.mark.parametrize("call", ["piece", "is_eog"])
def test_bad_token_ids(model: Model, call: str, token: Any) -> None:
    with pytest.raises(InputError, match="token id"):
        getattr(model, call)(token)


@pytest.mark.parametrize("value", [None, 5, b"x", ["a"]], ids=repr)
@pytest.mark.parametrize("call", ["tokenize", "meta", "detokenize"])
def test_bad_types(model: Model, call: str, value: Any) -> None:
    if call == "detokenize" and value == b"x":
        return  # bytes are small whole numbers
    with pytest.raises(InputError):
        getattr(model, call)(value)


@pytest.mark.parametrize("key", ["\ud800", "a\0b"], ids=repr)
def test_odd_keys_are_not_there(model: Model, key: str) -> None:
    with contextlib.suppress(EagleError):
        assert model.meta(key) is None


@pytest.mark.parametrize("path", [None, 5, 1.5, [], "", ".", "a\0b", "/no/such.gguf", b"/no/such.gguf"], ids=repr)
def test_no_such_file(path: Any) -> None:
    with pytest.raises((ModelError, InputError)):
        Model(path)


@pytest.mark.parametrize(
    "params",
    [
        {"gpu_layers": "a"},
        {"gpu_layers": 2**40},
        {"gpu_layers": None},
        {"gpu_layers": 1.5},
        {"target": "x"},
        {"target": 5},
    ],
    ids=repr,
)
def test_bad_arguments(params: dict[str, Any], tiny_target: Tiny) -> None:
    with pytest.raises(InputError):
        Model(tiny_target("llama").path, **params)


@pytest.mark.parametrize(
    "action",
    [
        lambda m: m.handle,
        lambda m: m.meta("a"),
        lambda m: m.tokenize("a"),
        lambda m: m.piece(1),
        lambda m: m.detokenize([1]),
        lambda m: m.is_eog(1),
        lambda m: m.draft_map(),
        lambda m: Context(m, n_ctx=256),
        lambda m: Model(m.path, target=m),
    ],
)
def test_a_closed_model(action: Callable[[Model], Any], tiny_target: Tiny) -> None:
    model = Model(tiny_target("llama").path)
    model.close()
    model.close()
    assert model.closed
    with pytest.raises(ClosedError):
        action(model)


def test_a_model_in_use_is_not_closed(tiny_pair: TinyPair) -> None:
    target = Model(tiny_pair.target.path)
    draft = Model(tiny_pair.path, target=target)
    context = Context(draft, n_ctx=256)
    for model in (target, draft):
        with pytest.raises(InputError, match="in use"):
            model.close()
    context.close()
    draft.close()
    target.close()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (HeadShape(n_embd=32, n_embd_target=32, n_head=2), "hidden size 32"),
        (HeadShape(n_vocab=300, n_draft_vocab=192), "vocabulary of 300"),
        (HeadShape(layers=(2, 3, 7)), "layer 7"),
    ],
    ids=["width", "vocabulary", "layers"],
)
def test_a_head_for_another_target(head: HeadShape, words: str, tmp_path: Path, model: Model) -> None:
    path = write_head_gguf(tmp_path / "head.gguf", head, random_head(head))
    with pytest.raises(ModelError, match=words):
        Model(path, target=model)


def test_a_head_without_its_target(tiny_pair: TinyPair) -> None:
    with pytest.raises(ModelError, match="load it with its target"):
        Model(tiny_pair.path)


def test_a_vocabulary_alone(tiny_target: Tiny, tiny_pair: TinyPair) -> None:
    with Model(tiny_target("llama").path, vocab_only=True) as model:
        assert model.detokenize(model.tokenize("hello")) == "hello"
        with pytest.raises(EagleError):
            Context(model, n_ctx=256)
        with pytest.raises(ModelError):
            Model(tiny_pair.path, target=model)


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path, model: Model) -> None:
    head = HeadShape()
    state = random_head(head)
    short = {**state, "fc.weight": state["fc.weight"][:, :64]}
    for name, broken in {"fc": {k: v for k, v in state.items() if k != "fc.weight"}, "fc ": short}.items():
        path = write_head_gguf(tmp_path / f"{name.strip()}{len(broken)}.gguf", head, broken)
        with pytest.raises(ModelError, match="fc"):
            Model(path, target=model)


@pytest.mark.parametrize("ids", [[272], [-1], [2**40]], ids=str)
def test_a_draft_vocabulary_outside_of_the_targets(ids: list[int], tmp_path: Path, model: Model) -> None:
    head = HeadShape()
    state = random_head(head)
    state["d2t"][7] = ids[0] - 7
    path = write_head_gguf(tmp_path / "head.gguf", head, state)
    with pytest.raises(ModelError, match="d2t"):
        Model(path, target=model)


FUZZ = """
good = bytearray(path.read_bytes())
rng = np.random.default_rng(0)
broken = path.with_name("broken.gguf")
for i in range(120):
    raw = bytearray(good)
    if i % 2:
        raw = raw[: int(rng.integers(len(raw)) * rng.random())]
    else:
        raw[int(rng.integers(24))] ^= 1 << int(rng.integers(8))
    broken.write_bytes(raw)
    try:
        with Model(broken, use_mmap=False) as model, Context(model, n_ctx=256, n_threads=1) as context:
            context.decode(Batch([1, 2, 3]))
    except EagleError:
        pass
"""


def test_broken_files_are_refused(tmp_path: Path) -> None:
    """Cut files, and files with a bit of magic, version or counts changed; test_gguf_check.py changes the rest."""
    run_python(FUZZ, write_target(tmp_path / "good.gguf", target_shape("llama")).path)


RACE = """
outcomes = []
def work(model):
    try:
        for _ in range(30):
            model.tokenize("abc " * 500)
            Context(model, n_ctx=256, n_threads=1).close()
    except EagleError as error:
        outcomes.append(type(error).__name__)
    except BaseException as error:
        outcomes.append(f"unexpected {error!r}")
for _ in range(25):
    model = Model(path)
    threads = [threading.Thread(target=work, args=(model,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not model.closed:
        try:
            model.close()
        except InputError:
            pass
    for thread in threads:
        thread.join()
print(outcomes)
# a thread that got through all its rounds in time has no outcome
assert len(outcomes) > 30 and set(outcomes) == {"ClosedError"}, outcomes
"""


def test_closing_while_other_threads_use_it(tiny_target: Tiny) -> None:
    run_python(RACE, tiny_target("llama").path)


CYCLE = """
def once(with_model):
    model = Model(path, use_mmap=False)
    context = Context(model, (1,), n_ctx=4096, n_threads=1, type_k="f32", type_v="f32")
    context.decode(Batch([1, 2, 3]))
    context.me = context
    if with_model:
        model.me = context
def rounds(count, with_model):
    for _ in range(count):
        once(with_model)
        gc.collect()
    return rss()
for with_model in (False, True):
    before = rounds(10, with_model)
    grown = rounds(30, with_model) - before
    assert grown < 60, f"{grown:.0f} MiB more after 30 contexts in reference cycles (with_model={with_model})"
"""


def test_reference_cycles_are_freed_in_order(tiny_target: Tiny) -> None:
    """A context in a cycle takes about 6 MiB; its model must outlive it whatever order the collector takes."""
    run_python(CYCLE, tiny_target("llama").path)
