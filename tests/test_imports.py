"""The package's structure: modules import downwards, one opens the native library, files and functions are short."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "llama_eagle"
GENERATED = "_eagle_cffi"
LEVELS = (  # lowest first; a module or subpackage imports from lower levels, or from its own without a cycle
    ("errors", "checks", "draft_pause", "gpu_layers"),
    ("uniforms", "distribution", "logprob", "schema_keywords"),
    ("tree", "text", "sampling", "cache", "context_params"),
    ("gguf_files", "hub"),
    ("session_file", "sampler_state"),
    ("vocabulary", "target_side", "head_info", "fit"),
    ("ffi", "acceptance", "sandbox", "chat"),
    ("residual", "static_tree"),
    ("drawn_tree",),
    ("conversion", "leaves"),
    ("checkpoint_info",),
    ("embedded", "draft_cache", "model_files"),
    ("model", "schema", "devices"),
    ("batch",),
    ("sequence_state",),
    ("context",),
    ("sampler",),
    ("turn",),
    ("step_calls", "slot", "chain", "policy", "offload"),
    ("draft",),
    ("generate", "options", "planner"),
    ("result", "pair", "audit", "draft_watch"),
    ("answer",),
    ("request",),
    ("saved_request", "scheduler"),
    ("engine", "async_stream", "bench"),
    ("async_engine", "train"),
    ("cli", "__main__", "__init__"),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.stem != GENERATED)


def module(path: Path) -> str:
    """The module or subpackage of a file: `cli` for everything in cli/."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Top-level modules of this package that a file imports, at whatever depth of its code."""
    depth = len(path.relative_to(PACKAGE).parts)  # 1: in the package itself
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("llama_eagle."))
        elif isinstance(node, ast.ImportFrom):
            inside = (node.module or "").split(".") if node.module else []
            if node.level == 0 and inside[:1] == ["llama_eagle"]:
                yield from inside[1:2] or (name.name for name in node.names)
            elif node.level == depth:
                yield from inside[:1] or (name.name for name in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_downwards(path: Path) -> None:
    own = module(path)
    assert own in LEVEL, f"{own} has no level: add it to LEVELS"
    if own == "__init__":
        return  # the front door names everything, and loads it on first use
    for name in imports(path):
        if name in (own, "__version__") or name not in LEVEL:
            assert name in (own, "__version__", GENERATED), f"{own} imports {name}, which has no level"
            continue
        assert LEVEL[name] <= LEVEL[own], f"{own} (level {LEVEL[own]}) imports {name} (level {LEVEL[name]})"


def test_no_module_imports_itself_over_others() -> None:
    graph = {name: set() for name in map(module, FILES)}
    for path in FILES:
        if path.stem != "__init__" or path.parent != PACKAGE:
            graph[module(path)] |= set(imports(path)) & set(graph) - {module(path), "__init__"}
    while graph:
        free = [name for name, needs in graph.items() if not needs & set(graph)]
        assert free, f"a cycle among {sorted(graph)}"
        for name in free:
            del graph[name]


def test_one_module_opens_the_native_library() -> None:
    users = {
        module(path) for path in FILES if GENERATED in imports(path) or GENERATED in path.read_text(encoding="utf-8")
    }
    assert users == {"ffi"}


@pytest.mark.parametrize(
    "name",
    [
        "llama_eagle",
        "llama_eagle.cli",
        "llama_eagle.acceptance",
        "llama_eagle.conversion.converter",
        "llama_eagle.sampling",
    ],
)
def test_not_everything_needs_the_native_library(name: str) -> None:
    code = f"import sys, {name}; sys.exit('llama_eagle.ffi' in sys.modules or 'llama_eagle.{GENERATED}' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"{name} opened the native library"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 300
    tree = ast.parse(source)
    assert ast.get_docstring(tree), "no module docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 40, f"{node.name} has {length} lines"
            arguments = node.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
            count -= bool(arguments.args) and arguments.args[0].arg in ("self", "cls")
            assert count <= 6, f"{node.name} takes {count} parameters"


def test_the_readme_names_every_module_once() -> None:
    lines = (PACKAGE.parent / "README.md").read_text(encoding="utf-8").splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ") and len(line.split()) > 1]
    for path in PACKAGE.glob("[!_]*.py"):
        assert named.count(path.name) == 1, path.name


def test_every_exported_name_is_there() -> None:
    pytest.importorskip("llama_eagle._eagle_cffi")
    import llama_eagle  # noqa: PLC0415

    assert set(llama_eagle.__all__) <= set(dir(llama_eagle))
    for name in llama_eagle.__all__:
        value = getattr(llama_eagle, name)
        assert getattr(value, "__name__", name) == name  # constants have none
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = llama_eagle.Nonsense
