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


IGNORED = [
    ({"not": {"type": "null"}}, "not", "#"),
    ({"type": "object", "properties": {"age": {"type": "number", "minimum": 0}}}, "minimum", "#/properties/age"),
    ({"type": "array", "items": {"type": "integer", "multipleOf": 2}}, "multipleOf", "#/items"),
    ({"type": "integer", "minimum": 0, "exclusiveMinimum": 3}, "exclusiveMinimum", "#"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems", "#"),
    ({"type": "array", "contains": {"const": 1}}, "contains", "#"),
    ({"type": "array", "prefixItems": [{"type": "null"}], "maxItems": 0}, "maxItems", "#"),
    ({"type": "array", "prefixItems": [{}], "items": {}}, "prefixItems", "#"),
    ({"type": "array", "prefixItems": [{}, {"type": "string", "format": "email"}]}, "format", "#/prefixItems/1"),
    ({"if": {}, "then": {}}, "if", "#"),
    ({"type": "object", "then": {}}, "then", "#"),
    *(({"type": "object", key: {}}, key, "#") for key in ("dependentRequired", "propertyNames", "patternProperties")),
    *(({"type": "object", key: 1}, key, "#") for key in ("minProperties", "maxProperties")),
    ({"type": "object", "required": ["a"]}, "required", "#"),
    ({"properties": {"a": {"type": "null", "required": True}}, "anyOf": [{}]}, "properties", "#"),
    ({"type": "object", "properties": {"a": {}}, "required": True}, "required", "#"),
    ({"anyOf": [{"type": "null"}, {"required": ["a"]}]}, "required", "#/anyOf/1"),
    ({"oneOf": [{}], "anyOf": [{}]}, "anyOf", "#"),
    ({"type": "object", "additionalProperties": {"minimum": 1}}, "minimum", "#/additionalProperties"),
    ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "null"}}, "maxLength": 3}, "maxLength", "#"),
    ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "string", "format": "ipv4"}}}, "format", "#/$defs/t"),
    ({"$ref": "#/default", "default": {"not": {}}}, "not", "#/default"),
    ({"definitions": {"t": {"not": {}}}}, "not", "#/definitions/t"),
    ({"type": "string", "pattern": "^a$", "minLength": 3}, "minLength", "#"),
    ({"type": "string", "format": "date", "maxLength": 3}, "maxLength", "#"),
    ({"type": ["string", "number"], "maximum": 3}, "maximum", "#"),
    ({"type": [["number"]], "maximum": 3}, "type", "#"),
    ({"type": "integer", "enum": ["a"]}, "type", "#"),
    ({"type": "string", "const": "a", "minLength": 2}, "minLength", "#"),
    ({"allOf": [{"type": "string"}]}, "allOf", "#"),
    ({"type": "array", "allOf": [{"items": {"type": "null"}}]}, "allOf", "#"),
    ({"allOf": [{"properties": {"a": {"type": "number", "maximum": 1}}}]}, "maximum", "#/allOf/0/properties/a"),
    ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": {}}}]}, "allOf", "#"),
    ({"made up": 1}, "made up", "#"),
]


@pytest.mark.parametrize(("schema", "keyword", "place"), IGNORED)
def test_what_llama_cpp_would_ignore_is_refused(schema: Any, keyword: str, place: str) -> None:
    with pytest.raises(InputError) as caught:
        schema_grammar(schema)
    assert str(caught.value).startswith(f'json_schema: "{keyword}" at {place} is not supported')


NOTES = {"title": "t", "description": "d", "default": {"not": 1}, "examples": [{"not": 1}], "$comment": "c"}
NOTES |= {"$schema": "s", "$id": "i", "deprecated": True, "readOnly": True, "writeOnly": False}
NAMED = {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {"type": "null"}}}]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "null", **NOTES}, "null", "1"),
        ({"type": "object", "properties": {"not": {"type": "null"}}, "required": ["not"]}, '{"not":null}', "{}"),
        ({"type": ["integer", "null"], "minimum": 3}, "null", "2"),
        ({"type": ["string", "null"], "enum": ["a", None]}, "null", '"b"'),
        ({"type": "string", "format": "date"}, '"2020-01-02"', '"x"'),
        ({"type": "array", "prefixItems": [{"type": "null"}], "minItems": 1, "maxItems": 1}, "[null]", "[]"),
        ({"type": "array", "uniqueItems": False, "minItems": 1}, "[1,1]", "[]"),
        ({"allOf": [{"$ref": "#/$defs/c"}], "$defs": {"c": {"type": "string", "enum": ["a"]}}}, '"a"', '"b"'),
        ({**NAMED, "$defs": {"a": {"properties": {"a": {"type": "null"}}}}}, '{"a":null,"b":null}', '{"a":null}'),
    ],
)
def test_what_is_honoured_passes(model: Model, schema: Any, good: str, bad: str) -> None:
    assert takes(model, schema, good)
    assert not takes(model, schema, bad)


def test_a_long_place_is_one_short_line() -> None:
    schema: Any = {"not": {}}
    for _ in range(20):
        schema = {"type": "object", "properties": {"a\n" * 1000: schema}}
    with pytest.raises(InputError, match='"not" at #/properties') as caught:
        schema_grammar(schema)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
