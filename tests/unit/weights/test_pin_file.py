"""A mirror that lies, and measurements that would run something."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import shutil
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.catalogue.entries import ModelEntry
from ansible.module_utils.gaudi.preflight import pins
from ansible.module_utils.gaudi.weights import pin_file, source_plan
from gaudi.base.refusal import Refusal
from gaudi_weights import fetch
from gaudi_weights.model import StopSwitch
from gaudi_weights.progress import TransferProgress

from filter_plugins.pins import unpinned_code, with_code
from library import model_pins_info
from plugin_utils import catalogue_files
from simulator.hub.server import SimulatedHub
from tests.unit.host.modules import run_main
from tests.unit.node.outside import CertificateAuthority, KeyServer, proxy, serving
from tests.unit.node.weights.test_measurements import FETCHED, HostilePickle, npz
from tests.unit.weights.models import MODEL, requested, source

ROOT = Path(__file__).resolve().parents[3]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lie(hub: SimulatedHub, tmp_path: Path, pinned: str) -> None:
    """Have a mirror serve another configuration under the pinned commit."""
    other = tmp_path / "lying"
    other.mkdir()
    for path in (tmp_path / "hub").rglob("*"):
        if path.is_file():
            target = other / path.relative_to(tmp_path / "hub")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (other / "config.json").write_text('{"auto_map": {"AutoConfig": "evil.Config"}}')
    repository = hub.repositories[MODEL]
    repository.commits[pinned] = repository.commits[repository.add(other)]


def test_a_mirror_that_answers_with_another_commit_is_refused(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    """It knows the pinned name, and gives what is newest."""
    pinned = "ab" * 20
    hub.repositories[MODEL].commits[pinned] = hub.repositories[MODEL].commits[hub.repositories[MODEL].main]
    answer = hub.repositories[MODEL].commit
    hub.repositories[MODEL].commit = lambda revision: answer("main" if revision == pinned else revision)  # type: ignore[method-assign]
    asked = requested(tmp_path, source(hub, revision=pinned))
    with pytest.raises(Refusal, match="is pinned: it is a mirror that lies or is broken"):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()


def test_a_mirror_that_lies_about_the_commit_is_found_out_by_the_catalogues_checksums(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    pinned = hub.repositories[MODEL].main
    files = {"config.json": sha256(tmp_path / "hub/config.json")}
    lie(hub, tmp_path, pinned)
    asked = requested(tmp_path, source(hub, revision=pinned, files=files))
    with pytest.raises(Refusal):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()
    # Without them nothing contradicts it.
    believed = requested(tmp_path, source(hub, revision=pinned))
    fetch.fetch(believed, progress, stop)
    assert "evil" in (believed.target / "config.json").read_text()


def send_under(commit: str, hub: SimulatedHub, folder: Path) -> None:
    """Have the hub send what now lies in its folder under a commit that had other files, as a mirror can."""
    repository = hub.repositories[MODEL]
    repository.commits[commit] = repository.commits[repository.add(folder / "hub")]


def test_other_bytes_of_a_pinned_file_are_refused_by_the_catalogues_checksum_alone(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    """The mirror lists the same files, with the same sizes, and adds none."""
    pinned, files = hub.repositories[MODEL].main, ask(hub)["files"]
    config = tmp_path / "hub/config.json"
    config.write_text(config.read_text().swapcase())
    send_under(pinned, hub, tmp_path)
    asked = requested(tmp_path, source(hub, revision=pinned, files=files))
    with pytest.raises(Refusal, match=r"config\.json"):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()


def test_what_is_as_pinned_arrives(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub, files=ask(hub)["files"]))
    assert fetch.fetch(asked, progress, stop)["revision"] == source(hub).revision
    assert asked.target.exists()


def entry_with_code(hub: SimulatedHub, files: dict[str, str] | None = None) -> dict[str, Any]:
    """An entry whose server runs code of its weights, at the hub's commit; pinned by ``files`` on one of its hubs."""
    pinned = {"repository": MODEL, "revision": hub.repositories[MODEL].main}
    repositories = {"huggingface": {**pinned, "files": files or {}}, "modelscope": {"repository": MODEL}}
    return {"name": "small", "directory": "Small-Model", "repositories": repositories, "trust_remote_code": True}


