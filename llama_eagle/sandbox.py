"""Sandbox: the jinja2 environment for templates from strangers. Knows no chat and no model.

jinja2's ImmutableSandboxedEnvironment keeps a template from reaching Python's internals and from changing what it was
given. Here, besides, every loop, call, filter, operator, literal and output pays from a budget, and no value outgrows
LIMIT: each container a template can hold weighs at most about that, so no single native operation takes long.
"""

import json
import math
import re
import string
import time
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import jinja2
from jinja2 import filters, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer
from markupsafe import escape

LIMIT = 4_000_000  # weight of one value: characters, and _SLOT for each element of a container
BUDGET = 64_000_000  # weight of everything made in one rendering
SECONDS = 5.0
_SLOT = 16
_INT_BITS = 10_000
_WIDTH = re.compile(r"\d{5}")
_PERCENT_WIDTH = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\d{5}|\*|\d*\.(?:\d{5}|\*))")

# what templates in the wild use; none of them multiplies its input, apart from those guarded below
_FILTERS = (
    "abs capitalize count d default dictsort first float groupby int items last length list lower map max min reject "
    "rejectattr reverse select selectattr sort string title trim unique upper"
).split()
_STR_METHODS = frozenset(
    "capitalize casefold count endswith find format format_map index isalnum isalpha isascii isdecimal isdigit islower "
    "isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex "
    "rpartition rsplit rstrip split splitlines startswith strip swapcase title upper".split()
)


class _Namespace(Namespace):
    """Its text is short, else namespaces that hold each other could make an endless one."""

    def __repr__(self) -> str:
        return "<namespace>"


