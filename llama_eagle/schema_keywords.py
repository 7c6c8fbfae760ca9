"""Which keywords of a JSON schema llama.cpp's translation honours, and where. Refuses the rest, which it would ignore.

Mirrors the order in which common/json-schema.cpp decides what a schema is. Knows nothing of grammars. A keyword that
says nothing about the values that can come (`minLength` of a number) is no loss, and passes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from .errors import InputError

_ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly")
)
_DEFINITIONS = ("$defs", "definitions")
_TYPES = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))
_FORMATS = ("date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRINGS = ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema")
_ARRAYS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems")
_CONTAINS = ("contains", "minContains", "maxContains")
_OBJECTS = ("properties", "additionalProperties", "required", "patternProperties", "propertyNames", "minProperties")
_MORE_OBJECTS = ("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties")
_CONCERNS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_NUMBERS, frozenset(("integer", "number"))),
    **dict.fromkeys(_STRINGS, frozenset(("string",))),
    **dict.fromkeys((*_ARRAYS, *_CONTAINS), frozenset(("array",))),
    **dict.fromkeys((*_OBJECTS, *_MORE_OBJECTS), frozenset(("object",))),
}
_MOST_HOPS = 64


class _Node(NamedTuple):
    """A schema and where it stands. Places are spelled on demand: all of them together could be huge."""

    schema: dict[str, Any]
    parent: "_Node | None"
    step: str

    def place(self) -> str:
        """The place as the user would write it in a $ref."""
        steps, node = [self.step], self.parent
        while node is not None:
            steps.append(node.step)
            node = node.parent
        return "/".join(reversed(steps))


def check_keywords(root: dict[str, Any]) -> None:
    """Raises InputError for the first keyword that the translation of this schema would ignore, with its place.

    root is freshly parsed JSON of bounded size and depth. Every schema in it is visited once.
    """
    waiting, seen = [_Node(root, None, "#")], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node.schema) in seen:
            continue
        seen.add(id(node.schema))
        used = _check_node(root, node)
        waiting += _Below(root, node).of([key for key in node.schema if key in used or key in _DEFINITIONS])


def _check_node(root: dict[str, Any], node: _Node) -> set[str]:
    """The keywords honoured in this schema, for one of its types at least."""
    schema, used = node.schema, set[str]()
    stated = schema.get("type")
    if isinstance(stated, list) and not all(isinstance(one, str) for one in stated):
        raise _refusal("type", node)
    types: list[str | None] = [*sorted(set(stated))] if isinstance(stated, list) else [stated]
    for one in types:
        kind = _kind(schema, one)
        honoured = _honoured(root, schema, kind)
        values = _value_types(schema, kind)
        for key in schema:
            if key not in honoured and not _says_nothing(schema, key, values):
                raise _refusal(key, node)
        used |= honoured
    return used


def _says_nothing(schema: dict[str, Any], key: str, values: frozenset[str]) -> bool:
    if key in _ANNOTATIONS or key in _DEFINITIONS:
        return True
    value = schema[key]
    if key == "format" and not (isinstance(value, str) and value in _FORMATS):
        return False
    if (key == "additionalProperties" and value is True) or (key == "uniqueItems" and value is False):
        return True
    return not _CONCERNS.get(key, _TYPES) & values


def _kind(schema: dict[str, Any], stated: Any) -> str:
    """What the translation takes a schema of one stated type (or none) for: a deciding keyword, a type or "any"."""
    for key in ("$ref", "oneOf", "anyOf", "const", "enum"):
        if key in schema:
            return key
    properties = "properties" in schema or schema.get("additionalProperties", True) is not True
    if stated is None:
        string = any(key in schema for key in ("pattern", "minLength", "maxLength")) or _format(schema)
        if properties:
            return "object"
        if "allOf" in schema:
            return "allOf"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        return "string" if string else "any"
    if "allOf" in schema and (stated == "string" or (stated == "object" and not properties)):
        return "allOf"
    return str(stated)


def _honoured(root: dict[str, Any], schema: dict[str, Any], kind: str) -> set[str]:
    if kind in ("$ref", "oneOf", "anyOf"):
        return {kind}
    if kind in ("const", "enum"):
        values = schema["enum"] if kind == "enum" and isinstance(schema["enum"], list) else [schema[kind]]
        return {kind, "type"} if _fit(values, schema.get("type")) else {kind}
    if kind == "allOf":
        return {"allOf", "type"} if _all_of_works(root, schema) else {"type"}
    if kind == "object":
        names, properties = schema.get("required"), schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        works = isinstance(names, list) and all(isinstance(name, str) and name in known for name in names)
        return {"type", "properties", "additionalProperties", *(["required"] if works else [])}
    if kind == "array":
        return {"type", *_array(schema)}
    if kind == "string":
        if schema.get("pattern", "") != "":
            return {"type", "pattern"}
        return {"type", "pattern", *(["format"] if _format(schema) else ["minLength", "maxLength"])}
    if kind == "integer":
        low = "minimum" if "minimum" in schema else "exclusiveMinimum"
        high = "maximum" if "maximum" in schema else "exclusiveMaximum"
        return {"type", low, high}
    return {"type"}


def _array(schema: dict[str, Any]) -> Iterator[str]:
    key = "items" if "items" in schema else "prefixItems"
    yield key
    count = len(schema[key]) if isinstance(schema.get(key), list) else None
    for bound, sign in (("minItems", 1), ("maxItems", -1)):
        value = schema.get(bound)
        # a tuple comes with all of its items, always
        if count is None or (isinstance(value, int) and sign * value <= sign * count):
            yield bound
    if count is not None:
        yield from ("additionalItems", "unevaluatedItems")


def _all_of_works(root: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether all parts hold for what comes: all of them objects without a common property, or one enum alone."""
    listed = schema["allOf"] if isinstance(schema["allOf"], list) else []
    parts = [part for part in (_target(root, part) for part in listed) if part is not None]
    kinds = [_kind(part, part.get("type")) for part in parts]
    if len(parts) != len(listed):
        return False
    if kinds == ["enum"]:
        return _fit(parts[0]["enum"], schema.get("type"))
    shapes = [part["properties"] for part in parts if isinstance(part.get("properties"), dict)]
    names = [name for shape in shapes for name in shape]
    closed = any(part.get("additionalProperties", True) is not True for part in parts) and len(parts) > 1
    return (
        schema.get("type") in (None, "object")
        and set(kinds) <= {"object", "any"}
        and len(set(names)) == len(names)
        and not closed
    )


