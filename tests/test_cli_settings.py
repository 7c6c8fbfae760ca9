"""cli/settings.py: flags to options, refusals in one line."""

import math

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
    "line", [["--verify", "paths", "--accept", "match"], ["--accept", "residual"], ["-ngl", "3", "-ngld", "3"]]
)
def test_neutral_values_pass(line):
    refuse_what_is_missing(parse(*line))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["-p", "a", "-f", "b"], "-p and -f"),
        (["--raw", "-sys", "a"], "-sys"),
        (["--grammar", "a", "--grammar-file", "b"], "--grammar and --grammar-file"),
        (["--grammar", "a", "-j", "b"], "--grammar and -j"),
        (["-j", "a", "-jf", "b"], "-j and -jf"),
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


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (["-n", "-7"], "-n"),
        (["--stop", ""], "--stop"),
        (["-s", "-2"], "-s"),
        (["--temp", "nan"], "--temp"),
        (["--top-k", "-5"], "--top-k"),
        (["--top-p", "2"], "--top-p"),
        (["--repeat-penalty", "0"], "--repeat-penalty"),
        (["--repeat-last-n", "-1"], "--repeat-last-n"),
        (["-l", "99999999999+1"], "-l"),
    ],
)
def test_sampling_ranges_name_the_flag(line, flag):
    with pytest.raises(UsageError, match=f"^{flag} must be"):
        sampling_params(parse(*line))


def test_sampling_values_arrive(tmp_path):
    line = "--temp 0.6 --top-k 5 --top-p 0.5 --min-p 0.1 --typical 0.9 --repeat-last-n 9 --repeat-penalty 1.2"
    line += " --presence-penalty 0.1 --frequency-penalty 0.2 -l 5+1.5 -l 6-inf -l 7-2"
    params = sampling_params(parse(*line.split()))
    assert (params.temperature, params.top_k, params.top_p, params.min_p, params.typical_p) == (0.6, 5, 0.5, 0.1, 0.9)
    assert (params.repeat_last_n, params.repeat_penalty) == (9, 1.2)
    assert (params.presence_penalty, params.frequency_penalty) == (0.1, 0.2)
    assert params.biases == ((5, 1.5), (6, -math.inf), (7, -2.0))
    assert sampling_params(parse("--temp", "-1")).temperature == 0  # llama.cpp's reading
    file = tmp_path / "text"
    file.write_text('root ::= "a"', encoding="utf-8")
    assert sampling_params(parse("--grammar-file", str(file))).grammar == 'root ::= "a"'
    with pytest.raises(UsageError, match="is not JSON"):
        sampling_params(parse("-jf", str(file)))
    file.write_text('{"const": 1}', encoding="utf-8")
    assert sampling_params(parse("-jf", str(file))).json_schema == '{"const": 1}'
    assert sampling_params(parse("-j", "{}")).json_schema == "{}"
    for given in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match=r"^--grammar-file "):
            sampling_params(parse("--grammar-file", str(given)))


@pytest.mark.parametrize("value", ["5", "5x1", "+1", "5+", "5+nan", "a+1", "5++1"])
def test_biases_that_are_none(value):
    with pytest.raises(UsageError, match="token id"):
        parse("-l", value)


@pytest.mark.parametrize(
    ("line", "spec", "tree"),
    [
        ("--draft-tree 4,2", "static", "4,2"),
        ("--draft-tree eagle1 --spec static", "static", "eagle1"),
        ("--spec static", "static", None),
        ("--spec tree", "tree", None),
        ("", "auto", None),
    ],
)
def test_a_draft_tree_means_static(requires_native, line, spec, tree):
    from llama_eagle.options import EngineOptions  # noqa: PLC0415

    options = EngineOptions.of(**engine_options(parse(*line.split())))
    assert (options.spec, options.draft_tree) == (spec, tree)


@pytest.mark.parametrize("spec", ["auto", "tree", "chain", "off"])
def test_a_draft_tree_with_another_spec(requires_native, spec):
    with pytest.raises(UsageError, match=f"^--draft-tree '4,2' is a static shape and spec is '{spec}'"):
        engine_options(parse("--spec", spec, "--draft-tree", "4,2"))


@pytest.mark.parametrize("shape", ["4,0", "nowhere", "", "-1", "300", "4,4,4,4,4"])
def test_a_draft_tree_that_is_none(requires_native, shape):
    with pytest.raises(UsageError) as caught:
        engine_options(parse("--draft-tree", shape))
    assert str(caught.value).startswith(f"--draft-tree {shape!r}: ")
    assert "\n" not in str(caught.value)


def test_values_arrive(requires_native):
    args = parse("-n", "9", "--stop", "x", "--ignore-eos", "-s", "7", "-c", "128", "--spec", "chain", "-ctk", "q8_0",
                 "--accept", "residual")  # fmt: skip
    params, options = sampling_params(args), engine_options(args)
    assert (params.max_tokens, params.stop, params.ignore_eos, params.seed) == (9, ("x",), True, 7)
    assert [options[name] for name in ("n_ctx", "spec", "type_k", "accept")] == [128, "chain", "q8_0", "residual"]


@pytest.mark.parametrize("line", [["-m", "x.gguf", "-hf", "a/b"], ["-md", "x.gguf", "-hfd", "a/b"]])
def test_one_name_for_each_model(line):
    with pytest.raises(UsageError, match="leave one of them out"):
        refuse_what_is_missing(parse(*line))
