"""Keys of instances: what an inventory may say, and what playbooks/keys.yml does to the digests on a node."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import containers
from ansible.module_utils.gaudi.serving import keys
from ansible.module_utils.gaudi.serving.keys import INVENTORY, PLAYBOOK, ApiKey, digest_of
from ansible.module_utils.gaudi.serving.plan import KEYS_DIRECTORY
from hypothesis import given
from hypothesis import strategies as st

from filter_plugins.api_keys import api_keys, api_keys_exported
from filter_plugins.refusals import plan_refused
from library import instance_keys
from tests.unit.host.modules import run_main

ROOT = Path(__file__).resolve().parents[3]
CLEAR = "a-key-of-sixteen"
DIGEST = digest_of("another-key-of-ours")
HELD = [ApiKey("site", INVENTORY, DIGEST), ApiKey("alice", PLAYBOOK, digest_of("alices-own-key-01"))]
NOW = "2026-11-23T05:00:00Z"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], []),
        ({}, []),
        ({"other": [CLEAR]}, []),
        ({"chat": None}, []),
        ([CLEAR], [ApiKey("inventory-1", INVENTORY, digest_of(CLEAR))]),
        ({"chat": [CLEAR]}, [ApiKey("inventory-1", INVENTORY, digest_of(CLEAR))]),
        ([f"sha256:{DIGEST}"], [ApiKey("inventory-1", INVENTORY, DIGEST)]),
        ([f"sha256:{DIGEST} alice"], [ApiKey("alice", INVENTORY, DIGEST)]),
        (
            [f"sha256:{DIGEST} alice until 2027-01-31"],
            [ApiKey("alice", INVENTORY, DIGEST, "2027-01-31T23:59:59Z")],
        ),
        # The same key twice, once as its digest, is one.
        ([CLEAR, f"sha256:{digest_of(CLEAR)}"], [ApiKey("inventory-1", INVENTORY, digest_of(CLEAR))]),
    ],
)
def test_what_an_inventory_may_say(given: Any, found: list[ApiKey]) -> None:
    assert keys.for_instance(given, "chat") == found
    assert all(str(key["digest"]) and CLEAR not in str(key) for key in api_keys(given, "chat"))


WRONG: list[Any] = [
    "a-key-of-sixteen",
    {"chat": "a-key-of-sixteen"},
    5,
    ["short"],
    ["has a blank in it, really"],
    ["schlüssel-mit-umlaut"],
    ["x" * 513],
    [f"{'x' * 20}\n"],
    [1234567890123456],
    [None],
    ["sha256:abc"],
    [f"sha256:{DIGEST.upper()}"],
    [f"sha256:{DIGEST} Alice"],
    [f"sha256:{DIGEST} alice until tomorrow"],
    [f"sha256:{DIGEST} alice until 2027-13-01"],
    [f"sha256:{DIGEST}\n"],
    [f"sha256:{DIGEST} alice until 2027-01-31", f"sha256:{DIGEST} alice"],
]


@pytest.mark.parametrize("given", WRONG)
def test_what_is_no_key_is_refused_without_being_shown(given: Any) -> None:
    with pytest.raises(Refusal) as refused:
        keys.for_instance(given, "chat")
    entry = next(iter(given.values())) if isinstance(given, dict) else given
    text = str(entry[0] if isinstance(entry, list) else entry)
    assert DIGEST not in str(refused.value)
    assert text.strip() not in str(refused.value)
    plan = {"schema": 1, "instance": "chat", "guarded": True, "container": {"name": "vllm-chat", "environment": {}}}
    said = plan_refused({**plan, "environment": {}, "requires": {"weights_path": "/models/m"}}, given)
    assert said == f"{refused.value} [{refused.value.id}]"
    with pytest.raises(AnsibleFilterError) as failed:
        api_keys(given, "chat")
    assert failed.value.__cause__ is None


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_whatever_an_inventory_says_is_keys_or_a_sentence(anything: Any) -> None:
    try:
        found = keys.for_instance(anything, "chat")
    except Refusal as refused:
        assert str(refused).endswith(".")
    else:
        assert keys.read(json.dumps(keys.document(found))) == found


@pytest.mark.parametrize(
    ("request_", "given", "guarded"),
    [
        ({"instance": "chat"}, [CLEAR], True),
        ({"instance": "chat", "guarded": None}, {"chat": [CLEAR]}, True),
        ({"instance": "chat", "guarded": True}, [], True),
        ({"instance": "chat"}, {"other": [CLEAR]}, None),
        ({"instance": "chat"}, None, None),
        ({"instance": ["x"]}, {"chat": [CLEAR]}, None),
    ],
)
def test_an_instance_with_keys_is_guarded(request_: dict[str, Any], given: Any, guarded: bool | None) -> None:
    told = keys.with_guard(request_, given)
    assert isinstance(told, dict)
    assert told.get("guarded") is guarded


def test_keys_for_a_server_that_is_to_be_open_contradict_it() -> None:
    with pytest.raises(Refusal) as refused:
        keys.with_guard({"instance": "chat", "guarded": "no"}, [CLEAR])
    assert refused.value.id == "keys_for_open_server"


def test_the_inventory_is_made_true_and_leaves_the_playbooks_keys_alone() -> None:
    wanted = [ApiKey("new", INVENTORY, digest_of(CLEAR))]
    assert keys.with_inventory(HELD, wanted) == [*wanted, HELD[1]]
    assert keys.with_inventory(HELD, []) == [HELD[1]]


def test_a_key_that_was_exported_is_the_inventorys_from_then_on() -> None:
    """Its entry there ends it, and without an entry it opens nothing."""
    entry = keys.written(replace(HELD[1], ends=None))
    held = keys.with_inventory(HELD, keys.for_instance([entry], "chat"))
    assert [key.digest for key in held] == [HELD[1].digest]
    (ended,) = keys.with_inventory(held, keys.for_instance([f"{entry} until 2026-11-01"], "chat"))
    assert ended.ends == "2026-11-01T23:59:59Z"
    assert keys.with_inventory(held, []) == []


def test_a_key_is_made_once_and_ends_later() -> None:
    made = keys.created("bob", DIGEST, "2027-01-31")
    assert made == ApiKey("bob", PLAYBOOK, DIGEST, "2027-01-31T23:59:59Z")
    assert keys.with_created(HELD, made, NOW) == [*HELD, made]
    for name, ends, id_ in (("alice", None, "key_name_taken"), ("bob", "2026-11-22", "key_over")):
        with pytest.raises(Refusal) as refused:
            keys.with_created(HELD, keys.created(name, DIGEST, ends), NOW)
        assert refused.value.id == id_


def test_a_revoked_key_is_gone_under_every_name() -> None:
    """Its digest may stand in the inventory as well: at once means that one, too."""
    held = [*HELD, ApiKey("exported", INVENTORY, HELD[1].digest)]
    assert keys.without(held, "alice") == [HELD[0]]
    with pytest.raises(Refusal) as refused:
        keys.without(HELD, "bob")
    assert str(refused.value) == "There is no key 'bob'. There are: site, alice."


def test_only_the_playbooks_keys_get_another_end() -> None:
    assert keys.ending(HELD, "alice", NOW)[1].ends == NOW
    with pytest.raises(Refusal) as refused:
        keys.ending(HELD, "site", NOW)
    assert refused.value.id == "key_of_inventory"
    # Otherwise the key would go on under the other name.
    with pytest.raises(Refusal, match="called exported there") as refused:
        keys.ending([*HELD, ApiKey("exported", INVENTORY, HELD[1].digest)], "alice", NOW)
    assert refused.value.id == "key_of_inventory"


def test_what_is_exported_is_an_entry_of_the_inventory() -> None:
    for key in (*HELD, ApiKey("bob", PLAYBOOK, DIGEST, "2027-01-31T23:59:59Z")):
        (read,) = keys.for_instance([keys.written(key)], "chat")
        assert (read.name, read.digest, read.ends) == (key.name, key.digest, key.ends)


@pytest.mark.parametrize(
    "entries",
    [
        "sha256:" + DIGEST,
        None,
        {"chat": []},
        {f"sha256:{DIGEST} alice": "{{ lookup('pipe', 'id') }}"},
        [1],
        [CLEAR],
        ["{{ lookup('pipe', 'id') }}"],
        [f"sha256:{DIGEST} {{{{lookup('pipe','id')}}}}"],
        [f"sha256:{DIGEST} alice until {{{{now()}}}}"],
        [f"sha256:{DIGEST} alice until 2027-01-31"],
        [f"sha256:{DIGEST} alice\n"],
        [f"sha256:{DIGEST} alice", f"sha256:{DIGEST.upper()}"],
        [f"sha256:{DIGEST}"] * 1025,
    ],
)
def test_what_a_node_exports_is_an_entry_or_refused(entries: Any) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        api_keys_exported(entries, "node-1")
    assert str(refused.value).startswith("node-1 reports")
    assert "{{" not in str(refused.value)
    assert CLEAR not in str(refused.value)


def test_entries_that_a_node_exports_are_shown() -> None:
    entries = [f"sha256:{DIGEST}", *(keys.written(key) for key in HELD), f"sha256:{DIGEST} a until {NOW}"]
    assert api_keys_exported(entries, "node-1") == entries
    assert api_keys_exported([], "node-1") == []


def test_the_playbook_shows_only_entries_that_were_checked() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/keys.yml").read_text())
    shown = [task for task in play["tasks"] if "keys_now.exported" in str(task)]
    assert len(shown) == 1
    assert str(shown).count("keys_now.exported") == 1
    assert "keys_now.exported | api_keys_exported(inventory_hostname)" in str(shown)


# -- the module


@pytest.fixture
def instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where instances lie; none is there yet."""
    folder = tmp_path / "etc/instances"
    monkeypatch.setattr(instance_keys, "INSTANCES", folder)
    monkeypatch.setattr(instance_keys, "OWNER", (os.getuid(), os.getgid()))
    return folder


