"""Measurements that would run something when a server reads them."""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi.node.weights import measurements
from gaudi.weights import arrays
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).resolve().parents[2] / "weights/recorded/inc_hooks_maxabs_0_2.npz"
FETCHED = RECORDED.read_bytes()


def npz(tmp_path: Path, payload: bytes, descr: str = "'|O'", name: str = "arr_0.npy") -> Path:
    """An archive with one array of objects, whose elements are this pickle."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (), }}".encode()
    header += b" " * (118 - 1 - len(header)) + b"\n"
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + payload)
    return path


class HostilePickle:
    """Does something when it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return __import__("os").system, ("id",)


def test_what_numpy_wrote_is_taken() -> None:
    measurements.check_measurements(RECORDED, RECORDED.parent)


# Names that are put on the stack in parts, through the memo, or by a step of an older protocol.
THROUGH_MEMO = b"\x80\x04\x8c\x02os\x94\x8c\x06system\x940h\x00h\x01\x93\x8c\x02id\x85R."
OLD = b"cos\nsystem\n(S'id'\ntR."
INST = b"(S'id'\nios\nsystem\n."
HIDDEN_BEHIND = b"\x80\x04\x8c\x05numpy\x94\x8c\x05dtype\x94K\x01\x93."


@pytest.mark.parametrize(
    "payload",
    [
        *(pickle.dumps({"a": [HostilePickle()]}, protocol=protocol) for protocol in range(6)),
        THROUGH_MEMO,
        OLD,
        INST,
        HIDDEN_BEHIND,
        pickle.dumps(Path),
        b"",
        b"\x80\x04K\x01",
        b"\x80\x04\x82\x01.",
    ],
)
def test_what_runs_something_is_refused(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        measurements.check_measurements(npz(tmp_path, payload), tmp_path)
    assert refused.value.id == "measurements_unsafe"


def test_a_file_that_only_looks_like_an_archive_is_refused(tmp_path: Path) -> None:
    """numpy.load reads a pickle where the first bytes are no archive's; zipfile looks at the end."""
    path = npz(tmp_path, pickle.dumps(1))
    measurements.check_measurements(path, path.parent)
    path.write_bytes(pickle.dumps(HostilePickle()) + path.read_bytes())
    with pytest.raises(Refusal):
        measurements.check_measurements(path, path.parent)


@pytest.mark.parametrize("descr", ["[('a', '|O')]", "'|O', 'x': 1", "'|V8'", "'O8,O8'"])
def test_an_element_that_is_pickled_in_disguise_is_refused(tmp_path: Path, descr: str) -> None:
    with pytest.raises(Refusal):
        measurements.check_measurements(npz(tmp_path, pickle.dumps(HostilePickle()), descr), tmp_path)


def test_bounds_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path, pickle.dumps(list(range(100))))
    measurements.check_measurements(path, path.parent)
    for module, bound, most in (
        (arrays, "MOST_STEPS", 50),
        (measurements, "MOST_BYTES", 100),
        (measurements, "MOST_ARRAYS", 0),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, bound, most)
            with pytest.raises(Refusal):
                measurements.check_measurements(path, path.parent)


@given(st.binary(max_size=200), st.integers(0, len(FETCHED) - 1), st.integers(0, 255))
def test_no_damage_is_a_traceback(noise: bytes, at: int, byte: int) -> None:
    for content in (noise, b"PK\x03\x04" + noise, FETCHED[:at] + bytes([byte]) + FETCHED[at + 1 :], FETCHED[:at]):
        with contextlib.suppress(Refusal):
            measurements.check_npz(io.BytesIO(content), "x.npz")
        with contextlib.suppress(ValueError, IndexError):
            arrays.check_pickle(content)
