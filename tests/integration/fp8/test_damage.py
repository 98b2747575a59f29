"""Results that are damaged, and a source that is: what is found, what is said, how it is repaired."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi_fp8.block.program import main
from gaudi_fp8.block.tensors import decide
from gaudi_fp8.safetensors import ShardTensor
from gaudi_fp8.workers import Crew

from tests.integration.fp8 import checkpoints
from tests.integration.fp8.lines import at_line
from tests.integration.fp8.test_fp8_convert import PROGRAM, refused, result_of, run, wait_for_workers

SHARD = "model-00002-of-00003.safetensors"


def spoil(path: Path, at: int = -700, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


def record(target: Path) -> dict[str, Any]:
    return dict(json.loads((target / ".gaudi-serving" / "fp8.json").read_text()))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "in")


def begin(source: Path, target: Path, *options: str) -> list[str]:
    """Kill a conversion when one of its shards is done; returns its name."""
    record = (PROGRAM.parent / "gaudi_fp8/block/journal.py", "        self.done[name] = result")
    counted = target.with_name("lines")
    killed = at_line(PROGRAM, 2, signal.SIGKILL, counted, source, target, "--jobs", 1, *options, line=record)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_for_workers(target)
    return list(json.loads((target.with_name(f"{target.name}.partial") / ".gaudi-serving" / "done.json").read_text()))


def test_a_continued_verification_compares_what_was_done_before(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    assert run(source, tmp_path / "whole").returncode == 0
    names = begin(source, tmp_path / "out")
    # Not in the sample, which was compared before.
    spoil(tmp_path / "out.partial" / names[0], -100)
    result = run(source, tmp_path / "out", "--verify")
    assert result.returncode == 0, result.stderr
    assert f"{names[0]}: tensor 'model.layers" in result.stderr
    assert "it is converted again" in result.stderr
    assert result_of(tmp_path / "out") == result_of(tmp_path / "whole")
    assert record(tmp_path / "out")["verified"] == "every byte"


def test_a_damaged_twin_of_a_shard_that_was_given_up_is_never_published(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    (name, *_) = begin(source, tmp_path / "out", "--in-place-space")
    (source / name).unlink(missing_ok=True)
    spoil(tmp_path / "out.partial" / name)
    sentence = refused(source, tmp_path / "out", "--in-place-space", "--verify")
    assert f"{name}: its size or checksum is not the recorded one, and its source was given up" in sentence
    assert "fetch the model again" in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("again", [[], ["--verify"]])
def test_what_a_verification_found_wrong_is_converted_anew(source: Path, tmp_path: Path, again: list[str]) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    good = result_of(target)
    untouched = (target / "model-00001-of-00003.safetensors").stat().st_mtime_ns
    spoil(target / SHARD)
    spoil(target / "tokenizer.json", 0)
    assert "Run the same command again" in refused(source, target, "--verify")
    made = record(target)
    assert made["verified"] == "found wrong"
    assert made["wrong"]["files"] == [SHARD, "tokenizer.json"]
    for options in ([], ["--verify"]):
        assert run(source, target, "--check", *options).returncode == 3
    assert run(source, target, *again).returncode == 0
    assert result_of(target) == good
    assert (target / "model-00001-of-00003.safetensors").stat().st_mtime_ns == untouched
    made = record(target)
    assert made["verified"] == "every byte"
    assert "wrong" not in made
    assert [path.name for path in (target / ".gaudi-serving").iterdir()] == ["fp8.json"]
    assert run(source, target, "--check", "--verify").returncode == 0


def test_what_was_found_wrong_cannot_be_repaired_without_its_source(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    copy = shutil.copytree(source, tmp_path / "copy")
    assert run(source, target, "--in-place-space").returncode == 0
    good = result_of(target)
    said = run(source, target, "--verify")
    assert (said.returncode, "held against the checksums" in said.stdout) == (0, True)
    spoil(target / SHARD)
    sentence = refused(source, target, "--verify")
    assert f"{SHARD}: its size or checksum is not the recorded one" in sentence
    assert f"Fetch {source} again" in sentence
    for options in ([], ["--check"]):
        assert f"({SHARD}), and {source}, which it was made from, is gone" in refused(source, target, *options)
    shutil.rmtree(source)
    copy.rename(source)
    assert "converted again what was found wrong" in run(source, target).stdout
    assert result_of(target) == good


def test_carried_files_are_looked_at(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    assert set(record(target)["carried"]) == {
        "code/modeling.py", "config.json", "model.safetensors.index.json", "tokenizer.json"
    }  # fmt: skip
    good = result_of(target)
    (target / "config.json").unlink()
    assert run(source, target, "--check").returncode == 3
    assert "converted again what was found wrong (config.json)" in run(source, target).stdout
    assert result_of(target) == good


@pytest.mark.parametrize("again", [[], ["--verify"]])
def test_a_shard_that_was_cut_short_is_converted_anew(source: Path, tmp_path: Path, again: list[str]) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    good = result_of(target)
    os.truncate(target / SHARD, 1000)
    assert run(source, target, "--check").returncode == 3
    result = run(source, target, *again)
    assert result.returncode == 0, result.stderr
    assert result_of(target) == good
    assert "wrong" not in record(target)
    assert run(source, target, "--check").returncode == 0


def test_every_byte_is_read_again_and_nothing_is_converted(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert "there is nothing to read" in run(source, target, "--reread").stdout
    assert run(source, target, "--verify").returncode == 0
    good = result_of(target)
    assert "files are to the byte what was written" in run(source, target, "--reread").stdout
    spoil(target / SHARD)
    os.truncate(target / "tokenizer.json", 1)
    bad = (target / SHARD).read_bytes()
    for _ in range(2):
        sentence = refused(source, target, "--reread")
        assert "(2 of 7 files are wrong" in sentence
        assert "Convert it again (playbooks/convert_weights.yml)" in sentence
        assert record(target)["wrong"]["files"] == [SHARD, "tokenizer.json"]
    assert (target / SHARD).read_bytes() == bad
    assert run(source, target).returncode == 0
    assert result_of(target) == good
    assert record(target)["verified"] == "every byte"


def test_what_somebody_put_right_is_no_longer_wrong(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    before = record(target)
    spoil(target / SHARD)
    refused(source, target, "--reread")
    spoil(target / SHARD)
    shutil.rmtree(source)
    assert run(source, target, "--reread").returncode == 0
    assert record(target) == before


def test_a_record_without_carried_files_is_accepted(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    made = record(target)
    del made["carried"]
    (target / ".gaudi-serving" / "fp8.json").write_text(json.dumps(made))
    assert run(source, target, "--check").returncode == 0
    assert run(source, target, "--verify").returncode == 0


# --- input of the wrong form -------------------------------------------------------------------------------

RAW = b'{"a":{"dtype":%s,"shape":%s,"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (RAW % (b'["F8"]', b"[4]"), "has the dtype ['F8']"),
        (RAW % (b'"F8_E4M3"', b"[" + b"9" * 5000 + b"]"), "a"),
        (RAW % (b'"F8_E4M3"', b"[" + b"9" * 4000 + b"]"), "has the shape [99999"),
        (RAW % (b'"F8_E4M3"', b"[" + b",".join([b"4611686018427387904"] * 5000) + b"]"), "has the shape [46116860"),
        (RAW.replace(b'"a"', b'"\\ud800"') % (b'"F8_E4M3"', b"[4]"), "a name in the header is no text"),
        (b'{"__metadata__":{"x":"\\udfff"}}', "a name in the header is no text"),
    ],
    ids=["dtype list", "5000 digits", "4000 digits", "5000 dimensions", "surrogate name", "surrogate metadata"],
)
def test_headers_of_the_wrong_form_are_refused(tmp_path: Path, header: bytes, said: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"xxxx")
    sentence = refused(tmp_path / "in", tmp_path / "out")
    assert f"{tmp_path}/in/model.safetensors: " in sentence
    assert said in sentence
    assert len(sentence) < 500
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("metadata", ["null", "[]", "1"])
def test_an_index_of_the_wrong_form_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, metadata: str
) -> None:
    index = source / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('{"total_size": 1}', metadata))
    assert f"{index} is damaged: it has no metadata, or of another type; fetch the model again" in refused(
        source, tmp_path / "out"
    )
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"tool": "fp8_convert", "shards": {"a": 1}}'])
@pytest.mark.parametrize("option", [[], ["--check"], ["--verify"]], ids=str)
def test_a_damaged_record_is_said(source: Path, tmp_path: Path, content: str, option: list[str]) -> None:
    (tmp_path / "out" / ".gaudi-serving").mkdir(parents=True)
    (tmp_path / "out" / ".gaudi-serving" / "fp8.json").write_text(content)
    sentence = refused(source, tmp_path / "out", *option)
    assert "name another target" in sentence or "away and run this again" in sentence


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("journal.json", "{"),
        ("journal.json", "{}"),
        ("journal.json", "[]"),
        ("done.json", "{"),
        ("done.json", '{"a":1}'),
    ],
)
def test_a_damaged_journal_is_said(tmp_path: Path, name: str, content: str) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    begin(source, tmp_path / "out")
    path = tmp_path / "out.partial" / ".gaudi-serving" / name
    path.write_text(content)
    sentence = refused(source, tmp_path / "out")
    assert str(path) in sentence
    assert f"remove {tmp_path}/out.partial to start over" in sentence


@pytest.mark.parametrize("identity", [[1, 2], [1, 2, True], [1, 2, 3, 4], 1])
def test_a_journal_that_does_not_tell_its_shards_apart_is_said(tmp_path: Path, identity: object) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    begin(source, tmp_path / "out")
    path = tmp_path / "out.partial" / ".gaudi-serving" / "journal.json"
    content = json.loads(path.read_text())
    content["source"][min(content["source"])] = identity
    path.write_text(json.dumps(content))
    assert f"{path} is damaged: it " in refused(source, tmp_path / "out")


# --- places ------------------------------------------------------------------------------------------------


def test_a_target_that_is_a_link_to_nothing_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    assert "is a link to" in refused(source, tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zz.safetensors", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("model.safetensors.index.json", "is damaged: it is a pipe; fetch the model again"),
    ],
)
def test_pipes_are_refused_and_not_waited_for(source: Path, tmp_path: Path, name: str, said: str) -> None:
    (source / "model.safetensors.index.json").unlink()
    os.mkfifo(source / name)
    sentence = refused(source, tmp_path / "out", timeout=300)
    assert f"{source / name} {said}" in sentence
    assert not (tmp_path / "out.partial").exists()


def test_an_error_before_the_journal_leaves_nothing(source: Path, tmp_path: Path) -> None:
    shard = source / SHARD
    shard.unlink()
    shard.symlink_to(shard.name)  # a loop, which not even root can open
    sentence = refused(source, tmp_path / "out")
    assert SHARD in sentence
    assert not (tmp_path / "out.partial").exists()


def test_a_source_that_is_gone_meanwhile_is_named(tmp_path: Path) -> None:
    # On a busy machine it may be done before its source is gone: then a longer one is tried.
    for rows in (16384, 65536, 262144):
        source, target = tmp_path / f"in-{rows}", tmp_path / f"out-{rows}"
        checkpoints.write(source, shards=4, rows=rows)
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(source), str(target), "--jobs", "1"], stderr=subprocess.PIPE, text=True
        )
        journal = target.with_name(f"{target.name}.partial") / ".gaudi-serving" / "journal.json"
        while not journal.exists() and process.poll() is None:
            pass
        shutil.rmtree(source)
        _, said = process.communicate()
        if process.returncode:
            break
    assert process.returncode == 1, said
    assert f"fp8_convert: {source}" in said
    assert "fetch" in said


# --- quiet ends --------------------------------------------------------------------------------------------


def test_workers_of_a_killed_parent_end_without_a_word(tmp_path: Path) -> None:
    # On a busy machine it may be done before it is seen at work: then a longer one is tried.
    for rows in (65536, 262144, 1048576):
        source, target = tmp_path / f"in-{rows}", tmp_path / f"out-{rows}"
        checkpoints.write(source, shards=4, rows=rows)
        with (tmp_path / f"said-{rows}").open("w+") as said:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(source), str(target), "--jobs", "2"], stderr=said
            )
            while process.poll() is None and not list(target.with_name(f"{target.name}.partial").glob("*.writing")):
                pass
            process.kill()
            process.wait()
            if target.exists():
                continue
            wait_for_workers(target)
            said.seek(0)
            assert [line for line in said if not line.startswith("convert: ")] == []
        break
    assert not target.exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "stop"])
def test_interrupted_at_any_line_it_ends_with_a_sentence(tmp_path: Path, sent: signal.Signals) -> None:
    source = checkpoints.write(tmp_path / "in", shards=2, rows=256)

    def interrupted(line: int) -> tuple[int, str]:
        done = at_line(PROGRAM, line, sent, tmp_path / "lines", source, tmp_path / "out", "--jobs", 2)
        assert not list(tmp_path.glob("out.partial/*.writing"))
        for name in ("out", "out.partial"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        return done.returncode, done.stderr

    assert interrupted(0)[0] == 0
    lines = int((tmp_path / "lines").read_text())
    statuses = set()
    for line in [*range(1, 6), *(lines * part // 12 for part in range(1, 12))]:
        status, said = interrupted(line)
        assert "Traceback" not in said, (line, said)
        assert status != 130 or "run the same command to continue" in said, (line, said)
        statuses.add(status)
    # Before there is somebody to say so the signal itself ends it, later a sentence does.
    assert statuses == {-sent, 130}


def test_a_source_that_was_written_since_is_read_though_its_sizes_are_the_same(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    # The sign: codes beside each other may become the same one.
    spoil(source / SHARD, bit=0x80)
    assert run(source, target, "--check").returncode == 3
    assert f"{SHARD}: tensor" in refused(source, target)
    assert run(source, target).returncode == 0
    assert run(source, tmp_path / "again").returncode == 0
    assert result_of(target) == result_of(tmp_path / "again")


def test_a_source_that_was_only_copied_anew_is_compared_once(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    os.utime(source / SHARD)
    assert run(source, target, "--check").returncode == 3
    assert "every byte of it" in run(source, target).stdout
    assert run(source, target, "--check").returncode == 0
    assert "nothing to do" in run(source, target).stdout


def test_a_repair_that_ends_early_leaves_no_half_shard(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    spoil(target / SHARD)
    refused(source, target, "--verify")

    def interrupted(*_: object) -> None:
        (target / f"{SHARD}.writing").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Crew, "run", interrupted)
        assert main([str(source), str(target)]) == 130
    assert not list(target.glob("*.writing"))
    assert run(source, target).returncode == 0


def test_a_repair_looks_for_room_first(tmp_path: Path, small_disk: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    target = small_disk / "out"
    assert run(source, target).returncode == 0
    good = result_of(target)
    spoil(target / SHARD)
    refused(source, target, "--verify")
    filler = small_disk / "filler"
    room = os.statvfs(small_disk)
    filler.write_bytes(bytes((room.f_bavail - 4) * room.f_frsize))
    said = refused(source, target)
    assert "converting 1 shards needs" in said
    assert "in-place" not in said
    assert not list(target.glob("*.writing"))
    filler.unlink()
    assert run(source, target).returncode == 0
    assert result_of(target) == good


def test_a_repair_that_is_killed_continues(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=4, rows=16384)
    target = tmp_path / "out"
    assert run(source, target).returncode == 0
    good = result_of(target)
    wrong = sorted(path.name for path in target.glob("*.safetensors"))[:3]
    for name in wrong:
        spoil(target / name)
    refused(source, target, "--verify")
    repair = subprocess.Popen([sys.executable, str(PROGRAM), str(source), str(target), "--jobs", "1"])
    while not list(target.glob("*.writing")):
        assert repair.poll() is None
    repair.kill()
    repair.wait()
    wait_for_workers(target)
    assert record(target)["wrong"]["files"] == wrong
    assert run(source, target).returncode == 0
    assert result_of(target) == good
    assert not list(target.glob("*.writing"))


def test_a_folder_that_is_a_link_is_not_left_out_without_a_word(source: Path, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (source / "templates").symlink_to(tmp_path / "templates")
    assert f"{source / 'templates'} is a symbolic link to a folder" in refused(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("weight", "scale", "fits"),
    [
        ([7168, 2048], [56, 16], True),
        ([7168, 2048], [7168], True),
        ([7168, 2048], [7168, 1], True),
        ([7168, 2048], [], True),
        ([7168, 2048], [1], True),
        ([128, 7168, 2048], [128, 56, 16], True),
        ([0, 128], [0, 1], True),
        ([7168, 2048], [56], False),
        ([7168, 2048], [56, 4096], False),
        ([7168, 2048], [0, 16], False),
        ([7168, 2048], [2, 56, 16], False),
    ],
)
def test_a_scale_has_to_fit_its_weight(weight: list[int], scale: list[int], fits: bool) -> None:
    tensors = [
        ShardTensor("a.weight", "F8_E4M3", tuple(weight), 0, 0),
        ShardTensor("a.weight_scale_inv", "F32", tuple(scale), 0, 0),
    ]
    if fits:
        assert decide(tensors, vendor_compatible=False) == {"a.weight": "weight", "a.weight_scale_inv": "scale"}
    else:
        with pytest.raises(Refusal, match=r"the scale 'a.weight_scale_inv' has the shape .* its weight's \[7168"):
            decide(tensors, vendor_compatible=False)
