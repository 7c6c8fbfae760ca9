"""Inert pickle: the state dict in a pickle, followed opcode by opcode without Python's unpickler.

Nothing in a pickle can run: names of classes and functions stay text, the few that a state dict needs have their
meaning here, everything else is refused. Opcodes are those of CPython's pickletools, the names those of PyTorch's
torch/_utils.py and torch/serialization.py. Knows no archive and reads no values.
"""

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError
from .stored_tensor import DTYPES

MAX_BYTES, MAX_OPCODES = 2 << 20, 100_000  # a tensor takes some 200 bytes and 50 opcodes
MAX_NAME = 256
STORAGES = {
    "torch.DoubleStorage": "F64", "torch.FloatStorage": "F32", "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16", "torch.LongStorage": "I64", "torch.IntStorage": "I32", "torch.ShortStorage": "I16",
    "torch.CharStorage": "I8", "torch.ByteStorage": "U8", "torch.BoolStorage": "BOOL",
}  # fmt: skip
_DICT = "collections.OrderedDict"
_TENSOR, _PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
# Allowed so that the number type, which follows them, is what gets named.
_UNTYPED = ("torch.storage.UntypedStorage", "torch._utils._rebuild_tensor_v3")
_ALLOWED = frozenset({*STORAGES, _DICT, _TENSOR, _PARAMETER, *_UNTYPED})
_NUMBER_TYPE = re.compile(r"torch\.(\w+Storage|(float|uint|int|complex|quint|qint|bits)\w+)")
_CONSTANTS = ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_VALUES: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None, "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}  # fmt: skip


@dataclass(frozen=True)
class Name:
    """A class or function that the pickle names: text, never looked up."""

    text: str


@dataclass(frozen=True)
class Storage:
    """Values that lie in the archive under `key`: `count` of them, of a type named as in safetensors."""

    dtype: str
    key: str
    count: int


