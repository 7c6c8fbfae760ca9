"""cli/parser.py: llama.cpp's habits with flags."""

import pytest

from llama_eagle.cli.parser import Parser
from llama_eagle.errors import UsageError


@pytest.fixture
def parser():
    parser = Parser(prog="p")
    group = parser.add_argument_group("g")
    group.add_argument("-n", "--predict", "--n-predict", dest="n", type=int, default=-1, metavar="N")
    group.add_argument("-ngl", "--gpu-layers", dest="ngl", default="auto")
    group.add_argument("-p", "--prompt", dest="prompt")
    group.add_argument("--raw", action="store_true")
    group.add_argument("-co", "--color", dest="color", nargs="?", const="auto", type=_on_off, default="off")
    return parser


def _on_off(word):
    if word not in ("on", "off", "auto"):
        raise ValueError(word)
    return word


@pytest.mark.parametrize("line", [["-n", "5"], ["--predict", "5"], ["--n-predict=5"], ["--n_predict", "5"], ["-n=5"]])
def test_spellings(parser, line):
    assert parser.parse(line).n == 5


@pytest.mark.parametrize("value", ["-5", "--raw", "-n", "- a list", "", "a=b", "-"])
def test_a_value_may_look_like_anything(parser, value):
    args = parser.parse(["-p", value])
    assert args.prompt == value
    assert not args.raw


def test_the_last_value_counts(parser):
    assert parser.parse(["-n", "1", "-n", "2"]).n == 2


def test_optional_value(parser):
    assert parser.parse(["--color"]).color == "auto"
    assert parser.parse(["--color", "on", "--raw"]).color == "on"
    assert parser.parse(["--color", "-n", "3"]).n == 3
    assert parser.parse(["--color", "--raw"]).raw


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--n-predic", "5"], ("unknown flag '--n-predic'", "--n-predict")),
        (["-ng", "5"], ("unknown flag '-ng'", "-n")),
        (["-n5"], ("unknown flag '-n5'", "-n")),
        (["--gpu-layer=5"], ("'--gpu-layer'", "--gpu-layers")),
        (["-n"], ("-n needs a value",)),
        (["-n", "x"], ("-n/--predict", "'x'")),
        (["--raw=1"], ("--raw takes no value",)),
        (["word"], ("word",)),
        (["--color=blue"], ("color", "blue")),
    ],
)
def test_refusals_name_the_flag(parser, line, words):
    with pytest.raises(UsageError) as caught:
        parser.parse(line)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
