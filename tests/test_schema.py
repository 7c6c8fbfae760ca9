"""JSON schemas: what becomes a grammar, what is refused in one line, and that answers are instances."""

import json
from typing import Any

import pytest

from llama_eagle import InputError, Model, SamplingParams
from llama_eagle.sampler import Sampler
from llama_eagle.schema import schema_grammar
from tiny import TinyPair

pytestmark = pytest.mark.native

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tiny_good_pair: TinyPair) -> Model:
    return Model(tiny_good_pair.target.path)


def takes(model: Model, schema: Any, text: str) -> bool:
    """Whether a text, whole, is one that the schema's grammar allows."""
    with Sampler(model, SamplingParams(json_schema=schema, seed=1)) as sampler:
        try:
            for byte in text.encode():
                sampler.accept(byte)
            sampler.accept(model.info.token_eos)
        except InputError:
            return False
    return True


@pytest.mark.parametrize("schema", [PERSON, json.dumps(PERSON)])
def test_objects(model: Model, schema: Any) -> None:
    assert takes(model, schema, '{"name":"Ann","age":42}')
    assert not takes(model, schema, '{"name":"Ann"}')
    assert not takes(model, schema, '{"name":"Ann","age":420}')
    assert not takes(model, schema, '{"name":5,"age":4}')


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"enum": ["a", "b", 5]}, ['"a"', "5"], ['"c"', "6"]),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, ["[]", "[true,false]"], ["[true,true,true]"]),
        ({"$defs": {"t": {"type": "null"}}, "anyOf": [{"$ref": "#/$defs/t"}, {"const": 1}]}, ["null", "1"], ["2"]),
        ({"type": "string", "pattern": "^[a-c]{2}$"}, ['"ab"'], ['"ad"', '"abc"']),
        ({"type": "string", "const": "\u00e9\n"}, ['"\u00e9\\n"'], ['"e"']),
        ({}, ["{}", '{"a":[1]}'], ["{,}"]),
    ],
)
def test_keywords(model: Model, schema: Any, good: list[str], bad: list[str]) -> None:
    for text in good:
        assert takes(model, schema, text), text
    for text in bad:
        assert not takes(model, schema, text), text


DEEP: Any = {"type": "null"}
for _ in range(100):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 100000, "is not JSON"),
        ("[]", "must be an object"),
        ("true", "must be an object"),
        ({"type": "nope"}, "unrecognized type nope"),
        ({"$ref": "http://example.org/schema"}, "unsupported"),
        ({"$ref": "#/$defs/absent"}, "absent"),
        ({"type": "string", "pattern": "^(("}, "pattern"),
        ({"type": "string", "pattern": "(a)\\1" * 3}, "pattern"),
        (DEEP, "nested more than 64"),
        ({"properties": {"a" * 5000: {}}}, "more than 4096"),
        ({"enum": ["a"] * (1 << 20)}, "in all"),
        ({"a": {1, 2}}, "is not JSON"),
    ],
)
def test_bad_schemas(schema: Any, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=words) as caught:
        schema_grammar(schema)
    assert str(caught.value).startswith("json_schema")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_schema_that_refers_to_itself(model: Model) -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert takes(model, tree, "[[],[[]]]")


def test_a_long_grammar_comes_whole(model: Model) -> None:
    grammar = schema_grammar({"enum": [f"word{i}" * 20 for i in range(1000)]})
    assert len(grammar) > 1 << 16
    assert grammar.rstrip().count("\n") == grammar.count("::=") - 1
