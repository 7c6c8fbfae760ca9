"""cli/settings.py: flags to options, refusals in one line."""

import pytest

from llama_eagle.cli.command import Commands
from llama_eagle.cli.run import add_parser
from llama_eagle.cli.settings import engine_options, refuse_what_is_missing, sampling_params
from llama_eagle.errors import UsageError


def parse(*line):
    return add_parser(Commands()).parse(line)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (["--top-k", "40"], "leave it out"),
        (["--top-p", "0.9"], "leave it out"),
        (["--min-p", "0.1"], "leave it out"),
        (["--repeat-penalty", "1.1"], "leave it out"),
        (["--grammar", "root ::= x"], "leave it out"),
        (["-j", "{}"], "leave it out"),
        (["--verify", "paths"], "--verify tree"),
        (["--accept", "residual"], "--accept match"),
        (["--spec", "static"], "--spec tree"),
        (["--draft-tree", "4,2"], "--draft-nodes"),
        (["--temp", "0.8"], "--temp 0"),
        (["--temp", "nan"], "--temp 0"),
        (["-ngld", "3"], "-ngl"),
    ],
)
def test_what_is_not_there_yet(line, advice):
    with pytest.raises(UsageError) as caught:
        refuse_what_is_missing(parse(*line))
    message = str(caught.value)
    assert "not there yet" in message
    assert advice in message
    assert line[1] in message


@pytest.mark.parametrize(
    "line",
    [
        ["--temp", "0"],
        ["--top-k", "0"],
        ["--top-p", "1"],
        ["--min-p", "0"],
        ["--repeat-penalty", "1.0"],
        ["--verify", "tree", "--accept", "match"],
        ["-ngl", "3", "-ngld", "3"],
    ],
)
def test_neutral_values_pass(line):
    refuse_what_is_missing(parse(*line))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["-p", "a", "-f", "b"], "-p and -f"),
        (["--raw", "-sys", "a"], "-sys"),
        (["--raw", "--chat-template-file", "a"], "--chat-template-file"),
    ],
)
def test_contradictions(line, words):
    with pytest.raises(UsageError, match=words):
        refuse_what_is_missing(parse(*line))


@pytest.mark.parametrize(
    ("line", "flag", "value"),
    [
        (["-c", "-5"], "-c", "-5"),
        (["-b", "0"], "-b", "0"),
        (["--draft-nodes", "0"], "--draft-nodes", "0"),
        (["--spec-draft-n-max", "1000"], "--spec-draft-n-max", "1000"),
    ],
)
def test_ranges_name_the_flag(requires_native, line, flag, value):
    with pytest.raises(UsageError, match=f"^{flag} {value} is not in"):
        engine_options(parse(*line))


@pytest.mark.parametrize(("line", "flag"), [(["-n", "-7"], "-n"), (["--stop", ""], "--stop"), (["-s", "-2"], "-s")])
def test_sampling_ranges_name_the_flag(line, flag):
    with pytest.raises(UsageError, match=f"^{flag} must be"):
        sampling_params(parse(*line))


def test_values_arrive(requires_native):
    args = parse("-n", "9", "--stop", "x", "--ignore-eos", "-s", "7", "-c", "128", "--spec", "chain", "-ctk", "q8_0")
    params, options = sampling_params(args), engine_options(args)
    assert (params.max_tokens, params.stop, params.ignore_eos, params.seed) == (9, ("x",), True, 7)
    assert (options["n_ctx"], options["spec"], options["type_k"]) == (128, "chain", "q8_0")


def test_seed_of_minus_one_is_random():
    seeds = {sampling_params(parse("-s", "-1")).seed for _ in range(5)}
    assert len(seeds) > 1


@pytest.mark.parametrize("line", [["-m", "x.gguf", "-hf", "a/b"], ["-md", "x.gguf", "-hfd", "a/b"]])
def test_one_name_for_each_model(line):
    with pytest.raises(UsageError, match="leave one of them out"):
        refuse_what_is_missing(parse(*line))
