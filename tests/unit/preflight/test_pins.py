"""What can move is said, and what it is today is ready to be written down."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.node import weight_folders
from ansible.module_utils.gaudi.preflight import pins
from ansible.module_utils.gaudi.weights import pin_file
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from filter_plugins.pins import unpinned
from library import gaudi_preflight, serving_image
from tests.unit.preflight.conftest import Run
from tests.unit.preflight.test_modules import DIGEST, HERE, IMAGE, engine, fetching, ids, preflight, site

IMPORT = "ansible.builtin.import_role"
ROOT = Path(__file__).resolve().parents[3]
COMMIT = "ab" * 20


def fetch(**repositories: dict[str, Any]) -> dict[str, Any]:
    return {"directory": "Big", "repositories": repositories}


def test_a_tag_is_no_pin() -> None:
    (said,) = pins.image_sentences([IMAGE, IMAGE], "")
    assert said.startswith(f"The image {IMAGE} is not pinned")
    assert pins.image_sentences([IMAGE], DIGEST) == []
    assert pins.image_sentences([f"{IMAGE}@{DIGEST}"], "") == []


BASE = "vault.habana.ai/base:1"


@pytest.mark.parametrize(
    ("base", "pushed", "said"),
    [
        (BASE, False, [f"The base image {BASE} of images that are built is not pinned"]),
        (f"{BASE}@{DIGEST}", False, []),
        (f"{BASE}@{DIGEST}", True, [f"The image {IMAGE} is not pinned"]),
        (BASE, True, [f"The image {IMAGE} is not pinned", f"The base image {BASE} of images"]),
    ],
)
def test_what_a_registry_decides_of_a_built_image_is_no_pin(
    run: Run, tmp_path: Path, base: str, pushed: bool, said: list[str]
) -> None:
    """A note by itself; refused with the way out where pins are required. A digest of the site changes nothing."""
    arguments = {**fetching(tmp_path), "weights_kinds": ["huggingface"], "image_digest": DIGEST}
    arguments["source_plans"]["one"][0]["fetch"]["repositories"]["huggingface"]["files"] = {"config.json": "0" * 64}
    arguments.update(image_built=True, image_base=base, image_pushed=pushed)
    found = run(gaudi_preflight, arguments, HERE)
    assert ids(found) == []
    notes = [line for line in found["findings"] if "not pinned" in line]
    assert [note.startswith(each) for note, each in zip(notes, said, strict=True)] == [True] * len(said)
    required = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(required) == ["pins"] * len(said)
    assert (f"serving_image_base: {BASE}@sha256:..." in required["report"]) == (base == BASE)
    assert (f"serving_image_ref: {IMAGE} and its digest as serving_image_digest" in required["report"]) == pushed


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
    assert ids(required) == ["pins", "pins", "pins"]
    assert "owner/Big on Hugging Face is pinned by commit only" in required["report"]
    assert "gaudi_require_pins is true" in required["report"]
    assert not [line for line in required["findings"] if "not pinned" in line]


def test_pins_are_required_of_what_other_nodes_give_where_there_is_no_hub(run: Run, tmp_path: Path) -> None:
    arguments = {**fetching(tmp_path), "weights_kinds": [], "image_digest": DIGEST}
    assert ids(run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)) == ["pins"]


def test_what_is_pinned_says_nothing(run: Run, tmp_path: Path) -> None:
    arguments = {**fetching(tmp_path), "weights_kinds": ["huggingface"], "image_digest": DIGEST}
    of_hub = arguments["source_plans"]["one"][0]["fetch"]["repositories"]["huggingface"]
    of_hub["files"] = {"config.json": "0" * 64}
    ran = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(ran) == []
    assert not [line for line in ran["findings"] if "not pinned" in line]


def running_code(root: Path, files: dict[str, str] | None = None) -> dict[str, Any]:
    """A node that is to serve a model whose code comes with its weights, pinned by a commit, or ``files`` too."""
    arguments = {**fetching(root), "weights_kinds": ["huggingface"], "image_digest": DIGEST}
    (wanted,) = arguments["plans"]
    arguments["plans"] = [{**wanted, "model": "big", "arguments": ["python3", "--trust-remote-code"]}]
    if files is not None:
        arguments["source_plans"]["one"][0]["fetch"]["repositories"]["huggingface"]["files"] = files
    return arguments


def test_code_that_only_a_commit_pins_is_refused_before_it_is_fetched(run: Run, tmp_path: Path) -> None:
    ran = run(gaudi_preflight, running_code(tmp_path), HERE)
    assert (ids(ran), ran["missing_weights"]) == (["code_not_pinned"], [])
    assert "owner/Big is pinned by commit only" in ran["report"]
    assert "ansible-playbook playbooks/pin.yml -e model=big -e write=true" in ran["report"]
    pinned = run(gaudi_preflight, running_code(tmp_path, {"configuration_big.py": "0" * 64}), HERE)
    assert (ids(pinned), pinned["missing_weights"]) == ([], ["Big", "Big-G2"])


@pytest.mark.parametrize("served", [True, False])
def test_code_that_is_there_already_is_refused_as_well(
    run: Run, tmp_path: Path, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what a mirror sent then; an instance that serves goes on serving."""
    monkeypatch.setattr(weight_folders, "PLANS", tmp_path / "instances")
    for folder in ("Big", "Big-G2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text("{}")
    arguments = running_code(tmp_path)
    if served:
        (tmp_path / "instances/one").mkdir(parents=True)
        (tmp_path / "instances/one/plan.json").write_text(json.dumps(arguments["plans"][0]))
    ran = run(gaudi_preflight, arguments, {**HERE, "systemctl": (0, "active", "")})
    assert ids(ran) == ["code_not_pinned"]
    assert ("Until then the instance is not changed." in ran["report"]) == served


HUB_IDS = [
    ["--model", "owner/name"],
    ["--tokenizer=owner/name"],
    ["--speculative-config", '{"model": "owner/name"}'],
    ["--lora-modules", "a=owner/name"],
]


def of_a_hub(tmp_path: Path, *words: str, **changes: Any) -> dict[str, Any]:
    """A node whose server is to fetch something by itself."""
    arguments = {**fetching(tmp_path, **changes), "image_digest": DIGEST, "source_plans": {"one": []}}
    (wanted,) = arguments["plans"]
    (tmp_path / "Own").mkdir()
    (tmp_path / "Own/config.json").write_text("{}")
    needs = {"weights_path": f"{tmp_path}/Own"}
    arguments["plans"] = [{**wanted, "arguments": ["python3", *words], "requires": needs}]
    return arguments


@pytest.mark.parametrize("words", HUB_IDS)
@pytest.mark.parametrize("trust", ["--trust-remote-code", "--trust_remote_code"])
def test_code_that_the_server_fetches_by_itself_is_refused(
    run: Run, tmp_path: Path, words: list[str], trust: str
) -> None:
    """No source plan has it, so that nothing compares it with checksums."""
    ran = run(gaudi_preflight, of_a_hub(tmp_path, *words, trust), HERE)
    assert ids(ran) == ["code_not_pinned"]
    for said in ("the server itself fetches owner/name", "Leave out weights", "playbooks/pin.yml"):
        assert said in ran["report"]


@pytest.mark.parametrize("words", HUB_IDS)
def test_hub_ids_are_refused_where_pins_are_required(run: Run, tmp_path: Path, words: list[str]) -> None:
    arguments = of_a_hub(tmp_path, *words)
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    required = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(required) == ["pins"]
    assert "the server itself fetches owner/name" in required["report"]
    assert "gaudi_require_pins is true" in required["report"]


def test_weights_that_name_another_model_are_refused_where_pins_are_required(run: Run, tmp_path: Path) -> None:
    arguments = of_a_hub(tmp_path)
    named = {"speculators_config": {"verifier": {"name_or_path": "evil/with-code"}}}
    (tmp_path / "Own/config.json").write_text(json.dumps(named))
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    required = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(required) == ["pins"]
    assert "evil/with-code" in required["report"]
    (tmp_path / "Own/config.json").write_text('{"text_model_id": "/data/models/Own"}')
    assert ids(run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)) == []


