"""cli/doctor.py: each line alone, no failure."""

import json
import sys
from types import SimpleNamespace

import pytest

from llama_eagle.cli import doctor, main


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LLAMA_EAGLE_CACHE", str(tmp_path / "cache"))


def status(checks):
    return {check.name: check.status for check in checks}


def test_json(capsys):
    assert main(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert list(checks) == list(doctor._CHECKS)
    assert checks["package"]["status"] == "ok"
    assert checks["target"]["status"] == "missing"
    assert "llama-eagle run" in checks["target"]["detail"]
    assert err == ""


def test_lines(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(doctor._CHECKS)
    assert all(line.split()[0] in ("ok", "missing") for line in lines)


def test_without_a_library(monkeypatch):
    for name in ("ffi", "devices"):
        monkeypatch.setitem(sys.modules, f"llama_eagle.{name}", None)
    found = status(doctor.examine())
    assert found["library"] == found["cpu"] == found["devices"] == "missing"
    assert found["package"] == found["cache"] == "ok"


def test_with_the_library(requires_native):
    found = status(doctor.examine())
    assert found["library"] == found["cpu"] == found["devices"] == "ok"


def test_broken_target(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    check = next(check for check in doctor.examine() if check.name == "target")
    assert check.status == "missing"
    assert "broken" in check.detail


def test_pin(monkeypatch):
    build = SimpleNamespace(LLAMA_CPP_COMMIT="abc", PATCHES=("0001-a.patch", "0002-b.patch"))
    monkeypatch.setitem(sys.modules, "llama_eagle._build", build)
    assert doctor._pin() == "commit abc, patches: 0001-a.patch, 0002-b.patch"
    monkeypatch.setitem(sys.modules, "llama_eagle._build", None)
    assert "unknown" in doctor._pin()
