"""The converter: files against hostile input, work against interruption."""

from __future__ import annotations

import array
import contextlib
import fcntl
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi_fp8.block.journal import BlockJournal
from gaudi_fp8.block.program import main, parse_arguments, worker_main
from gaudi_fp8.block.shard import convert_shard
from gaudi_fp8.block.source import examine
from gaudi_fp8.block.tables import GAUDI2, bf16_weight_table, scaled
from gaudi_fp8.block.work import convert
from gaudi_fp8.e4m3 import CODE_OF_240
from gaudi_fp8.safetensors import parse_header
from gaudi_fp8.staging import only_one
from gaudi_fp8.tasks import tasks_for
from hypothesis import given
from hypothesis import strategies as st

from simulator import host
from tests.integration.fp8 import checkpoints

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "roles" / "fp8_weights" / "files" / "fp8_convert.py"
RECORDED = json.loads((Path(__file__).parent / "recorded" / "torch.json").read_text())


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def refused(*arguments: object, **options: Any) -> str:
    result = run(*arguments, **options)
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if line.startswith("fp8_convert: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- a whole checkpoint ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale_dtype", ["F32", "BF16"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_checkpoint_is_converted_tensor_by_tensor(tmp_path: Path, scale_dtype: str, jobs: int) -> None:
    source = checkpoints.write(tmp_path / "in", scale_dtype=scale_dtype)
    before = tree(source)
    result = run(source, tmp_path / "out", "--jobs", jobs, "--verify")
    assert result.returncode == 0, result.stderr
    assert tree(source) == before
    table = bytes.fromhex(RECORDED["table 240/448"])
    for shard in sorted(source.glob("*.safetensors")):
        header, data = checkpoints.read(shard)
        new_header, new_data = checkpoints.read(tmp_path / "out" / shard.name)
        assert new_header.pop("__metadata__") == {"format": "pt", "gaudi_fp8_range": "240/448"}
        assert list(new_header) == [name for name in header if name != "__metadata__"]
        for name, old in data.items():
            if header[name]["dtype"] == "F8_E4M3":
                assert new_data[name] == old.translate(table)
            elif name.endswith("_scale_inv"):
                wide = (
                    old if scale_dtype == "F32" else b"".join(b"\0\0" + old[i : i + 2] for i in range(0, len(old), 2))
                )
                assert new_header[name]["dtype"] == "F32"
                assert new_data[name] == scaled(array.array("f", wide), GAUDI2).tobytes()
            else:
                assert new_data[name] == old


def test_what_belongs_to_the_model_is_carried_over_and_nothing_else(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    names = set(tree(tmp_path / "out"))
    assert {"config.json", "tokenizer.json", "code/modeling.py", ".gaudi-serving/fp8.json"} <= names
    assert not any(name.startswith(".git/") or name.endswith(".bin") for name in names)
    assert ".gaudi-serving/journal.json" not in names
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    sizes = [len(d) for s in (tmp_path / "out").glob("*.safetensors") for d in checkpoints.read(s)[1].values()]
    assert index["metadata"]["total_size"] == sum(sizes)
    assert not (tmp_path / "out.partial").exists()


def test_provenance_says_what_was_made_from_what(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "out", "--verify")
    made = json.loads((tmp_path / "out" / ".gaudi-serving" / "fp8.json").read_text())
    assert made["factor"] == "240/448"
    assert made["verified"] == "every byte"
    assert made["validated_on_hardware"] is False
    assert made["usable_with_published_measurements"] is True
    import zlib

    for name, shard in made["shards"].items():
        content = (tmp_path / "out" / name).read_bytes()
        assert shard == {"bytes": len(content), "crc32": f"{zlib.crc32(content):08x}"}


def test_a_second_run_does_nothing_and_takes_no_time(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    result = run(source, tmp_path / "out")
    assert "already the conversion" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_check_only_looks(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    before = tree(tmp_path)
    assert (run(source, tmp_path / "out", "--check").returncode, tree(tmp_path)) == (3, before)
    run(source, tmp_path / "out")
    before = tree(tmp_path)
    assert run(source, tmp_path / "out", "--check").returncode == 0
    # A sample was compared: every byte still has to be.
    assert run(source, tmp_path / "out", "--check", "--verify").returncode == 3
    assert tree(tmp_path) == before
    assert "every byte" in run(source, tmp_path / "out", "--verify").stdout
    assert run(source, tmp_path / "out", "--check", "--verify").returncode == 0
    assert "with other options" in refused(source, tmp_path / "out", "--check", "--exact-half")


def test_a_source_removed_after_its_conversion_is_not_missed(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "out")
    shutil.rmtree(source)
    assert "nothing to do" in run(source, tmp_path / "out").stdout
    assert run(source, tmp_path / "out", "--check").returncode == 0
    said = run(source, tmp_path / "out", "--verify")
    assert said.returncode == 0
    assert "to the byte what was written (held against the checksums in its record" in said.stdout
    shutil.rmtree(tmp_path / "out")
    assert "is not a folder" in refused(source, tmp_path / "out")


def test_a_source_fetched_again_is_the_same_only_with_the_same_files(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    manifest = source / ".gaudi-serving" / "manifest.json"
    manifest.parent.mkdir()
    files = [{"name": "config.json", "size": 44, "sha256": "aa"}]
    manifest.write_text(json.dumps({"schema": 1, "fetched": "monday", "files": files}))
    run(source, tmp_path / "out")
    manifest.write_text(json.dumps({"schema": 1, "fetched": "tuesday", "files": files}))
    assert run(source, tmp_path / "out").returncode == 0
    files[0]["sha256"] = "bb"
    manifest.write_text(json.dumps({"schema": 1, "fetched": "tuesday", "files": files}))
    assert "from another input" in refused(source, tmp_path / "out")


def test_killed_after_the_rename_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoints.write(tmp_path / "in")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockJournal, "remove_from", stop)
    with pytest.raises(KeyboardInterrupt):
        convert(parse_arguments([str(source), str(tmp_path / "out")]))
    assert "nothing to do" in run(source, tmp_path / "out").stdout


def test_what_a_node_that_shares_it_has_converted_is_not_converted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = checkpoints.write(tmp_path / "in"), tmp_path / "out"
    run(source, target)
    published, record = target.rename(tmp_path / "published"), tmp_path / "record"
    (published / ".gaudi-serving/fp8.json").rename(record)

    # As NFS does: before it is asked for what is in a folder, it knows nothing of what others put there.
    def revalidate_directory(*folders: Path) -> None:
        if target.parent in folders and published.exists():
            published.rename(target)
        if target / ".gaudi-serving" in folders:
            record.rename(target / ".gaudi-serving/fp8.json")

    monkeypatch.setattr("gaudi_fp8.staging.revalidate_directory", revalidate_directory)
    assert "nothing to do" in convert(parse_arguments([str(source), str(target)]))
    assert not target.with_name("out.partial").exists()


def test_exact_half_is_marked(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "out", "--exact-half")
    made = json.loads((tmp_path / "out" / ".gaudi-serving" / "fp8.json").read_text())
    assert (made["factor"], made["usable_with_published_measurements"]) == ("1/2", False)


def test_vendor_compatible_turns_a_bf16_projection_into_fp8(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=1)
    shard = next(source.glob("*.safetensors"))
    _, data = checkpoints.read(shard)
    header, _ = checkpoints.read(shard)
    entries = {name: (header[name]["dtype"], header[name]["shape"], data[name]) for name in data}
    weights = struct.pack("<4H", 0x3C23, 0xBC23, 0x0000, 0x3F80)
    entries["model.layers.0.eh_proj.weight"] = ("BF16", [2, 2], weights)
    shard.write_bytes(checkpoints.shard_bytes(entries))
    (source / "model.safetensors.index.json").unlink()
    assert run(source, tmp_path / "plain").returncode == 0
    assert checkpoints.read(tmp_path / "plain" / shard.name)[1]["model.layers.0.eh_proj.weight"] == weights
    assert run(source, tmp_path / "vendor", "--vendor-compatible", "--verify").returncode == 0
    new_header, new_data = checkpoints.read(tmp_path / "vendor" / shard.name)
    assert new_header["model.layers.0.eh_proj.weight"]["dtype"] == "F8_E4M3"
    table = bf16_weight_table(GAUDI2)
    assert new_data["model.layers.0.eh_proj.weight"] == bytes(table[p] for p in struct.unpack("<4H", weights))


def test_scales_of_activations_move_with_their_weight_and_nothing_else_does(tmp_path: Path) -> None:
    names = ["a.weight_scale_inv", "a.input_scale_inv", "b.weight_scale", "b.input_scale", "q_scale"]
    entries = {"a.weight": WEIGHT, "b.weight": WEIGHT, "q": WEIGHT, "q_input_scale": SCALE}
    entries |= dict.fromkeys(names, SCALE) | {"lonely.input_scale": SCALE, "lonely_scale_inv": SCALE}
    source = one_shard(tmp_path / "in", entries)
    assert run(source, tmp_path / "out").returncode == 0
    made = checkpoints.read(tmp_path / "out" / "model.safetensors")[1]
    moved = scaled(array.array("f", SCALE[2]), GAUDI2).tobytes()
    assert {name for name in entries if made[name] == moved} == {*names, "q_input_scale"}
    assert made["lonely.input_scale"] == made["lonely_scale_inv"] == SCALE[2]


def test_in_place_space_gives_up_each_verified_source_shard(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "reference")
    assert run(source, tmp_path / "out", "--in-place-space").returncode == 0
    assert not list(source.glob("*.safetensors"))
    assert (source / "config.json").exists()
    for shard in (tmp_path / "reference").glob("*.safetensors"):
        assert (tmp_path / "out" / shard.name).read_bytes() == shard.read_bytes()
    assert "already the conversion" in run(source, tmp_path / "out", "--in-place-space").stdout


def test_progress_is_a_document_a_follower_can_read(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "out", "--progress", tmp_path / "progress.json")
    state = json.loads((tmp_path / "progress.json").read_text())
    size = sum(path.stat().st_size for path in source.glob("*.safetensors"))
    assert set(state) == {"phase", "done", "total", "unit", "rate", "eta", "message"}
    assert (state["phase"], state["unit"], state["done"], state["total"]) == ("convert", "bytes", size, size)


# --- refusals ----------------------------------------------------------------------------------------------


def one_shard(folder: Path, entries: dict[str, Any], metadata: dict[str, str] | None = None) -> Path:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(checkpoints.shard_bytes(entries, metadata))
    return folder


RNG = random.Random(3)
WEIGHT = ("F8_E4M3", [128, 128], checkpoints.fp8(RNG, 128 * 128))
SCALE = ("F32", [1, 1], checkpoints.scales(RNG, 1))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"a.weight": WEIGHT}, "'a.weight' has no scale"),
        ({"a.weight": WEIGHT, "a.weight_scale_inv": ("I32", [1], b"\0" * 4)}, "'a.weight_scale_inv' has the dtype I32"),
        ({"a.weight": ("BF16", [1], b"\0\0")}, "no FP8 tensor"),
        ({"a.weight": ("F9", [1], b"\0")}, "'a.weight' has the dtype 'F9'"),
        ({"a.weight": ("F32", [3], b"\0" * 4)}, "is said to take 4 bytes, but F32 of shape [3] takes 12"),
        ({"a.weight": ("F32", [-1], b"\0" * 4)}, "has the shape [-1]"),
        (
            {"a.weight": ("F8_E4M3", [128, 128], b"\x70" * 16384), "a.weight_scale_inv": SCALE},
            "no value in the first 1 FP8 tensors",
        ),
    ],
    ids=["no-scale", "scale-type", "no-fp8", "dtype", "lying-size", "negative-shape", "looks-converted"],
)
def test_tensors_that_cannot_be_converted_are_named(tmp_path: Path, entries: dict[str, Any], said: str) -> None:
    source = one_shard(tmp_path / "in", entries)
    assert said in refused(source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def _header(raw: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


F32_AT = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x01", "too few for a safetensors header"),
        (_header(b'{"a"', length=100), "should have 100 bytes"),
        (_header(b"{}", length=4_000_000_000), "4000000000 bytes"),
        (_header(b'{"\xff": 1}'), "not UTF-8"),
        (_header(b"{nonsense"), "not JSON"),
        (_header(b"[]"), "not a JSON object"),
        (_header(b"[" * 100_000), "not JSON"),
        (_header(f'{{"a":{F32_AT % (0, 4)},"a":{F32_AT % (4, 8)}}}'.encode(), b"\0" * 8), "'a' stands twice"),
        (_header(f'{{"a":{F32_AT % (0, 4)},"b":{F32_AT % (2, 6)}}}'.encode(), b"\0" * 6), "overlaps"),
        (_header(f'{{"a":{F32_AT % (4, 8)}}}'.encode(), b"\0" * 8), "belong to no tensor"),
        (_header(f'{{"a":{F32_AT % (0, 4)}}}'.encode(), b"\0" * 3), "cut short"),
        (_header(f'{{"a":{F32_AT % (0, 4)}}}'.encode(), b"\0" * 5), "appended"),
        (_header(b'{"a":{"dtype":"F32","shape":[1]}}'), "not described by"),
        (_header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,true]}}'), "two positions"),
        (_header(b'{"__metadata__":{"a":1}}'), "__metadata__"),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_hostile_headers_end_in_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "model.safetensors").write_bytes(content)
    sentence = refused(tmp_path / "in", tmp_path / "out")
    assert said in sentence
    assert "model.safetensors" in sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@given(st.binary(max_size=200), st.integers(0, 64))