def run(check: bool = False, **asked: Any) -> dict[str, Any]:
    """One call of the module."""
    return run_main("library.instance_keys", {"instance": "chat", **asked}, check=check)


def told(*given: str) -> list[dict[str, Any]]:
    """The inventory's keys as the role hands them over."""
    return [dict(key) for key in api_keys(list(given), "chat")]


def names(answer: dict[str, Any]) -> list[str]:
    return [key["name"] for key in answer["keys"]]


def test_a_node_has_digests_only_for_root_only(instances: Path) -> None:
    answer = run(inventory=told(CLEAR))
    file = instances / "chat/guard/keys.json"
    assert (answer["changed"], names(answer)) == (True, ["inventory-1"])
    assert CLEAR not in file.read_text()
    assert json.loads(file.read_text())["keys"][0]["digest"] == digest_of(CLEAR)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, instances / "chat", instances)}
    assert modes == {file: 0o600, file.parent: 0o700, instances / "chat": 0o700, instances: 0o700}
    assert run(inventory=told(CLEAR))["changed"] is False


@pytest.mark.parametrize(("which", "mode"), [("guard", 0o777), ("guard/keys.json", 0o666)])
def test_rights_that_somebody_else_got_are_taken_back_and_shown(instances: Path, which: str, mode: int) -> None:
    run(inventory=told(CLEAR))
    path = instances / "chat" / which
    path.chmod(mode)
    owner = f"{os.getuid()}:{os.getgid()}"
    kept = 0o700 if path.is_dir() else 0o600
    for check in (True, False):
        answer = run(inventory=told(CLEAR), check=check)
        shown = answer["diff"][0]
        assert answer["changed"] is True
        assert shown["before_header"] == f"{path} (rights)"
        assert (shown["before"], shown["after"]) == (f"{owner} {mode:04o}\n", f"{owner} {kept:04o}\n")
        assert stat.S_IMODE(path.stat().st_mode) == (mode if check else kept)
    assert run(inventory=told(CLEAR))["changed"] is False


