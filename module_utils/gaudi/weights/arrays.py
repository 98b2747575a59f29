"""Check that measurement files contain only numpy arrays, and no pickled code that would run when they are read.

An .npz may contain pickles, and a pickle can call any function. The server reads them with numpy.load and allow_pickle,
so they are checked before they are published. A wrong numpy type alone can crash it: one that claims to contain
pointers, or an array with more elements than data. So the opcodes of a pickle are interpreted here, and only those that
numpy itself writes are accepted (ndarray.__reduce__, dtype.__reduce__ and generic.__reduce__ of numpy 1.26 and 2.4).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pickletools import genops
from typing import Any

# Limits: bytes of one array, arrays of one file, opcodes of one pickle. Measurements of the largest models have some
# ten megabytes a card.
MOST_BYTES = 256 * 1024 * 1024
MOST_ARRAYS = 64
MOST_STEPS = 4_000_000
# numpy's own limit of dimensions.
MOST_DIMENSIONS = 64

MAGIC = b"\x93NUMPY"
# The header that numpy/lib/format.py writes; O is the only element type that is pickled.
HEADER = re.compile(
    rb"\{'descr': '[<>|=]?([biufcSUO])([0-9]{0,9})', 'fortran_order': (?:True|False), 'shape': \(([0-9, ]*)\), \} *\n"
)
# How dtype.__reduce__ names a type: its kind, and the bytes of an element (characters for U).
TYPE = re.compile(r"(b)(1)|([iu])([1248])|(f)([248]|16)|(c)(8|16|32)|(O)(8)|([SU])([0-9]{1,9})")
# Bytes of one unit in a type's size.
UNIT = {"U": 4}
# What dtype.__reduce__ appends after the byte order: no subtype, names or fields; size and alignment for types of
# variable size; flags (numpy/core/include/numpy/ndarraytypes.h: 63 for object pointers, 8 for text).
PLAIN_TYPE, OBJECTS = (-1, -1, 0), (-1, -1, 63)


@dataclass(frozen=True)
class _PickledGlobal:
    """A global that a pickle calls."""

    module: str
    name: str


@dataclass(frozen=True)
class _Type:
    """An element type; size in bytes."""

    kind: str
    size: int

    @property
    def state(self) -> tuple[int, int, int]:
        """The state that numpy writes for it: size, alignment and flags."""
        said = {"O": OBJECTS, "S": (self.size, 1, 0), "U": (self.size, 4, 8)}
        return said.get(self.kind, PLAIN_TYPE)

    @property
    def orders(self) -> str:
        """Byte orders that numpy may write: none for a type without one; for pointers numpy would swap bytes."""
        return "|" if self.kind in "OS" or self.size == 1 else "<>"


class _Array:
    """An array, of whatever content."""


class _UnbuiltValue:
    """A value of which nothing is built."""


class _List:
    """A list with its length."""

    def __init__(self, length: int) -> None:
        self.length = length


class _Dict:
    """A dictionary."""


class _Set:
    """A set."""


_MARK = object()
_ARRAY_CLASS = _PickledGlobal("numpy", "ndarray")


def check_array(content: bytes) -> None:
    """Raise ValueError for a file that is not an array, or whose pickled elements contain more than arrays."""
    if content[: len(MAGIC)] != MAGIC or content[6:7] not in (b"\1", b"\2", b"\3"):
        raise ValueError("a member is no array")
    wide = 2 if content[6:7] == b"\1" else 4
    begin = 8 + wide
    end = begin + int.from_bytes(content[8:begin], "little")
    header = HEADER.fullmatch(content[begin:end])
    if header is None:
        raise ValueError("an array has a header that numpy does not write for measurements")
    kind = header[1].decode()
    if kind == "O":
        check_pickle(content[end:])
        return
    size = int(header[2] or b"0") * UNIT.get(kind, 1)
    shape = tuple(int(number) for number in header[3].split(b",") if number.strip())
    if _elements(shape) * size != len(content) - end:
        raise ValueError("an array has another size than its header says")


def check_pickle(content: bytes) -> None:
    """Raise ValueError for a pickle with any opcode or result that an array does not need."""
    values = _Values()
    for steps, (opcode, argument, _) in enumerate(genops(BytesIO(content))):
        step = _STEPS.get(opcode.name)
        if step is None or steps > MOST_STEPS:
            raise ValueError(f"a pickle has the step {opcode.name}, or more than {MOST_STEPS} steps")
        step(values, argument)


def _elements(shape: tuple[Any, ...]) -> int:
    """How many elements an array of a shape has."""
    if len(shape) > MOST_DIMENSIONS or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("an array has a shape that none has")
    count: int = math.prod(shape)
    if count > MOST_BYTES:
        raise ValueError(f"an array has more than {MOST_BYTES} elements")
    return count


class _Values:
    """The stack and the memo of a pickle, as far as later opcodes need them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def top(self) -> Any:
        """The last value."""
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("a pickle takes what it has not given")
        return self.stack[-1]

    def take(self) -> Any:
        """Remove and return the last value."""
        value = self.top()
        self.stack.pop()
        return value

    def take_marked(self) -> list[Any]:
        """Remove and return all values since the last mark, and the mark."""
        taken = []
        while self.stack and self.stack[-1] is not _MARK:
            taken.append(self.stack.pop())
        if not self.stack:
            raise ValueError("a pickle has no mark where it needs one")
        self.stack.pop()
        return taken[::-1]


