"""Parameters of contexts: the odd ones work, the bad ones are refused with their value, none ends the process."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llama_eagle import Batch, Context, EagleError, InputError, Model
from loops import EXACT
from processes import run_python
from tiny import TinyTarget

pytestmark = pytest.mark.native

Tiny = Callable[..., TinyTarget]


@pytest.fixture(scope="module")
def model(tiny_target: Tiny) -> Model:
    return Model(tiny_target("llama", n_ctx_train=8192).path)


BAD_PARAMS: list[dict[str, Any]] = [
    *({name: value} for name in ("n_ctx", "n_batch", "n_threads") for value in (-1, "a", None, 1.5, 2**31, [], True)),
    *({name: 0} for name in ("n_batch", "n_ubatch", "n_seq_max")),
    *({name: value} for name in ("kv_unified", "swa_full") for value in ("yes", None, [], 2)),
    *({name: value} for name in ("flash_attn", "type_k", "type_v") for value in ("x", 1, None, [], {}, True)),
    {"n_seq_max": 257},
    {"n_threads": 100_000},
    {"nonsense": 1},
    {"type_v": "q8_0", "flash_attn": "off"},
]


@pytest.mark.parametrize("params", BAD_PARAMS, ids=str)
def test_bad_parameters(params: dict[str, Any], tiny_target: Tiny) -> None:
    code = "model = Model(path)\nprint(refused(Context, model, **eval(sys.argv[2])))"
    if params.get("n_threads") == 100_000:  # ended in a segmentation fault once
        run_python(code, tiny_target("llama").path, repr({"n_ctx": 256, **params}))
        return
    with Model(tiny_target("llama").path) as model, pytest.raises(InputError):
        Context(model, **{"n_ctx": 256, **params})


@pytest.mark.parametrize("model", [None, "model.gguf", 5], ids=repr)
def test_no_model(model: Any) -> None:
    with pytest.raises(InputError):
        Context(model, n_ctx=256)


@pytest.mark.parametrize("flash_attn", ["off", "on", "auto"])
@pytest.mark.parametrize("type_k", ["q8_0", "q4_0", "q5_1", "iq4_nl"])
def test_keys_that_fill_no_whole_block(type_k: str, flash_attn: str, tiny_target: Tiny) -> None:
    """Heads of 16 values: without flash attention llama.cpp takes them and computes garbage."""
    with Model(tiny_target("llama").path) as model, pytest.raises(EagleError, match=r"multiple of 32|block size 32"):
        Context(model, n_ctx=256, type_k=type_k, flash_attn=flash_attn)
    with Model(tiny_target("llama", head_dim=32).path) as wide:
        Context(wide, n_ctx=256, n_threads=1, type_k=type_k, flash_attn=flash_attn).close()


@pytest.mark.parametrize(
    "params",
    [
        {"n_ctx": 1},
        {"n_batch": 1, "n_ubatch": 1},
        {"n_ubatch": 1, "n_seq_max": 4},
        {"n_seq_max": 256, "kv_unified": False},
        {"n_outputs_max": 1},
        {"n_outputs_max": 2**31 - 1},
        {"n_batch": 2**31 - 1},
        {"n_ubatch": 2**31 - 1},
        {"type_k": "bf16", "type_v": "bf16"},
    ],
    ids=str,
)
def test_odd_parameters_work(params: dict[str, Any], model: Model) -> None:
    with Context(model, **{**EXACT, "n_ctx": 256, **params}) as context, Context(model, n_ctx=256, **EXACT) as plain:
        for token in (5, 6, 7):
            context.decode(Batch([token]))
        plain.decode(Batch([5, 6, 7]))
        limit = 0.03 if "type_k" in params else 1e-4
        assert np.abs(context.logits() - plain.logits()).max() < limit * np.abs(plain.logits()).max()


def test_a_context_larger_than_memory(tiny_target: Tiny) -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
model = Model(path)
for n_ctx in (2**28, 2**31 - 1):
    refused(Context, model, n_ctx=n_ctx, n_threads=1)
Context(model, n_ctx=256, n_threads=1).decode(Batch([1]))
"""
    pytest.importorskip("resource")
    run_python(code, tiny_target("llama").path)


def test_fewer_rows_of_logits_than_sequences(tiny_target: Tiny) -> None:
    """llama.cpp asserts that each sequence has one."""
    code = """
model = Model(path)
for params in ({"n_outputs_max": 2}, {"n_batch": 7}, {"n_ctx": 7}, {"n_ctx": 1, "kv_unified": False}):
    error = refused(Context, model, **{"n_ctx": 256, "n_threads": 1, "n_seq_max": 8, **params})
    assert "8 sequences need as many rows of logits" in str(error), error
"""
    run_python(code, tiny_target("llama").path)


def test_the_c_abi_refuses_what_python_never_passes(tiny_target: Tiny) -> None:
    code = """
from llama_eagle.ffi import C, ffi
error = ffi.new("char[256]")
sizes = {"n_ctx": 256, "n_batch": 64, "n_ubatch": 64, "n_seq_max": 1, "n_threads": 1}
model = Model(path)
bad = [(name, value) for name in ("type_k", "type_v") for value in (-1, 4, 26, 10_000)]
bad += [("flash_attn", -2), ("flash_attn", 2), ("n_features", -1), ("n_features", 65), ("n_outputs_max", -1)]
for name, value in bad:
    raw = ffi.new("eagle_context_params *", {**sizes, name: value})
    assert C.eagle_context_init(model.handle, raw, error, 256) == ffi.NULL, (name, value)
    text = ffi.string(error).decode()
    assert str(value) in text or name in text, (name, value, text)
"""
    run_python(code, tiny_target("llama").path)
