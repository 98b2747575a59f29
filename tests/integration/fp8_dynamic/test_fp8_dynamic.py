"""Dynamic FP8: arithmetic against torch, files as the server reads them, refusals, interruption."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi.node.files import write_json
from gaudi_fp8.dynamic.conversion import DynamicConversion
from gaudi_fp8.dynamic.journal import open_journal
from gaudi_fp8.dynamic.program import explain, parse_arguments
from gaudi_fp8.dynamic.shard import PIECE, layout, pieces, rows_of
from gaudi_fp8.dynamic.tables import CODE_OF_MAX, bfloat16, codes_of, largest, scale_pattern, table_of, value_of
from gaudi_fp8.dynamic.tensors import LARGEST_ROW, decide, is_projection
from gaudi_fp8.dynamic.work import convert
from gaudi_fp8.safetensors import ShardTensor, parse_header

from tests.integration.fp8 import checkpoints
from tests.integration.fp8.lines import at_line

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "roles" / "fp8_weights" / "files" / "fp8_dynamic.py"
RECORDED = json.loads((Path(__file__).parent / "recorded" / "torch.json").read_text())
FINITE = 0x7F80
EXPERTS = "model.language_model.layers.{}.mlp.experts.gate_up_proj"
Q_PROJ = "model.language_model.layers.{}.self_attn.q_proj.weight"


def bf16(rng: random.Random, count: int) -> bytes:
    """Weights around zero as bfloat16."""
    return b"".join(struct.pack("<f", rng.gauss(0, 0.02))[2:] for _ in range(count))


def layer(rng: random.Random, number: int) -> dict[str, Any]:
    """A layer like Qwen3-VL's: attention with a bias, a router, fused experts, norms; a block of its vision tower."""
    base, tower = f"model.language_model.layers.{number}", f"model.visual.blocks.{number}"
    return {
        f"{base}.self_attn.q_proj.weight": ("BF16", [24, 40], bf16(rng, 960)),
        f"{base}.self_attn.q_proj.bias": ("BF16", [24], bf16(rng, 24)),
        f"{base}.self_attn.k_proj.weight": ("BF16", [9, 40], bf16(rng, 360)),
        f"{base}.self_attn.v_proj.weight": ("BF16", [9, 40], bf16(rng, 360)),
        f"{base}.self_attn.o_proj.weight": ("BF16", [40, 24], bf16(rng, 960)),
        f"{base}.mlp.gate.weight": ("BF16", [3, 40], bf16(rng, 120)),
        f"{base}.mlp.experts.gate_up_proj": ("BF16", [3, 40, 16], bf16(rng, 1920)),
        f"{base}.mlp.experts.down_proj": ("BF16", [3, 8, 40], bf16(rng, 960)),
        f"{base}.input_layernorm.weight": ("BF16", [40], bf16(rng, 40)),
        f"{tower}.attn.qkv.weight": ("BF16", [30, 10], bf16(rng, 300)),
        f"{tower}.attn.proj.weight": ("BF16", [10, 10], bf16(rng, 100)),
        f"{tower}.attn.proj.bias": ("BF16", [10], bf16(rng, 10)),
        f"{tower}.mlp.linear_fc1.weight": ("BF16", [20, 10], bf16(rng, 200)),
    }


