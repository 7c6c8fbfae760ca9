"""cli/convert.py: one JSON document on stdout, or words on stderr."""

import argparse
import json

import pytest

import conversion
from llama_eagle.cli import convert as cli_convert
from tiny import write_folder


@pytest.fixture
def argv(tmp_path):
    draft = write_folder(tmp_path / "draft", conversion.config(), conversion.tensors())
    target = conversion.write_target(tmp_path / "target.gguf")
    return ["convert", str(draft), "--target", str(target), "--outfile", str(tmp_path / "o.gguf")]


def run(argv):
    parser = argparse.ArgumentParser()
    cli_convert.add_parser(parser.add_subparsers())
    return cli_convert.run(parser.parse_args(argv))


def test_json_is_the_contract(argv, capsys):
    assert run([*argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"arch", "version", "layout", "target_layers", "notes", "out"}
    assert printed["target_layers"] == [2, 6, 9]
    assert printed["out"] == argv[-1]


def test_without_json_the_chosen_layers_are_said_on_stderr(argv, capsys):
    assert run([*argv, "--outtype", "q8_0"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "target layers 2, 6, 9" in captured.err
