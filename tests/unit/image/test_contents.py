"""What is said of images: table, one image whole, two compared; what is read, and the playbook."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.image import sbom
from ansible.module_utils.gaudi.node import states
from ansible.module_utils.gaudi.node.report import images
from ansible.utils.display import Display

from filter_plugins.image_contents import (
    image_description,
    image_difference,
    image_document,
    image_reference,
    image_table,
    node_images,
)
from library import node_report
from tests.unit.image.test_sbom import FOUND
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.conftest import Answer, Run, record, run

__all__ = ["record", "run"]

ROOT = Path(__file__).resolve().parents[3]
OLD: dict[str, Any] = {
    "reference": "gaudi-serving/vllm:1.22-aaaaaaaaaaaa",
    "id": "sha256:" + "a" * 64,
    "digest": "",
    "present": True,
    "built": {
        "gaudi-serving.image.release": "1.22",
        "gaudi-serving.image.base": "habanalabs/pytorch:1.22.2-32",
        "gaudi-serving.image.base-digest": "sha256:" + "1" * 64,
        "gaudi-serving.image.commit.vllm_fork": "4" * 40,
        "gaudi-serving.image.released.vllm_fork": "4" * 40,
        "gaudi-serving.image.commit.own": "5" * 40,
    },
    "parts": ["numactl"],
    "python": {"vllm": "0.9.0", "habana-torch-plugin": "1.22.2.32", "ray": "2.4", "old": "1"},
    "system": {"bash": "5.1"},
    "checkouts": {"/opt/vllm-fork": "4" * 40},
    "bill": "/var/lib/x/a.cdx.json",
    "damaged": "",
}
NEW: dict[str, Any] = copy.deepcopy(OLD)
NEW.update(reference="gaudi-serving/vllm:1.22-bbbbbbbbbbbb", id="sha256:" + "b" * 64, parts=["numactl", "audio"])
NEW["built"]["gaudi-serving.image.commit.vllm_fork"] = "6" * 40
NEW["built"]["gaudi-serving.image.base-digest"] = "sha256:" + "2" * 64
NEW["built"]["gaudi-serving.image.constraints"] = "ray==2.5"
NEW["python"].update(ray="2.5", librosa="1")
NEW["python"].pop("old")
NEW["system"]["bash"] = "5.2"
READY: dict[str, Any] = {**OLD, "reference": "registry/vllm:7", "id": "sha256:" + "c" * 64, "built": {}, "digest": "d"}
READY.update(bill="", python={"vllm": "0.9.0"}, system={}, checkouts={}, parts=[], present=False)
NODES: dict[str, Any] = {
    "one": {
        "changed": False,
        "images": [OLD, NEW],
        "instances": [
            {"instance": "chat", "image": NEW["reference"], "runs_in": OLD["id"]},
            {"instance": "embed", "image": OLD["reference"], "runs_in": OLD["id"]},
        ],
    },
    "two": {
        "changed": False,
        "images": [OLD, READY],
        "instances": [{"instance": "x", "image": "gone:1", "runs_in": ""}],
    },
}


@pytest.mark.parametrize(
    "hostile",
    [
        {},
        None,
        {"images": {}, "instances": []},
        {"images": [{}], "instances": []},
        {"images": [{**OLD, "id": 1}], "instances": []},
        {"images": [], "instances": [{"instance": ["x"], "image": "", "runs_in": ""}]},
    ],
)
def test_a_report_of_another_form_ends_no_page_of_other_nodes(hostile: Any) -> None:
    nodes = {**NODES, "evil": hostile}
    assert [line.split()[:2] for line in image_table(nodes) if line.startswith("evil")] == [["evil", "-"]]
    assert [line.split()[:2] for line in image_table(nodes)[:4]] == [
        line.split()[:2] for line in image_table(NODES)[:4]
    ]
    assert image_document(nodes) == image_document(NODES)
    assert image_description(nodes, NEW["id"]) == image_description(NODES, NEW["id"])
    assert image_difference(nodes, NEW["id"], OLD["id"]) == image_difference(NODES, NEW["id"], OLD["id"])


def test_a_table_of_images_has_an_end() -> None:
    many = {"images": [], "instances": [{"instance": "x" * 10**6, "image": "y", "runs_in": ""}] * 5000}
    assert sum(map(len, image_table({"evil": many}))) < 10**7


def test_instances_and_nodes_come_first() -> None:
    lines = image_table(NODES)
    rows = [line.split() for line in lines[: lines.index("")]]
    assert rows == [
        ["NODE", "INSTANCE", "IMAGE", "ID", "RUNS", "IN"],
        ["one", "chat", NEW["reference"], "b" * 12, "another:", "a" * 12],
        ["one", "embed", OLD["reference"], "a" * 12, "it"],
        ["two", "x", "gone:1", "-", "-"],
        ["two", "-", OLD["reference"], "a" * 12, "-"],
        ["two", "-", READY["reference"], "c" * 12, "-"],
    ]


def test_the_version_of_every_checkout_is_told() -> None:
    made = {"vllm": "0.26.0", "vllm-gaudi": "0.26.1", "vllm-hpu-extension": "0.1", "neural-compressor-pt": "3.4"}
    node = {**NODES["one"], "images": [{**OLD, "python": made}]}
    lines = image_table({"one": node})
    assert {f"  {name} {version}" for name, version in made.items()} <= set(lines)


def test_a_label_that_says_another_version_than_is_found_is_told() -> None:
    """Whoever installs something into one of our images inherits its labels."""
    labels = {f"gaudi-serving.image.version.{name}": "0.9.0" for name in ("vllm", "habana-torch-plugin")}
    image = {**OLD, "built": {**OLD["built"], **labels}, "python": {"vllm": "0.9.1", "habana-torch-plugin": "0.9.0"}}
    lines = image_table({"one": {**NODES["one"], "images": [image]}})
    assert "  vllm 0.9.1 (its label says 0.9.0)" in lines
    assert "  habana-torch-plugin 0.9.0" in lines


def test_each_image_is_described_once_with_its_nodes() -> None:
    lines = image_table(NODES)
    assert lines.count(OLD["reference"]) == 1
    about = lines[lines.index(OLD["reference"]) :]
    assert about[1:13] == [
        f"  id {OLD['id']}",
        "  built by this project from release 1.22; on one, two",
        f"  base habanalabs/pytorch:1.22.2-32 of sha256:{'1' * 64}",
        f"  commit own {'5' * 40} (the release pins none)",
        f"  commit vllm_fork {'4' * 40} (pinned by the release)",
        "  constraints none",
        f"  checkout /opt/vllm-fork {'4' * 40}",
        "  parts numactl",
        "  habana-torch-plugin 1.22.2.32",
        "  vllm 0.9.0",
        "  4 Python distributions, 1 packages of the system: /var/lib/x/a.cdx.json",
        "",
    ]
    new = lines[lines.index(NEW["reference"]) :]
    assert "  constraints ray==2.5" in new
    assert f"  commit vllm_fork {'6' * 40} (the release pins {'4' * 40})" in new


def test_an_image_that_was_built_from_a_lock_says_so() -> None:
    locked = {**OLD, "built": {**OLD["built"], "gaudi-serving.image.lock": "7" * 64}, "reference": "x/vllm:locked"}
    nodes = {"one": {**NODES["one"], "images": [OLD, locked]}}
    assert f"  packages by the lock {'7' * 64}" in image_description(nodes, "locked")
    assert not any("by the lock" in line for line in image_description(nodes, OLD["reference"]))
    assert image_difference(nodes, "locked", OLD["reference"])[1:] == [f"  lock: {'7' * 64} instead of none"]


def test_a_ready_image_and_one_that_is_gone_say_so() -> None:
    about = image_description(NODES, "7")
    assert about[:4] == [
        "registry/vllm:7",
        f"  id {READY['id']}, digest d",
        "  ready-made; on two",
        "  on record, but not on the node any more",
    ]
    assert about[-1] == "  nobody looked into it yet: the next run of site.yml does"


def test_one_image_is_shown_whole() -> None:
    about = image_description(NODES, "aaaaaa")
    python, system = about.index("  Python distributions:"), about.index("  packages of the system:")
    assert python < about.index("    ray 2.4") < system < about.index("    bash 5.1")
    assert about[2].endswith("on one, two")


@pytest.mark.parametrize("name", ["nothing", "", "aa"])
def test_an_image_that_nobody_has_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"There are: {OLD['reference']}, "):
        image_description(NODES, name)


def test_a_name_that_stands_for_several_is_refused() -> None:
    moved = {**OLD, "id": "sha256:" + "9" * 64}
    nodes = {**NODES, "three": {"images": [moved], "instances": []}}
    with pytest.raises(AnsibleFilterError, match=f"several images: {'9' * 12}, {'a' * 12}"):
        image_difference(nodes, OLD["reference"], NEW["reference"])


def test_the_only_image_needs_no_name() -> None:
    only = {"two": NODES["two"]}
    assert image_reference(only, "") == OLD["reference"]
    assert image_reference(NODES, "cccccc") == READY["reference"]
    with pytest.raises(AnsibleFilterError, match=r"^No image is named\. There are: "):
        image_reference({"one": NODES["one"]}, "")


def test_two_images_are_compared_in_words() -> None:
    assert image_difference(NODES, NEW["reference"], "1.22-aaaaaaaaaaaa") == [
        f"{NEW['reference']} ({'b' * 12}) against {OLD['reference']} ({'a' * 12})",
        f"  digest of the base image: sha256:{'2' * 64} instead of sha256:{'1' * 64}",
        "  constraints: ray==2.5 instead of none",
        f"  vllm_fork: {'6' * 40} instead of {'4' * 40}",
        "  part added: audio",
        "  Python distribution added: librosa 1",
        "  Python distribution removed: old 1",
        "  Python distribution changed: ray 2.5 instead of 2.4",
        "  package of the system changed: bash 5.2 instead of 5.1",
    ]
    assert image_difference(NODES, OLD["id"], OLD["id"])[1:] == ["  no difference"]
    assert "  nothing is known of each package of the system in registry/vllm:7: nobody looked into it yet" in (
        image_difference(NODES, OLD["id"], "7")
    )


def test_what_an_image_says_does_nothing_to_a_terminal() -> None:
    bad: dict[str, Any] = copy.deepcopy(OLD)
    bad["built"]["gaudi-serving.image.base"] = "x\x1b[2Jy"
    nodes = {"one": {"images": [bad], "instances": []}}
    nodes["two"] = NODES["two"]
    assert "\x1b" not in "".join([*image_table({"one": nodes["one"]}), *image_difference(nodes, "7", bad["id"])])


def test_nodes_without_images_are_named() -> None:
    assert image_table({"one": {"images": [], "instances": []}}) == ["no images on one"]
    assert image_document(NODES)["two"].keys() == {"images", "instances"}


# What is read of a node.


@pytest.fixture
def node(tmp_path: Path, record: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with an instance and two images on record, one of them looked into."""
    plans = tmp_path / "instances"
    (plans / "chat").mkdir(parents=True)
    plan = {"image": OLD["reference"], "container": {"name": "vllm-chat"}}
    (plans / "chat" / "plan.json").write_text(json.dumps(plan))
    monkeypatch.setattr(states, "PLANS", plans)
    monkeypatch.setattr(images, "RECORD", record)
    monkeypatch.setattr(images, "BILLS", record.parent / "sbom")
    (record.parent / "sbom").mkdir(parents=True)
    text = sbom.rendered(sbom.bill(OLD["reference"], OLD["id"], FOUND, {}))
    (record.parent / "sbom" / sbom.file_name(OLD["id"])).write_text(text)
    labels = {"gaudi-serving.image.version.torch": "2.7.1", "gaudi-serving.image.version.vllm": "0.8"}
    known = {
        OLD["reference"]: {"id": OLD["id"], "digest": None, "built": OLD["built"], "parts": ["numactl"]},
        READY["reference"]: {"id": READY["id"], "digest": "sha256:d", "packages": {"vllm": "0.9"}, "built": labels},
    }
    record.write_text(json.dumps({"schema": 1, "images": known}))
    return record