def write(folder: Path, shards: int = 3, change: dict[str, Any] | None = None, seed: int = 1) -> Path:
    """A whole multimodal checkpoint; ``change`` replaces or (None) removes tensors by name."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        entries = layer(rng, number)
        if number == 0:
            entries |= change or {}
            entries = {key: value for key, value in entries.items() if value is not None}
        (folder / name).write_bytes(checkpoints.shard_bytes(entries, {"format": "pt"}))
        weight_map |= dict.fromkeys(entries, name)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    )
    (folder / "config.json").write_text('{"model_type": "qwen3_vl_moe", "text_config": {"hidden_size": 40}}')
    (folder / "merges.txt").write_text("a b\n")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / ".git").mkdir()
    (folder / ".git" / "huge").write_bytes(b"x" * 1000)
    return folder


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if line.startswith("fp8_dynamic: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def served(folder: Path) -> dict[str, bytes]:
    """What is served, without our record, which names the folders."""
    return {name: data for name, data in tree(folder).items() if not name.startswith(".gaudi-serving")}


# --- arithmetic --------------------------------------------------------------------------------------------


def test_scales_of_all_finite_magnitudes_are_what_torch_gives() -> None:
    found = [scale_pattern(pattern) for pattern in range(FINITE)]
    text = struct.pack(f"<{FINITE}H", *found)
    assert hashlib.sha256(text).hexdigest() == RECORDED["scales of all finite magnitudes"]


def test_codes_of_all_finite_weights_are_what_torch_gives() -> None:
    assert len(RECORDED["tables"]) == 5 * 128
    for scale, expected in RECORDED["tables"].items():
        table = table_of(int(scale))
        assert len(table) == 65536
        assert hashlib.sha256(table[:FINITE] + table[0x8000:][:FINITE]).hexdigest()[:16] == expected, scale


def test_the_sum_of_two_tables_is_the_code_of_every_weight_a_channel_can_have() -> None:
    for scale in range(118 * 128, 119 * 128):
        table = table_of(scale)
        # 242 scales: more than the largest weight of a channel can be, whichever way its scale was rounded.
        most = bfloat16(242 * value_of(scale))
        # From below half the smallest code, and zero.
        patterns = [0, *range(scale - 12 * 128, most + 1)]
        patterns += [0x8000 | pattern for pattern in patterns]
        codes = codes_of(bytes(p >> 8 for p in patterns), bytes(p & 255 for p in patterns), scale)
        assert codes == bytes(table[p] for p in patterns), scale
        assert set(codes) == {*range(0x78), *range(0x80, 0xF8)}


def test_no_weight_is_242_times_its_scale() -> None:
    most = max(value_of(p) / value_of(scale_pattern(p)) for p in range(1, FINITE))
    assert 240 < most < 242


@pytest.mark.parametrize("seed", range(3))
def test_largest_is_what_max_gives(seed: int) -> None:
    rng = random.Random(seed)
    for unit, count in ((1, 1), (1, 7), (5, 3), (4, 64), (1, 1023)):
        piece = rng.randbytes(2 * unit * count)
        values = [value & 0x7FFF for value in struct.unpack(f"<{unit * count}H", piece)]
        assert list(largest(piece, unit, count)) == [max(values[at::unit]) for at in range(unit)]


@pytest.mark.parametrize("case", RECORDED["tensors"], ids=lambda case: "x".join(map(str, case["shape"])))
@pytest.mark.parametrize("piece", [PIECE, 100])
def test_whole_tensors_are_what_torch_gives(case: dict[str, Any], piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaudi_fp8.dynamic.shard.PIECE", piece)
    name = "a_proj.weight" if len(case["shape"]) == 2 else "a_proj"
    weight = bytes.fromhex(case["weight"])
    shard = checkpoints.shard_bytes({name: ("BF16", case["shape"], weight)})
    header = parse_header(io.BytesIO(shard), len(shard))
    parts, _head = layout(header, decide(list(header.tensors), ()))
    made: dict[str, bytes] = {}
    for tensor, data in pieces(io.BytesIO(shard), header, parts, lambda _size: None):
        made[tensor] = made.get(tensor, b"") + data
    assert made[name].hex() == case["codes"]
    assert made[name + "_scale"].hex() == case["scale"]
    assert [list(part.result.shape) for part in parts if part.action == "scale"] == [case["scale shape"]]


# --- a whole checkpoint ------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_checkpoint_is_converted_tensor_by_tensor(tmp_path: Path, jobs: int) -> None:
    source = write(tmp_path / "in")
    before = tree(source)
    result = run(source, tmp_path / "out", "--jobs", jobs, "--verify")
    assert result.returncode == 0, result.stderr
    assert "tensors compared" in result.stdout
    assert tree(source) == before
    converted = 0
    for shard in sorted(source.glob("*.safetensors")):
        header, data = checkpoints.read(shard)
        new_header, new_data = checkpoints.read(tmp_path / "out" / shard.name)
        assert new_header.pop("__metadata__") == {"format": "pt", "gaudi_fp8_range": "per channel, 240"}
        for name, old in data.items():
            if not name.rsplit(".weight", 1)[0].endswith("_proj"):
                assert (new_header[name]["dtype"], new_data[name]) == ("BF16", old), name
                continue
            converted += 1
            shape = header[name]["shape"]
            channels = [shape[0]] if len(shape) == 2 else [shape[0], shape[2]]
            assert (new_header[name]["dtype"], new_header[name]["shape"]) == ("F8_E4M3", shape)
            assert (new_header[name + "_scale"]["dtype"], new_header[name + "_scale"]["shape"]) == ("F32", channels)
            assert max(code & 0x7F for code in new_data[name]) <= CODE_OF_MAX
            assert len(new_data[name]) * 2 == len(old)
    assert converted == 3 * 6


def test_every_tensor_can_be_viewed_in_its_type(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    widths = {"F32": 4, "BF16": 2, "F8_E4M3": 1}
    for shard in (tmp_path / "out").glob("*.safetensors"):
        raw = shard.read_bytes()
        header, _ = checkpoints.read(shard)
        start = 8 + struct.unpack("<Q", raw[:8])[0]
        for name, entry in header.items():
            if name != "__metadata__":
                assert (start + entry["data_offsets"][0]) % widths[entry["dtype"]] == 0, name


def test_index_and_configuration_know_of_the_scales(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    total = 0
    homes: dict[str, str] = {}
    for shard in (tmp_path / "out").glob("*.safetensors"):
        header, data = checkpoints.read(shard)
        homes |= {name: shard.name for name in header if name != "__metadata__"}
        total += sum(map(len, data.values()))
    assert index["weight_map"] == homes
    assert index["metadata"]["total_size"] == total
    assert homes[EXPERTS.format(2) + "_scale"] == "model-00003-of-00003.safetensors"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "qwen3_vl_moe"
    quantised = config["quantization_config"]
    assert {key: value for key, value in quantised.items() if key != "ignored_layers"} == {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        # Anything else makes the fork expect one scale a tensor.
        "quant_scheme": "channel",
    }


def test_the_tower_is_ignored_under_both_names(tmp_path: Path) -> None:
    source = write(tmp_path / "in", shards=1)
    assert run(source, tmp_path / "out").returncode == 0
    ignored = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["ignored_layers"]
    assert ignored == sorted(ignored)
    # As the fork asks: Qwen2_5_VisionAttention with model. in front, everything else without.
    assert {"model.visual.blocks.0.attn.qkv", "visual.blocks.0.attn.proj", "visual.blocks.0.mlp.linear_fc1"} <= set(
        ignored
    )
    assert "language_model.model.layers.0.mlp.gate" in ignored
    assert not [name for name in ignored if name.endswith("_proj")]


def test_other_files_are_carried_and_git_is_not(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    names = set(served(tmp_path / "out"))
    assert {"merges.txt", "chat_template.jinja", "config.json"} <= names
    assert not [name for name in names if name.startswith(".git")]
    assert not (tmp_path / "out.partial").exists()


def test_a_checkpoint_without_index_gets_none(tmp_path: Path) -> None:
    source = write(tmp_path / "in", shards=1)
    (source / "model.safetensors.index.json").unlink()
    assert run(source, tmp_path / "out").returncode == 0
    assert not (tmp_path / "out" / "model.safetensors.index.json").exists()


def test_the_record_says_what_was_made_and_what_the_server_has_to_be_told(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    (source / ".gaudi-serving").mkdir()
    (source / ".gaudi-serving" / "manifest.json").write_text('{"files": []}')
    assert run(source, tmp_path / "out", "--check").returncode == 3
    assert run(source, tmp_path / "out").returncode == 0
    assert run(source, tmp_path / "out", "--check").returncode == 0
    made = json.loads((tmp_path / "out" / ".gaudi-serving" / "fp8.json").read_text())
    assert (made["schema"], made["tool"], made["scheme"]) == (1, "fp8_dynamic", "per channel, 240")
    assert made["environment"] == {"VLLM_HPU_CONVERT_TO_FP8UZ": "false"}
    assert made["source_manifest_sha256"] == hashlib.sha256(b"[]").hexdigest()
    for name, shard in made["shards"].items():
        assert (tmp_path / "out" / name).stat().st_size == shard["bytes"]


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    result = run(source, tmp_path / "out")
    assert "already the conversion" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    progress = tmp_path / "progress.json"
    assert run(source, tmp_path / "out", "--progress", progress).returncode == 0
    state = json.loads(progress.read_text())
    assert (state["phase"], state["unit"]) == ("convert", "bytes")
    assert 0.5 < state["done"] / state["total"] <= 1


# --- layers that stay --------------------------------------------------------------------------------------


def test_kept_layers_stay_and_are_listed(tmp_path: Path) -> None:
    source = write(tmp_path / "in", shards=2)
    assert run(source, tmp_path / "out", "--keep", "o_proj", "--keep", "*.layers.1.self_attn.*").returncode == 0
    ignored = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["ignored_layers"]
    assert {"language_model.model.layers.0.self_attn.o_proj", "language_model.model.layers.1.self_attn.q_proj"} <= set(
        ignored
    )
    header, _ = checkpoints.read(tmp_path / "out" / "model-00002-of-00002.safetensors")
    assert header[Q_PROJ.format(1)]["dtype"] == "BF16"
    assert header[EXPERTS.format(1)]["dtype"] == "F8_E4M3"


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("q_proj", "the server loads both as one layer"),
        ("*.experts.*", "the server reads all experts as FP8"),
        ("z_proj", "--keep z_proj names no projection"),
    ],
)
def test_keeping_what_cannot_be_kept_is_refused(tmp_path: Path, keep: str, said: str) -> None:
    assert said in refused(write(tmp_path / "in"), tmp_path / "out", "--keep", keep)


@pytest.mark.parametrize("tower", ["visual", "audio_tower", "vision_tower"])
def test_projections_of_towers_are_none_of_the_language_model(tower: str) -> None:
    assert not is_projection(ShardTensor(f"model.{tower}.0.q_proj.weight", "BF16", (2, 2), 0, 8))
    assert is_projection(ShardTensor("model.layers.0.q_proj.weight", "BF16", (2, 2), 0, 8))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("a.q_proj.bias", (4,)), ("a.q_proj.weight", (4,)), ("a.gate.weight", (4, 4)), ("a.proj", (4, 4))],
)
def test_biases_and_other_layers_are_no_projections(name: str, shape: tuple[int, ...]) -> None:
    assert not is_projection(ShardTensor(name, "BF16", shape, 0, 0))


# --- refusals ----------------------------------------------------------------------------------------------


def test_a_row_that_no_worker_could_hold_is_refused_by_name() -> None:
    tensor = ShardTensor("model.layers.0.q_proj.weight", "BF16", (1, LARGEST_ROW // 2), 0, LARGEST_ROW)
    assert decide([tensor], ()) == {tensor.name: "rows"}
    wider = ShardTensor(tensor.name, "BF16", (1, LARGEST_ROW // 2 + 1), 0, LARGEST_ROW + 2)
    with pytest.raises(Refusal, match=r"a row of 'model.layers.0.q_proj.weight' has 33554434 bytes"):
        decide([wider], ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({Q_PROJ.format(0): ("F8_E4M3", [4, 4], bytes(16))}, "is FP8 (F8_E4M3) already"),
        ({Q_PROJ.format(0): ("F16", [4, 4], bytes(32))}, "has the dtype F16; BF16 is needed"),
        ({EXPERTS.format(0): ("F32", [1, 2, 2], bytes(16))}, "has the dtype F32; BF16 is needed"),
        ({Q_PROJ.format(0): ("BF16", [0, 4], b"")}, "holds nothing"),
        ({Q_PROJ.format(0): ("BF16", [1, 2], b"\x80\x7f\x00\x00")}, "holds infinity or what is no number"),
        ({Q_PROJ.format(0): ("BF16", [1, 2], b"\xc0\xff\x00\x00")}, "holds infinity or what is no number"),
        ({EXPERTS.format(0): ("BF16", [1, 2, 1], b"\x80\xff\x00\x00")}, "holds infinity or what is no number"),
        ({Q_PROJ.format(0) + "_scale": ("F32", [24], bytes(96))}, "has a scale already"),
    ],
)
def test_tensors_that_cannot_be_converted_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    sentence = refused(write(tmp_path / "in", change=change), tmp_path / "out")
    assert said in sentence
    assert "proj" in sentence
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_without_projections_is_refused(tmp_path: Path) -> None:
    gone = {name: None for name in layer(random.Random(1), 0) if "_proj" in name and not name.endswith("bias")}
    sentence = refused(write(tmp_path / "in", shards=1, change=gone), tmp_path / "out")
    assert "there is nothing to convert" in sentence
    assert not (tmp_path / "out.partial").exists()


def test_a_shard_that_says_it_was_converted_is_refused(tmp_path: Path) -> None:
    """Also one that holds nothing but bfloat16, and without the record beside it."""
    source = write(tmp_path / "in")
    shard = source / "model-00003-of-00003.safetensors"
    raw = checkpoints.shard_bytes(layer(random.Random(1), 2), {"format": "pt", "gaudi_fp8_range": "per channel, 240"})
    shard.write_bytes(raw)
    sentence = refused(source, tmp_path / "out")
    assert f"{shard} was converted before (its header says gaudi_fp8_range)" in sentence
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("place", ["", "text_config"])
def test_a_quantised_checkpoint_is_refused(tmp_path: Path, place: str) -> None:
    source = write(tmp_path / "in")
    said = {"quantization_config": {"quant_method": "awq"}}
    (source / "config.json").write_text(json.dumps({place: said} if place else said))
    assert "quantised already (quant_method 'awq')" in refused(source, tmp_path / "out")


@pytest.mark.parametrize(("said", "method"), [('"fp8"', "'fp8'"), ("[]", "[]"), ("{}", "'unknown'")])
def test_a_quantisation_of_any_form_is_refused(tmp_path: Path, said: str, method: str) -> None:
    source = write(tmp_path / "in")
    (source / "config.json").write_text(f'{{"quantization_config": {said}}}')
    assert f"quantised already (quant_method {method})" in refused(source, tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"tool": "fp8_dynamic"}'])
def test_a_damaged_record_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / "out" / ".gaudi-serving").mkdir(parents=True)
    (tmp_path / "out" / ".gaudi-serving" / "fp8.json").write_text(content)
    sentence = refused(write(tmp_path / "in"), tmp_path / "out")
    assert "name another target" in sentence or "away and run this again" in sentence


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_a_damaged_journal_is_said(tmp_path: Path, content: str) -> None:
    journal = tmp_path / "out.partial" / ".gaudi-serving" / "journal.json"
    journal.parent.mkdir(parents=True)
    journal.write_text(content)
    sentence = refused(write(tmp_path / "in"), tmp_path / "out")
    assert f"remove {tmp_path}/out.partial to start over" in sentence


def test_its_own_result_is_refused(tmp_path: Path) -> None:
    assert run(write(tmp_path / "in"), tmp_path / "out").returncode == 0
    assert "was converted before (see .gaudi-serving/fp8.json in it)" in refused(tmp_path / "out", tmp_path / "again")


def test_a_missing_configuration_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    (source / "config.json").unlink()
    assert "no config.json" in refused(source, tmp_path / "out")


def test_a_damaged_header_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    shard = source / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-10])
    sentence = refused(source, tmp_path / "out")
    assert shard.name in sentence
    assert "cut short" in sentence
    assert not (tmp_path / "out.partial").exists()


def test_somebody_elses_target_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    assert "is not touched" in refused(write(tmp_path / "in"), tmp_path / "out")
    assert tree(tmp_path / "out") == {"mine": b"mine"}


def test_a_block_conversion_at_the_target_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "out" / ".gaudi-serving").mkdir(parents=True)
    (tmp_path / "out" / ".gaudi-serving" / "fp8.json").write_text('{"tool": "fp8_convert", "shards": {}}')
    assert "is not a conversion of this program" in refused(write(tmp_path / "in"), tmp_path / "out")


def test_other_options_for_a_finished_target_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    assert "was converted with other options" in refused(source, tmp_path / "out", "--keep", "o_proj")


def test_too_little_room_is_refused_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in")
    real = os.statvfs(tmp_path)
    small = os.statvfs_result((*real[:3], 1, 1, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _path: small)
    with pytest.raises(Refusal, match=r"are missing\. Free some room"):
        convert(parse_arguments([str(source), str(tmp_path / "out")]))
    assert not (tmp_path / "out.partial").exists()


def test_a_full_disk_is_said_without_options_this_program_lacks() -> None:
    refusal = explain(OSError(errno.ENOSPC, "No space left on device"))
    assert refusal.id == "no_room"
    assert "no room left" in str(refusal)
    assert "--in-place" not in str(refusal)


# --- damage and interruption -------------------------------------------------------------------------------


def test_verification_finds_a_changed_byte(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    shard = tmp_path / "out" / "model-00001-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(bytes(data))
    assert "is not the conversion of its source" in refused(source, tmp_path / "out", "--verify")


def test_verification_finds_a_changed_scale(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    shard = tmp_path / "out" / "model-00001-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[8 + struct.unpack("<Q", data[:8])[0] + 3] ^= 1
    shard.write_bytes(bytes(data))
    assert "_scale' is not the conversion" in refused(source, tmp_path / "out", "--verify")


def test_a_changed_source_is_refused_by_a_continued_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    conversion = parse_arguments([str(source), str(tmp_path / "out")])
    (tmp_path / "out.partial" / ".gaudi-serving").mkdir(parents=True)
    open_journal(conversion)
    shard = source / "model-00001-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes())
    assert "changed since the conversion began" in refused(source, tmp_path / "out")


def test_a_source_whose_shards_are_done_and_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DynamicConversion, "carry", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(parse_arguments([str(source), str(tmp_path / "out")]))
    journal = json.loads((tmp_path / "out.partial" / ".gaudi-serving" / "journal.json").read_text())
    assert len(journal["done"]) == 3
    os.utime(source / "model-00002-of-00003.safetensors", ns=(1, 1))
    assert "model-00002-of-00003.safetensors changed since the conversion began" in refused(source, tmp_path / "out")


def test_a_source_that_shrinks_under_the_reader_is_no_result() -> None:
    tensor = ShardTensor("q_proj.weight", "BF16", (4, 8), 0, 64)
    assert b"".join(rows_of(io.BytesIO(bytes(64)), tensor)) == bytes(64)
    for there in (0, 63):
        with pytest.raises(Refusal, match=r"changed while it was read: 'q_proj\.weight' ends too early"):
            list(rows_of(io.BytesIO(bytes(there)), tensor))


def test_a_journal_of_another_program_is_not_continued(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    journal = tmp_path / "out.partial" / ".gaudi-serving" / "journal.json"
    journal.parent.mkdir(parents=True)
    journal.write_text('{"request": {"factor": "240/448"}}')
    assert "by another program" in refused(source, tmp_path / "out")


def test_killed_with_any_number_of_shards_done_it_continues_to_the_same_bytes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", shards=6)
    assert run(source, tmp_path / "whole").returncode == 0
    expected = served(tmp_path / "whole")
    journal = tmp_path / "out.partial" / ".gaudi-serving" / "journal.json"
    wanted = (source, tmp_path / "out", "--jobs", 1)
    package = PROGRAM.parent / "gaudi_fp8"
    record = (package / "dynamic" / "journal.py", "        self.done[name] = result")
    ended = (package / "tasks.py", "    return compared")
    for line, times, done in ((record, 1, 0), (record, 2, 1), (record, 6, 5), (ended, 1, 6)):
        killed = at_line(PROGRAM, times, signal.SIGKILL, tmp_path / "lines", *wanted, line=line)
        assert killed.returncode == -signal.SIGKILL
        assert len(json.loads(journal.read_text())["done"]) == done
        assert not (tmp_path / "out").exists()
        result = run(source, tmp_path / "out")
        assert result.returncode == 0, result.stderr
        assert ("continuing" in result.stderr) == (0 < done < 6)
        assert served(tmp_path / "out") == expected
        shutil.rmtree(tmp_path / "out")


def test_killed_before_its_result_is_in_place_it_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gaudi_fp8.finished.beneath.rename", killed)
        with pytest.raises(KeyboardInterrupt):
            convert(parse_arguments([str(source), str(tmp_path / "out")]))
    assert run(source, tmp_path / "out").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out" / ".gaudi-serving").iterdir()) == ["fp8.json"]


def test_a_record_there_was_no_room_for_is_written_once_half_shards_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, staging = write(tmp_path / "in"), tmp_path / "out.partial"
    real = write_json

    def no_room(path: Path, content: Any, **rest: Any) -> None:
        half = staging / "model-00003.safetensors.writing"
        if content.get("done") and not (tmp_path / "seen").exists():
            half.touch()  # another worker's
            (tmp_path / "seen").touch()
            raise OSError(errno.ENOSPC, "No space left on device")
        assert not half.exists()
        real(path, content, **rest)

    with monkeypatch.context() as patch:
        patch.setattr("gaudi_fp8.dynamic.journal.write_json", no_room)
        with pytest.raises(OSError, match="No space left"):
            convert(parse_arguments([str(source), str(tmp_path / "out"), "--jobs", "1"]))
    assert not list(staging.glob("*.writing"))
    assert "continuing: 1 of 3" in run(source, tmp_path / "out").stderr


def test_memory_does_not_grow_with_the_tensor() -> None:
    """A tensor of many rows is read in pieces of at most PIECE bytes (or one row)."""
    tensor = ShardTensor("a_proj.weight", "BF16", (5000, 512), 0, 5000 * 1024)
    sizes = {len(piece) for piece in rows_of(io.BytesIO(bytes(tensor.size)), tensor)}
    assert max(sizes) <= PIECE


def test_a_continued_verification_compares_what_was_done_before(tmp_path: Path) -> None:
    source = write(tmp_path / "in", shards=6)
    assert run(source, tmp_path / "whole").returncode == 0
    partial = tmp_path / "out.partial"
    journal = partial / ".gaudi-serving" / "journal.json"
    work = subprocess.Popen(
        [sys.executable, "-B", str(PROGRAM), str(source), str(tmp_path / "out"), "--jobs", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not journal.exists() or not json.loads(journal.read_text())["done"]:
        assert work.poll() is None
    work.send_signal(signal.SIGKILL)
    work.wait()
    with (partial / ".gaudi-serving" / "workers").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    (name, *_) = json.loads(journal.read_text())["done"]
    data = bytearray((partial / name).read_bytes())
    data[-1] ^= 1
    (partial / name).write_bytes(bytes(data))
    result = run(source, tmp_path / "out", "--verify")
    assert result.returncode == 0, result.stderr
    assert "it is converted again" in result.stderr
    assert served(tmp_path / "out") == served(tmp_path / "whole")
    assert json.loads((tmp_path / "out" / ".gaudi-serving" / "fp8.json").read_text())["verified"] == "every byte"


def test_a_continued_run_without_verification_says_a_sample(tmp_path: Path) -> None:
    source = write(tmp_path / "in")
    assert run(source, tmp_path / "out").returncode == 0
    assert json.loads((tmp_path / "out" / ".gaudi-serving" / "fp8.json").read_text())["verified"] == "a sample"


def test_what_a_verification_found_wrong_is_converted_anew(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in"), tmp_path / "out"
    assert run(source, target).returncode == 0
    good = served(target)
    for name in ("model-00001-of-00003.safetensors", "config.json"):
        data = bytearray((target / name).read_bytes())
        data[-1] ^= 1
        (target / name).write_bytes(bytes(data))
    assert "Run the same command again" in refused(source, target, "--verify")
    made = json.loads((target / ".gaudi-serving" / "fp8.json").read_text())
    assert (made["verified"], len(made["wrong"]["files"])) == ("found wrong", 2)
    assert run(source, target, "--check").returncode == 3
    assert run(source, target).returncode == 0
    assert served(target) == good
    assert run(source, target, "--check", "--verify").returncode == 0