def test_an_owner_that_is_not_root_is_taken_back(instances: Path) -> None:
    run(inventory=told(CLEAR))
    for path in (instances / "chat/guard", instances / "chat/guard/keys.json"):
        os.chown(path, 1000, 1000)
    answer = run(inventory=told(CLEAR))
    assert (answer["changed"], len(answer["diff"])) == (True, 3)
    assert {path.stat().st_uid for path in (instances / "chat/guard", instances / "chat/guard/keys.json")} == {0}


def test_a_link_in_the_files_place_is_replaced_and_its_end_left_alone(instances: Path, tmp_path: Path) -> None:
    run(inventory=told(CLEAR))
    file, end = instances / "chat/guard/keys.json", tmp_path / "end.json"
    file.rename(end)
    end.chmod(0o644)
    file.symlink_to(end)
    assert run(inventory=told(CLEAR))["changed"] is True
    assert not file.is_symlink()
    assert stat.S_IMODE(end.stat().st_mode) == 0o644


def test_a_guarded_instance_without_keys_has_a_file_all_the_same(instances: Path) -> None:
    assert run(inventory=[])["changed"] is True
    assert (instances / "chat/guard/keys.json").exists()
    assert run(inventory=[])["changed"] is False


def test_the_life_of_a_key(instances: Path) -> None:
    run(inventory=told(CLEAR))
    assert names(run(add={"name": "alice", "digest": DIGEST})) == ["inventory-1", "alice"]
    # A run of site.yml.
    assert names(run(inventory=told())) == ["alice"]
    answer = run(ending={"name": "alice", "ends": "2030-12-31"})
    assert answer["lines"] == ["alice (playbook) until 2030-12-31T23:59:59Z"]
    assert DIGEST not in json.dumps(answer)
    exported = run(export=True)["exported"]
    assert exported == [f"sha256:{DIGEST} alice until 2030-12-31T23:59:59Z"]
    # The inventory takes the key over, under its own name.
    assert names(run(inventory=told(f"sha256:{DIGEST} kept"))) == ["kept"]
    answer = run(revoke="kept")
    assert (answer["changed"], answer["keys"], answer["of_inventory"]) == (True, [], True)