class _Generation(Extension):
    """`{% generation %}` marks answers for training; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body's nodes."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Guard(NodeTransformer):
    """Routes loops, literals and `~` of a parsed template through the environment's guards."""

    def __init__(self, environment: jinja2.Environment) -> None:
        self.environment = environment

    def _through(self, guard: str, node: nodes.Node, arguments: list[nodes.Expr]) -> nodes.Call:
        call = nodes.Call(nodes.EnvironmentAttribute(guard), arguments, [], None, None)
        call.set_environment(self.environment)
        return call.set_lineno(node.lineno)  # type: ignore[return-value]

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's names
        """Counts the rounds."""
        if node.recursive:
            raise jinja2.TemplateSyntaxError("recursive loops are not supported", node.lineno)
        self.generic_visit(node)
        node.iter = self._through("guard_rounds", node, [node.iter])  # type: ignore[list-item]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """Weighs the joined text."""
        self.generic_visit(node)
        return self._through("guard_concat", node, node.nodes)

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        """Makes plain text an expression, which finalize weighs whenever it is emitted."""
        return nodes.Const(node.data, lineno=node.lineno, environment=self.environment)

    def _literal(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") != "load" else self._through("guard_literal", node, [node])

    visit_List = visit_Tuple = visit_Dict = _literal  # noqa: N815


class _Generator(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        super().visit_Template(_Guard(self.environment).visit(node), frame)


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles and renders one template at a time; begin() refills the budget. Not for concurrent use.

    Everything a template does wrong surfaces as an Exception of some kind, SecurityError for what the guards stop.
    """

    code_generator_class = _Generator
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[loopcontrols, _Generation])
        own: dict[str, Callable[..., Any]]
        own = {"escape": _escape, "e": _escape, "format": self._format, "indent": self._indent, "join": self._join}
        own |= {"replace": self._replace, "safe": str, "tojson": self._tojson}
        allowed = {name: filters.FILTERS[name] for name in _FILTERS} | own
        self.filters = {name: self._guarded(function) for name, function in allowed.items()}
        self.globals.pop("lipsum")
        self.globals["namespace"] = _Namespace
        self.finalize = self._finalize
        self.begin()

    def begin(self) -> None:
        """Refills the budget for one compilation or rendering."""
        self._left = BUDGET
        self._deadline = time.monotonic() + SECONDS

    def spend(self, weight: int) -> None:
        """Takes from the budget. Raises SecurityError when it is used up."""
        self._left -= weight + 1
        if self._left < 0:
            raise SecurityError("it makes too much")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"it takes longer than {SECONDS:.0f} seconds")

    def admit(self, value: Any) -> Any:
        """Checks a new value and pays for it."""
        _check(_weight(value))
        sized = isinstance(value, str | bytes | list | tuple | dict)
        self.spend((1 if isinstance(value, str) else _SLOT) * len(value) if sized else 1)
        return value

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            return self.admit(function(*args, **kwargs))

        return guarded

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Any call of a template."""
        _check(_weight(args) + _weight(kwargs))
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            _check_replace(owner, *args)
        if isinstance(owner, str) and name == "join":
            return __self.filters["join"](*args, owner)
        return __self.admit(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Any binary operator of a template."""
        if operator == "*":
            _check_product(left, right)
            _check_product(right, left)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check(0 if left.bit_length() * right <= _INT_BITS else LIMIT + 1)
        elif operator == "%" and isinstance(left, str) and _PERCENT_WIDTH.search(left):
            raise SecurityError(f"the format {left[:40]!r} is too wide")
        return self.admit(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format of a template: no width from an argument, none over four digits."""
        wrapped = super().wrap_str_format(value)
        for _, _, spec, _ in string.Formatter().parse(value.__self__) if wrapped else ():
            if spec and ("{" in spec or _WIDTH.search(spec)):
                raise SecurityError(f"the format {spec[:40]!r} is too wide")
        return wrapped

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of texts and numbers only methods that cannot blow them up."""
        if isinstance(obj, str | bytes | int | float):
            return isinstance(obj, str) and attr in _STR_METHODS
        return super().is_safe_attribute(obj, attr, value)

    def guard_rounds(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop."""
        for item in items:
            self.spend(1)
            yield item

    def guard_literal(self, value: Any) -> Any:
        """A container that was written out; call() has weighed it."""
        return value

    def guard_concat(self, *values: Any) -> str:
        """The operator `~`."""
        return "".join(map(str, values))

    @pass_context  # with a context jinja2 computes no output while compiling
    def _finalize(self, context: Context, value: Any) -> str:
        _check(_weight(value))
        text = str(value)
        self.spend(len(text))
        return text

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call_binop(None, "%", str(value), kwargs or args)  # type: ignore[arg-type]

    def _indent(self, text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
        size = len(width) if isinstance(width, str) else int(width)
        _check((str(text).count("\n") + 1) * size)
        return filters.do_indent(str(text), width, first, blank)

    def _join(self, values: Iterable[Any], d: Any = "", attribute: str | None = None) -> str:
        pick = filters.make_attrgetter(self, attribute) if attribute is not None else None
        texts = [str(pick(value) if pick else value) for value in values]
        _check(sum(map(len, texts)) + len(str(d)) * len(texts))
        return str(d).join(texts)

    def _replace(self, text: Any, old: Any, new: Any, count: int | None = None) -> str:
        _check_replace(str(text), str(old), str(new))
        return str(text).replace(str(old), str(new), -1 if count is None else count)

    def _tojson(self, value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise SecurityError(f"an indent of {str(indent)[:40]}")
        known = {name: options[name] for name in ("separators", "sort_keys") if name in options}
        parts = []
        for part in json.JSONEncoder(indent=indent, ensure_ascii=ensure_ascii, **known).iterencode(value):
            self.spend(len(part))
            parts.append(part)
        return "".join(parts)


def _escape(value: Any) -> str:
    return str(escape(str(value)))


def _check(weight: float) -> None:
    if weight > LIMIT:
        raise SecurityError("a value in it grows too large")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, str | bytes | list | tuple) and isinstance(right, int):
        _check(max(_weight(left), 1) * right)


def _check_replace(text: str, old: str, new: str, *_: Any) -> None:
    _check(text.count(old) * len(new))


def _weight(value: Any) -> float:
    """Characters and slots of a value and of all that it holds, counted until they exceed LIMIT."""
    total, stack = 0.0, [value]
    while stack and total <= LIMIT:
        item = stack.pop()
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, dict):
            total += _SLOT * len(item)
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, list | tuple | set):
            total += _SLOT * len(item)
            stack += item
        elif isinstance(item, int) and item.bit_length() > _INT_BITS:
            return math.inf
    return total
