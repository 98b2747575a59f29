"""The tiny model: small, the same on every machine, and consistent in itself."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path

import build_tiny_model as tiny
import yaml

FILES = tiny.files()


def test_it_is_under_two_megabytes_and_says_what_it_is() -> None:
    assert sum(len(content) for content in FILES.values()) < 2_000_000
    assert b"Simulated" in FILES["README.md"]
    assert b"random weights" in FILES["README.md"]


def test_it_is_the_same_on_every_machine() -> None:
    # Changes only with the builder, on purpose.
    digest = hashlib.sha256(b"".join(FILES[name] for name in sorted(FILES))).hexdigest()
    assert digest == "b8c1abd9f7b8e4950325b04910ec4caf3574fc4356d8cc192e1ceef4815ad343"


def test_the_catalogue_describes_this_model() -> None:
    path = Path(tiny.__file__).resolve().parents[3] / "catalog" / "models" / "simulated-tiny.yml"
    entry = yaml.safe_load(path.read_text(encoding="utf-8"))
    config = json.loads(FILES["config.json"])
    architecture = dict(entry["architecture"])
    assert entry["directory"] == tiny.NAME
    assert architecture.pop("parameters") == sum(math.prod(shape) for shape in tiny.tensors().values())
    assert architecture == {key: config[key] for key in architecture}


def test_the_weights_are_a_safetensors_file_of_the_configured_shapes() -> None:
    data = FILES["model.safetensors"]
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header.pop("__metadata__")["format"] == "pt"
    end = 0
    for name, shape in tiny.tensors().items():
        entry = header.pop(name)
        assert entry["dtype"] == "BF16"
        assert tuple(entry["shape"]) == shape
        assert entry["data_offsets"] == [end, end + 2 * math.prod(shape)]
        end = entry["data_offsets"][1]
    assert not header
    assert len(data) == 8 + length + end


def test_the_tokenizer_fills_the_vocabulary_and_its_merges_make_tokens() -> None:
    made = json.loads(FILES["tokenizer.json"])
    config = json.loads(FILES["config.json"])
    vocabulary = made["model"]["vocab"]
    ids = [*vocabulary.values(), *(token["id"] for token in made["added_tokens"])]
    assert sorted(ids) == list(range(config["vocab_size"]))
    for merge in made["model"]["merges"]:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= set(vocabulary)
    assert {token["content"]: token["id"] for token in made["added_tokens"]}["<|im_end|>"] == config["eos_token_id"]


def test_numbers_are_normally_distributed() -> None:
    numbers = tiny.generator(tiny.SEED)
    drawn = [next(numbers) for _ in range(20000)]
    assert abs(sum(drawn) / len(drawn)) < 0.03
    assert abs(sum(value * value for value in drawn) / len(drawn) - 1) < 0.05


def test_bfloat16_is_the_upper_half_of_a_float() -> None:
    assert tiny.bfloat16(1.0) == b"\x80\x3f"
    assert tiny.bfloat16(-2.0) == b"\x00\xc0"