def test_a_revoked_key_that_only_the_inventory_of_this_run_has_is_told(instances: Path) -> None:
    """It was exported and copied, and site.yml has not run since."""
    run(add={"name": "alice", "digest": DIGEST})
    refused = run(ending={"name": "alice", "ends": "2030-12-31"}, desired=[DIGEST])
    assert refused["refused_id"] == "key_of_inventory"
    assert run(revoke="alice", desired=[DIGEST])["of_inventory"] is True
    run(add={"name": "bob", "digest": DIGEST})
    assert run(revoke="bob", desired=["0" * 64])["of_inventory"] is False


def test_check_mode_makes_nothing(instances: Path) -> None:
    answer = run(add={"name": "alice", "digest": DIGEST}, check=True)
    assert (answer["changed"], names(answer)) == (True, ["alice"])
    assert not instances.exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"revoke": "bob"}, "chat: There is no key 'bob'. There are: none."),
        ({"add": {"name": "Bob", "digest": DIGEST}}, "chat: The name of a key is 'Bob', but must be"),
        ({"add": {"name": "bob", "digest": DIGEST, "ends": "soon"}}, "chat: The end of a key is 'soon', but must be"),
        ({"add": {"name": "bob", "digest": DIGEST, "ends": "2020-01-01"}}, "would have ended at 2020-01-01T23:59:59Z"),
    ],
)
def test_what_cannot_be_done_is_said(instances: Path, asked: dict[str, Any], said: str) -> None:
    answer = run(**asked)
    assert answer["failed"] is True
    assert said in answer["msg"]
    assert not (instances / "chat/guard/keys.json").exists()