def _push(values: _Values, argument: Any) -> None:
    values.stack.append(argument)


def _constant(value: Any, values: _Values, _argument: Any) -> None:
    values.stack.append(value)


def _new(make: Callable[[], Any], values: _Values, _argument: Any) -> None:
    values.stack.append(make())


def _nothing(_values: _Values, _argument: Any) -> None:
    """An opcode that only describes the pickle itself."""


def _pop(values: _Values, _argument: Any) -> None:
    if not values.stack:
        raise ValueError("a pickle takes what it has not given")
    values.stack.pop()


def _pop_marked(values: _Values, _argument: Any) -> None:
    values.take_marked()


def _dup(values: _Values, _argument: Any) -> None:
    values.stack.append(values.top())


def _put(values: _Values, argument: Any) -> None:
    place = len(values.memo) if argument is None else int(argument)
    # A reader allocates all memo slots up to this one.
    if place > MOST_STEPS:
        raise ValueError(f"a pickle remembers more than {MOST_STEPS} values")
    values.memo[place] = values.top()


def _get(values: _Values, argument: Any) -> None:
    place = int(argument)
    if place not in values.memo:
        raise ValueError("a pickle takes what it has not given")
    values.stack.append(values.memo[place])


def _tuple(length: int, values: _Values, _argument: Any) -> None:
    values.stack.append(tuple(values.take() for _ in range(length))[::-1])


def _marked_tuple(values: _Values, _argument: Any) -> None:
    values.stack.append(tuple(values.take_marked()))


def _marked(make: Callable[[int], Any], values: _Values, _argument: Any) -> None:
    values.stack.append(make(len(values.take_marked())))


def _fill(kind: type, count: int | None, values: _Values, _argument: Any) -> None:
    """Put values, or those since the last mark, into a container of the required kind."""
    added = len([values.take() for _ in range(count)] if count is not None else values.take_marked())
    into = values.top()
    if not isinstance(into, kind):
        raise ValueError("a pickle fills what is no container")
    if isinstance(into, _List):
        into.length += added


def _name(values: _Values, argument: Any) -> None:
    values.stack.append(_called(*str(argument).split(" ", 1)))


def _stacked_name(values: _Values, _argument: Any) -> None:
    name, module = values.take(), values.take()
    values.stack.append(_called(module, name))


