"""Session files: read back as written, and refused when anything about them is wrong."""

import hashlib
import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_eagle import EagleError, InputError, SessionError
from llama_eagle.context_params import ContextParams
from llama_eagle.session_file import (
    MAGIC,
    Session,
    SessionHeader,
    build_stamp,
    read_session,
    settings_of,
    write_session,
)

HEADER = SessionHeader("llama", "ab" * 32, "cd" * 32, {"type_k": "f16", "kv_unified": True, "n_seq_max": 3})
SESSION = Session(HEADER, {"target": bytes(range(256)) * 40, "draft": b"", "tokens": b"\1\0\0\0"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_session(tmp_path / "a.session", SESSION)
    return tmp_path / "a.session"


def test_read_back(path: Path) -> None:
    for session in (read_session(path), read_session(str(path), HEADER)):
        assert session == SESSION
        assert list(session.sections) == ["target", "draft", "tokens"]
    write_session(path, Session(replace(HEADER, draft=None), {}))
    assert read_session(path) == Session(replace(HEADER, draft=None), {})
    assert [file.name for file in path.parent.iterdir()] == ["a.session"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": "qwen2"}, "another architecture: llama, here it is qwen2"),
        ({"model": "ef" * 32}, "another model"),
        ({"draft": None}, "another draft: cdcd.*, here it is none"),
        ({"llama_cpp": "other"}, "another build of llama.cpp"),
        ({"settings": {**HEADER.settings, "type_k": "q8_0"}}, "another type_k: f16, here it is q8_0"),
        ({"settings": {**HEADER.settings, "kv_unified": 1}}, "another kv_unified"),
        ({"settings": {"type_k": "f16", "kv_unified": True}}, "another n_seq_max: 3, here it is none"),
    ],
)
def test_another_model_or_setting(change: dict[str, Any], words: str, path: Path) -> None:
    with pytest.raises(SessionError, match=words):
        read_session(path, replace(HEADER, **change))


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Writes another header over the same sections, with a checksum that fits."""
    raw = path.read_bytes()
    length = struct.unpack_from("<I", raw, 12)[0]
    header = json.loads(raw[16 : 16 + length])
    changed = change(header)
    text = json.dumps(header if changed is None else changed).encode()
    body = raw[:12] + struct.pack("<I", len(text)) + text + raw[16 + length : -32]
    path.write_bytes(body + hashlib.sha256(body).digest())


def put(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header.update(values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(sections=[["target", 10**13]]), "its header claims 10000000"),
        (put(sections=[["target", -5], ["b", 10249]]), "list of sections"),
        (put(sections=[["target", True]]), "list of sections"),
        (put(sections=[["target", 10240.0]]), "list of sections"),
        (put(sections=[["../target", 10244]]), "list of sections"),
        (put(sections=[["a", 10240], ["a", 4]]), "list of sections"),
        (put(sections=[[f"a{i}", 0] for i in range(64)] + [["b", 10244]]), "list of sections"),
        (put(sections=[["target"]]), "header is damaged"),
        (put(sections=7), "header is damaged"),
        (put(arch=5), "header is damaged"),
        (put(draft=5), "header is damaged"),
        (put(settings=[1]), "header is damaged"),
        (put(settings={"a": [1]}), "header is damaged"),
        (put(more=1), "header is damaged"),
        (lambda header: header.pop("model") and None, "header is damaged"),
        (lambda header: [], "header is damaged|it has"),
        (lambda header: [1, 2], "header is damaged"),
    ],
)
def test_headers_that_lie(change: Callable[[dict[str, Any]], Any], words: str, path: Path) -> None:
    rewritten(path, change)
    tracemalloc.start()
    with pytest.raises(SessionError, match=words):
        read_session(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


def test_the_helper_rewrites_nothing_by_itself(path: Path) -> None:
    rewritten(path, lambda header: None)
    assert read_session(path) == SESSION


def test_cut_or_damaged_anywhere(path: Path) -> None:
    raw = path.read_bytes()
    for length in (*range(100), len(raw) // 2, len(raw) - 33, len(raw) - 1):
        path.write_bytes(raw[:length])
        with pytest.raises(SessionError, match=r"cut|no saved session|damaged"):
            read_session(path)
    for at in (*range(0, 400, 7), len(raw) // 2, len(raw) - 40, len(raw) - 1):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(SessionError) as caught:
            read_session(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(raw + b"\0")
    with pytest.raises(SessionError, match="claims"):
        read_session(path)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(tail=st.binary(max_size=300), version=st.sampled_from([0, 1, 2]), length=st.integers(0, 2**32 - 1))
def test_any_bytes(tail: bytes, version: int, length: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(MAGIC + struct.pack("<II", version, min(length, length % 400)) + tail)
    with pytest.raises(SessionError):
        read_session(tmp_path / "x")


def test_foreign_files(path: Path, tmp_path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + struct.pack("<I", 2) + raw[12:])
    with pytest.raises(SessionError, match=r"version 2, this package reads version 1"):
        read_session(path)
    path.write_bytes(b"GGUF" + raw)
    with pytest.raises(SessionError, match="no saved session"):
        read_session(path)
    path.write_bytes(raw[:16] + b"[" * 100_000)
    with pytest.raises(SessionError, match=r"damaged|cut|claims"):
        read_session(path)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(SessionError, match="cannot read the session"):
            read_session(missing)


def test_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sections in ({"Target": b""}, {"a/b": b""}, {"a": "text"}, {f"a{i}": b"" for i in range(65)}):
        with pytest.raises(InputError):
            write_session(tmp_path / "s", Session(HEADER, sections))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="too large"):
        write_session(tmp_path / "s", Session(replace(HEADER, arch="x" * (1 << 20)), {}))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SessionError, match="cannot write the session"):
        write_session(tmp_path / "file" / "s", SESSION)
    write_session(tmp_path / "s", SESSION)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SessionError, match="No space left"):
        write_session(tmp_path / "s", Session(HEADER, {}))
    monkeypatch.undo()
    assert read_session(tmp_path / "s") == SESSION
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "s"]


def test_settings_and_stamp() -> None:
    unified = settings_of(ContextParams(n_seq_max=4, type_k="q8_0"))
    assert unified == {"type_k": "q8_0", "type_v": "f16", "kv_unified": True, "swa_full": False}
    assert settings_of(ContextParams(n_seq_max=4, kv_unified=False))["n_seq_max"] == 4
    assert build_stamp() == HEADER.llama_cpp
    assert issubclass(SessionError, EagleError)
