"""What is known of weights by the headers and records of their folder, and what of it is never opened."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.model.headers import header_bytes, weights_from
from ansible.module_utils.gaudi.node.report import weights as weights_report
from ansible.module_utils.gaudi.node.report.files import read_file
from ansible.module_utils.gaudi.node.report.weights import read_weights


def shard(path: Path, tensors: dict[str, tuple[str, int]]) -> None:
    offset, header = 0, {}
    for name, (kind, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": [size], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def test_weights_are_measured_not_guessed(tmp_path: Path) -> None:
    assert read_weights(str(tmp_path / "absent")) is None
    empty = read_weights(str(tmp_path))
    assert empty is not None
    assert empty.bytes is None
    shard(tmp_path / "model-1.safetensors", {"a": ("BF16", 200), "b": ("F32", 40)})
    shard(tmp_path / "model-2.safetensors", {"c": ("F8_E4M3", 7)})
    read = read_weights(str(tmp_path))
    assert read is not None
    assert read.bytes == 247
    assert read.parameters == {"BF16": 100, "F32": 10, "F8_E4M3": 7}
    assert not read.converted
    index = {"weight_map": {"a": "model-1.safetensors", "z": "model-9.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (tmp_path / ".gaudi-serving").mkdir()
    shards: dict[str, Any] = {f"model-{number}.safetensors": {} for number in (1, 2, 9)}
    record = {"tool": "fp8_convert", "shards": shards}
    (tmp_path / ".gaudi-serving" / "fp8.json").write_text(json.dumps(record), encoding="utf-8")
    read = read_weights(str(tmp_path))
    assert read is not None
    assert read.missing == ("model-9.safetensors",)
    # With a shard missing the sum would be a guess.
    assert read.bytes is None
    assert read.converted
    assert read.fits_published


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("", "fp8.json cannot be read (JSONDecodeError)"),
        ("{}", "fp8.json cannot be read (KeyError)"),
        ("[]", "fp8.json cannot be read (TypeError)"),
        ('{"tool": "fp8_convert", "shards": {}}', "is not the record of the weights beside it (it does not name m.saf"),
        (
            '{"tool": "me", "shards": {"m.safetensors": {}}}',
            "is not the record of the weights beside it (made by 'me')",
        ),
    ],
)
def test_a_record_that_proves_nothing_is_no_proof(record: str, says: str) -> None:
    header = b'{"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}'
    with pytest.raises(Refusal, match=re.escape(says)):
        weights_from({"m.safetensors": (header, 80)}, None, record)


def test_a_file_that_is_not_as_recorded_is_missing(tmp_path: Path) -> None:
    """The preflight says what to do about it, or has it repaired; a refused plan would stand in the way of both."""
    sizes = {}
    for name in ("one.safetensors", "two.safetensors"):
        shard(tmp_path / name, {"a": ("F8_E4M3", 7)})
        sizes[name] = {"bytes": (tmp_path / name).stat().st_size}
    (tmp_path / ".gaudi-serving").mkdir()
    record = {"tool": "fp8_convert", "shards": sizes}
    (tmp_path / ".gaudi-serving" / "fp8.json").write_text(json.dumps(record), encoding="utf-8")
    whole = read_weights(str(tmp_path))
    assert whole is not None
    assert (whole.missing, whole.bytes) == ((), 14)
    (tmp_path / "two.safetensors").write_bytes(b"12345")
    cut = read_weights(str(tmp_path))
    assert cut is not None
    assert (cut.missing, cut.bytes, cut.converted) == (("two.safetensors",), None, True)


# What somebody who brings weights could have root open, on the node that plans.
BROUGHT = ("model.safetensors", "model.safetensors.index.json", "config.json", ".gaudi-serving/fp8.json")


@pytest.mark.parametrize("name", BROUGHT)
@pytest.mark.parametrize("what", ["pipe", "device", "secret", "nothing"])
def test_what_is_no_file_of_the_weights_is_not_opened(tmp_path: Path, name: str, what: str) -> None:
    weights = tmp_path / "weights"
    (weights / ".gaudi-serving").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text('{"password": "hunter2"}')
    if what == "pipe":
        os.mkfifo(weights / name)
    else:
        leads: dict[str, str | Path] = {"device": "/dev/zero", "secret": secret, "nothing": tmp_path / "absent"}
        (weights / name).symlink_to(leads[what])
    signal.alarm(30)  # what opens the pipe waits for ever
    try:
        if (name, what) == ("config.json", "nothing"):
            read = read_weights(str(weights))
            assert read is not None
            assert read.code is None
            return
        with pytest.raises((Refusal, FileNotFoundError)) as refused:
            read_weights(str(weights))
    finally:
        signal.alarm(0)
    assert name in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert re.search("not a regular file|is a pipe|is a device|a link to|No such file", str(refused.value))


def test_a_bucket_file_is_no_link_out_of_its_folder(tmp_path: Path) -> None:
    """It may lie among weights that somebody brought, and a refusal quotes the line that is wrong."""
    weights = tmp_path / "weights"
    weights.mkdir()
    (tmp_path / "secret").write_text("hunter2\n")
    (weights / "own.txt").write_text("(1, 128, 0)\n")
    (weights / "buckets.txt").symlink_to(tmp_path / "secret")
    (weights / "linked.txt").symlink_to("own.txt")
    with pytest.raises(Refusal) as refused:
        read_file(str(weights / "buckets.txt"))
    assert refused.value.id == "link_leads_out"
    assert read_file(str(weights / "linked.txt")) == "(1, 128, 0)\n"
    assert read_file(str(weights / "absent.txt")) is None


@pytest.mark.report("W13")
def test_a_link_within_the_weights_or_a_hubs_cache_is_read(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "m/snapshots/c0", tmp_path / "m/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    shard(blobs / "aa", {"a": ("BF16", 20)})
    (snapshot / "model.safetensors").symlink_to("../../blobs/aa")
    read = read_weights(str(snapshot))
    assert read is not None
    assert read.bytes == 20


def test_a_cache_that_is_a_link_lets_nobody_read_what_it_leads_to(tmp_path: Path) -> None:
    """Its owner would read any file of root's by it."""
    snapshot, secret = tmp_path / "m/snapshots/c0", tmp_path / "etc"
    snapshot.mkdir(parents=True)
    secret.mkdir()
    shard(secret / "aa", {"a": ("BF16", 20)})
    (tmp_path / "m/blobs").symlink_to(secret)
    (snapshot / "model.safetensors").symlink_to("../../blobs/aa")
    with pytest.raises(Refusal) as refused:
        read_weights(str(snapshot))
    assert refused.value.id == "link_leads_out"