def _called(module: Any, name: Any = None) -> _PickledGlobal:
    """Return the global with this name if arrays need it; no other may be named."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a pickle names what cannot be told")
    named = _PickledGlobal(module, name)
    if named not in _MAKERS and named != _ARRAY_CLASS:
        raise ValueError(f"a pickle names {module:.80}.{name:.80}")
    return named


def _call(values: _Values, _argument: Any) -> None:
    given, called = values.take(), values.take()
    maker = _MAKERS.get(called) if isinstance(called, _PickledGlobal) else None
    if maker is None or not isinstance(given, tuple):
        raise ValueError("a pickle calls what cannot be called")
    values.stack.append(maker(*given))


def _new_array(*given: Any) -> _Array:
    if len(given) != 3 or given[0] != _ARRAY_CLASS or given[1] != (0,) or given[2] not in (b"b", "b"):
        raise ValueError("an array is made as numpy makes none")
    return _Array()


def _new_type(*given: Any) -> _Type:
    found = TYPE.fullmatch(given[0]) if given and isinstance(given[0], str) else None
    if found is None or given[1:] != (False, True):
        raise ValueError("an array has elements that measurements have not")
    kind, size = (part for part in found.groups() if part is not None)
    return _Type(kind, int(size) * UNIT.get(kind, 1))


def _new_scalar(*given: Any) -> _UnbuiltValue:
    of, data = given if len(given) == 2 else (None, None)
    if not isinstance(of, _Type) or of.kind == "O" or not isinstance(data, bytes) or len(data) != of.size:
        raise ValueError("a number is made as numpy makes none")
    return _UnbuiltValue()


def _encoded(*given: Any) -> bytes:
    """Decode bytes as protocols before 3 write them."""
    text, coding = given if len(given) == 2 else (None, None)
    if not isinstance(text, str) or coding != "latin1":
        raise ValueError("bytes are made as no pickle makes them")
    return text.encode("latin-1")


def _build(values: _Values, _argument: Any) -> None:
    state, built = values.take(), values.top()
    if not isinstance(state, tuple) or not isinstance(built, (_Type, _Array)):
        raise ValueError("a pickle gives a state to what has none")
    if isinstance(built, _Type):
        _check_type(built, state)
    else:
        _check_elements(state)


def _check_type(built: _Type, state: tuple[Any, ...]) -> None:
    order = state[1] if len(state) == 8 else None
    if order not in tuple(built.orders) or state != (3, order, None, None, None, *built.state):
        raise ValueError("a type has a state that numpy does not write for it")


def _check_elements(state: tuple[Any, ...]) -> None:
    version, shape, of, fortran, data = state if len(state) == 5 else (None,) * 5
    if version != 1 or not isinstance(shape, tuple) or not isinstance(of, _Type) or fortran not in (False, True):
        raise ValueError("an array has a state that numpy does not write")
    count = _elements(shape)
    if of.kind == "O":
        whole = isinstance(data, _List) and data.length == count
    else:
        whole = isinstance(data, bytes) and len(data) == count * of.size
    if not whole:
        raise ValueError("an array has other elements than its shape says")


_MAKERS: dict[_PickledGlobal, Callable[..., Any]] = {
    **{
        _PickledGlobal(f"numpy.{core}.multiarray", name): maker
        for core in ("core", "_core")
        for name, maker in (("_reconstruct", _new_array), ("scalar", _new_scalar))
    },
    _PickledGlobal("numpy", "dtype"): _new_type,
    _PickledGlobal("_codecs", "encode"): _encoded,
}

# Opcodes for numbers, text, bytes, containers, and for rebuilding an array. Excluded are EXT*, INST, OBJ, NEWOBJ* and
# PERSID, which name or create other objects.
_STEPS: dict[str, Callable[[_Values, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"), _push),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"), _push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING", "BINSTRING", "SHORT_BINSTRING"), _push),
    "NONE": partial(_constant, None),
    "NEWTRUE": partial(_constant, True),
    "NEWFALSE": partial(_constant, False),
    "EMPTY_TUPLE": partial(_constant, ()),
    "MARK": partial(_constant, _MARK),
    "POP": _pop,
    "POP_MARK": _pop_marked,
    "DUP": _dup,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "TUPLE": _marked_tuple,
    "TUPLE1": partial(_tuple, 1),
    "TUPLE2": partial(_tuple, 2),
    "TUPLE3": partial(_tuple, 3),
    "EMPTY_LIST": partial(_new, partial(_List, 0)),
    "EMPTY_DICT": partial(_new, _Dict),
    "EMPTY_SET": partial(_new, _Set),
    "LIST": partial(_marked, _List),
    "DICT": partial(_marked, lambda _count: _Dict()),
    "FROZENSET": partial(_marked, lambda _count: _UnbuiltValue()),
    "APPEND": partial(_fill, _List, 1),
    "APPENDS": partial(_fill, _List, None),
    "SETITEM": partial(_fill, _Dict, 2),
    "SETITEMS": partial(_fill, _Dict, None),
    "ADDITEMS": partial(_fill, _Set, None),
    "GLOBAL": _name,
    "STACK_GLOBAL": _stacked_name,
    "REDUCE": _call,
    "BUILD": _build,
}
