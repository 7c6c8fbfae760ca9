"""What is built: the wheel's content, its library, an install into an empty environment, and company in one process."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tiny import TinyPair

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = (".py", ".gguf", ".so", ".dylib", ".dll", ".md", ".typed")
# what another llama.cpp in the process exports, and our library must not bind to
FOREIGN = (
    "llama_backend_init llama_model_load_from_file llama_init_from_model llama_decode llama_encode llama_get_logits "
    "llama_model_free llama_free llama_tokenize ggml_init ggml_free ggml_new_tensor ggml_mul_mat ggml_backend_load_all "
    "ggml_backend_cpu_init ggml_backend_reg_count ggml_backend_sched_new gguf_init_from_file gguf_get_n_kv"
).split()
GENERATE = """
import ctypes, sys
def foreign():
    for path in {foreign!r}:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
if {first!r} == "foreign":
    foreign()
from llama_eagle import Batch, Context, Model
if {first!r} == "llama_eagle":
    foreign()
with Model({model!r}) as model, Context(model, n_ctx=64) as context:
    context.decode(Batch([1, 2, 3]))
    print("next", int(context.argmax()[-1]))
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel that .ci/run built."""
    path = os.environ.get("LLAMA_EAGLE_WHEEL")
    if not path:
        pytest.skip("LLAMA_EAGLE_WHEEL does not name a wheel; .ci/run builds one and sets it")
    return Path(path)


def run(*command: object, **environment: str) -> str:
    command = tuple(str(part) for part in command)
    # not in the checkout: its llama_eagle/ would hide the installed one
    elsewhere, variables = tempfile.gettempdir(), os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_wheel_serves_every_python(wheel: Path) -> None:
    assert "-py3-none-" in wheel.name


def test_wheel_holds_the_package_and_nothing_of_the_build(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    package = [name for name in names if name.startswith("llama_eagle/")]
    others = [name for name in names if not name.startswith(("llama_eagle/", "llama_eagle-"))]
    assert others == []
    strange = [name for name in package if not name.endswith(SUFFIXES) and "/licenses/" not in name]
    assert strange == []
    assert "llama_eagle/_eagle_cffi.py" in names
    assert "llama_eagle/licenses/llama.cpp/LICENSE" in names
    assert any(name.startswith("llama_eagle/data/") and name.endswith(".gguf") for name in names)
    assert {Path(name).name for name in names if ".dist-info/licenses/" in name} >= {"LICENSE", "NOTICE"}


def test_declarations_are_generated_for_this_header(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, ROOT / "native" / "build_ffi.py", tmp_path / "again.py")
    packed = zipfile.ZipFile(wheel).read("llama_eagle/_eagle_cffi.py").decode("utf-8")
    assert packed == (tmp_path / "again.py").read_text("utf-8")


def test_library_exports_only_its_own_names(requires_native: ModuleType) -> None:
    if not sys.platform.startswith("linux") or shutil.which("nm") is None:
        pytest.skip("reads the symbols of an ELF library with nm")
    listing = run("nm", "-D", "--defined-only", requires_native.native_library())
    names = {line.split()[-1] for line in listing.splitlines()}
    assert names
    assert {name for name in names if not name.startswith("eagle_")} == set()


def test_library_finds_others_beside_itself_only(requires_native: ModuleType) -> None:
    if not sys.platform.startswith("linux") or shutil.which("readelf") is None:
        pytest.skip("reads the dynamic section of an ELF library with readelf")
    for library in requires_native.native_library().parent.glob("*.so"):
        dynamic = run("readelf", "-d", library)
        paths = [line.split("[")[1] for line in dynamic.splitlines() if "RPATH" in line or "RUNPATH" in line]
        assert paths in (["$ORIGIN]"], []), library


def foreign_libraries(directory: Path) -> list[str]:
    """Shared libraries with the file names, sonames and symbols of llama.cpp's, which abort when called."""
    body = "".join(f"void {name}(void) {{ abort(); }}\n" for name in FOREIGN)
    (directory / "foreign.c").write_text("#include <stdlib.h>\n" + body, "utf-8")
    paths = []
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so", "libllama.so"):
        paths.append(str(directory / name))
        run("gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}.0", "-o", paths[-1], directory / "foreign.c")
    return paths


@pytest.mark.native
@pytest.mark.parametrize("first", ["foreign", "llama_eagle"])
@pytest.mark.usefixtures("requires_native")
def test_another_llama_cpp_in_the_process_is_no_matter(first: str, tiny_pair: TinyPair, tmp_path: Path) -> None:
    if sys.platform == "win32" or shutil.which("gcc") is None:
        pytest.skip("builds stand-ins for llama.cpp's libraries with gcc")
    model = str(tiny_pair.target.path)
    alone = run(sys.executable, "-c", GENERATE.format(foreign=[], first=first, model=model))
    foreign = foreign_libraries(tmp_path)
    assert run(sys.executable, "-c", GENERATE.format(foreign=foreign, first=first, model=model)) == alone


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.parametrize("order", [("llama_cpp", "torch", "llama_eagle"), ("llama_eagle", "torch", "llama_cpp")])
@pytest.mark.usefixtures("requires_native")
def test_company_of_llama_cpp_python_and_torch(order: tuple[str, ...], tiny_pair: TinyPair) -> None:
    for name in order:
        pytest.importorskip(name, reason=f"{name} is not installed")
    imports = "import " + ", ".join(order) + "\n"
    code = GENERATE.format(foreign=[], first="", model=str(tiny_pair.target.path))
    together = run(sys.executable, "-c", imports + code, OMP_NUM_THREADS="1")
    assert together == run(sys.executable, "-c", code)


@pytest.mark.slow
def test_wheel_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    probe = subprocess.run([*pip, "download", "-q", "--no-deps", "-d", tmp_path, "pycparser"], check=False)
    if probe.returncode != 0:
        pytest.skip("no package index can be reached for the dependencies")
    run(*pip, "install", "--quiet", wheel)
    said = run(python, "-I", "-c", "import llama_eagle.ffi as f; print(f.native_library())")
    assert str(tmp_path) in said
    assert "usage" in run(python, "-I", "-m", "llama_eagle", "--help").lower()


def test_source_distribution_carries_what_the_build_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("scikit_build_core.build", reason="scikit-build-core is not installed")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / build.build_sdist(str(tmp_path))) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    needed = {"CMakeLists.txt", "LLAMA_CPP_VERSION", "LICENSE", "NOTICE", "pyproject.toml", "README.md"}
    for pattern in ("patches/*", "native/*", "cmake/*", "scripts/*.py", "llama_eagle/**/*.py", "llama_eagle/data/*"):
        needed |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern) if path.is_file()}
    assert needed - names - {"llama_eagle/_eagle_cffi.py"} == set()
    assert not [name for name in names if name.startswith(("build/", "llama_eagle/lib/"))]