@dataclass(frozen=True)
class View:
    """A tensor: `shape` and `strides` (in values) over a storage, from `offset` (in values) on."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_state_dict(data: bytes) -> dict[str, View]:
    """The tensors by name. Raises CheckpointError, without the file's name, for whatever is no plain state dict."""
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"its pickle has {len(data)} bytes; a state dict needs no more than {MAX_BYTES}")
    try:
        value = _Machine().run(data)
    except CheckpointError:
        raise
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        why = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise CheckpointError(f"its pickle is broken ({why})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"it holds a {type(value).__name__} instead of a state dict")
    for name, tensor in value.items():
        if not name.isprintable() or len(name) > MAX_NAME:
            raise CheckpointError(f"it names a tensor {repr(name)[:80]}")
        if not isinstance(tensor, View):
            what = type(tensor).__name__
            raise CheckpointError(f"its entry {name} is a {what}, not a tensor; save the state dict alone")
    return value


class _Machine:
    """A stack, the stacks below its marks, and the memo: what the opcodes of pickletools work on."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """What STOP leaves. Raises CheckpointError for refused opcodes, ValueError and its like for broken ones."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPCODES:
                raise CheckpointError(f"its pickle has more than {MAX_OPCODES} steps; a state dict needs far fewer")
            name = opcode.name
            if name == "STOP":
                break
            if name in _CONSTANTS:
                self._stack.append(argument)
            elif name in _VALUES:
                self._stack.append(_VALUES[name]())
            elif name not in ("PROTO", "FRAME"):
                _step(name)(self, argument)
        return self._stack.pop()

    def mark(self, _: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise ValueError("stack underflow")
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def tuple_of_mark(self, _: Any) -> None:
        items = self._pop_mark()
        self._stack.append(tuple(items))

    def tuple1(self, _: Any) -> None:
        self._stack.append(tuple(self._pop(1)))

    def tuple2(self, _: Any) -> None:
        self._stack.append(tuple(self._pop(2)))

    def tuple3(self, _: Any) -> None:
        self._stack.append(tuple(self._pop(3)))

    def append(self, _: Any) -> None:
        self._extend(self._pop(1))

    def appends(self, _: Any) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise ValueError("values for a list without one")
        self._stack[-1].extend(items)

    def set_item(self, _: Any) -> None:
        self._set(self._pop(2))

    def set_items(self, _: Any) -> None:
        self._set(self._pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise ValueError("entries for a dict without one")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise CheckpointError(f"it has a key of type {type(key).__name__}; names of tensors are text")
            target[key] = value

    def global_(self, argument: str) -> None:
        self._name(*argument.split(" ", 1))

    def stack_global(self, _: Any) -> None:
        module, name = self._pop(2)
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        text = f"{module}.{name}"
        if text not in _ALLOWED and _NUMBER_TYPE.fullmatch(text):
            kinds = ", ".join(STORAGES.values())
            raise CheckpointError(f"it holds tensors of type {text[:80]!r}; save them as one of {kinds}")
        if text not in _ALLOWED:
            raise CheckpointError(f"its pickle names {text[:80]!r}, which no weights need; nothing of it was run")
        self._stack.append(Name(text))

    def reduce(self, _: Any) -> None:
        function, arguments = self._pop(2)
        if not isinstance(function, Name) or type(arguments) is not tuple:
            raise CheckpointError(f"its pickle calls a {type(function).__name__}; nothing of it was run")
        self._stack.append(_call(function.text, arguments))

    def build(self, _: Any) -> None:
        """Attributes of a dict, such as a state dict's _metadata: nothing needs them."""
        (_state,) = self._pop(1)
        if type(self._stack[-1]) is not dict:
            what = type(self._stack[-1]).__name__
            raise CheckpointError(f"its pickle sets attributes of a {what}; nothing of it was run")

    def persistent(self, _: Any) -> None:
        (value,) = self._pop(1)
        self._stack.append(_storage(value))


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark, "BINPUT": _Machine.put, "LONG_BINPUT": _Machine.put, "MEMOIZE": _Machine.memoize,
    "BINGET": _Machine.get, "LONG_BINGET": _Machine.get, "TUPLE": _Machine.tuple_of_mark, "TUPLE1": _Machine.tuple1,
    "TUPLE2": _Machine.tuple2, "TUPLE3": _Machine.tuple3, "APPEND": _Machine.append, "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item, "SETITEMS": _Machine.set_items, "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global, "REDUCE": _Machine.reduce, "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent,
}  # fmt: skip


def _step(opcode: str) -> Callable[[_Machine, Any], None]:
    try:
        return _STEPS[opcode]
    except KeyError:
        raise CheckpointError(f"its pickle uses {opcode}, which no state dict needs; nothing of it was run") from None


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    """What the few functions of a state dict make of their arguments."""
    if function == _DICT and not arguments:
        return {}
    if function == _PARAMETER and arguments and isinstance(arguments[0], View):
        return arguments[0]
    if function == _TENSOR and len(arguments) in (6, 7):
        return _view(*arguments[:4])
    raise CheckpointError(f"its pickle calls {function} with {len(arguments)} unexpected arguments; nothing was run")


def _view(storage: Any, offset: Any, shape: Any, strides: Any) -> View:
    numbers = (offset, *shape, *strides) if type(shape) is type(strides) is tuple else (None,)
    if not isinstance(storage, Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise CheckpointError("it holds a tensor whose sizes are no numbers")
    if storage.dtype not in DTYPES:
        raise CheckpointError("it holds a tensor without a number type")
    if len(shape) != len(strides):
        raise CheckpointError(f"it holds a tensor of {len(shape)} dimensions with {len(strides)} strides")
    return View(storage, offset, shape, strides)


def _storage(value: Any) -> Storage:
    if type(value) is not tuple or len(value) != 5 or value[0] != "storage":
        raise CheckpointError("its pickle refers to something outside that is no storage; nothing of it was run")
    _, kind, key, _, count = value
    if not isinstance(kind, Name) or type(key) is not str or type(count) is not int or count < 0:
        raise CheckpointError("it holds a storage whose description is broken")
    # An untyped one is named by the number type that follows.
    return Storage(STORAGES.get(kind.text, ""), key, count)