def test_code_of_a_mirror_under_the_pinned_commit_is_refused_until_checksums_are_pinned(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    """A mirror lists and sends its own configuration_deepseek.py; no hash of the commit is ever computed."""
    (tmp_path / "hub/configuration_deepseek.py").write_text("class DeepseekV3Config: ...")
    commit = hub.repositories[MODEL].add(tmp_path / "hub")
    hub.repositories[MODEL].main = commit
    honest = ask(hub)["files"]
    (tmp_path / "hub/configuration_deepseek.py").write_text("import os")
    send_under(commit, hub, tmp_path)
    plan = {
        "instance": "small",
        "model": "small",
        "arguments": ["--trust-remote-code"],
        "requires": {"weights_path": "/data/models/Small-Model"},
    }
    (by_commit,) = source_plan.source_plans(plan, [entry_with_code(hub)], "/data/models")
    (refusal,) = pins.code_refusals(plan, [by_commit])
    assert f"{MODEL} is pinned by commit only" in refusal
    # The commit alone would not keep it out.
    believed = requested(tmp_path, source(hub, **by_commit["fetch"]["repositories"]["huggingface"]))
    fetch.fetch(believed, progress, stop)
    assert (believed.target / "configuration_deepseek.py").read_text() == "import os"
    shutil.rmtree(believed.target)
    (pinned,) = source_plan.source_plans(plan, [entry_with_code(hub, honest)], "/data/models")
    assert pins.code_refusals(plan, [pinned]) == []
    # A hub without checksums is not asked for code any more.
    assert list(pinned["fetch"]["repositories"]) == ["huggingface"]
    with pytest.raises(Refusal, match="configuration_deepseek"):
        fetch.fetch(requested(tmp_path, source(hub, **pinned["fetch"]["repositories"]["huggingface"])), progress, stop)
    assert not believed.target.exists()


@pytest.mark.parametrize(
    "name",
    [
        *("configuration_evil.py", "generation_config.json", "adapter.PKL", "x/lib.so", "params.yaml"),
        *("tokenizer.model.v3", "qwen.tiktoken", "deep/vocab.bpe", "vocab.txt", "x.jinja2", "LICENSE.py"),
    ],
)
def test_what_a_mirror_adds_to_the_pinned_files_is_not_taken(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, name: str
) -> None:
    pinned, files = hub.repositories[MODEL].main, ask(hub)["files"]
    (tmp_path / "hub" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "hub" / name).write_text("import os")
    (tmp_path / "hub" / "LICENSE").write_text("as you like")
    send_under(pinned, hub, tmp_path)
    asked = requested(tmp_path, source(hub, revision=pinned, files=files))
    with pytest.raises(Refusal, match=rf"does not pin them: {name}\. Use another source"):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()


def test_what_a_mirror_adds_is_passed_over_where_another_source_is_honest(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    honest = hub.repositories[MODEL].main
    files = ask(hub)["files"]
    (tmp_path / "hub" / "configuration_evil.py").write_text("import os")
    added = hub.repositories[MODEL].add(tmp_path / "hub")
    sources = (
        source(hub, name="mirror", revision=added, files=files),
        source(hub, name="hub", revision=honest, files=files),
    )
    assert fetch.fetch(requested(tmp_path, *sources), progress, stop)["source"] == "hub"


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        *((name, False) for name in ("model-00001-of-00002.safetensors", "original/consolidated.00.safetensors")),
        *((name, False) for name in ("README.md", "README", "docs/LICENSE.txt", "LICENSE-MODEL", "Licence", "NOTICE")),
        *((name, False) for name in ("USE_POLICY.md", ".gitattributes", "assets/speed.jpg", "a.gif", "paper.pdf")),
        *((f".cache/huggingface/{name}", False) for name in (".gitignore", "download/config.json.metadata", "x.lock")),
        *((f".cache/huggingface/{name}", True) for name in ("evil.py", "download/config.json", "x.lock/evil.json")),
        *((name, True) for name in ("model.safetensors.index.json", "config.json", "tokenizer.model.v3", "x.tiktoken")),
        *((name, True) for name in ("vocab.txt", "merges.txt", "notes.txt", "README.py", "license.so", "NOTICE.jinja")),
        *((name, True) for name in ("original/params.json", "x.md/evil.py", "x.safetensors/evil", ".gitattributes.py")),
        *((name, True) for name in ("model.gguf", "Makefile", "readme_model/x", "x.md\n", "a.safetensors.bak")),
    ],
)
def test_everything_needs_a_pin_but_plain_weights_notes_and_pictures(name: str, needed: bool) -> None:
    assert pin_file.needs_pin(name) is needed
    assert pin_file.deciding([{"name": name, "size": 1}]) == ([{"name": name, "size": 1}] if needed else [])