def test_a_damaged_file_is_named_and_the_inventory_makes_it_whole(
    instances: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(inventory=told(CLEAR))
    file = instances / "chat/guard/keys.json"
    file.write_text(f"{CLEAR}\n")
    answer = run()
    assert answer["failed"] is True
    assert f"{file} is damaged: it is cut off or no JSON" in answer["msg"]
    answer = run(inventory=told(CLEAR))
    assert names(answer) == ["inventory-1"]
    assert "make those of playbooks/keys.yml again" in capsys.readouterr().err


def test_whether_the_plan_asks_for_keys_is_told(instances: Path) -> None:
    assert run()["guarded"] is None
    (instances / "chat").mkdir(parents=True)
    for content, guarded in (
        ('{"guarded": true}', True),
        ('{"guarded": false}', False),
        ('{"a": 1}', False),
        ("{", None),
    ):
        (instances / "chat/plan.json").write_text(content)
        assert run()["guarded"] is guarded
    # A server may read these while nobody can tell what its plan was.
    run(add={"name": "alice", "digest": DIGEST})
    assert run()["guarded"] is True
    (instances / "chat/plan.json").unlink()
    assert run(revoke="alice")["changed"] is True


@pytest.mark.parametrize(
    ("running", "guarded", "replaced", "told_so"),
    [(True, True, True, True), (True, True, False, False), (False, True, True, False), (True, False, True, False)],
)
def test_a_guard_that_reads_other_keys_is_told(
    instances: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    running: bool,
    guarded: bool,
    replaced: bool,
    told_so: bool,
) -> None:
    """A revoked key is gone from the file; the sentence says that it still opens the server."""
    run(inventory=told(CLEAR))
    (instances / "chat/plan.json").write_text(json.dumps({"guarded": guarded}))
    folder = instances / "chat/guard"
    seen = tmp_path / f"proc/7/root{KEYS_DIRECTORY}"
    seen.parent.mkdir(parents=True)
    seen.symlink_to(tmp_path / "former" if replaced else folder)
    if replaced:
        shutil.copytree(folder, tmp_path / "former")
    found = containers.InstanceContainer(running, "label", {"State": {"Pid": 7}})
    monkeypatch.setattr(containers, "PROC", tmp_path / "proc")
    monkeypatch.setattr(containers, "look", lambda _module, name: found if name == "vllm-chat" else None)
    assert run()["unread"] == ""
    answer = run(revoke="inventory-1", running=True)
    assert (answer["changed"], answer["keys"]) == (True, [])
    assert ("does not read" in answer["unread"]) is told_so
    assert (str(folder / "keys.json") in answer["unread"]) is told_so


def test_the_playbook_does_not_end_well_where_the_server_reads_other_keys() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/keys.yml").read_text())
    *_, said = [task for task in play["tasks"] if "ansible.builtin.assert" in task]
    assert said is play["tasks"][-1]
    assert "when" not in said
    assert said["ansible.builtin.assert"]["that"][0] == "keys_now.unread | default('') | length == 0"
    (read,) = [task for task in play["tasks"] if task.get("register") == "keys_now"]
    assert read["instance_keys"]["running"] is True


def test_one_at_a_time_changes_them(instances: Path) -> None:
    run(inventory=told(CLEAR))
    folder = instances / "chat/guard"
    handle = os.open(instances, os.O_RDONLY)
    with instance_keys.alone(folder), pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)


@pytest.mark.parametrize("locked", ["chat/guard", "chat"])
def test_a_container_holds_up_no_change_of_its_keys(
    instances: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """Its directory of keys can be locked by whoever reads it; its supervisor locks the directory above."""
    run(inventory=told(CLEAR))
    monkeypatch.setattr(instance_keys, "PATIENCE", 0.0)
    mounted = os.open(instances / locked, os.O_RDONLY)
    fcntl.flock(mounted, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert run(revoke="inventory-1")["keys"] == []
    os.close(mounted)


def test_the_playbook_hands_no_key_on() -> None:
    """The action returns a digest; nothing else in the playbook could know a key."""
    (play,) = yaml.safe_load((ROOT / "playbooks/keys.yml").read_text())
    given = [task["instance_keys"] for task in play["tasks"] if "instance_keys" in task]
    assert all(set(options) <= set(instance_keys.ARGUMENT_SPEC) for options in given)
    (drawn,) = [task for task in play["tasks"] if "new_api_key" in task]
    assert set(drawn["new_api_key"]) == {"words", "show_in_log"}
    after = play["tasks"][play["tasks"].index(drawn) :]
    (add,) = [task for task in after if "add" in task.get("instance_keys", {})]
    assert add["no_log"] is True
    assert add["instance_keys"]["add"]["digest"] == "{{ keys_drawn.digest }}"
