"""scripts/gpu_check.py: what a run keeps, and that a failed or endless part does not lose the others."""

import json
import sys
from pathlib import Path

import pytest

import gpu_check

MEASURE = """
import json, os
print(json.dumps({"ms": 1}))
int("x" if os.environ.get("GGML_CUDA_DISABLE_GRAPHS") else 1)
"""


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    """An unpacked check whose measurement fails without CUDA graphs."""
    checkout = tmp_path / "checkout"
    for name, text in {
        "native/build_ffi.py": "",
        "scripts/gpu_measure.py": MEASURE,
        "scripts/random_target.py": "import time\ntime.sleep(60)",
    }.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    return tmp_path


def run(dest: Path, monkeypatch: pytest.MonkeyPatch, *line: str) -> tuple[int, dict]:
    given = ["gpu_check.py", "run", str(dest), "--device", "cpu", "--library", "lib.so", "--quick", *line]
    monkeypatch.setattr(sys, "argv", given)
    status = gpu_check.main()
    return status, json.loads((dest / "gpu_check.json").read_text())


def test_measurements_and_failures_are_kept(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, found = run(dest, monkeypatch, "--steps", "build,measure")
    assert status == 1
    assert found["build"] == "0 s"
    assert found["measure embedded, CUDA graphs on"] == {"ms": 1}
    assert "invalid literal for int()" in found["measure embedded, CUDA graphs off"]
    assert sum(name.startswith("measure llama3-8b") for name in found) == 4


def test_time_is_limited_and_earlier_results_stay(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(dest, monkeypatch, "--steps", "measure")
    status, found = run(dest, monkeypatch, "--steps", "models", "--minutes", "0.02")
    assert status == 1
    assert found["model f16"].startswith("failed: stopped: 0.02 minutes are over")
    assert found["measure embedded, CUDA graphs on"] == {"ms": 1}


def test_unknown_steps_are_refused(dest: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        run(dest, monkeypatch, "--steps", "build,measurement")
    assert "--steps measurement: known are build, tests, models, measure" in capsys.readouterr().err