STOPPED: dict[str, Answer] = {"systemctl show vllm-chat.service": (0, "ActiveState=inactive\n", "")}


def seen(run: Run, answers: dict[str, Answer]) -> dict[str, Any]:
    """What a node without other programs than these has."""
    asked = {"parts": ["images", "plans"]}
    return node_images(run(node_report, asked, {**STOPPED, **answers}, check=True).result)


def test_the_report_puts_record_labels_and_bill_together(run: Run, node: Path) -> None:
    answers: dict[str, Answer] = {
        f"docker image inspect --format {{{{.Id}}}} {OLD['reference']}": (0, f"{OLD['id']}\n", ""),
        f"docker image inspect --format {{{{.Id}}}} {READY['reference']}": (1, "\n", "Error: No such image\n"),
        "docker container inspect --format {{.Image}} vllm-chat": (0, f"{OLD['id']}\n", ""),
    }
    ran = seen(run, answers)
    assert ran["instances"] == [{"instance": "chat", "image": OLD["reference"], "runs_in": OLD["id"]}]
    one, other = ran["images"]
    assert (one["present"], one["built"], one["parts"]) == (True, OLD["built"], ["numactl"])
    assert one["python"] == FOUND.packages
    assert one["system"]["bash"] == "5.1-6ubuntu1"
    assert one["checkouts"]["/opt/vllm-fork"] == "4" * 40
    assert one["bill"].endswith(f"{'a' * 64}.cdx.json")
    assert (other["present"], other["python"], other["bill"]) == (False, {"torch": "2.7.1", "vllm": "0.9"}, "")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_bill_is_said(run: Run, node: Path, kind: str) -> None:
    damage(node.parent / "sbom" / sbom.file_name(OLD["id"]), kind)
    one = seen(run, {})["images"][0]
    assert "is damaged" in one["damaged"]
    assert "writes it again" in image_table({"one": {"images": [one], "instances": []}})[-1]