def _target(root: dict[str, Any], schema: Any) -> dict[str, Any] | None:
    """The schema behind references; None where there is none."""
    for _ in range(_MOST_HOPS):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        schema = _resolve(root, schema["$ref"])
    return schema if isinstance(schema, dict) and "$ref" not in schema else None


def _resolve(root: Any, ref: Any) -> Any:
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    for step in ref[2:].split("/"):
        if isinstance(root, list) and step.isascii() and step.isdigit() and len(step) < 8 and int(step) < len(root):
            root = root[int(step)]
        elif isinstance(root, dict) and step in root:
            root = root[step]
        else:
            return None
    return root


class _Below(NamedTuple):
    """The schemas directly in a schema."""

    root: dict[str, Any]
    node: _Node

    def of(self, keys: list[str]) -> Iterator[_Node]:
        """Those that stand under these keywords."""
        for key in keys:
            value = self.node.schema[key]
            if key == "$ref":
                yield from self._referred(value)
            elif key in ("properties", *_DEFINITIONS) and isinstance(value, dict):
                yield from self._nodes((f"{key}/{name}", child) for name, child in value.items())
            elif key in ("items", "prefixItems", "anyOf", "oneOf", "allOf") and isinstance(value, list):
                yield from self._nodes((f"{key}/{index}", child) for index, child in enumerate(value))
            elif key in ("items", "prefixItems", "additionalProperties"):
                yield from self._nodes(iter([(key, value)]))

    def _nodes(self, children: Iterator[tuple[str, Any]]) -> Iterator[_Node]:
        return (_Node(child, self.node, step) for step, child in children if isinstance(child, dict))

    def _referred(self, ref: Any) -> Iterator[_Node]:
        target = _resolve(self.root, ref)
        if isinstance(target, dict):
            yield _Node(target, None, ref)
        elif isinstance(ref, str) and ref.startswith("#/"):
            raise InputError(f"json_schema: $ref {_short(ref)} at {_short(self.node.place())} leads to no schema")


def _value_types(schema: dict[str, Any], kind: str) -> frozenset[str]:
    """Types of the values that can come."""
    if kind == "const":
        return frozenset(_type_of(schema["const"]))
    if kind == "enum" and isinstance(schema["enum"], list):
        return frozenset(name for value in schema["enum"] for name in _type_of(value))
    return frozenset((kind,)) if kind in _TYPES else _TYPES


def _type_of(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, int | float):
        return ("integer", "number") if value == value // 1 else ("number",)
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return (names.get(type(value), "null"),)


def _fit(values: Any, stated: Any) -> bool:
    types = stated if isinstance(stated, list) else [stated]
    return stated is None or (
        isinstance(values, list) and all(any(name in types for name in _type_of(value)) for value in values)
    )


def _format(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("format"), str) and schema["format"] in _FORMATS


def _refusal(key: str, node: _Node) -> InputError:
    return InputError(
        f'json_schema: "{_short(key)}" at {_short(node.place())} is not supported there, llama.cpp would ignore it: '
        "leave it out, or say it by other keywords"
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) < 200 else f"{text[:100]} ... {text[-90:]}"