def test_headers_that_no_model_has_are_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file takes no room on its disk, and its header takes memory of root's."""
    monkeypatch.setattr(weights_report, "HEADERS_LIMIT", 100)
    for number in range(3):
        shard(tmp_path / f"model-{number}.safetensors", {"a": ("BF16", 20)})
    with pytest.raises(Refusal) as refused:
        read_weights(str(tmp_path))
    assert refused.value.id == "file_too_large"


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 8, struct.pack("<Q", 5), struct.pack("<Q", 2) + b"{"])
def test_a_file_cut_short_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(Refusal, match=re.escape(str(tmp_path / "model.safetensors"))):
        read_weights(str(tmp_path))


# A number with which Python cannot calculate.
HUGE = b'{"a": {"dtype": "BF16", "data_offsets": [0.5, %s]}}' % (b"9" * 400)


@pytest.mark.parametrize(
    "header", [b"[]", b"{", b'{"a": 5}', b'{"a": {"dtype": "BF16"}}', b'{"a": {"data_offsets": 1}}', HUGE]
)
def test_a_header_that_is_none_is_named(header: bytes) -> None:
    with pytest.raises(Refusal, match="one"):
        weights_from({"one": (header, 100)}, None)
    with pytest.raises(Refusal, match="index"):
        weights_from({}, header.decode())


def test_a_header_as_long_as_the_file_allows() -> None:
    assert header_bytes("x", struct.pack("<Q", 92), 100) == 92
    with pytest.raises(Refusal):
        header_bytes("x", struct.pack("<Q", 93), 100)
