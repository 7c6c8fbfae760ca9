"""Split files: every part is checked, and what is missing or does not fit is named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gguf_edit import I32, STRING, U16, U32, Changes, GgufFile, check_refused, rewrite
from llama_eagle.gguf_files.check import check_gguf
from processes import run_python

Parts = list[Path]


def write_parts(source: Path, folder: Path, count: int = 3) -> Parts:
    """The tensors of a file in `count` parts; the metadata in the first, as llama-gguf-split writes them."""
    whole = GgufFile(source.read_bytes())
    entries, size = whole.tensors, len(whole.data)
    ends = [entry.offset for entry in entries[1:]] + [size]
    share, written = -(-len(entries) // count), []
    for index in range(count):
        part = GgufFile(source.read_bytes())
        part.tensors = part.tensors[index * share : (index + 1) * share]
        begin = part.tensors[0].offset
        part.data = whole.data[begin : ends[min((index + 1) * share, len(entries)) - 1]]
        for entry in part.tensors:
            entry.offset -= begin
        part.keys = dict(whole.keys) if index == 0 else {}
        part.keys |= {"split.no": (U16, index), "split.count": (U16, count), "split.tensors.count": (I32, len(entries))}
        written.append(folder / f"tiny-{index + 1:05d}-of-{count:05d}.gguf")
        written[-1].write_bytes(bytes(part))
    return written


@pytest.fixture
def parts(tiny_target: Callable[..., Any], tmp_path: Path) -> Parts:
    return write_parts(tiny_target("llama").path, tmp_path)


def change(path: Path, changes: Changes) -> None:
    rewrite(path, path, changes)


def test_a_split_file_passes(parts: Parts) -> None:
    check_gguf(parts[0])


@pytest.mark.native
@pytest.mark.usefixtures("requires_native")
def test_a_split_file_loads(parts: Parts) -> None:
    run_python("with Model(path) as model: print(model.info.n_layer)", parts[0])


def test_a_later_part_names_the_first(parts: Parts) -> None:
    check_refused(parts[1], "part 2 of 3: open the first, tiny-00001-of-00003.gguf")


def test_a_missing_part_is_named(parts: Parts) -> None:
    parts[2].unlink()
    check_refused(parts[0], "its part tiny-00003-of-00003.gguf is missing")


def test_a_folder_is_no_part(parts: Parts) -> None:
    parts[2].unlink()
    parts[2].mkdir()
    check_refused(parts[0], "its part tiny-00003-of-00003.gguf is missing")


@pytest.mark.parametrize(
    ("index", "changes", "words"),
    [
        (0, {"split.count": (U16, 65535)}, "not named so: expected NAME-00001-of-65535.gguf"),
        (0, {"split.count": (U32, 2**31)}, "split.count is 2147483648"),
        (0, {"split.count": (STRING, b"3")}, "split.count has the type 8"),
        (0, {"split.count": (U16, 1)}, "named like part 1 of 3, and is not split"),
        (0, {"split.count": None}, "named like part 1 of 3, and is not split"),
        (0, {"split.no": None}, "there is no split.no"),
        (0, {"split.no": (U16, 2)}, "part 3 of 3 and not named so"),
        (0, {"split.no": (U32, 0)}, "split.no has the type 4, expected a u16"),
        (0, {"split.tensors.count": (I32, 7)}, "split.tensors.count is 7, its parts have"),
        (0, {"split.tensors.count": (I32, -1)}, "split.tensors.count is -1"),
        (1, {"split.no": (U32, 1)}, "tiny-00002-of-00003.gguf is broken: split.no has the type 4"),
        (1, {"split.no": (U16, 2)}, "tiny-00002-of-00003.gguf has split.no 2, expected 1"),
        (2, {"split.no": None}, "tiny-00003-of-00003.gguf has split.no None, expected 2"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_contradictory_parts(index: int, changes: Changes, words: str, parts: Parts) -> None:
    change(parts[index], changes)
    check_refused(parts[0], words)


def test_a_cut_part(parts: Parts) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-1])
    check_refused(parts[0], "its part tiny-00003-of-00003.gguf: tensor .* it was cut")
    parts[1].write_bytes(parts[1].read_bytes()[:50])
    check_refused(parts[0], "its part tiny-00002-of-00003.gguf is broken: it ends inside")


def test_a_tensor_in_two_parts(parts: Parts) -> None:
    first, second = (GgufFile(path.read_bytes()) for path in parts[:2])
    second.tensors[0].name = first.tensors[0].name
    parts[1].write_bytes(bytes(second))
    check_refused(parts[0], "is in tiny-00001-of-00003.gguf and again in tiny-00002-of-00003.gguf")


def test_a_renamed_part(parts: Parts) -> None:
    target = parts[0].with_name("other.gguf")
    shutil.copy(parts[0], target)
    check_refused(target, "part 1 of 3 and not named so: expected NAME-00001-of-00003.gguf")


def test_rules_see_the_tensors_of_all_parts(parts: Parts) -> None:
    change(parts[0], {"llama.attention.key_length": (U32, 8), "llama.attention.value_length": (U32, 8),
                      "llama.rope.dimension_count": (U32, 8)})  # fmt: skip
    check_refused(parts[0], r"attn_q.weight gives 64 numbers")
