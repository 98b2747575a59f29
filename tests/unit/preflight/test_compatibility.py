"""Every check of a node against a release, by causing its fault; and that what is right today passes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import CardType
from ansible.module_utils.gaudi.host.cmdline import NeededArgument
from ansible.module_utils.gaudi.preflight import compatibility
from ansible.module_utils.gaudi.preflight.compatibility import (
    ImageFacts,
    Levels,
    Mismatch,
    NodeFacts,
    Release,
    TopologyCard,
)

from plugin_utils import releases
from simulator.standins import description

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = yaml.safe_load((ROOT / "catalog/compatibility.yml").read_text(encoding="utf-8"))
TYPES = CardType.table(yaml.safe_load((ROOT / "catalog/cards.yml").read_text(encoding="utf-8")))
LEVELS = Levels.from_document(DOCUMENT)
IMAGE = "vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:1.22.2-32"
# A level that changes is a decision, not a slip.
REFUSED = {
    "kernel",
    "iommu",
    "driver",
    "nic-driver",
    "runtime-package",
    "image",
    "card-type",
    "firmware-rule",
    "warm-up",
}


def release(name: str = "1.22", **changes: object) -> Release:
    return Release(name, {**releases.read(name)["software"], **changes})


def spi(version: str, generation: str = "gaudi3") -> str:
    return f"hl-{generation}-{version}-sec-9"


def cards(name: str = "HL-325L", **facts: Any) -> tuple[TopologyCard, ...]:
    facts = {"generation": "gaudi3", "spi": spi("1.22.0-fw-61.3.2"), **facts}
    return tuple(TopologyCard(module, name, **facts) for module in range(8))


RIGHT = NodeFacts(
    system="ubuntu24.04",
    title="Ubuntu 24.04.2 LTS",
    kernel="6.8.0-45-generic",
    driver="1.22.2-97ec1a4",
    nic_drivers=frozenset({"1.22.2-0123abc"}),
    cards=cards(),
    packages={
        "habanalabs-container-runtime": "1.22.2-32",
        "habanalabs-dkms": "1.22.2-32",
        "docker-ce": "5:29.1.5-1~ubuntu.24.04~noble",
    },
    images={IMAGE: ImageFacts("1.22.2.32", "3.10.12")},
)
# Release 1.24 has no file yet; the rule is of its release note.
R124 = Release("1.24", {"release": "1.24.0"})
PAIR = {"generation": "gaudi2", "spi": spi("1.21.2-fw-59.3.1", "gaudi2"), "boot_fit": spi("1.20.1-fw-58.1.1", "gaudi2")}


def judge(found: NodeFacts, against: Release | None = None, *allowed: str) -> list[Mismatch]:
    return compatibility.judge(found, against or release(), LEVELS, allowed)


def with_package(name: str, version: str) -> dict[str, Any]:
    return {"packages": {**RIGHT.packages, name: version}}


def named(version: str) -> dict[str, Any]:
    return {"images": {IMAGE.replace("1.22.2", version): ImageFacts()}}


FAULTS: list[tuple[str, dict[str, Any], Release | None, list[str]]] = [
    ("system", {"system": "debian12", "title": "Debian 12"}, None, ["found Debian 12", "ubuntu22.04, ubuntu24.04"]),
    (
        "system",
        {
            "system": "rhel9.6",
            "rebuild": True,
            "title": "Rocky Linux 9.6, which counts as rhel9.6",
            "kernel": "5.14.0-570",
        },
        None,
        ["found Rocky Linux 9.6, which counts as rhel9.6", "rhel9.6", "the vendor tests"],
    ),
    ("kernel", {"kernel": "5.15.0-91-generic"}, None, ["5.15.0-91-generic", "6.8 or newer on ubuntu24.04", "reboot"]),
    ("kernel-untested", {"kernel": "6.17.0-5-generic"}, None, ["6.17.0-5", "6.8, the newest tested", "Boot a kernel"]),
    (
        "warm-up",
        {"cold": {"chat": "/data/recipe_cache/chat"}},
        None,
        ["the empty recipe cache /data/recipe_cache/chat", "Leave skip_warmup out", "partial_warmup"],
    ),
    ("warm-up", {"cold": {"chat": ""}}, None, ["skip_warmup of chat with no recipe cache"]),
    (
        "iommu",
        {
            "kernel_lacks": (
                NeededArgument("intel_iommu=on", "correctness", "x"),
                NeededArgument("iommu=pt", "correctness", "x"),
            )
        },
        None,
        ["6.8.0-45-generic started without them, wanted intel_iommu=on iommu=pt on its", "playbooks/tune_host.yml"],
    ),
    (
        "driver",
        {"driver": "1.21.3-1a2b3c4", "nic_drivers": frozenset(), "packages": {}},
        None,
        ["found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)", "set gaudi_release to a release of 1.21"],
    ),
    (
        "driver",
        {"driver": "1.21.3-1a2b3c4", "nic_drivers": frozenset()},
        None,
        ["The package habanalabs-dkms 1.22.2-32 is installed: load its modules, or reboot."],
    ),
    ("driver", {"driver": "unknown"}, None, ["found unknown, wanted 1.22"]),
    (
        "driver-build",
        {"driver": "1.22.1-97ec1a4", "nic_drivers": frozenset({"1.22.1-97ec1a4"})},
        None,
        ["found 1.22.1-97ec1a4, wanted 1.22.2-32"],
    ),
    ("driver-build", with_package("habanalabs-dkms", "1.22.2-30"), None, ["found habanalabs-dkms 1.22.2-30"]),
    (
        "nic-driver",
        {"nic_drivers": frozenset({"1.22.1-97ec1a4"})},
        None,
        ["found 1.22.1-97ec1a4, wanted 1.22.2-97ec1a4, as the compute driver", "Unload all habanalabs modules"],
    ),
    (
        "runtime-package",
        with_package("habanalabs-container-runtime", "1.21.3-57"),
        None,
        ["found habanalabs-container-runtime 1.21.3-57, wanted 1.22.2-32", "Install habanalabs-container-runtime"],
    ),
    ("runtime-package-build", with_package("habanalabs-container-runtime", "1.22.1-6"), None, ["1.22.1-6, wanted"]),
    ("runtime-package-build", with_package("habanalabs-container-runtime", "1.22.2-30"), None, ["1.22.2-30, wanted"]),
    (
        "docker",
        {"packages": {"docker.io": "20.10.24+dfsg1-1+deb12u1"}},
        None,
        ["found docker.io 20.10.24+dfsg1-1+deb12u1, wanted 25.0.1 or newer"],
    ),
    (
        "image",
        {"images": {IMAGE: ImageFacts("1.21.3.57")}},
        None,
        ["habana-torch-plugin 1.21.3.57 in vault", "wanted 1.22.2"],
    ),
    ("image", named("1.21.3"), None, ["found 1.21.3 in the name of vault", "Correct serving_image_ref"]),
    # What is pulled later is refused for the same: a patch release has an image of its own.
    ("image", named("1.22.1"), None, ["found 1.22.1 in the name of"]),
    (
        "image-python",
        {"images": {IMAGE: ImageFacts(python="3.12.3")}},
        None,
        ["Python 3.12.3 in vault", "3.10 or 3.11"],
    ),
    (
        "card-type",
        {"cards": cards("HL-205", generation="gaudi1", spi=None)},
        None,
        ["found HL-205 (first-generation Gaudi), wanted Gaudi 2 or Gaudi 3"],
    ),
    (
        "firmware",
        {"cards": (*cards()[:6], *cards(spi=spi("1.18.0-fw-53.1.1"))[6:])},
        None,
        ["found SPI 1.18.0-fw-53.1.1 on modules 6, 7, wanted SPI 1.22.0-fw-61.3.2", "hl-fw-loader", "No role flashes"],
    ),
    ("firmware", {"cards": cards(spi=spi("1.23.0-fw-62.2.1"))}, None, ["SPI 1.23.0-fw-62.2.1 on modules 0, 1"]),
    (
        "firmware-rule",
        {"cards": cards("HL-225", **PAIR)[:1], "images": {}},
        R124,
        ["SPI 1.21.2-fw-59.3.1 with Boot FIT 1.20.1-fw-58.1.1 on module 0,", "release note of 1.24 for Gaudi 2"],
    ),
]


@pytest.mark.report("media-delivery-172", "genaiinfra-200")
@pytest.mark.parametrize(("name", "changes", "against", "words"), FAULTS)
def test_each_fault_is_found_by_its_check_alone(
    name: str, changes: dict[str, Any], against: Release | None, words: list[str]
) -> None:
    (mismatch,) = judge(dataclasses.replace(RIGHT, **changes), against)
    assert mismatch.check.name == name
    assert mismatch.refused is (name in REFUSED)
    for word in words:
        assert word in mismatch.sentence
    assert "\n" not in mismatch.sentence


def test_every_check_has_a_fault_a_level_and_a_source() -> None:
    assert [check.name for check in LEVELS.checks] == list(compatibility.JUDGES)
    assert {name for name, *_ in FAULTS} == set(compatibility.JUDGES)
    assert {check.name for check in LEVELS.checks if check.level == "refuse"} == REFUSED
    assert all(check.source and check.about for check in LEVELS.checks)


def test_the_file_is_as_its_schema_says() -> None:
    schema = json.loads((ROOT / "catalog/schemas/compatibility.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    assert list(validator.iter_errors(DOCUMENT)) == []
    for wrong in ({"level": "error"}, {"source": ""}, {"about": None}, {"name": "x y"}, {"more": 1}):
        check = {**DOCUMENT["checks"][0], **wrong}
        assert list(validator.iter_errors({**DOCUMENT, "checks": [check]}))


@pytest.mark.parametrize("wrong", [{"level": "error"}, {"name": "divers"}, {"more": 1}])
def test_a_wrong_check_is_refused_with_its_place(wrong: dict[str, Any]) -> None:
    checks = [{**DOCUMENT["checks"][0], **wrong}]
    with pytest.raises(Refusal, match=re.escape("catalog/compatibility.yml: checks[0]")):
        Levels.from_document({**DOCUMENT, "checks": checks})


def test_what_is_right_passes() -> None:
    assert judge(RIGHT) == []


def test_a_node_that_says_nothing_and_a_release_that_says_nothing_are_not_judged() -> None:
    assert not [
        name for name in releases.names() if judge(NodeFacts(), release(name)) or judge(RIGHT, Release(name, {}))
    ]


def test_every_release_has_its_values_and_their_source() -> None:
    offenders = []
    for name in releases.names():
        software = releases.read(name)["software"]
        sources = " ".join(releases.read(name)["sources"])
        offenders += [
            f"{name}: {key} has no source"
            for key in ("kernel_newest", "docker", "python", "generations", "spi")
            if key in software and key not in sources and not (key == "kernel_newest" and "kernels" in sources)
        ]
        offenders += [f"{name}: no {key}" for key in ("docker", "python", "generations") if key not in software]
        others = set(software.get("kernel_newest", {})) - set(software["systems"])
        offenders += [f"{name}: kernel_newest of {system}" for system in others]
    assert not offenders


def test_simulated_nodes_are_refused_for_nothing_but_the_driver_of_another_release() -> None:
    machines = sorted(path.stem for path in (ROOT / "simulator/descriptions").glob("*.yml"))
    refused = {machine: refused_of(machine) for machine in machines}
    assert {machine: names for machine, (names, expected) in refused.items() if names != expected} == {}


def refused_of(machine: str) -> tuple[list[str], list[str]]:
    """For what a simulated node is refused, and for what it has to be."""
    node = description.load(machine)
    version = str(node["driver"]["version"])
    firmware = f"hl-{node['cards'][0]['family']}-{node['release']}-fw-61.4.2-sec-9"
    found = dataclasses.replace(
        RIGHT,
        system="debian12",
        kernel="6.1.0-18-amd64",
        driver=version,
        nic_drivers=frozenset({str(node["driver"]["nic_version"])}),
        cards=compatibility.cards([{**card, "firmware": firmware} for card in node["cards"]], TYPES),
        packages={"docker.io": "20.10.24+dfsg1-1+deb12u1"},
    )
    refused = [mismatch.check.name for mismatch in judge(found) if mismatch.refused]
    # Its description says that the driver's halves are of two builds.
    halves = ["nic-driver"] if machine == "gaudi2-oam8-mixed" else []
    return refused, [*([] if version.startswith("1.22.") else ["driver"]), *halves]


def test_hl_smi_says_the_same_of_two_releases_and_the_driver_decides() -> None:
    """hl-smi prints hl-1.24.0-fw-62.6.2.0 on 1.24.0 and on 1.24.1: nothing of it is compared."""
    wanted = Release("1.24.1", {"release": "1.24.1", "driver": "1.24.1-482"})
    right = NodeFacts(driver="1.24.1-b336d5e", nic_drivers=frozenset({"1.24.1-b336d5e"}))
    assert judge(right, wanted) == []
    (mismatch,) = judge(NodeFacts(driver="1.24.0-0000abc"), wanted)
    assert mismatch.check.name == "driver-build"
    assert not [field.name for field in dataclasses.fields(NodeFacts) if "smi" in field.name]


@pytest.mark.parametrize(
    ("changes", "against"),
    [
        ({"spi": spi("1.21.1-fw-59.2.1", "gaudi2")}, R124),
        ({"boot_fit": spi("1.21.0-fw-59.2.1", "gaudi2")}, R124),
        ({"boot_fit": None}, R124),
        ({"generation": "gaudi3"}, R124),
        ({}, Release("1.23", {"release": "1.23.0"})),
        ({}, Release("none", {})),
    ],
)
def test_the_rule_about_firmware_holds_for_its_pair_and_release_alone(
    changes: dict[str, Any], against: Release
) -> None:
    assert judge(NodeFacts(cards=cards("HL-225", **{**PAIR, **changes})), against) == []


NEWER = "1.22.0-fw-61.4.2"


def test_firmware_is_shown_beside_the_releases_where_both_are_known() -> None:
    said = "SPI firmware on modules 0, 1, 2, 3, 4, 5, 6, 7: 1.22.0-fw-61.3.2, that of release 1.22."
    assert compatibility.firmware(RIGHT.cards, release()) == [said]
    newer = f"{NEWER}, newer than that of release 1.22 (1.22.0-fw-61.3.2), which is fine."
    assert [line.partition(": ")[2] for line in compatibility.firmware(cards(spi=spi(NEWER)), release())] == [newer]
    # What differs is a mismatch, which shows both; of the others nothing is known.
    assert compatibility.firmware(cards(spi=spi("1.18.0-fw-53.1.1")), release()) == []
    assert compatibility.firmware(cards("HL-225", generation="gaudi2"), release()) == []
    assert compatibility.firmware(cards(spi=None), release()) == []
    assert compatibility.firmware(RIGHT.cards, Release("none", {})) == []


def test_the_rule_about_firmware_holds_for_all_of_1_24() -> None:
    found = NodeFacts(cards=cards("HL-225", **PAIR))
    (mismatch,) = judge(found, Release("1.24.1", {"release": "1.24.1"}))
    assert mismatch.refused
    assert "on modules 0, 1, 2, 3, 4, 5, 6, 7" in mismatch.row.found


def test_what_is_allowed_is_let_through_and_said() -> None:
    found = dataclasses.replace(RIGHT, driver="1.21.3-1a2b3c4", nic_drivers=frozenset(), packages={})
    (mismatch,) = judge(found, None, "driver")
    assert not mismatch.refused
    assert compatibility.problems([mismatch]) == []
    assert compatibility.let_through([mismatch]) == ["driver: found 1.21.3-1a2b3c4, wanted 1.22 (1.22.2-32)"]
    (said,) = compatibility.findings([mismatch], "1.22")
    assert said.endswith("by release 1.22; let through by preflight_allow_mismatch. [driver]")
    assert "(let through by preflight_allow_mismatch)" in " ".join(compatibility.report([mismatch], release(), 1))
    # A warning needs no leave, and one that is named is no exception worth a line in every summary.
    (warned,) = judge(dataclasses.replace(RIGHT, kernel="6.17"), None, "kernel-untested")
    assert compatibility.let_through([warned]) == []


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    (problem,) = compatibility.unknown_names(["driver", "nic_drivers"], LEVELS)
    assert problem.id == "option"
    assert "preflight_allow_mismatch names 'nic_drivers', and no check is called so." in problem.message
    assert "Did you mean nic-driver?" in problem.message
    assert compatibility.unknown_names([], LEVELS) == []


@pytest.mark.parametrize("recorded", [{}, {"packages": []}, {"packages": {"habana-torch-plugin": 1}, "python": 3}])
def test_a_record_of_images_that_says_something_else_says_nothing(recorded: dict[str, Any]) -> None:
    assert compatibility.image(recorded) == ImageFacts()


def test_what_is_recorded_of_an_image_is_taken() -> None:
    recorded = {"packages": {"vllm": "0.9", "habana-torch-plugin": "1.22.2.32"}, "python": "3.10.12"}
    assert compatibility.image(recorded) == ImageFacts("1.22.2.32", "3.10.12")


def test_a_card_that_nobody_knows_is_not_judged_by_its_type() -> None:
    """The reading of the cards says that it is unknown."""
    (card,) = compatibility.cards([{"module_id": 0, "name": "HL-999"}], TYPES)
    assert card == TopologyCard(0, "HL-999", None)
    assert judge(NodeFacts(cards=(card,))) == []


def test_the_document_has_the_checks_of_the_catalogue() -> None:
    document = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.+) \|$", document, re.MULTILINE)
    assert rows == [(check.name, check.level, check.about) for check in LEVELS.checks]
