"""cli/arguments.py: every alias of the pinned llama.cpp, and defaults that are the engine's."""

import pytest

from llama_eagle.cli.arguments import CACHE_TYPES, GROUPS, SPEC_MODES
from llama_eagle.cli.command import Commands
from llama_eagle.cli.run import add_parser

# all spellings in llama.cpp's common/arg.cpp of the flags we have
LLAMA_CPP = """
-m --model
-md --model-draft --spec-draft-model
-hf -hfr --hf-repo
-hfd -hfrd --hf-repo-draft --spec-draft-hf
--offline
-p --prompt
-f --file
-sys --system-prompt
--chat-template-file
-st --single-turn
-n --predict --n-predict
--ignore-eos
--temp --temperature
--top-k
--top-p
--min-p
--typical --typical-p
--repeat-last-n
--repeat-penalty
--presence-penalty
--frequency-penalty
-l --logit-bias
-s --seed
--grammar
--grammar-file
-j --json-schema
-jf --json-schema-file
--spec-draft-n-max
-c --ctx-size
--context-shift
--keep
-t --threads
-ngl --gpu-layers --n-gpu-layers
-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl
-b --batch-size
-ub --ubatch-size
-fa --flash-attn
-ctk --cache-type-k
-ctv --cache-type-v
-co --color
-v --verbose --log-verbose
-h --help
"""
OURS = {
    "--raw", "--stop", "--spec", "--draft-nodes", "--draft-depth", "--draft-top-k", "--draft-tree", "--no-calibrate",
    "--verify", "--accept", "--json",
}  # fmt: skip


@pytest.fixture(scope="module")
def parser():
    return add_parser(Commands())


def test_every_alias_and_no_other_flag(parser):
    assert set(parser.flags) == set(LLAMA_CPP.split()) | OURS


@pytest.mark.parametrize("line", [line.split() for line in LLAMA_CPP.split("\n") if line])
def test_aliases_of_one_flag_are_one_flag(parser, line):
    assert len({id(parser.flags[name]) for name in line}) == 1


def test_defaults_are_the_engines(parser, requires_native):
    from llama_eagle.options import EngineOptions  # noqa: PLC0415
    from llama_eagle.sampling import SamplingParams  # noqa: PLC0415

    args = vars(parser.parse([]))
    for known in (EngineOptions(), SamplingParams()):
        for name, value in vars(known).items():
            if name in ("n_parallel", "logprobs"):  # for programs: the command runs one sequence
                continue
            if name == "spec":  # not given: it follows from --draft-tree
                assert args[name] is None
                continue
            given = tuple(args[name]) if isinstance(args[name], list) else args[name]
            assert given == value, name


def test_choices_are_the_engines(requires_native):
    from llama_eagle.context import CACHE_TYPES as TYPES  # noqa: PLC0415
    from llama_eagle.options import SPEC_MODES as MODES  # noqa: PLC0415

    assert set(CACHE_TYPES) == set(TYPES)
    assert set(SPEC_MODES) == set(MODES)


def test_help_prints_every_default(parser):
    text = " ".join(parser.format_help().split())
    flags = [flag for flags in GROUPS.values() for flag in flags]
    assert text.count("(default: ") == len(flags)
    for flag in flags:
        assert f"(default: {flag.shown or flag.default})" in text, flag.names
        assert all(name in text for name in flag.names.split())


@pytest.mark.parametrize(
    ("line", "dest", "value"),
    [
        (["-ngl", "all"], "gpu_layers", -1),
        (["-ngl", "-1"], "gpu_layers", "auto"),
        (["-ngl", "7"], "gpu_layers", 7),
        (["-t", "-1"], "n_threads", 0),
        (["-fa", "1"], "flash_attn", "on"),
        (["--flash-attn", "disabled"], "flash_attn", "off"),
        (["--stop", "a", "--stop", "b"], "stop", ["a", "b"]),
        (["--color"], "color", "auto"),
        (["-co", "off"], "color", "off"),
    ],
)
def test_values(parser, line, dest, value):
    assert getattr(parser.parse(line), dest) == value