def test_no_header_ever_crashes_the_parser(noise: bytes, cut: int) -> None:
    good = checkpoints.shard_bytes({"a": ("F32", [1], b"\0" * 4)})
    for content in (noise, good[:cut] + noise, _header(noise)):
        with contextlib.suppress(Refusal):
            parse_header(io.BytesIO(content), len(content))


def test_tensors_of_no_size_are_kept(tmp_path: Path) -> None:
    entries = {"empty": ("F32", [0], b""), "a.weight": WEIGHT, "a.weight_scale_inv": SCALE, "last": ("U8", [2, 0], b"")}
    source = one_shard(tmp_path / "in", entries)
    assert run(source, tmp_path / "out", "--verify").returncode == 0
    assert set(checkpoints.read(tmp_path / "out" / "model.safetensors")[1]) == set(entries)


def test_an_input_converted_before_is_refused(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "once")
    assert "converted before" in refused(tmp_path / "once", tmp_path / "twice")
    shutil.rmtree(tmp_path / "once" / ".gaudi-serving")
    assert "gaudi_fp8_range" in refused(tmp_path / "once", tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_an_incomplete_input_is_refused(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    (source / "model-00002-of-00003.safetensors").unlink()
    assert "1 of 3 shards named in" in refused(source, tmp_path / "out")


def test_a_tensor_that_is_not_where_the_index_says_is_named(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    index = source / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["ghost"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(content))
    assert "'ghost'" in refused(source, tmp_path / "out")


def test_a_tensor_that_stands_in_two_shards_is_named(tmp_path: Path) -> None:
    source = one_shard(tmp_path / "in", {"a.weight": WEIGHT, "a.weight_scale_inv": SCALE})
    (source / "more.safetensors").write_bytes(checkpoints.shard_bytes({"a.weight_scale_inv": SCALE}))
    assert "'a.weight_scale_inv' stands in model.safetensors and again in more" in refused(source, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("target", ["in", "in/below", "."])
def test_source_and_target_must_be_apart(tmp_path: Path, target: str) -> None:
    source = checkpoints.write(tmp_path / "in")
    before = tree(tmp_path)
    assert "inside the other" in refused(source, tmp_path / target)
    assert tree(tmp_path) == before


def test_a_users_own_folder_is_never_touched(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    for name in ("out", "out.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("precious")
        assert "name another target" in refused(source, tmp_path / "out")
        assert tree(tmp_path / name) == {"mine": b"precious"}
        shutil.rmtree(tmp_path / name)


def test_a_source_that_changed_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoints.write(tmp_path / "in")
    conversion = parse_arguments([str(source), str(tmp_path / "out")])
    shard = source / "model-00003-of-00003.safetensors"

    def touch_then_carry(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gaudi_fp8.block.work.convert_missing", touch_then_carry)
    with contextlib.suppress(KeyboardInterrupt):
        convert(conversion)
    os.utime(shard, ns=(1, 1))
    assert "changed since the conversion began" in refused(source, tmp_path / "out")


def test_a_source_that_shrinks_under_the_reader_is_no_zeros(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=1, rows=65536) / "model-00001-of-00001.safetensors"
    target = tmp_path / "out.safetensors"
    actions = examine(source.parent, False, False, GAUDI2).actions[source.name]
    with pytest.raises(Refusal, match=r"changed while it was read: '.*' ends too early"):
        convert_shard(source, target, actions, GAUDI2, lambda _done: os.truncate(source, 20_000_000))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def work_of(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, after: Any) -> dict[str, Any]:
    """The last answer of a worker for the first shard, where something happens after the conversion."""
    convert, said = convert_shard, io.StringIO()

    def convert_then(source: Path, target: Path, *rest: Any) -> Any:
        result = convert(source, target, *rest)
        after(source, target)
        return result

    conversion = parse_arguments([str(source), str(target), "--in-place-space"])
    examined = examine(source, False, False, GAUDI2)
    target.mkdir()
    task = tasks_for(conversion, examined, ["model-00001-of-00003.safetensors"], target, convert=True)[0]
    monkeypatch.setattr("gaudi_fp8.block.program.convert_shard", convert_then)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(task)))
    monkeypatch.setattr(sys, "stdout", said)
    worker_main()
    return dict(json.loads(said.getvalue().splitlines()[-1]))


def test_a_source_that_changes_while_its_shard_is_converted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoints.write(tmp_path / "in")
    answer = work_of(source, tmp_path / "out", monkeypatch, lambda source, _target: os.utime(source, ns=(1, 1)))
    assert "changed while it was converted" in answer["error"]
    assert not list((tmp_path / "out").iterdir())


def test_a_twin_that_is_wrong_never_costs_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoints.write(tmp_path / "in")

    def spoil(_source: Path, target: Path) -> None:
        content = bytearray(target.read_bytes())
        content[-600] ^= 1
        target.write_bytes(content)

    answer = work_of(source, tmp_path / "out", monkeypatch, spoil)
    assert "is not the conversion of its source" in answer["error"]
    # Only a result is recorded, and only what is recorded is deleted.
    assert "result" not in answer


def test_other_options_do_not_continue_begun_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoints.write(tmp_path / "in")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gaudi_fp8.block.work.convert_missing", stop)
    with contextlib.suppress(KeyboardInterrupt):
        convert(parse_arguments([str(source), str(tmp_path / "out")]))
    assert "begun with other options" in refused(source, tmp_path / "out", "--exact-half")
    assert run(source, tmp_path / "out").returncode == 0


def test_two_conversions_into_one_target_exclude_each_other(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    conversion = parse_arguments([str(source), str(tmp_path / "out")])
    with only_one(conversion):
        assert "is running" in refused(source, tmp_path / "out")


def test_the_workers_of_a_killed_run_are_waited_for(tmp_path: Path) -> None:
    # A worker that lives on would rename what its successor is just writing into the result.
    source = checkpoints.write(tmp_path / "in")
    state = tmp_path / "out.partial" / ".gaudi-serving"
    state.mkdir(parents=True)
    with (state / "workers").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as such a worker does
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(source), str(tmp_path / "out")], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert "waits for the workers of a run that was killed" in process.stderr.readline()
        assert {path.name for path in state.iterdir()} == {"lock", "workers"}
    assert process.communicate()[0] is None
    assert process.returncode == 0
    assert sorted(path.name for path in (tmp_path / "out" / ".gaudi-serving").iterdir()) == ["fp8.json"]


def test_workers_hold_the_lock_they_are_waited_for_with(tmp_path: Path) -> None:
    conversion = parse_arguments([str(tmp_path / "in"), str(tmp_path / "out")])
    with only_one(conversion):
        crew = conversion.crew(1)
    with (tmp_path / "out.partial" / ".gaudi-serving" / "workers").open("a") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with crew:
            pass
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_verify_finds_one_wrong_byte(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    run(source, tmp_path / "out")
    shard = tmp_path / "out" / "model-00002-of-00003.safetensors"
    content = bytearray(shard.read_bytes())
    content[-700] ^= 1
    shard.write_bytes(content)
    assert run(source, tmp_path / "out").returncode == 0
    sentence = refused(source, tmp_path / "out", "--verify")
    assert "model-00002-of-00003.safetensors" in sentence
    assert "is not the conversion of its source" in sentence


# --- disks -------------------------------------------------------------------------------------------------


def test_too_little_room_is_refused_before_the_first_byte(tmp_path: Path, small_disk: Path) -> None:
    source = checkpoints.write(tmp_path / "in", rows=1024)
    sentence = refused(source, small_disk / "out")
    assert "needs 1.6 MB" in sentence
    assert "1.0 MB are free" in sentence
    assert "are missing" in sentence
    assert not list(small_disk.iterdir())


def test_a_disk_that_fills_up_keeps_what_is_finished(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoints.write(tmp_path / "in", rows=1024)
    monkeypatch.setattr("gaudi_fp8.block.journal.check_room", lambda *_: None)
    assert main([str(source), str(small_disk / "out"), "--jobs", "1"]) == 1
    assert "no room left" in capsys.readouterr().err
    assert not (small_disk / "out").exists()
    assert not list((small_disk / "out.partial").glob("*.writing"))
    done = json.loads((small_disk / "out.partial" / ".gaudi-serving" / "done.json").read_text())
    assert done
    host.run(host.as_root(["mount", "-o", "remount,size=8m", str(small_disk)]))
    result = run(source, small_disk / "out", "--verify")
    assert f"continuing: {len(done)} of 3 shards" in result.stderr
    assert result.returncode == 0


def test_work_begun_with_room_goes_on_in_place(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=6, rows=32768)
    assert run(source, tmp_path / "reference").returncode == 0
    while kill_in("some shards done", 0.0, source, tmp_path / "out") != "some shards done":
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)
    done = json.loads((tmp_path / "out.partial" / ".gaudi-serving" / "done.json").read_text())
    assert run(source, tmp_path / "out", "--in-place-space").returncode == 0
    assert result_of(tmp_path / "out") == result_of(tmp_path / "reference")
    # What was only compared by a sample keeps its source.
    assert {path.name for path in source.glob("*.safetensors")} == set(done)
    made = json.loads((tmp_path / "out" / ".gaudi-serving" / "fp8.json").read_text())
    assert (made["in_place_space"], made["verified"]) == (True, "a sample")
    assert "nothing to do" in run(source, tmp_path / "out").stdout


def test_a_read_only_target_is_said(tmp_path: Path, small_disk: Path) -> None:
    source = checkpoints.write(tmp_path / "in")
    host.run(host.as_root(["mount", "-o", "remount,ro", str(small_disk)]))
    assert "read-only file system" in refused(source, small_disk / "out")


# --- memory ------------------------------------------------------------------------------------------------

# Prints the largest resident memory (KiB) of any process of a command. A small process of its own, because the kernel
# counts the memory of whoever starts a process as that process's.
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


@pytest.fixture
def huge(tmp_path: Path) -> Iterator[Path]:
    """A shard whose positions take more than 32 bits, sparse, nearly all of it one tensor; the result is not sparse."""
    size, needed = 5 * 10**9, 6 * 10**9
    free = shutil.disk_usage(tmp_path).free
    if free < needed:
        pytest.fail(
            f"{tmp_path} has {free / 1e9:.1f} GB free and this test writes {needed / 1e9:.0f} GB. Free some room, or "
            "name another place with --basetemp."
        )
    header: dict[str, Any] = {}
    position = 0
    for name, rows in {"huge.weight": size >> 10, **{f"small.{n}.weight": 16 for n in range(200)}}.items():
        for leaf, dtype, shape, length in (
            (name, "F8_E4M3", [rows, 1024], rows * 1024),
            (name + "_scale_inv", "F32", [1, 8], 32),
        ):
            header[leaf] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + length]}
            position += length
    raw = json.dumps(header).encode()
    folder = tmp_path / "in"
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as shard:
        shard.write(struct.pack("<Q", len(raw)) + raw + b"\x7e")
        shard.truncate(8 + len(raw) + position)
    yield folder
    shutil.rmtree(tmp_path)


def test_memory_does_not_grow_with_the_shard(huge: Path) -> None:
    target = huge.with_name("out")
    command = [sys.executable, "-I", "-S", "-c", MEASURE, sys.executable, str(PROGRAM), str(huge), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    resident = int(done.stdout) * 1024
    print(f"largest process: {resident / 1e6:.0f} MB")
    assert resident < 150 * 10**6
    with (target / "model.safetensors").open("rb") as shard:
        header = parse_header(shard, (target / "model.safetensors").stat().st_size)
        shard.seek(header.data_start)
        # 448 has become 240, and the rest is zeros still.
        assert shard.read(3) == bytes([CODE_OF_240, 0, 0])
    assert header.data_start + header.tensors[-1].end > 2**32


def test_a_checkpoint_of_many_tensors_is_named_once(tmp_path: Path) -> None:
    # Once for 90 000 tensors, not once a tensor: that took hours.
    source = examine(checkpoints.write(tmp_path / "in"), False, False, GAUDI2)
    assert source.fingerprint is source.fingerprint


# --- interruption ------------------------------------------------------------------------------------------


PHASES = ("before the journal", "no shard done", "some shards done", "all shards done")


def phase_of(target: Path, shards: int) -> str:
    """Where a conversion stands, from what it has left on the disk."""
    if target.exists():
        return "in place"
    state = target.with_name(target.name + ".partial") / ".gaudi-serving"
    if not (state / "journal.json").exists():
        return PHASES[0]
    try:
        done = len(json.loads((state / "done.json").read_text()))
    except FileNotFoundError:
        done = 0
    return PHASES[1] if done == 0 else PHASES[2] if done < shards else PHASES[3]


def kill_in(wanted: str, pause: float, source: Path, target: Path, *options: str) -> str | None:
    """Start or continue a conversion and kill it a pause after it reached a phase; returns where that was.

    None when it had ended by itself.
    """
    with target.with_name(target.name + ".said").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(source), str(target), "--jobs", "2", *options],
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        known = (*PHASES, "in place")
        while process.poll() is None and known.index(phase_of(target, 6)) < known.index(wanted):
            pass
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        ended = process.poll() is not None
        if ended:
            said.seek(0)
            assert process.returncode == 0, said.read()
        else:
            process.send_signal(signal.SIGKILL)
            process.wait()
    return None if ended else phase_of(target, 6)


def wait_for_workers(target: Path) -> None:
    """Return when no worker of a killed conversion is left that could still write."""
    staging = target.with_name(target.name + ".partial")
    folder = (staging if staging.exists() else target) / ".gaudi-serving"
    folder.mkdir(exist_ok=True)
    with (folder / "workers").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def result_of(folder: Path) -> dict[str, bytes]:
    """What is served; the folder of records names its place and the way it was made."""
    return {name: content for name, content in tree(folder).items() if not name.startswith(".gaudi-serving/")}


def interrupt_and_continue(tmp_path: Path, rounds: int, seed: int) -> Counter[str]:
    """Kill conversions at random moments of every phase until it was often enough; returns how often in which."""
    rng = random.Random(seed)
    source = checkpoints.write(tmp_path / "in", shards=6, rows=32768)
    assert run(source, tmp_path / "reference", "--jobs", 2).returncode == 0
    expected = result_of(tmp_path / "reference")
    target = tmp_path / "out"
    hit: Counter[str] = Counter()
    for attempt in range(20 * rounds):
        if hit.total() >= rounds and set(PHASES) <= set(hit):
            break
        phase = kill_in(PHASES[attempt % len(PHASES)], rng.choice([0, rng.uniform(0, 0.1)]), source, target)
        if phase is not None:
            hit[phase] += 1
        if phase is None or phase == "in place":
            assert result_of(target) == expected
            shutil.rmtree(target)
        elif rng.random() < 0.5 and (tmp_path / "out.partial").exists():
            wait_for_workers(target)
            shutil.rmtree(tmp_path / "out.partial")  # so that the early phases come again
    result = run(source, target, "--jobs", 2, "--verify")
    assert result.returncode == 0, result.stderr
    assert result_of(target) == expected
    assert "converted" in run(source, target, "--check").stdout
    return hit


def test_killed_at_random_points_it_continues_to_the_same_bytes(tmp_path: Path) -> None:
    rounds = int(os.environ.get("GAUDI_FP8_KILLS", "8"))
    seed = int(os.environ.get("GAUDI_FP8_SEED", str(random.SystemRandom().randrange(10**6))))
    print(f"seed {seed} (repeat with GAUDI_FP8_SEED={seed} GAUDI_FP8_KILLS={rounds})")
    hit = interrupt_and_continue(tmp_path, rounds, seed)
    print(f"killed: {dict(hit)}")
    assert hit.total() >= rounds
    assert set(PHASES) <= set(hit)


def test_killed_while_it_gives_up_the_source_no_shard_is_lost(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=6, rows=32768)
    assert run(source, tmp_path / "reference").returncode == 0
    copy, target = tmp_path / "copy", tmp_path / "out"
    for wanted in ("no shard done", "some shards done", "all shards done"):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, copy, copy_function=shutil.copy2)
        kill_in(wanted, 0.0, copy, target, "--in-place-space")
        result = run(copy, target, "--in-place-space")
        assert result.returncode == 0, result.stderr
        assert result_of(target) == result_of(tmp_path / "reference")
        assert not list(copy.glob("*.safetensors"))


def test_a_killed_worker_is_said_and_what_is_finished_stays(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "in", shards=6, rows=32768)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(source), str(tmp_path / "out"), "--jobs", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    while phase_of(tmp_path / "out", 6) != "some shards done":
        assert process.poll() is None
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    said = process.communicate()[1]
    assert process.returncode == 1
    assert "a worker ended unexpectedly (status -9); run the same command again" in said
    continued = run(source, tmp_path / "out")
    assert continued.returncode == 0
    assert "of 6 shards are done" in continued.stderr


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    # On a busy machine it may be done before its workers are seen: then a longer one is tried.
    for rows in (8192, 65536, 262144):
        source = checkpoints.write(tmp_path / f"in-{rows}", shards=4, rows=rows)
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(source), str(tmp_path / f"out-{rows}"), "--jobs", "2"],
            stderr=subprocess.DEVNULL,
        )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        pids: list[str] = []
        while len(pids) < 2 and process.poll() is None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids = children.read_text().split()
        process.kill()
        process.wait()
        if len(pids) == 2:
            break
    assert len(pids) == 2
    deadline = time.monotonic() + 300
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker is still running"


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
