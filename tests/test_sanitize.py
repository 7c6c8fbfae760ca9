"""What scripts/sanitize.py takes for a report of native code."""

from pathlib import Path

import sanitize

LEAKS = """
=================================================================
==7==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 56 byte(s) in 1 object(s) allocated from:
    #0 0x7f00 in malloc
    #1 0x7f01 in PyObject_Malloc (/usr/bin/python3.11+0x1)

Direct leak of 24 byte(s) in 1 object(s) allocated from:
    #0 0x7f00 in operator new(unsigned long)
    #1 0x7f02 in eagle_sampler_clone llama-eagle/native/eagle_sampler_api.cpp:36
    #2 0x7f01 in PyObject_Call (/usr/bin/python3.11+0x1)

SUMMARY: AddressSanitizer: 80 byte(s) leaked in 2 allocation(s).
"""
UNDEFINED = """llama.cpp/ggml/src/ggml.c:10:3: runtime error: load of misaligned address 0x1 for type 'float'
    #0 0x7f00 in f llama.cpp/ggml/src/ggml.c:10
llama.cpp/ggml/src/ggml.c:10:3: runtime error: load of misaligned address 0x5 for type 'float'
    #0 0x7f00 in f llama.cpp/ggml/src/ggml.c:10
llama-eagle/native/eagle_log.cpp:5:9: runtime error: signed integer overflow
"""
SOURCES = ["llama.cpp/ggml/src/ggml.c", "llama-eagle/native/eagle_log.cpp"]
ADDRESS = "==9==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1\n    #0 0x2 in f ggml.c:1\n"


def test_leaks_of_python_are_no_reports(tmp_path: Path) -> None:
    (tmp_path / "address.7").write_text(LEAKS)
    (tmp_path / "address.8").write_text(LEAKS.replace("0x7f", "0x6f"))
    found = sanitize.findings(tmp_path)
    assert len(found) == 1
    assert "eagle_sampler_clone" in found[0]
    assert "56 byte" not in found[0]


def test_a_place_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "undefined.1").write_text(UNDEFINED)
    (tmp_path / "undefined.2").write_text(UNDEFINED)
    (tmp_path / "address.1").write_text(ADDRESS)
    found = sanitize.findings(tmp_path)
    assert [text.split(":")[0] for text in found] == [
        "ERROR",
        "llama.cpp/ggml/src/ggml.c",
        "llama-eagle/native/eagle_log.cpp",
    ]


def test_suppressions_are_not_for_our_code() -> None:
    lines = (sanitize.ROOT / "scripts" / "ubsan.supp").read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line and not line.startswith("#"):
            assert "eagle" not in line
            assert before, f"{line} has no reason before it"