def test_pickled_weights_are_pinned_by_what_the_hub_states(hub: SimulatedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pin_file, "LARGEST", 10)
    large = {"name": "pytorch_model.bin", "size": 11, "sha256": "a" * 64}
    assert pin_file.deciding([large, {**large, "sha256": None}, {**large, "name": "x.safetensors"}]) == [large]
    assert model_pins_info.checksum({}, "main", large) == "a" * 64


@pytest.mark.parametrize("name", ["absent.json", "model-00001-of-00003.safetensors"])
def test_a_file_that_is_not_there_or_stated_otherwise_ends_it(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch, name: str
) -> None:
    with pytest.raises(Refusal, match=r"lacks files of .* that the catalogue pins, or has others"):
        fetch.fetch(requested(tmp_path, source(hub, files={name: "0" * 64})), progress, stop)


def exchange(hub: SimulatedHub, tmp_path: Path) -> None:
    """Have the hub send pickled tensors in place of the model's safetensors, under the same commit."""
    for path in (tmp_path / "hub").glob("*.safetensors*"):
        path.unlink()
    send_under(hub.repositories[MODEL].main, hub, tmp_path)


def test_pickled_tensors_in_place_of_safetensors_are_not_fetched_where_they_would_run(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    exchange(hub, tmp_path)
    asked = requested(tmp_path, source(hub), unpickles=True)
    with pytest.raises(Refusal, match="no checksum pins them: the hub, a mirror or another node decides"):
        fetch.fetch(asked, progress, stop)
    assert not asked.target.exists()
    # The catalogue's checksums say that they are the right ones; later releases run nothing of them.
    pinned = requested(tmp_path, source(hub, files=ask(hub)["files"]), unpickles=True)
    fetch.fetch(pinned, progress, stop)
    assert (pinned.target / "pytorch_model.bin").exists()
    shutil.rmtree(pinned.target)
    later = requested(tmp_path, source(hub))
    fetch.fetch(later, progress, stop)
    assert (later.target / "pytorch_model.bin").exists()


def test_a_source_with_pickled_tensors_alone_is_passed_over(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    shutil.copytree(tmp_path / "hub", tmp_path / "honest")
    exchange(hub, tmp_path)
    hub.repository("maker/honest", tmp_path / "honest")
    honest = source(hub, name="honest", repository="maker/honest", revision=hub.repositories["maker/honest"].main)
    done = fetch.fetch(requested(tmp_path, source(hub), honest, unpickles=True), progress, stop)
    assert done["source"] == "honest"


def test_measurements_of_a_branch_are_refused(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    asked = requested(tmp_path, source(hub, revision="main"), measured_cards=2)
    with pytest.raises(Refusal) as refused:
        fetch.fetch(asked, progress, stop)
    assert refused.value.id == "measurements_not_pinned"


def test_the_report_refuses_them_whether_pins_are_required_or_not() -> None:
    item = {"directory": "m", "repositories": {"huggingface": {"repository": "o/m"}}, "measured_cards": 8}
    (said,) = pins.measurement_refusals([item], ["huggingface"])
    assert said == f"{pin_file.measurements_not_pinned('o/m')}."
    item["repositories"] = {"huggingface": {"repository": "o/m", "revision": "ab" * 20}}
    assert pins.measurement_refusals([item], ["huggingface"]) == []
    assert pins.measurement_refusals([{**item, "measured_cards": 0}], ["huggingface"]) == []


def test_measurements_that_run_something_are_never_published(
    hub: SimulatedHub, tmp_path: Path, progress: TransferProgress, stop: StopSwitch
) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    evil = npz(tmp_path, pickle.dumps({"Nodes": HostilePickle()})).read_bytes()
    for rank in range(2):
        for end in (".json", "_mod_list.json"):
            (folder / f"m_{rank}_2{end}").write_text("{}")
        (folder / f"m_{rank}_2.npz").write_bytes(evil if rank else FETCHED)
    hub.repository("maker/evil", folder)
    asked = requested(tmp_path, source(hub, repository="maker/evil", revision=hub.repositories["maker/evil"].main))
    with pytest.raises(Refusal, match="would run what is in it"):
        fetch.fetch(replace(asked, measured_cards=2), progress, stop)
    assert not asked.target.exists()


# --- the file of pins ----------------------------------------------------------------------------------------


ENTRY = yaml.safe_load((ROOT / "catalog/models/deepseek-r1-0528.yml").read_text(encoding="utf-8"))
FOUND = {
    "weights": {"revision": ENTRY["repositories"]["huggingface"]["revision"], "files": {"config.json": "a" * 64}},
    "measurements": {"revision": "b" * 40, "files": {"x_0_8.npz": "c" * 64}},
}


def test_pins_lie_beside_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pin_file.with_pins(ENTRY, yaml.safe_load(yaml.safe_dump(pin_file.block(FOUND))))
    assert catalogue_files.findings("model", made) == []
    entry = ModelEntry.from_mapping(made)
    assert entry.measurements is not None
    assert entry.measurements.repositories["huggingface"].revision == "b" * 40
    assert entry.repositories["huggingface"].files == {"config.json": "a" * 64}
    assert pin_file.with_pins(ENTRY, None) == ENTRY
    folder = tmp_path / "catalog/models"
    folder.mkdir(parents=True)
    (folder / "deepseek-r1-0528.yml").write_text(yaml.safe_dump(ENTRY))
    (folder / "deepseek-r1-0528.pins.yaml").write_text(yaml.safe_dump(pin_file.block(FOUND)))
    monkeypatch.setattr(catalogue_files, "CATALOG", tmp_path / "catalog")
    assert catalogue_files.names("models") == ["deepseek-r1-0528"]
    loaded = catalogue_files.load_checked("model", folder / "deepseek-r1-0528.yml")
    assert loaded["measurements"]["repositories"]["huggingface"]["revision"] == "b" * 40


@pytest.mark.parametrize(
    ("pins_", "id_"),
    [
        ({"repositories": {"huggingface": {"revision": "0" * 40}}}, "pins_disagree"),
        ({"repositories": {"git": {"revision": "0" * 40}}}, "pins_disagree"),
        ({"defaults": {"host": "0.0.0.0"}}, "not_pins"),
        ({"repositories": {"huggingface": {"repository": "evil/x"}}}, "not_pins"),
        ([], None),
        ([1], "not_pins"),
        ("x", "not_pins"),
    ],
)
def test_a_file_of_pins_says_nothing_else(pins_: Any, id_: str | None) -> None:
    if id_ is None:
        assert pin_file.with_pins(ENTRY, pins_) == ENTRY
        return
    with pytest.raises(Exception) as refused:
        pin_file.with_pins(ENTRY, pins_)
    assert getattr(refused.value, "id", None) == id_


def ask(hub: SimulatedHub, **more: Any) -> dict[str, Any]:
    return run_main("library.model_pins_info", {"endpoint": hub.endpoint, "repository": MODEL, **more})


def test_the_hub_is_asked_for_pins(hub: SimulatedHub, tmp_path: Path) -> None:
    answer = ask(hub)
    assert answer["revision"] == hub.repositories[MODEL].main
    names = {"config.json", "model.safetensors.index.json", "tokenizer/merges & more.txt", "pytorch_model.bin"}
    assert names == set(answer["files"])
    for name, said in answer["files"].items():
        assert said == sha256(tmp_path / "hub" / name)


@pytest.mark.parametrize(("trusted", "words"), [(False, "name a file"), (True, "does not contain")])
def test_a_hub_that_is_not_trusted_is_named_with_what_helps(trusted: bool, words: str, tmp_path: Path) -> None:
    with serving(KeyServer, CertificateAuthority().server(tmp_path)) as port:
        endpoint = f"https://127.0.0.1:{port}"
        pem = CertificateAuthority("Other CA").pem if trusted else ""
        said = run_main("library.model_pins_info", {"endpoint": endpoint, "repository": MODEL, "certificates": pem})
    assert said["refused_id"] == "hub_not_trusted"
    for word in (words, "127.0.0.1", "gaudi_ca_certificates"):
        assert word in said["msg"]


def test_pins_come_through_a_proxy_with_an_account(hub: SimulatedHub) -> None:
    with proxy() as (address, site):
        there = {"endpoint": hub.endpoint.replace("127.0.0.1", "hub.example")}
        assert ask(hub, proxy=address, **there)["revision"] == hub.repositories[MODEL].main
        assert set(site.accounts) == {"reader:p@ss%:/#$ x"}
        refused = ask(hub, proxy=address.replace("reader", "stranger"), **there)
        assert refused["refused_id"] == "proxy_wants_account"
        assert "p%40ss" not in refused["msg"]
    assert ask(hub, proxy="socks5://u:hunter2@127.0.0.1:1")["refused_id"] == "wrong_form"


def test_a_hub_that_cannot_be_asked_pins_nothing(hub: SimulatedHub) -> None:
    assert ask(hub, repository="nobody/nothing")["refused_id"] == "hub_unreadable"
    assert ask(hub, endpoint="http://u:p@127.0.0.1:1")["refused_id"] == "account_in_address"
    assert json.dumps(ask(hub, endpoint="file:///etc")).count("passwd") == 0


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_a_hub_that_answers_in_drops_holds_nobody(hub: SimulatedHub, begun: bytes) -> None:
    """Each byte comes before a socket's own limit; the answer as a whole never does."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begun or b"HTTP/1.1 200 OK\r\n")
                for _ in range(60):
                    connection.sendall(b" " if begun else b"X-Drop: 1\r\n")
                    if over.wait(0.5):
                        return

        dripping = threading.Thread(target=answer)
        dripping.start()
        said = ask(hub, endpoint=f"http://127.0.0.1:{server.getsockname()[1]}", timeout=1)
        over.set()
        dripping.join()
    assert said["refused_id"] == "hub_unreadable"
    assert "the answer was not whole after 1 s" in said["msg"]


def test_nothing_claims_a_pin_that_nobody_has_seen() -> None:
    """Measurements of others' repositories have none in the catalogue; the site looks, and pins."""
    for path in (ROOT / "catalog/models").glob("*.yml"):
        entry = yaml.safe_load(path.read_text(encoding="utf-8"))
        for said in (entry.get("measurements") or {}).get("repositories", {}).values():
            assert "revision" not in said
    assert list((ROOT / "catalog/models").glob("*.pins.yaml")) == []


REMOTE_CODE = [
    entry
    for path in sorted((ROOT / "catalog/models").glob("*.yml"))
    if (entry := yaml.safe_load(path.read_text(encoding="utf-8")))["trust_remote_code"] and entry["repositories"]
]


@pytest.mark.parametrize("entry", REMOTE_CODE, ids=[entry["name"] for entry in REMOTE_CODE])
def test_entries_with_code_are_refused_until_the_site_pins_them(entry: dict[str, Any]) -> None:
    assert f"playbooks/pin.yml -e model={entry['name']} -e write=true" in unpinned_code(entry)
    weights = {"revision": entry["repositories"]["huggingface"]["revision"], "files": {"config.json": "a" * 64}}
    pinned = pin_file.with_pins(entry, pin_file.block({"weights": weights}))
    assert unpinned_code(pinned) == ""
    assert list(with_code(pinned)["repositories"]) == ["huggingface"]


def test_an_entry_without_code_keeps_its_hubs() -> None:
    entry = {"name": "x", "repositories": {"modelscope": {"repository": "o/x"}}, "trust_remote_code": False}
    assert (unpinned_code(entry), with_code(entry)) == ("", entry)
