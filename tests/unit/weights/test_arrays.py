"""What numpy writes of measurements is taken, and nothing that would crash numpy or run something when it is read.

recorded/numpy.json has what numpy 1.26 and 2.4 wrote: archives of numpy.savez, and pickles of one array in all
protocols. What is marked SIGSEGV ended numpy 1.26.4 and 2.4.6 with it.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
from gaudi.node.weights.measurements import check_npz
from gaudi.weights import arrays

WRITTEN = json.loads((Path(__file__).parent / "recorded/numpy.json").read_text(encoding="utf-8"))
TWO = [(version, name) for version, said in WRITTEN.items() for name in said["npz"]]
PICKLES = [(version, name) for version, said in WRITTEN.items() for name in said["pickles"]]


@pytest.mark.parametrize(("version", "name"), TWO)
def test_what_numpy_saves_is_taken(version: str, name: str) -> None:
    check_npz(io.BytesIO(base64.b64decode(WRITTEN[version]["npz"][name])), name)


@pytest.mark.parametrize(("version", "name"), PICKLES)
def test_an_array_of_any_protocol_is_taken(version: str, name: str) -> None:
    arrays.check_pickle(base64.b64decode(WRITTEN[version]["pickles"][name]))


ARRAY = b"cnumpy\nndarray\n"
EIGHT = b"C\x08AAAAAAAA"


def dtype(name: bytes, state: bytes = b"") -> bytes:
    made = b"cnumpy\ndtype\n(S'" + name + b"'\nI00\nI01\ntR"
    return made + (b"(" + state + b"tb" if state else b"")


def plain(flags: int, order: bytes = b"|") -> bytes:
    return b"I3\nS'" + order + b"'\nNNNI-1\nI-1\nI" + str(flags).encode() + b"\n"


def array(shape: bytes, of: bytes, data: bytes) -> bytes:
    made = b"cnumpy.core.multiarray\n_reconstruct\n(" + ARRAY + b"(I0\ntS'b'\ntR"
    return made + b"(I1\n(" + shape + b"t" + of + b"I00\n" + data + b"tb."


NUMBERS = array(b"I1\n", dtype(b"f8", plain(0, b"<")), EIGHT)
OBJECTS = array(b"I2\n", dtype(b"O8", plain(63)), b"(I1\nNl")

CRAFTED = {
    # SIGSEGV: bytes that are taken for pointers.
    "objects that are said to be none": array(b"I1\n", dtype(b"O8", plain(0)), EIGHT),
    "objects whose bytes are turned round": array(b"I2\n", dtype(b"O8", plain(63, b">")), b"(I1\nNl"),
    "the memory of an array": ARRAY + b"((I1\nt" + dtype(b"O8") + EIGHT + b"tR.",
    "an object of bytes": b"cnumpy.core.multiarray\nscalar\n(" + dtype(b"O8", plain(0)) + EIGHT + b"tR.",
    "a type with parts": array(
        b"I1\n", dtype(b"V8", b"I3\nS'|'\n(" + dtype(b"O8") + b"(I100\nttNNI8\nI1\nI0\n"), EIGHT
    ),
    # SystemError.
    "numbers that are said to be objects": array(b"I1\n", dtype(b"f8", plain(63)), EIGHT),
    "a longer text": array(b"I1\n", dtype(b"U1", b"I3\nS'<'\nNNNI400\nI4\nI8\n"), b"C\x04AAAA"),
    "a type of several": array(b"I1\n", dtype(b"O,O"), EIGHT),
    "a type with a state of another version": dtype(b"f8", b"I4\nS'<'\nNNNI-1\nI-1\nI0\nN") + b".",
    "a type that is not copied": b"cnumpy\ndtype\n(S'f8'\nI00\nI00\ntR(" + plain(63) + b"tb.",
    "too few bytes": array(b"I2\n", dtype(b"f8"), EIGHT),
    "too few objects": array(b"I2\n", dtype(b"O8"), b"(Nl"),
    "bytes for objects": array(b"I1\n", dtype(b"O8"), EIGHT),
    "a negative shape": array(b"I-1\n", dtype(b"f8"), b"C\x00"),
    "a shape without end": array(b"I2\n" * 65, dtype(b"f8"), b"C\x00"),
    "a huge shape": array(b"I999999999\n", dtype(b"S0"), b"C\x00"),
    "another class": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.",
    "numbers without an order": array(b"I1\n", dtype(b"f8", plain(0, b"|")), EIGHT),
    "bytes with an order": array(b"I8\n", dtype(b"b1", plain(0, b">")), EIGHT),
    "a state for a list": b"](I1\ntb.",
    "a state for a class": ARRAY + b"(I1\ntb.",
    "an item of an array": NUMBERS[:-1] + b"I0\nI1\ns.",
    "a call of a text": b"S'x'\n(tR.",
    "a call of a class": ARRAY + b"(I1\ntR.",
    "a place far away": b"Np999999999999\n.",
    "an empty stack": b"0.",
    "no mark": b"Nt.",
    "a mark for a value": b"(p0\n.",
    "a value that is not there": b"g7\n.",
    "another coding": b"c_codecs\nencode\n(S'x'\nS'idna'\ntR.",
}


def test_what_they_are_made_from_is_taken() -> None:
    for pickled in (NUMBERS, OBJECTS, dtype(b"S3", b"I3\nS'|'\nNNNI3\nI1\nI0\n") + b"."):
        arrays.check_pickle(pickled)


@pytest.mark.parametrize("pickled", CRAFTED.values(), ids=CRAFTED.keys())
def test_what_would_crash_numpy_is_refused(pickled: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(a|an|bytes|the) "):
        arrays.check_pickle(pickled)


def test_a_name_that_is_doubled_without_end_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="names what cannot be told"):
        arrays.check_pickle(b"\x80\x04N" + b"2\x86" * 200 + b"2\x93.")


@pytest.mark.parametrize(
    ("descr", "shape", "size"), [("<f4", "(2,)", 4), ("<U1", "(1,)", 1), ("|S0", "(9999999999,)", 0), ("<f4", "()", 8)]
)
def test_a_header_that_promises_other_bytes_is_refused(descr: str, shape: str, size: int) -> None:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(size)
    with pytest.raises(ValueError, match="an array has"):
        arrays.check_array(content)
