"""What can move is said, and what it is today is ready to be written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.node import weight_folders
from ansible.module_utils.gaudi.preflight import pins
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from library import gaudi_preflight, serving_image
from tests.unit.preflight.conftest import Run
from tests.unit.preflight.test_modules import DIGEST, HERE, IMAGE, engine, fetching, ids, preflight, site

IMPORT = "ansible.builtin.import_role"
ROOT = Path(__file__).resolve().parents[3]
COMMIT = "ab" * 20


def fetch(**repositories: dict[str, str]) -> dict[str, Any]:
    return {"directory": "Big", "repositories": repositories}


def test_a_tag_is_no_pin() -> None:
    (said,) = pins.image_sentences([IMAGE, IMAGE], "")
    assert said.startswith(f"The image {IMAGE} is not pinned")
    assert pins.image_sentences([IMAGE], DIGEST) == []
    assert pins.image_sentences([f"{IMAGE}@{DIGEST}"], "") == []


def test_a_repository_without_a_commit_is_no_pin() -> None:
    item = fetch(huggingface={"repository": "o/Big", "revision": COMMIT}, modelscope={"repository": "o/Big"})
    (said,) = pins.repository_sentences([item, item], ["huggingface", "modelscope"])
    assert said.startswith("o/Big on ModelScope is not pinned: Big would be what its branch holds on the day.")
    # Of a hub that nobody asks nothing is taken.
    assert pins.repository_sentences([item], ["huggingface"]) == []
    branch = fetch(huggingface={"repository": "o/Big", "revision": "main"})
    assert len(pins.repository_sentences([branch], ["huggingface"])) == 1


def test_every_kind_of_hub_has_a_name() -> None:
    schema = json.loads((ROOT / "catalog/schemas/model.schema.json").read_text(encoding="utf-8"))
    kinds = schema["$defs"]["repositories"]["properties"]
    for kind in kinds:
        assert pins.repository_sentences([fetch(**{kind: {"repository": "o/Big"}})], [kind])


def test_no_pins_are_findings_by_themselves_and_problems_on_request(run: Run, tmp_path: Path) -> None:
    arguments = {**fetching(tmp_path), "weights_kinds": ["huggingface", "modelscope"]}
    arguments["source_plans"]["one"][0]["fetch"]["repositories"]["modelscope"] = {"repository": "owner/Big"}
    found = run(gaudi_preflight, arguments, HERE)
    assert ids(found) == []
    assert [line.split(" is not pinned")[0] for line in found["findings"] if "not pinned" in line] == [
        f"The image {IMAGE}",
        "owner/Big on ModelScope",
    ]
    required = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(required) == ["pins", "pins"]
    assert "gaudi_require_pins is true" in required["report"]
    assert not [line for line in required["findings"] if "not pinned" in line]


def test_what_is_pinned_says_nothing(run: Run, tmp_path: Path) -> None:
    arguments = {**fetching(tmp_path), "weights_kinds": ["huggingface"], "image_digest": DIGEST}
    ran = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(ran) == []
    assert not [line for line in ran["findings"] if "not pinned" in line]


def test_what_is_mended_is_held_against_its_record(run: Run, tmp_path: Path) -> None:
    """A folder that is there has its checksums; whatever a branch holds, nothing else gets in."""
    arguments = {**fetching(tmp_path), "weights_kinds": ["modelscope"], "image_digest": DIGEST}
    arguments["source_plans"]["one"][0]["fetch"]["repositories"]["modelscope"] = {"repository": "owner/Big"}
    (tmp_path / "Big" / ".gaudi-serving").mkdir(parents=True)
    (tmp_path / "Big" / ".gaudi-serving" / "manifest.json").write_text(
        json.dumps(
            {"schema": 1, "source": "s", "repository": "owner/Big", "revision": "master", "fetched": "2026"}
            | {"files": [{"name": "a", "size": 1, "sha256": "0"}]}
        )
    )
    ran = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert (ids(ran), ran["missing_weights"]) == ([], ["Big", "Big-G2"])


def test_a_wrong_wish_is_a_problem_of_its_own(run: Run) -> None:
    ran = run(gaudi_preflight, preflight(inventory=site(gaudi_require_pins="perhaps")))
    assert "gaudi_require_pins is 'perhaps', but must be true or false." in ran["report"]


@pytest.mark.parametrize("present", [True, False])
def test_a_run_prints_the_digest_ready_to_be_written_down(run: Run, tmp_path: Path, present: bool) -> None:
    arguments = {"image": IMAGE, "record": str(tmp_path / "images.json"), "release": "1.22"}
    lines = run(serving_image, arguments, engine(present=present))["unpinned"]
    assert lines[0] == f"{IMAGE} is not pinned. To have this image on every node, write into the inventory:"
    assert yaml.safe_load(lines[1]) == {"serving_image_digest": DIGEST}
    assert lines[2].startswith("or into catalog/releases/1.22.yml")
    assert yaml.safe_load("\n".join(lines[3:])) == {"image": {"digest": DIGEST}}
    assert run(serving_image, {**arguments, "digest": DIGEST}, engine(present=present))["unpinned"] == []


def test_in_check_mode_there_may_be_no_digest_to_print_yet(run: Run, tmp_path: Path) -> None:
    arguments = {"image": IMAGE, "record": str(tmp_path / "images.json")}
    assert run(serving_image, arguments, engine(present=False), check=True)["unpinned"] == []


def test_an_image_without_a_registry_has_none() -> None:
    (line,) = pins.digest_lines(IMAGE, None, "1.22")
    assert "has no digest of a registry" in line
    assert pins.digest_lines(f"{IMAGE}@{DIGEST}", DIGEST, "1.22") == []


@pytest.mark.parametrize("digest", ["sha256:0000", "ab" * 32, f"{DIGEST}0", DIGEST.upper(), f"{DIGEST}\n"])
@pytest.mark.parametrize("required", [True, False])
def test_a_digest_that_is_none_is_a_problem(run: Run, digest: str, required: bool) -> None:
    ran = run(gaudi_preflight, preflight(image_digest=digest, inventory=site(gaudi_require_pins=required)), HERE)
    assert ids(ran) == ["inventory"]
    assert "must be sha256: and 64 hexadecimal digits" in ran["report"]
    assert pins.digest_refusals(DIGEST) == pins.digest_refusals("") == []


def test_who_prints_the_digest_runs_where_pins_are_required() -> None:
    """The look at the node is part of every run, so that the wish has to be put off for one."""
    (said,) = pins.image_sentences([IMAGE], "")
    assert "`site.yml --tags serving_image -e gaudi_require_pins=false` prints it" in said
    plays = yaml.safe_load((ROOT / "site.yml").read_text(encoding="utf-8"))
    imports = [(task[IMPORT], play.get("tags")) for play in plays for task in play["tasks"] if IMPORT in task]
    tags = {role["name"]: tags for role, tags in imports if "tasks_from" not in role}
    assert tags["preflight"] == ["always"]
    assert tags["serving_image"] == ["serving_image"]


def test_the_lines_are_printed_once() -> None:
    """A loop shows its label above the message: the image alone, or the message would begin twice."""
    tasks = yaml.safe_load((ROOT / "roles/serving_image/tasks/say.yml").read_text(encoding="utf-8"))
    (label,) = [task["loop_control"]["label"] for task in tasks if "loop_control" in task]
    said = "\n".join(pins.digest_lines(IMAGE, DIGEST, "1.22"))
    templar = Templar(loader=DataLoader(), variables={"item": said})
    assert templar.template(trust_as_template(label)) == IMAGE


@pytest.mark.parametrize("kinds", [["modelscope"], ["huggingface", "modelscope"]])
def test_a_refused_fetch_says_where_the_commit_goes(kinds: list[str]) -> None:
    variables = yaml.safe_load((ROOT / "roles/model_weights/vars/main.yml").read_text(encoding="utf-8"))
    known = {
        "__model_weights_kind": variables["__model_weights_kind"],
        "__model_weights_moving": kinds,
        "__model_weights_origins": {kind: {"repository": "o/Big"} for kind in kinds},
        "model_weights_directory": "Big",
    }
    said = Templar(loader=DataLoader(), variables=known).template(
        trust_as_template(variables["__model_weights_unpinned"])
    )
    for kind in kinds:
        assert f"repositories.{kind}.revision" in said
    assert ("-e revision=COMMIT" in said) == ("huggingface" in kinds)
    assert "in catalog/models" in said


DAMAGED_PLANS = ['{"container": 5}', "[1]", "{", "null"]


@pytest.mark.parametrize("content", DAMAGED_PLANS)
def test_a_damaged_plan_is_named_and_the_run_goes_on(
    run: Run, tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole weights make the preflight ask who uses them."""
    folder = tmp_path / "instances"
    for name in ("one", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "plan.json").write_text(content, encoding="utf-8")
    for function in (weight_folders.users, weight_folders.describe):
        monkeypatch.setattr(function, "__defaults__", (folder,))
    monkeypatch.setattr(weight_folders, "PLANS", folder)
    (tmp_path / "Big").mkdir()
    (tmp_path / "Big/config.json").write_text("{}", encoding="utf-8")
    ran = run(gaudi_preflight, {**fetching(tmp_path), "image_digest": DIGEST}, HERE)
    assert ids(ran) == []
    one, other = [line for line in ran["findings"] if "is damaged" in line]
    assert one.startswith(f"one: {folder}/one/plan.json is damaged")
    assert "this run writes it anew" in one
    assert other.startswith(f"other: {folder}/other/plan.json is damaged")
    assert "remove" in other
