"""scripts/gpu_pack.py: parts below a limit, put together again in any order, and damage that is seen."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpu_pack
import patches
from gpu_pack import MANIFEST, PackError, pack, unpack

SIZE = 10_000


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder with a program, a link-free tree and noise of three parts."""
    folder = tmp_path / "given"
    (folder / "sub").mkdir(parents=True)
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    noise = tmp_path / "model.gguf"
    noise.write_bytes(np.random.default_rng(1).bytes(25_000))
    (folder / "sub" / "a.txt").write_text("text")
    pack(tmp_path / "out", {"checkout": folder, "cache/model.gguf": noise}, SIZE)
    return tmp_path / "out"


def same(dest: Path, packed: Path) -> None:
    given = packed.parent
    assert (dest / "cache" / "model.gguf").read_bytes() == (given / "model.gguf").read_bytes()
    assert (dest / "checkout" / "sub" / "a.txt").read_text() == "text"
    assert (dest / "checkout" / "run.sh").stat().st_mode & 0o100
    assert not (dest / "parts").exists()


def test_all_at_once(packed: Path, tmp_path: Path) -> None:
    sizes = [path.stat().st_size for path in sorted(packed.glob("part-*"))]
    assert len(sizes) == 3
    assert sizes[:-1] == [SIZE, SIZE]
    assert 0 < sizes[-1] <= SIZE
    assert unpack(packed, tmp_path / "dest") == []
    same(tmp_path / "dest", packed)


def test_one_by_one_in_any_order(packed: Path, tmp_path: Path) -> None:
    way, dest = tmp_path / "way", tmp_path / "dest"
    left = {"part-00", "part-01", "part-02"}
    for name in ("part-02", "part-00", "part-01"):
        way.mkdir()
        for moved in (name, MANIFEST):
            (way / moved).write_bytes((packed / moved).read_bytes())
        left -= {name}
        assert unpack(way, dest) == sorted(left)
        subprocess.run(["rm", "-r", way], check=True)
    same(dest, packed)


def test_damage_on_the_way_is_seen(packed: Path, tmp_path: Path) -> None:
    part = packed / "part-01"
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    with pytest.raises(PackError, match="part-01 is damaged"):
        unpack(packed, tmp_path / "dest")


def test_packing_again_leaves_no_older_part(packed: Path) -> None:
    small = packed.parent / "given" / "run.sh"
    assert [path.name for path in pack(packed, {"run.sh": small}, SIZE)] == ["part-00"]
    assert sorted(path.name for path in packed.iterdir()) == ["part-00", MANIFEST]
    assert [entry["name"] for entry in json.loads((packed / MANIFEST).read_text())] == ["part-00"]


def test_the_other_side_needs_one_file(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "gpu_pack.py").write_bytes(Path(gpu_pack.__file__).read_bytes())
    code = f"import gpu_pack, pathlib; print(gpu_pack.unpack(pathlib.Path({str(packed)!r}), pathlib.Path('dest')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "alone", env={}, capture_output=True, check=False
    )
    assert done.stdout == b"[]\n", done.stderr
    same(tmp_path / "alone" / "dest", packed)


def test_what_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracked files only, and the patched tree where CMake finds it."""
    if not (patches.ROOT / ".git").exists():
        pytest.skip("no git checkout")
    monkeypatch.setattr(patches, "apply", lambda target, source: target.mkdir())
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    found = gpu_pack.members(tmp_path, tmp_path / "t.gguf", [wheels])
    assert list(found) == ["checkout", "build/llama.cpp-source", "cache/t.gguf", "extra/wheels"]
    assert (found["checkout"] / "patches" / "series").is_file()
    assert not list(found["checkout"].rglob("_eagle_cffi.py"))
