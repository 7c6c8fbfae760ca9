"""bench/peer_*.py: what upstream's programs print is read rightly, and ratios are taken to their best settings."""

import argparse
import sys
from pathlib import Path

import pytest

from llama_eagle.bench.rows import Sample
from peer_upstream import Config, Spoken, Upstream, spoken

PLAIN = """
a text that says eval time = 1.00 ms / 9 runs
0.25.064 I common_perf_print: prompt eval time =    3933.22 ms /    35 tokens (  112.38 ms per token,     8.90 tokens)
0.25.064 I common_perf_print:        eval time =     470.00 ms /    47 runs   (   10.00 ms per token,   100.00 tokens)
"""
CHAIN = """
0.49.469 I encoded   35 tokens in    3.912 seconds, speed:    8.948 t/s
0.49.469 I decoded   49 tokens in    0.500 seconds, speed:   98.000 t/s
0.49.469 I n_draft   = 3
0.49.469 I n_predict = 49
0.49.469 I n_drafted = 96
0.49.469 I n_accept  = 16
"""


def test_plain():
    assert spoken(PLAIN, Config("on", 2)) == Spoken(35, pytest.approx(100.0), 47, 47)


def test_chain():
    assert spoken(CHAIN, Config("on", 2, 3)) == Spoken(35, pytest.approx(98.0), 33, 49)


@pytest.mark.parametrize("line", range(1, 7))
def test_a_missing_figure_is_no_answer(line):
    lines = CHAIN.splitlines()
    without = "\n".join(lines[:line] + lines[line + 1 :])
    unused = "n_draft " in lines[line] or "n_drafted" in lines[line]
    assert (spoken(without, Config("on", 2, 3)) is None) is not unused


def test_commands():
    upstream = Upstream(Path("bin"), Path("m.gguf"), Path("d.gguf"), 512, 32)
    plain = upstream.command(Config("off", 1), Path("p.txt"))
    assert plain[0] == str(Path("bin/llama-completion"))
    assert "-md" not in plain
    assert plain[plain.index("-fa") + 1] == "off"
    chain = upstream.command(Config("on", 2, 5, 0.4), Path("p.txt"))
    assert chain[0] == str(Path("bin/llama-speculative-simple"))
    for flag, value in (("-md", "d.gguf"), ("--spec-draft-n-max", "5"), ("--spec-draft-p-min", "0.4"), ("-t", "2")):
        assert chain[chain.index(flag) + 1] == value
    assert "--no-escape" in plain
    assert "--no-escape" in chain


@pytest.mark.skipif(sys.platform == "win32", reason="no shell scripts on Windows")
def test_a_failing_program_is_told(tmp_path):
    program = tmp_path / "llama-completion"
    program.write_text("#!/bin/sh\necho broken; exit 3\n")
    program.chmod(0o755)
    upstream = Upstream(tmp_path, Path("m"), Path("d"), 512, 32)
    with pytest.raises(SystemExit, match=r"(?s)status 3.*broken"):
        upstream.answer(Config("on", 1), tmp_path / "p.txt")


def test_ratios_are_to_the_best_settings_of_a_set(requires_native):
    from peer_llama_cpp import summary  # noqa: PLC0415

    rates = {
        "plain": (50.0, 60.0), "auto": (80.0, 150.0),
        "plain fa on t 2": (40.0, 100.0), "plain fa off t 2": (30.0, 20.0),
        "chain 1 p 0 fa on t 2": (20.0, 20.0), "chain 3 p 0.4 fa on t 2": (100.0, 50.0),
    }  # fmt: skip
    samples = [Sample("set", i, 0, mode, rate, 9, 9) for mode, both in rates.items() for i, rate in enumerate(both)]
    (row,) = summary(samples)
    assert row["best"] == {
        "plain": "plain fa on t 2",
        "chain": "chain 3 p 0.4 fa on t 2",
        "everything": "chain 3 p 0.4 fa on t 2",
    }
    assert list(row["ratios"]) == ["plain", "auto"]
    assert row["ratios"]["auto"] == {"plain": 1.75, "chain": 1.9, "everything": 1.9}


class Fake:
    """Answers at once: a chain of 3 without flash attention is fastest, plain decoding likes two threads."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def theirs(self, config, prompts, index, prompt):
        self.asked.append((index, config.name))
        rate = 10.0 - abs(config.n_max - 3) - 5 * config.p_min - (config.flash_attn == "on") + config.threads
        return Sample(prompts, index, 0, config.name, rate, 9, 9)


def test_the_search_keeps_the_fastest_settings(requires_native):
    from llama_eagle.bench.prompts import Prompt, PromptSet  # noqa: PLC0415
    from peer_llama_cpp import search  # noqa: PLC0415

    args = argparse.Namespace(search=2, keep=2, flash_attn="on,off", threads="1,2", n_max="1,2,3", p_min="0,0.4")
    prompts = PromptSet("set", tuple(Prompt(text, text) for text in "abc"))
    fake = Fake()
    kept, found = search(fake, prompts, args)
    names = ["plain fa off t 2", "plain fa on t 2", "chain 3 p 0 fa off t 2", "chain 3 p 0 fa on t 2"]
    assert [config.name for config in kept] == names
    assert len(found) == len(fake.asked) == 2 * (4 + 12)
    assert {index for index, _ in fake.asked} == {0, 1}
    assert not any("chain" in name and "t 1" in name for _, name in fake.asked)