def test_a_damaged_record_is_refused(run: Run, node: Path) -> None:
    node.write_text("{")
    with pytest.raises(AnsibleFilterError, match=r"is damaged: it .* writes it again\. \[image_record_damaged\]$"):
        seen(run, {})


def test_without_an_engine_what_is_on_record_counts(run: Run, node: Path) -> None:
    assert [image["present"] for image in seen(run, {})["images"]] == [True, True]
    node.unlink()
    assert seen(run, {})["images"] == []


@pytest.mark.parametrize(("said", "refused"), [("Error: No such container: vllm-chat", False), ("is it up?", True)])
def test_a_container_that_nobody_can_look_at_is_not_taken_for_none(
    run: Run, node: Path, said: str, refused: bool
) -> None:
    answers: dict[str, Answer] = {"docker image inspect": (1, "", ""), "docker container inspect": (1, "", said)}
    if refused:
        with pytest.raises(
            AnsibleFilterError, match=r"vllm-chat cannot be looked at: is it up\? \[container_not_seen\]$"
        ):
            seen(run, answers)
    else:
        assert seen(run, answers)["instances"][0]["runs_in"] == ""


def test_an_instance_with_a_damaged_plan_is_warned_of(
    run: Run, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: warned.append(text))
    (tmp_path / "instances/chat/plan.json").write_text("{")
    assert seen(run, {})["instances"] == []
    assert warned == [f"{paths.INSTANCES}/chat/plan.json is damaged: which image chat has is not known."]


WHOLE: dict[str, Any] = {"record": {"text": None}, "bills": {}, "engine": False, "ids": {}, "runs_in": {}}


@pytest.mark.parametrize(
    "odd",
    [
        {"error": "Too late."},
        {**WHOLE, "record": []},
        {**WHOLE, "record": {"damage": 7}},
        {**WHOLE, "bills": 7},
        {**WHOLE, "engine": 7},
        {**WHOLE, "ids": []},
    ],
)
def test_a_report_of_another_form_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"\[[a-z_]+\]$"):
        node_images({"report": {"images": odd, "plans": {"plans": {}}}})
