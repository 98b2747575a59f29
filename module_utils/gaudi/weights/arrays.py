"""Whether measurement files hold what numpy needs and nothing that runs.

An .npz may hold pickles, and a pickle may call anything. The server reads them with numpy.load and allow_pickle, so
that they are looked at before they are published.
"""

from __future__ import annotations

import re
from io import BytesIO
from pickletools import genops

# Bounds on what is looked at: bytes of one array, arrays of one file, steps of one pickle. Measurements of the largest
# models have some ten megabytes a card.
MOST_BYTES = 256 * 1024 * 1024
MOST_ARRAYS = 64
MOST_STEPS = 4_000_000

MAGIC = b"\x93NUMPY"
# numpy/lib/format.py writes its header so; O is the only kind of element that is pickled.
HEADER = re.compile(
    rb"\{'descr': '[<>|=]?([biufcSUO])[0-9]*', 'fortran_order': (?:True|False), 'shape': \([0-9, ]*\), \} *\n"
)
# What a pickle of an array calls (ndarray.__reduce__, dtype.__reduce__, generic.__reduce__): nothing else may be named.
CALLED = {
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
# Numbers, texts, bytes, containers, and the steps that rebuild an array. Not among them: EXT*, INST, OBJ, NEWOBJ*,
# PERSID, which name or make other things.
PLAIN = {
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP"),
    *("NONE", "NEWTRUE", "NEWFALSE", "FLOAT", "BINFLOAT"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET"),
    *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
}  # fmt: skip
TEXTS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"}
PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
GETS = {"GET", "BINGET", "LONG_BINGET"}


def check_array(content: bytes) -> None:
    """Raise ValueError for what is no array, or one whose elements are pickled with more than arrays in them."""
    if content[: len(MAGIC)] != MAGIC or content[6:7] not in (b"\1", b"\2", b"\3"):
        raise ValueError("a member is no array")
    wide = 2 if content[6:7] == b"\1" else 4
    begin = 8 + wide
    end = begin + int.from_bytes(content[8:begin], "little")
    header = HEADER.fullmatch(content[begin:end])
    if header is None:
        raise ValueError("an array has a header that numpy does not write for measurements")
    if header[1] == b"O":
        check_pickle(content[end:])


def check_pickle(content: bytes) -> None:
    """Raise ValueError for a pickle with another step, or that names another thing, than an array needs."""
    memo: dict[int, str | None] = {}
    # The texts that were pushed last, where nothing else was since: what STACK_GLOBAL takes.
    pushed: list[str | None] = []
    for steps, (opcode, argument, _) in enumerate(genops(BytesIO(content))):
        step = opcode.name
        if step not in PLAIN or steps > MOST_STEPS:
            raise ValueError(f"a pickle has the step {step}, or more than {MOST_STEPS} steps")
        if step == "GLOBAL":
            _check_called(*str(argument).split(" ", 1))
        elif step == "STACK_GLOBAL":
            if len(pushed) < 2:
                raise ValueError("a pickle names what cannot be told")
            _check_called(pushed[-2], pushed[-1])
        if step in PUTS:
            place = len(memo) if argument is None else int(str(argument))
            memo[place] = pushed[-1] if pushed else None
        elif step in TEXTS:
            pushed.append(str(argument))
        elif step in GETS:
            pushed.append(memo.get(int(str(argument))))
        elif step != "FRAME":
            pushed = []


def _check_called(module: str | None, name: str | None = None) -> None:
    if (module, name) not in CALLED:
        raise ValueError(f"a pickle names {module}.{name}")