CODE = {"config.json": "{}", "configuration_big.py": "class Big: ..."}
PINS = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in CODE.items()}


@pytest.mark.parametrize(
    ("name", "text", "folders"),
    [
        ("configuration_big.py", "import os", ["Big", "Big-G2"]),
        ("config.json", '{"auto_map": {}}', ["Big"]),
        ("evil.py", "import os", ["Big-G2"]),
        ("deep/evil.PKL", "", ["Big-G2"]),
        ("tokenizer_config.json", '{"auto_map": {}}', ["Big", "Big-G2"]),
        ("processor_config.json", "{}", ["Big-G2"]),
        ("chat_template.jinja", "{{ messages }}", ["Big-G2"]),
        ("additional_chat_templates/tool_use.jinja", "", ["Big"]),
        ("tokenizer.model", "", ["Big-G2"]),
        # Formats and names that decide as well.
        ("tokenizer.model.v3", "", ["Big"]),
        ("qwen.tiktoken", "", ["Big-G2"]),
        ("vocab.txt", "", ["Big"]),
        ("original/merges.txt", "", ["Big-G2"]),
        ("vocab.bpe", "", ["Big"]),
        ("params.yaml", "", ["Big-G2"]),
        ("chat_template.jinja2", "", ["Big"]),
        ("model.gguf", "", ["Big-G2"]),
        ("tekken", "", ["Big"]),
        ("notes.txt", "", ["Big-G2"]),
        ("readme.py", "", ["Big"]),
        ("x.md/custom_generate/generate.py", "", ["Big-G2"]),
    ],
)
def test_code_on_the_node_is_held_to_the_pins(
    run: Run, tmp_path: Path, name: str, text: str, folders: list[str]
) -> None:
    for folder in ("Big", "Big-G2"):
        (tmp_path / folder).mkdir()
        for file, content in CODE.items():
            (tmp_path / folder / file).write_text(content)
        # Notes may be there, as may an index that a conversion writes again.
        for notes in ("README", "LICENSE-MODEL.txt", "notice.md", "USE_POLICY.md", "history.md", "speed.PNG"):
            (tmp_path / folder / notes).write_text("x")
        (tmp_path / folder / ".gaudi-serving").mkdir()
        (tmp_path / folder / ".gaudi-serving/x.py").write_text("")
    (tmp_path / "Big-G2/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {}}))
    pins_ = {**PINS, "model.safetensors.index.json": "0" * 64}
    assert ids(run(gaudi_preflight, running_code(tmp_path, pins_), HERE)) == []
    for folder in folders:
        (tmp_path / folder / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / folder / name).write_text(text)
    ran = run(gaudi_preflight, running_code(tmp_path, pins_), HERE)
    assert ids(ran) == ["code_differs"] * len(folders)
    for folder in folders:
        assert f"code of {tmp_path}/{folder}, where" in ran["report"]
    # A model whose code does not run is served as it is, unless the site requires pins.
    arguments = running_code(tmp_path, pins_)
    arguments["plans"][0]["arguments"] = []
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    required = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(required) == ["pins"] * len(folders)
    for folder in folders:
        assert f"would read {tmp_path}/{folder}, where" in required["report"]


def test_pickled_tensors_on_the_node_are_held_to_the_pins(run: Run, tmp_path: Path) -> None:
    """Releases 1.16 and 1.18 run what is in them."""
    for folder in ("Big", "Big-G2"):
        (tmp_path / folder).mkdir()
        for file, content in CODE.items():
            (tmp_path / folder / file).write_text(content)
    arguments = running_code(tmp_path, PINS)
    (wanted,) = arguments["plans"]
    arguments["plans"] = [{**wanted, "arguments": ["python3"], "release": "own-fork", "unpickles": True}]
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    (tmp_path / "Big-G2/pytorch_model.bin").write_text("exchanged")
    assert ids(run(gaudi_preflight, arguments, HERE)) == ["code_differs"]
    arguments["plans"][0]["arguments"] += ["--load-format", "safetensors"]
    assert ids(run(gaudi_preflight, arguments, HERE)) == []


@pytest.mark.parametrize("of_users", ["Big-G2", "Big-G2/configuration_big.py", "Big-G2/deep"])
def test_code_that_users_could_exchange_after_its_comparison_is_refused(
    run: Run, tmp_path: Path, of_users: str
) -> None:
    (tmp_path / "Big-G2/deep").mkdir(parents=True)
    for file, content in CODE.items():
        (tmp_path / "Big-G2" / file).write_text(content)
    arguments = running_code(tmp_path, PINS)
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    (tmp_path / of_users).chmod(0o777)
    ran = run(gaudi_preflight, arguments, HERE)
    assert ids(ran) == ["others_may_write"]
    assert f"{tmp_path / of_users} can be written by everybody" in ran["report"]
    # Without code, and where no pins are required, nothing is promised.
    arguments["plans"][0]["arguments"] = []
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    required = run(gaudi_preflight, {**arguments, "inventory": site(gaudi_require_pins=True)}, HERE)
    assert ids(required) == ["others_may_write"]


def test_own_code_that_users_could_exchange_is_refused(run: Run, tmp_path: Path) -> None:
    """Nothing pins the code of a site's own weights, and of a model that guesses for them."""
    arguments = of_a_hub(tmp_path, "--trust-remote-code")
    guessing = tmp_path / "Guessing/config.json"
    guessing.parent.mkdir()
    guessing.write_text("{}")
    arguments["plans"][0]["requires"]["files"] = [str(guessing)]
    assert ids(run(gaudi_preflight, arguments, HERE)) == []
    for file in (tmp_path / "Own/config.json", guessing):
        file.chmod(0o666)
        ran = run(gaudi_preflight, arguments, HERE)
        assert ids(ran) == ["others_may_write"]
        assert f"{file} can be written by everybody" in ran["report"]
        file.chmod(0o644)


@pytest.mark.parametrize("pipe", [True, False])
def test_code_that_leads_out_of_the_folder_differs(run: Run, tmp_path: Path, pipe: bool) -> None:
    (tmp_path / "Big-G2").mkdir()
    (tmp_path / "Big-G2/config.json").write_text(CODE["config.json"])
    (tmp_path / "outside.py").write_text(CODE["configuration_big.py"])
    code = tmp_path / "Big-G2/configuration_big.py"
    os.mkfifo(code) if pipe else code.symlink_to(tmp_path / "outside.py")
    assert ids(run(gaudi_preflight, running_code(tmp_path, PINS), HERE)) == ["code_differs"]


@pytest.mark.parametrize("name", ["evil.py", "code", "README.md", "configuration_big.py"])
@pytest.mark.parametrize("leads_to", ["deep", "../outside", "/usr/lib/not-on-this-node", "."])
def test_a_link_beside_pinned_files_that_is_not_read_differs(
    run: Run, tmp_path: Path, name: str, leads_to: str
) -> None:
    """What a server finds behind it, in its folder or in its image, no checksum holds."""
    folder = tmp_path / "Big-G2"
    for place in (folder, folder / "deep", tmp_path / "outside"):
        place.mkdir()
        (place / "README").write_text("x")
    for file, content in CODE.items():
        if file != name:
            (folder / file).write_text(content)
    (folder / name).symlink_to(leads_to)
    assert ids(run(gaudi_preflight, running_code(tmp_path, PINS), HERE)) == ["code_differs"]


def test_a_folder_of_weights_that_is_a_link_is_compared_as_well(run: Run, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/evil.py").write_text("import os")
    (tmp_path / "Big-G2").symlink_to(tmp_path / "disk")
    assert ids(run(gaudi_preflight, running_code(tmp_path, PINS), HERE)) == ["code_differs"]
    (tmp_path / "disk/evil.py").unlink()
    for file, content in CODE.items():
        (tmp_path / "disk" / file).write_text(content)
    assert ids(run(gaudi_preflight, running_code(tmp_path, PINS), HERE)) == []


@pytest.mark.parametrize("name", ["evil.py", "evil.pkl"])
def test_code_without_a_pin_differs_whether_it_is_read_or_not(
    run: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large file only the record has the checksum; a link out of the folder is not followed."""
    monkeypatch.setattr(pin_file, "LARGEST", 20)
    (tmp_path / "Big-G2").mkdir()
    for file, content in CODE.items():
        (tmp_path / "Big-G2" / file).write_text(content)
    (tmp_path / "Big-G2" / name).write_text("import os" * 9)
    assert ids(run(gaudi_preflight, running_code(tmp_path, PINS), HERE)) == ["code_differs"]
    (tmp_path / "Big-G2" / name).rename(tmp_path / name)
    (tmp_path / "Big-G2" / name).symlink_to(tmp_path / name)
    assert ids(run(gaudi_preflight, running_code(tmp_path, PINS), HERE)) == ["code_differs"]


def test_what_is_pinned_is_said_in_a_line_each() -> None:
    files = {"config.json": "0" * 64}
    weights = fetch(huggingface={"repository": "o/Big", "revision": COMMIT}, modelscope={"repository": "o/Big"})
    measured = fetch(huggingface={"repository": "o/m", "revision": COMMIT, "files": files})
    sources = [{"fetch": {**weights, "measured_cards": 0}}, {"fetch": {**measured, "measured_cards": 8}}]
    assert pins.lines({"image": IMAGE}, sources, ["huggingface"], "", base="", pushed=False) == [
        "weights pinned by commit only",
        "measurements pinned by checksums",
        "image not pinned",
    ]
    both = pins.lines(
        {"image": f"{IMAGE}@{DIGEST}"}, sources[:1], ["huggingface", "modelscope"], "", base="", pushed=False
    )
    assert both == ["weights pinned by commit only (Hugging Face), not pinned (ModelScope)", "image pinned by digest"]
    assert pins.lines({"image": IMAGE}, [], [], DIGEST, base="", pushed=False) == [
        "weights of the site, not pinned",
        "image pinned by digest",
    ]
    # A digest of the site is not that of an image that is built.
    for base, pushed, said in (
        (BASE, False, "image built on a base taken by its tag"),
        (f"{BASE}@{DIGEST}", False, "image built on a base pinned by digest"),
        (f"{BASE}@{DIGEST}", True, "image built by one node, and pulled by its tag"),
    ):
        assert pins.lines({"image": IMAGE}, [], [], DIGEST, base=base, pushed=pushed)[-1] == said


def test_what_is_repaired_is_held_against_its_record(run: Run, tmp_path: Path) -> None:
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
    (line,) = pins.digest_lines(IMAGE, None, "1.22", built=False)
    assert "has no digest of a registry" in line
    assert pins.digest_lines(f"{IMAGE}@{DIGEST}", DIGEST, "1.22", built=False) == []


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
    said = "\n".join(pins.digest_lines(IMAGE, DIGEST, "1.22", built=False))
    templar = Templar(loader=DataLoader(), variables={"item": said})
    assert templar.template(trust_as_template(label)) == IMAGE


@pytest.mark.parametrize("kinds", [["modelscope"], ["huggingface", "modelscope"]])
def test_a_refused_fetch_says_where_the_commit_goes(kinds: list[str]) -> None:
    item = fetch(**{kind: {"repository": "o/Big"} for kind in kinds})
    said = " ".join(unpinned(item, kinds, False))
    for kind in kinds:
        assert f"repositories.{kind}.revision" in said
    assert ("-e revision=COMMIT" in said) == ("huggingface" in kinds)
    assert "in catalog/models" in said
    assert "gaudi_require_pins" not in said
    (required,) = unpinned(
        fetch(huggingface={"repository": "o/Big", "revision": COMMIT}), [*kinds[-1:], "huggingface"], True
    )
    assert "pinned by commit only" in required
    assert "gaudi_require_pins is true" in required


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
    assert "this run writes it again" in one
    assert other.startswith(f"other: {folder}/other/plan.json is damaged")
    assert "remove" in other
