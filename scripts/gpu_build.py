"""Builds the library for this machine's NVIDIA GPU, or for its CPU, from what gpu_pack.py brought. Needs no network.

Where nvcc's own folder lacks cuBLAS or CCCL, a folder is made that joins it with the packages of the Python that runs
this (docs/building.md).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HEADERS = ("cublas_v2.h", "cccl/cub/cub.cuh", "cuda_runtime.h")


class BuildError(Exception):
    """What keeps the library from being built; the text says it."""


def architecture() -> str:
    """The number of this machine's first GPU, 90 for compute capability 9.0. Raises BuildError without one."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"nvidia-smi finds no GPU: {error}") from None
    return found[0].replace(".", "")


def nvcc_home() -> Path:
    """The folder with bin/nvcc and nvvm. Raises BuildError without one."""
    places = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")))]
    found = shutil.which("nvcc")
    places += [str(Path(found).resolve().parents[1])] if found else []
    for place in filter(None, places):
        if (Path(place) / "bin" / "nvcc").is_file() and (Path(place) / "nvvm").is_dir():
            return Path(place)
    raise BuildError("there is no nvcc: give its folder as CUDA_HOME")


def toolkit(nvcc: Path, packages: "list[Path]", joined: Path) -> Path:
    """A folder with compiler, headers and libraries: nvcc's own, or one that joins it with a package folder.

    packages: folders like site-packages/nvidia/cu13. Raises BuildError where a header is in none of them.
    """
    if _complete(nvcc):
        return nvcc
    shutil.rmtree(joined, ignore_errors=True)
    joined.mkdir(parents=True)
    for folder in packages:
        _link_tree(folder, joined)
    _link_tree(nvcc / "include", joined / "include")
    for name in ("bin", "nvvm"):
        if not (joined / name).exists():
            (joined / name).symlink_to(nvcc / name)
    (joined / "lib64").symlink_to("lib")
    (joined / "targets").mkdir(exist_ok=True)
    (joined / "targets" / "x86_64-linux").symlink_to("..")
    for library in (joined / "lib").glob("lib*.so.*"):
        plain = library.with_name(library.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
    if not _complete(joined):
        lacks = ", ".join(name for name in HEADERS if not _has(joined, name))
        raise BuildError(f"neither {nvcc} nor {', '.join(map(str, packages)) or 'a package'} has {lacks}")
    return joined


def package_folders(extra: Path) -> list[Path]:
    """Folders of NVIDIA's Python packages: those that were packed, and this Python's."""
    return [found for place in (extra, *map(Path, sys.path)) for found in sorted(place.glob("**/nvidia/cu[0-9]*"))]


def build(dest: Path, device: str, minutes: float) -> Path:
    """The library, built below `dest`/build with all processors. Raises BuildError."""
    checkout, folder = dest / "checkout", dest / "build"
    options = cuda_options(dest) if device == "cuda" else []
    log = dest / "build.log"
    with log.open("w") as file:
        for command in (
            ["cmake", "-G", "Ninja", "-S", checkout, "-B", folder, *options],
            ["cmake", "--build", folder, "--target", "llama_eagle", "--parallel"],
        ):
            try:
                subprocess.run(command, stdout=file, stderr=file, timeout=60 * minutes, check=True)
            except subprocess.TimeoutExpired:
                raise BuildError(f"the build was not done after {minutes:g} minutes: see {log}") from None
            except (OSError, subprocess.CalledProcessError) as error:
                raise BuildError(f"{error}: {_last_lines(log)}") from None
    return folder / "lib" / "libllama_eagle.so"


def cuda_options(dest: Path) -> list[str]:
    """What CMake is told; GGML_CUDA_NO_VMM, since a container may have the driver without its stub to link with."""
    home = toolkit(nvcc_home(), package_folders(dest / "extra"), dest / "cuda-toolkit")
    return [
        "-DGGML_CUDA=ON",
        "-DGGML_CUDA_NO_VMM=ON",
        f"-DCUDAToolkit_ROOT={home}",
        f"-DCMAKE_CUDA_COMPILER={home / 'bin' / 'nvcc'}",
        f"-DCMAKE_CUDA_ARCHITECTURES={architecture()}",
    ]


def _complete(folder: Path) -> bool:
    return all(_has(folder, name) for name in HEADERS)


def _has(folder: Path, header: str) -> bool:
    return any((folder / "include" / name).is_file() for name in (header, header.removeprefix("cccl/")))


def _link_tree(source: Path, target: Path) -> None:
    """Links every file of a folder below another, those that are there already excepted."""
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())


def _last_lines(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower()]
    return " | ".join((wrong or lines)[-3:])
