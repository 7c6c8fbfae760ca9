"""scripts/gpu_build.py: which folder CMake is given, and failures in words."""

from pathlib import Path

import pytest

import gpu_build
from gpu_build import BuildError, build, toolkit


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def nvcc(tmp_path: Path) -> Path:
    """A compiler without cuBLAS and CCCL."""
    home = tmp_path / "cuda-13.0"
    touch(home / "bin" / "nvcc", home / "nvvm" / "bin" / "cicc", home / "include" / "cuda_runtime.h")
    return home


def test_a_complete_toolkit_is_taken_as_it_is(nvcc: Path, tmp_path: Path) -> None:
    touch(nvcc / "include" / "cublas_v2.h", nvcc / "include" / "cub" / "cub.cuh")
    assert toolkit(nvcc, [], tmp_path / "joined") == nvcc
    assert not (tmp_path / "joined").exists()


def test_packages_fill_the_gaps(nvcc: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "nvidia" / "cu13", tmp_path / "b" / "nvidia" / "cu13"
    touch(first / "include" / "cublas_v2.h", first / "lib" / "libcublas.so.13")
    touch(second / "include" / "cccl" / "cub" / "cub.cuh", second / "include" / "cublas_v2.h")
    for _ in range(2):  # made anew each time
        joined = toolkit(nvcc, [first, second], tmp_path / "joined")
        for name in ("bin/nvcc", "nvvm/bin/cicc", "include/cuda_runtime.h", "include/cccl/cub/cub.cuh"):
            assert (joined / name).is_file(), name
        assert (joined / "lib64" / "libcublas.so").is_file()
        assert (joined / "targets" / "x86_64-linux" / "include" / "cublas_v2.h").resolve().is_relative_to(first)


def test_what_is_in_no_folder_is_named(nvcc: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"has cublas_v2\.h, cccl/cub/cub\.cuh$"):
        toolkit(nvcc, [], tmp_path / "joined")


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildError, match="nvidia-smi finds no GPU"):
        gpu_build.architecture()


def test_a_failed_build_names_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cmake = tmp_path / "bin" / "cmake"
    touch(cmake)
    cmake.write_text("#!/bin/sh\necho fine\necho 'x.cu(3): error: no such thing' >&2\nexit 1\n")
    cmake.chmod(0o755)
    monkeypatch.setenv("PATH", str(cmake.parent), prepend=":")
    with pytest.raises(BuildError, match=r"x\.cu\(3\): error: no such thing"):
        build(tmp_path, "cpu", 1)
