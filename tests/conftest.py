"""Fixtures shared by all tests: tiny models written once a session, and skips with a reason for what may be absent."""

import importlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tiny import TargetShape, TinyPair, TinyTarget, good_pair, random_pair, target_shape, write_target
from tiny.hybrid import write_hybrid

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
MUST_HAVE_NATIVE = "LLAMA_EAGLE_REQUIRE_NATIVE"  # set in CI: a missing library is a failure there, not a skip


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Ctrl-C works here and in child processes, also where the tests were started in the background with it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the head checkpoint, prompts and reference notes; skips where it is not next to the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"no {SHARED}: it lies next to the checkout on the developers' machines only")
    return SHARED


@pytest.fixture(scope="session")
def requires_native() -> ModuleType:
    """`llama_eagle.ffi` with the library open; skips where it is not built.

    Use `pytestmark = pytest.mark.usefixtures("requires_native")` and import llama_eagle's native modules inside tests.
    """
    try:
        return importlib.import_module("llama_eagle.ffi")
    except (ImportError, RuntimeError) as error:  # NativeError is a RuntimeError
        if os.environ.get(MUST_HAVE_NATIVE):
            raise
        pytest.skip(f"the native library is not built: {error}")


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TinyTarget]:
    """tiny_target(arch, **changes of TargetShape) -> TinyTarget, each shape written once a session."""
    folder = tmp_path_factory.mktemp("targets")
    made: dict[TargetShape, TinyTarget] = {}

    def make(arch: str = "llama", **changes: object) -> TinyTarget:
        shape = target_shape(arch, **changes)
        if shape not in made:
            made[shape] = write_target(folder / f"{arch}-{len(made)}.gguf", shape)
        return made[shape]

    return make


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory, requires_native: ModuleType) -> Callable[[str], Any]:
    """hybrid(one of tiny.hybrid's HYBRIDS, or "lfm2 with windows") -> Model, each loaded once a session."""
    from llama_eagle import Model  # noqa: PLC0415 - there may be no library

    folder = tmp_path_factory.mktemp("hybrids")
    made: dict[str, Model] = {}

    def load(name: str) -> Model:
        if name not in made:
            window = {"attention.sliding_window": 16} if name.endswith("windows") else {}
            made[name] = Model(write_hybrid(folder / f"{name}.gguf", name.partition(" ")[0], **window).path)
        return made[name]

    return load


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A random llama target with a random head: drafts are hardly ever accepted."""
    return random_pair(tmp_path_factory.mktemp("random_pair"))


@pytest.fixture(scope="session")
def tiny_good_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A llama target with a head that guesses it: about two and a half tokens a step with trees of 16."""
    return good_pair(tmp_path_factory.mktemp("good_pair"))


@pytest.fixture(scope="module")
def many(tiny_good_pair: TinyPair, requires_native: ModuleType) -> Iterator[Any]:
    """An Engine that drafts trees for eight requests at once."""
    from engines import engine  # noqa: PLC0415 - there may be no library

    with engine(tiny_good_pair) as made:
        yield made


@pytest.fixture(scope="module")
def alone(tiny_good_pair: TinyPair, requires_native: ModuleType) -> Iterator[Any]:
    """An Engine that decodes plainly, one request at a time."""
    from engines import engine  # noqa: PLC0415 - there may be no library

    with engine(tiny_good_pair, spec="off", n_parallel=1) as made:
        yield made
