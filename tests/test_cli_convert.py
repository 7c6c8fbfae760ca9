"""cli/convert.py: one JSON document on stdout, or words on stderr."""

import argparse
import json

import gguf
import pytest

import conversion
from llama_eagle.cli import convert as cli_convert
from llama_eagle.errors import UsageError
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
    assert run([*argv, "--outtype", "bf16"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "target layers 2, 6, 9" in captured.err
    assert "eagle3, EAGLE-3, specforge layout" in captured.err


def test_what_the_user_decides_reaches_the_file(argv, capsys):
    flags = ["--target-layers", "1,2,12", "--norm-output", "fed-back", "--norm-before-residual", "yes"]
    assert run([*argv, *flags, "--with-embeddings", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["version"], printed["target_layers"]) == ("3.1", [1, 2, 12])
    reader = gguf.GGUFReader(printed["out"])
    assert reader.fields["eagle3.norm_output"].contents() is True
    assert reader.fields["eagle3.norm_before_residual"].contents() is True
    assert "token_embd.weight" in {tensor.name for tensor in reader.tensors}


@pytest.mark.parametrize("text", ["", "2,x", "2,,3"])
def test_layers_that_are_no_numbers_are_a_usage_error(argv, text):
    with pytest.raises(UsageError, match="expected layer numbers"):
        run([*argv, "--target-layers", text])
