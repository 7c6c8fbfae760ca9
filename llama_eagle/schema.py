"""From a JSON schema to a grammar, by llama.cpp's own translation. Checks what that would follow by recursion."""

import json
from typing import Any

from .errors import InputError
from .ffi import C, ffi
from .schema_keywords import check_keywords

_DEEPEST = 64
_LONGEST_STRING = 4096
_LONGEST = 1 << 20
_ANY_STRING = ", accepting any string"  # what llama.cpp would do, and this does not


def schema_grammar(schema: str | dict[str, Any]) -> str:
    """GBNF whose texts are the JSON values of a schema. Raises InputError for what is no schema or is not supported."""
    try:
        parsed = json.loads(schema if isinstance(schema, str) else json.dumps(schema))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"json_schema is not JSON: {_line(str(error))}") from None
    if not isinstance(parsed, dict):
        raise InputError(f'json_schema must be an object such as {{"type": "object"}}, got {_line(str(parsed))}')
    _check(parsed)
    check_keywords(parsed)
    raw = json.dumps(parsed, ensure_ascii=True).encode()
    size = 1 << 16
    while True:
        text = ffi.new("char[]", size)
        length = C.eagle_schema_grammar(raw, text, size)
        if length < 0:
            said = ffi.string(text).decode("utf-8", "replace").removeprefix("JSON schema conversion failed:")
            raise InputError(f"json_schema: {_line(said.replace(_ANY_STRING, ''))}")
        if length < size:
            return str(ffi.string(text).decode("utf-8"))
        size = length + 1


def _check(parsed: Any) -> None:
    """Refuses what is too large for recursive code, level by level."""
    level, depth, total = [parsed], 0, 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise InputError(f"json_schema is nested more than {_DEEPEST} deep: make it flatter, with $defs and $ref")
        below: list[Any] = []
        for value in level:
            texts = [value] if isinstance(value, str) else [*value] if isinstance(value, dict) else []
            total += sum(len(text) for text in texts) + 1
            if any(len(text) > _LONGEST_STRING for text in texts) or total > _LONGEST:
                raise InputError(
                    f"json_schema has a text of more than {_LONGEST_STRING} characters, or {_LONGEST} of them in all"
                )
            below += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        level = below


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) < 200 else text[:200] + " ..."
