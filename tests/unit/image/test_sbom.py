"""The bill of materials of an image: what CycloneDX asks for, the same for the same image, and read back."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import jsonschema
import pytest
from ansible.module_utils.gaudi.image import sbom
from ansible.module_utils.gaudi.image.inside import Checkout, ImageFindings

ID = "sha256:" + "ab" * 32
REFERENCE = "registry.example.com:5000/gaudi/vllm:1.22-0123456789ab"
FORK, WRAPPER = "4" * 40, "6" * 40
LABELS = {
    "gaudi-serving.image.release": "1.22",
    "gaudi-serving.image.commit.vllm_fork": FORK,
    "gaudi-serving.image.commit.hccl_ofi_wrapper": WRAPPER,
}
FOUND = ImageFindings(
    packages={"vllm": "0.9.0.dev0+g4444444.gaudi", "habana-torch-plugin": "1.22.2.32"},
    programs=(),
    pillow=None,
    vllm=None,
    rejected={},
    python="3.10.12",
    os=("ubuntu", "22.04"),
    kind="deb",
    system=(("bash", "5.1-6ubuntu1", "amd64"), ("libc6", "2.35-0ubuntu3", "amd64"), ("g++", "4:11.2", "amd64")),
    checkouts=(
        Checkout("/opt/vllm-fork", FORK, "https://github.com/HabanaAI/vllm-fork.git"),
        Checkout("/opt/own", "5" * 40, "https://git.example.com/a b/own"),
        Checkout("/opt/alone", "7" * 40, ""),
    ),
)

# What the schema of the specification (bom-1.6.schema.json, ECMA-424) asks of the parts that are written here. Unknown
# keys are wrong there as well.
COMPONENT: dict[str, Any] = {
    "type": "object",
    "required": ["type", "name"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library", "container", "operating-system"]},
        "bom-ref": {"type": "string", "minLength": 1},
        "name": {"type": "string"},
        "version": {"type": "string", "maxLength": 1024},
        "purl": {"type": "string", "pattern": "^pkg:[a-z]+/[^ ]+@[^ @]+$"},
        "hashes": {
            "items": {
                "required": ["alg", "content"],
                "properties": {"alg": {"const": "SHA-256"}, "content": {"pattern": "^[a-fA-F0-9]{64}$"}},
            }
        },
        "properties": {
            "items": {
                "required": ["name"],
                "additionalProperties": False,
                "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
            }
        },
        "externalReferences": {
            "items": {
                "required": ["url", "type"],
                "additionalProperties": False,
                "properties": {"type": {"const": "vcs"}, "url": {"type": "string", "pattern": "^[^ ]+$"}},
            }
        },
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["bomFormat", "specVersion"],
    "additionalProperties": False,
    "properties": {
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        "version": {"type": "integer", "minimum": 1},
        "metadata": {
            "additionalProperties": False,
            "properties": {
                "component": COMPONENT,
                "tools": {"properties": {"components": {"type": "array", "items": COMPONENT}}},
            },
        },
        "components": {"type": "array", "uniqueItems": True, "items": COMPONENT},
    },
}


def made(inside: ImageFindings = FOUND, labels: dict[str, str] = LABELS) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(sbom.rendered(sbom.bill(REFERENCE, ID, inside, labels)))
    return document


def component(name: str) -> dict[str, Any]:
    (found,) = [each for each in made()["components"] if each["name"] == name]
    return dict(found)


def test_it_is_what_the_specification_asks_for() -> None:
    document = made()
    jsonschema.validate(document, SCHEMA)
    references = [each["bom-ref"] for each in [*document["components"], document["metadata"]["component"]]]
    assert len(references) == len(set(references))


def test_it_says_the_same_of_the_same_image() -> None:
    assert made() == made()
    number = made()["serialNumber"]
    assert uuid.UUID(number.removeprefix("urn:uuid:")).version == 8
    assert uuid.UUID(number.removeprefix("urn:uuid:")).variant == uuid.RFC_4122
    assert sbom.serial_number(ID) == number != sbom.serial_number("sha256:" + "cd" * 32)
    assert not re.search(r"timestamp", json.dumps(made()))


def test_the_image_is_named_with_its_id_and_its_labels() -> None:
    image = made()["metadata"]["component"]
    assert (image["name"], image["version"]) == ("registry.example.com:5000/gaudi/vllm", "1.22-0123456789ab")
    assert image["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert {"name": "gaudi-serving.image.release", "value": "1.22"} in image["properties"]
    assert sbom.file_name(ID) == "ab" * 32 + ".cdx.json"


def test_packages_have_addresses_that_tools_know() -> None:
    assert component("vllm")["purl"] == "pkg:pypi/vllm@0.9.0.dev0%2Bg4444444.gaudi"
    assert component("bash")["purl"] == "pkg:deb/ubuntu/bash@5.1-6ubuntu1?arch=amd64&distro=ubuntu-22.04"
    assert component("g++")["purl"].startswith("pkg:deb/ubuntu/g%2B%2B@4:11.2?")
    assert component("ubuntu") == {"type": "operating-system", "bom-ref": "os", "name": "ubuntu", "version": "22.04"}


def test_checkouts_are_components_by_commit() -> None:
    fork = component("vllm-fork")
    assert fork["version"] == FORK
    assert fork["externalReferences"] == [{"type": "vcs", "url": "https://github.com/HabanaAI/vllm-fork.git"}]
    assert fork["purl"] == f"pkg:github/habanaai/vllm-fork@{FORK}"
    assert component("own")["externalReferences"][0]["url"] == "https://git.example.com/a%20b/own"
    assert "purl" not in component("own")
    assert "externalReferences" not in component("alone")


def test_what_left_no_checkout_is_there_by_its_label_and_says_so() -> None:
    assert component("hccl_ofi_wrapper") == {
        "type": "library",
        "bom-ref": f"hccl_ofi_wrapper@{WRAPPER}",
        "name": "hccl_ofi_wrapper",
        "version": WRAPPER,
        "properties": [{"name": "gaudi-serving:said-by", "value": "label"}],
    }
    assert [each for each in made()["components"] if each["name"] == "vllm_fork"] == []


def test_a_bill_is_read_back() -> None:
    said = sbom.contents(sbom.rendered(sbom.bill(REFERENCE, ID, FOUND, LABELS)))
    assert said.python == FOUND.packages
    assert said.system == {"bash": "5.1-6ubuntu1", "libc6": "2.35-0ubuntu3", "g++": "4:11.2"}
    assert said.checkouts == {"/opt/vllm-fork": FORK, "/opt/own": "5" * 40, "/opt/alone": "7" * 40}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"bomFormat": "SPDX", "specVersion": "1", "components": []}'])
def test_something_else_is_no_bill(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        sbom.contents(text)


def test_an_image_that_nobody_knows_has_a_bill_too() -> None:
    bare = ImageFindings({}, (), None, None, {}, "", ("", ""), "", (), ())
    jsonschema.validate(made(bare, {}), SCHEMA)
    assert made(bare, {})["components"] == []
