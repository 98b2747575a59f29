"""An FP8 model of a test's size as the stand-in server reads it, and that the hub's quantiser and converter agree."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import build_tiny_model as tiny
import pytest
from gaudi_simulated import fp8

from simulator.hub import models
from simulator.settings import ROOT


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in FP8, as the simulated hub has it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "plain").mkdir()
    for name, content in tiny.files().items():
        (folder / "plain" / name).write_bytes(content)
    models.quantise(folder / "plain", folder / "fp8")
    return folder / "fp8"


def numbers(path: Path) -> dict[str, list[float]]:
    return {
        name: [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
        for name, (dtype, _, data) in models.read_tensors(path).items()
        if dtype == "BF16"
    }


def test_what_is_read_is_the_model_within_the_precision_of_fp8(published: Path, tmp_path: Path) -> None:
    read = numbers(fp8.readable(published, tmp_path / "read") / "model.safetensors")
    plain = numbers(published.parent / "plain" / "model.safetensors")
    assert read.keys() == plain.keys()
    for name, values in plain.items():
        largest = max(map(abs, values))
        # Half a step of three bits of mantissa, and the rounding to bfloat16.
        assert all(abs(a - b) <= abs(a) * 0.07 + largest * 1e-4 for a, b in zip(values, read[name], strict=True)), name


def test_converted_for_gaudi2_it_is_still_the_same_model(published: Path, tmp_path: Path) -> None:
    program = ROOT / "roles" / "fp8_weights" / "files" / "fp8_convert.py"
    subprocess.run([sys.executable, str(program), str(published), str(tmp_path / "G2"), "--jobs", "1"], check=True)
    converted = models.read_tensors(tmp_path / "G2" / "model-00001-of-00002.safetensors")
    codes = b"".join(data for dtype, _, data in converted.values() if dtype == "F8_E4M3")
    assert max(abs(fp8.VALUES[code]) for code in codes) == 240
    before = numbers(fp8.readable(published, tmp_path / "a") / "model.safetensors")
    after = numbers(fp8.readable(tmp_path / "G2", tmp_path / "b") / "model.safetensors")
    for name, values in before.items():
        largest = max(map(abs, values))
        assert all(abs(a - b) <= abs(a) * 0.08 + largest * 1e-3 for a, b in zip(values, after[name], strict=True)), name


def test_other_models_are_left_alone_and_large_ones_refused(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = published.parent / "plain"
    assert fp8.readable(plain, tmp_path / "x") == plain
    assert fp8.readable(tmp_path, tmp_path / "x") == tmp_path
    assert not (tmp_path / "x").exists()
    monkeypatch.setattr(fp8, "LIMIT", 1000)
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        fp8.readable(published, tmp_path / "x")


def test_the_catalogue_pins_what_the_hub_has(published: Path) -> None:
    from simulator.hub.content import HubRepository
    from tests.unit.catalogue.documentation import models as catalogue

    for name, folder in (("simulated-tiny", published.parent / "plain"), ("simulated-tiny-fp8", published)):
        entry = catalogue()[name]
        pinned = entry["repositories"]["huggingface"]
        assert HubRepository(pinned["repository"]).add(folder) == pinned["revision"]
    assert (
        catalogue()["simulated-tiny-fp8"]["weights_bytes"]
        == (json.loads((published / "model.safetensors.index.json").read_text())["metadata"]["total_size"])
    )
