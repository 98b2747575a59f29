"""The options of all roles on a host: their values, what is wrong with them, and no secret in any sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.preflight import options as rules
from ansible.parsing.dataloader import DataLoader

from action_plugins import role_options as action
from library import gaudi_preflight
from library import role_options as page
from plugin_utils import role_options
from tests.unit.node.outside import CertificateAuthority
from tests.unit.preflight.conftest import Run
from tests.unit.preflight.test_modules import HERE, preflight
from tests.unit.preflight.test_templates import trusted

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "inventories/example/group_vars/gaudi_nodes/main.yml"
HIDDEN = "hunter2-hunter2"


def option(**said: Any) -> dict[str, Any]:
    return {"description": "...", **said}


LIST = option(type="list", elements="str", default=[])
SOURCES = option(
    type="list",
    elements="dict",
    default=[],
    options={
        "name": option(type="str", required=True),
        "kind": option(type="str", choices=["git", "modelscope"]),
        "token": option(type="str", no_log=True),
        "xet": option(type="bool", default=True),
    },
)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (option(type="int", default=1), 5),
        (option(type="int", default=1), "8"),
        (option(type="int", default=1), 2.0),
        (option(type="float", default=1), "0.5"),
        (option(type="bool", default=True), "yes"),
        (option(type="bool", default=True), 0),
        (option(type="str", default=""), 1.22),
        (option(type="path", default=""), "/data"),
        (LIST, ["a", 1]),
        # What -e name=value delivers, and what modules take.
        (LIST, "a,b"),
        (option(type="dict", default={}), {"a": 1}),
        (option(type="dict", default={}), '{"a": 1}'),
        (option(type="dict", default={}), "max-size=50m"),
        (option(type="raw"), None),
        (option(type="bool"), None),
        (option(type="str", default="auto", choices=["auto", "always"]), "always"),
        (SOURCES, [{"name": "a", "kind": "git", "token": HIDDEN}]),
    ],
)
def test_what_ansible_would_take_is_right(spec: dict[str, Any], value: object) -> None:
    assert rules.faults("x", spec, value) == []


@pytest.mark.parametrize(
    ("spec", "value", "said"),
    [
        (option(type="int", default=1), "abc", "x is 'abc', but must be a whole number."),
        (option(type="int", default=1), True, "x is true, but must be a whole number."),
        (option(type="int", default=1), 1.5, "x is 1.5, but must be a whole number."),
        (option(type="float", default=1), "a lot", "x is 'a lot', but must be a number."),
        (option(type="bool", default=True), "perhaps", "x is 'perhaps', but must be true or false."),
        (option(type="str", default=""), ["a"], "x is ['a'], but must be text."),
        (LIST, {"a": 1}, "x is {'a': 1}, but must be a list, each entry text."),
        (LIST, ["a", ["b"]], "x[1] is ['b'], but must be text."),
        (LIST, [None], "x[0] is null, but must be text. Give it a value, or leave it out."),
        ({"type": "raw", "default": []}, None, "x is null. Give it a value, or leave it out."),
        # A text has no keys: only modules make a mapping of it.
        (
            option(type="list", elements="dict", default=[]),
            "a=b",
            "x is 'a=b', but must be a list, each entry a mapping.",
        ),
        (option(type="dict", default={}), "word", "x is 'word', but must be a mapping."),
        (
            option(type="int", default=1),
            None,
            "x is null, but must be a whole number. Give it a value, or leave it out.",
        ),
        (option(type="str", default="a", choices=["a", "b"]), "c", "x is 'c', but must be one of a, b."),
        (SOURCES, [{"kind": "git"}], "x[0] lacks name."),
        (SOURCES, [{"name": "a", "kind": "svn"}], "x[0].kind is 'svn', but must be one of git, modelscope."),
        (
            SOURCES,
            [{"name": "a", "tokn": HIDDEN}],
            "x[0] has the unknown key 'tokn'. Did you mean token? Known: name, kind, token, xet.",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(spec: dict[str, Any], value: object, said: str) -> None:
    assert rules.faults("x", spec, value) == [said]


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (option(type="str", default="", no_log=True), [HIDDEN]),
        (option(type="list", elements="str", default=[], no_log=True), {"key": HIDDEN}),
        (option(type="list", elements="str", default=[], no_log=True), [[HIDDEN]]),
        (option(type="int", default=0, no_log=True), HIDDEN),
        (option(type="str", default="a", choices=["a"], no_log=True), HIDDEN),
        (SOURCES, [{"name": "a", "token": [HIDDEN]}]),
        # What holds a secret is not shown as a whole.
        (SOURCES, {"name": "a", "token": HIDDEN}),
        (SOURCES, [[HIDDEN]]),
        (SOURCES, f"name=a,token={HIDDEN}"),
        (SOURCES, [f"name=a,token={HIDDEN}"]),
    ],
)
def test_a_secret_is_in_no_sentence(spec: dict[str, Any], value: object) -> None:
    (said,) = rules.faults("x", spec, value)
    assert HIDDEN not in said
    assert "must be" in said


def test_a_secret_is_not_handed_out() -> None:
    assert rules.shareable(option(type="str", no_log=True), HIDDEN) is None
    assert rules.shareable(SOURCES, [{"name": "a", "token": HIDDEN, "other": HIDDEN}]) == [{"name": "a"}]
    assert rules.shareable(LIST, ["a"]) == ["a"]


OPTIONS = ["host_tuning_hugepages", "host_tuning_reboot", "gaudi_weights_root", "serving_image_digest"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("host_tuning_hugepage", "host_tuning_hugepages"),
        ("host_tuning_rebot", "host_tuning_reboot"),
        ("gaudi_weight_root", "gaudi_weights_root"),
        ("serving_image_digests", "serving_image_digest"),
        # A role's name alone makes no two names alike.
        ("serving_image_builder", None),
        ("gaudi_rack", None),
    ],
)
def test_a_name_that_nobody_knows(name: str, meant: str | None) -> None:
    problems, findings = rules.unknown([name], OPTIONS, [], ["host_tuning", "serving_image"])
    if meant:
        (problem,), (said,) = problems, [problem.message for problem in problems]
        assert (problem.id, findings) == ("unknown_variable", [])
        assert said == f"There is no variable {name}, so nothing reads it. Did you mean {meant}? Correct the name."
    else:
        assert problems == []
        assert findings == [
            f"{name} is set, but there is no such variable. Is the name right? If it is yours, no role reads it."
        ]


@pytest.mark.parametrize("name", ["host_tuning_reboot", "host_tuning_found", "__host_tuning_hugepage", "my_gaudi_x"])
def test_names_that_are_known_private_or_somebody_elses_are_left_alone(name: str) -> None:
    assert rules.unknown([name], OPTIONS, ["host_tuning_found"], ["host_tuning"]) == ([], [])


def test_what_a_role_reports_itself_is_left_to_it() -> None:
    """The role preflight has sentences of its own for the site's variables; other roles give these a type."""
    declared = role_options.declared().options
    assert declared["gaudi_weights_root"]["type"] == declared["gaudi_require_pins"]["type"] == "raw"
    assert declared["gaudi_weights_site"]["type"] == "str"


def test_every_default_is_what_its_option_asks_for() -> None:
    declared = role_options.declared()
    host = role_options.HostOptions(
        DataLoader(), {"gaudi_weights_root": "/data/models", "gaudi_image_registry": "r.example"}
    )
    said = []
    for name in declared.defaults:
        read = host.read(name)
        if read.why_not is None:
            said += rules.faults(name, declared.options[name], read.value)
    assert said == []


def test_the_example_is_right_with_every_line_that_a_site_may_uncomment(tmp_path: Path) -> None:
    text = re.sub(r"^# (?=[a-z]+_[a-z_]+:|  -)", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (tmp_path / "ca.pem").write_text(CertificateAuthority().pem)
    text = text.replace("/etc/site/ca.pem", str(tmp_path / "ca.pem"))
    vault = dict.fromkeys(re.findall(r"\bvault_[a-z_]+", text), "k" * 20)
    site = {**trusted(yaml.safe_load(text)), **vault, "storage_address": "10.0.0.1"}
    site.pop("gaudi_weights_address")
    host = role_options.HostOptions(DataLoader(), site)
    problems, findings, wrong = action.judged(host)
    assert (problems, findings, wrong) == ([], [], set())
    assert len(list(host.given())) > 20


def test_defaults_that_imported_roles_bring_are_nobodys_values() -> None:
    """serve.yml imports its roles: the defaults of all are among the host's variables, and some cannot be read yet."""
    host = role_options.HostOptions(DataLoader(), dict(role_options.declared().defaults))
    assert action.judged(host) == ([], [], set())


@pytest.mark.parametrize(
    ("name", "known", "refused"),
    [
        ("container_runtime_habana_key", {}, True),
        ("container_runtime_habana_key", {"fingerprint": "A" * 40}, False),
        ("container_runtime_habana_key", {"checksum": "sha256:" + "a" * 64}, False),
        # A mirror of Docker has Docker's own key.
        ("container_runtime_rhel_key", {}, False),
        ("container_runtime_rhel_key", {"fingerprint": ""}, True),
        ("container_runtime_rhel_key", {"fingerprint": "A" * 40}, False),
    ],
)
def test_a_key_of_packages_is_told_from_another(name: str, known: dict[str, str], refused: bool) -> None:
    given = {name: "http://mirror.example/key.asc"} | {f"{name}_{key}": value for key, value in known.items()}
    problems, _, _ = action.judged(role_options.HostOptions(DataLoader(), given))
    assert [problem.id for problem in problems] == ["option"] * refused


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"build": True, "push": True}, True),
        ({"build": "yes", "push": "on", "name": "gaudi/vllm"}, True),
        ({"build": True, "push": True, "name": "registry.example.com/gaudi/vllm"}, False),
        ({"push": True}, False),
        ({"build": True}, False),
    ],
)
def test_an_image_is_not_pushed_to_docker_hub_by_default(said: dict[str, Any], refused: bool) -> None:
    host = role_options.HostOptions(DataLoader(), {f"serving_image_{key}": value for key, value in said.items()})
    problems, _, _ = action.judged(host)
    assert [problem.id for problem in problems] == ["option"] * refused
    assert all("would be pushed to Docker Hub" in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"python_indexes": ["http://me:hidden@127.0.0.1:3141/simple"]}, True),
        ({"git_mirrors": {"https://github.com/": "http://localhost/"}}, True),
        ({"apt_sources": "deb http://[::1]:3142/ubuntu jammy main"}, True),
        ({"https_proxy": "127.0.0.1:3128"}, True),
        ({"pins": {"vllm_fork": {"repository": "http://127.0.0.2/x", "commit": "a" * 40}}}, True),
        ({"https_proxy": "127.0.0.1:3128", "build_network": "host"}, False),
        ({"https_proxy": "127.0.0.1:3128", "build": False}, False),
        ({"python_indexes": ["http://10.0.0.9:3141/simple"], "no_proxy": "http://localhost"}, False),
    ],
)
def test_a_build_is_not_sent_to_the_nodes_loopback(said: dict[str, Any], refused: bool) -> None:
    site = {f"serving_image_{key}": value for key, value in {"build": True, **said}.items()}
    problems, _, _ = action.judged(role_options.HostOptions(DataLoader(), site))
    assert [problem.id for problem in problems] == ["option"] * refused
    assert all("which is the node's own loopback" in problem.message for problem in problems)
    # The first one that is said here is the wrong one.
    assert all(f"(in {next(iter(site.keys() - {'serving_image_build'}))})" in problem.message for problem in problems)
    assert "hidden" not in str(problems)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"python_indexes": ["htp://me:hidden@mirror.example/simple"]}, "serving_image_python_indexes[0] must be"),
        ({"python_indexes": "http://me:hidden@mirror.example/simple"}, "serving_image_python_indexes must be a list"),
        ({"git_mirrors": {"https://github.com/": "hidden"}}, "serving_image_git_mirrors.https://github.com/ must be"),
        ({"git_mirrors": {"github": "https://hidden.example/"}}, "serving_image_git_mirrors has 'github'"),
        ({"git_accounts": [{"address": "x", "password": "hidden"}]}, "serving_image_git_accounts[0].address must be"),
        ({"git_accounts": [{"address": "https://x", "pasword": "hidden"}]}, "serving_image_git_accounts[0]"),
        ({"apt_sources": "# Mine\n\nhttp://me:hidden@x/debian main\n"}, "serving_image_apt_sources, line 3, must be"),
        ({"apt_key": "/srv/hidden.asc"}, "serving_image_apt_key must be one block of public keys"),
        ({"apt_sources": "Types: deb\nURIs: http://hidden/\n"}, "serving_image_apt_sources, line 1, must be"),
    ],
)
def test_a_mistyped_address_of_a_build_is_refused_before_anything_is_built(said: dict[str, Any], words: str) -> None:
    site = {f"serving_image_{key}": value for key, value in said.items()}
    problems, _, wrong = action.judged(role_options.HostOptions(DataLoader(), site))
    assert [problem.message[: len(words)] for problem in problems] == [words]
    assert wrong == set(site)
    assert "hidden" not in str(problems)


def test_a_key_of_packages_for_no_source_is_refused_before_anything_is_built() -> None:
    lines = ("-----BEGIN PGP PUBLIC KEY BLOCK-----", "", "mQINBFit", "=abcd", "-----END PGP PUBLIC KEY BLOCK-----", "")
    site = {"serving_image_apt_key": "\n".join(lines)}
    problems, _, _ = action.judged(role_options.HostOptions(DataLoader(), site))
    assert [problem.message.partition(" is trusted")[0] for problem in problems] == ["serving_image_apt_key"]
    site["serving_image_apt_sources"] = "deb http://mirror/ubuntu noble main\n"
    assert not action.judged(role_options.HostOptions(DataLoader(), site))[0]


@pytest.mark.parametrize(
    "said",
    [
        {"python_indexes": [], "git_mirrors": {}, "git_accounts": [], "apt_sources": "", "apt_key": ""},
        {"apt_sources": "deb [signed-by=/x y=z] https://me:x@mirror/ubuntu jammy main\ndeb-src file:/srv/apt ./\n"},
        {"git_mirrors": {"https://github.com/": "https://git.example/gh/", "git@github.com:": "file:///srv/git"}},
        {"git_accounts": [{"address": "https://x.example", "username": "u", "password": "p"}]},
    ],
)
def test_addresses_of_a_build_that_are_right(said: dict[str, Any]) -> None:
    site = {f"serving_image_{key}": value for key, value in said.items()}
    assert not action.judged(role_options.HostOptions(DataLoader(), site))[0]


@pytest.mark.parametrize(
    ("address", "refused"), [("10.20.0.11", False), ("gpu-1.example", False), ("fd00::1", True), ("[fd00::1]", True)]
)
def test_weights_are_given_at_an_address_that_can_be_listened_at_alone(address: str, refused: bool) -> None:
    host = role_options.HostOptions(DataLoader(), {"gaudi_weights_address": address})
    problems, _, _ = action.judged(host)
    assert ["a host name or an address of IPv4" in problem.message for problem in problems] == [True] * refused


VALUES = [
    *ROOT.glob("inventories/simulated/group_vars/*.yml"),
    *ROOT.glob("molecule/*/inventory/group_vars/*.yml"),
    *ROOT.glob("molecule/*/vars/site.yml"),
]


def test_our_own_inventories_are_right() -> None:
    offenders = []
    for path in VALUES:
        site = trusted(yaml.safe_load(path.read_text(encoding="utf-8")))
        # What a scope's inventory adds.
        scope = {"simulator_apt_key": ""}
        problems, findings, _ = action.judged(role_options.HostOptions(DataLoader(), {**scope, **site}))
        # Simulated hosts that ask for an account have no certificates.
        others = [said for said in findings if not (ROOT / "molecule" in path.parents and "without TLS" in said)]
        offenders += [f"{path.relative_to(ROOT)}: {said}" for said in (*problems, *others)]
    assert not offenders


def test_files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible imports the action before it forks: its workers have what was read."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("a file was read again"))
    assert role_options.HostOptions(DataLoader(), {}).read("host_tuning_hugepages").value == 15000
    assert action.DECLARED is role_options.declared()


def test_a_node_says_what_was_found_on_the_controller(run: Run) -> None:
    found = {"problems": [{"id": "option", "message": "x is wrong."}], "findings": ["y is odd."]}
    ran = run(gaudi_preflight, preflight(found=found), HERE)
    assert ran["problems"][0] == {"id": "option", "message": "x is wrong."}
    assert "x is wrong." in ran["report"]
    assert ran["findings"][0] == "y is odd."
    # A node that got its driver in this run is read again.
    again = run(gaudi_preflight, preflight(found=found, reported=ran["reported"]), HERE)
    assert ran["reported"] == again["reported"] == ran["findings"]
    assert (again["findings"], again["report"]) == ([], ran["report"])
    assert ran["missing_weights"] == []


def test_what_is_documented_is_what_a_task_can_say() -> None:
    options = yaml.safe_load(page.DOCUMENTATION)["options"]
    documented = {
        name: {key: said for key, said in each.items() if key != "description"} for name, each in options.items()
    }
    assert documented == action.ARGUMENT_SPEC


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - role_options:
        options: [host_tuning_hugepages, model_weights_sources, model_weights_root, serving_image_digest,
                  serving_image_password, model_weights_python_index, host_tuning_reboot_timeout]
      register: said
    # One module for all: each takes a process of its own.
    - ansible.builtin.copy:
        dest: "%(folder)s/answers.json"
        content: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'said'))) | to_json }}"
      run_once: true
"""
HOSTS = """
all:
  vars: {ansible_connection: local, ansible_python_interpreter: %(python)s, gaudi_weights_root: /data/models}
  hosts:
    nothing: {}
    template: {host_tuning_hugepages: "{{ pages * 2 }}", pages: 32, model_weights_sources: [{name: "{{ where }}",
      endpoint: "https://hub.example", token: %(secret)s, proxy: "http://%(secret)s@proxy"}], where: site,
      model_weights_python_index: "https://u:%(secret)s@index.example"}
    undefined: {host_tuning_hugepages: "{{ nowhere }}", serving_image_password: "{{ vault_password }}"}
    failing: {host_tuning_hugepages: "{{ '%(secret)s' | nofilter }}", model_weights_root: "{{ 1 / 0 }}",
      serving_image_digest: "{{ serving_image_digest }}"}
    wrong: {host_tuning_reboot_timeout: [], vllm_service_api_keys: {a: %(secret)s}, model_weights_sources: "{{ x }}",
      x: 5, model_weights_python_index: ["https://u:%(secret)s@index.example"]}
    vault:
      serving_image_password: !vault |
        $ANSIBLE_VAULT;1.1;AES256
        33363833353936323437393632613163653132326430643032616266393264386364613637356163
      host_tuning_hugepages: 64
    mistyped: {host_tuning_hugepage: 64, gaudi_rack: 7, host_tuning_found: {}, hugepages: 1}
    mistyped_as_well: {host_tuning_hugepage: 64, gaudi_rack: 7, gaudi_row: 8}
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the action says of several hosts in one run, and under "output" all that Ansible printed."""
    folder = tmp_path_factory.mktemp("options")
    play, hosts = folder / "play.yml", folder / "hosts.yml"
    play.write_text(PLAY % {"folder": folder}, encoding="utf-8")
    hosts.write_text(HOSTS % {"python": sys.executable, "secret": HIDDEN}, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-vvv", "-i", str(hosts), str(play)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return {**found, "output": ran.stdout + ran.stderr}


def messages(answer: dict[str, Any]) -> list[str]:
    return [problem["message"] for problem in answer["problems"]]


def test_what_a_host_does_not_say_is_the_roles_default(answers: dict[str, Any]) -> None:
    said = answers["nothing"]
    assert (said["problems"], said["findings"], said["wrong"]) == ([], [], [])
    assert said["options"] == {
        "host_tuning_reboot_timeout": 1800,
        "host_tuning_hugepages": 15000,
        "model_weights_sources": [{"name": "huggingface"}],
        "model_weights_root": "/data/models",
        "serving_image_digest": "",
        "serving_image_password": None,
        "model_weights_python_index": None,
    }
    # Only that there is something; not what.
    assert said["is_set"] == {"serving_image_password": False, "model_weights_python_index": True}


def test_templates_are_read_and_secrets_left_out(answers: dict[str, Any]) -> None:
    said = answers["template"]
    assert (said["problems"], said["findings"]) == ([], [])
    assert said["options"]["host_tuning_hugepages"] == 64
    assert said["options"]["model_weights_sources"] == [{"name": "site"}]


def test_what_cannot_be_read_is_said_and_has_its_default(answers: dict[str, Any]) -> None:
    said = answers["undefined"]
    assert said["wrong"] == ["host_tuning_hugepages", "serving_image_password"]
    assert said["options"]["host_tuning_hugepages"] == 15000
    pages, password = said["findings"]
    assert pages.startswith("host_tuning_hugepages cannot be read yet: 'nowhere' is undefined.")
    assert password.startswith("serving_image_password cannot be read yet. ")
    assert answers["failing"]["wrong"] == ["host_tuning_hugepages", "model_weights_root", "serving_image_digest"]
    assert answers["failing"]["options"]["model_weights_root"] == "/data/models"


def test_a_vault_that_does_not_open_is_said_of_its_option(answers: dict[str, Any]) -> None:
    assert answers["vault"]["wrong"] == ["serving_image_password"]
    assert answers["vault"]["options"]["host_tuning_hugepages"] == 64


def test_what_is_wrong_stops_nothing(answers: dict[str, Any]) -> None:
    assert [message.partition(" ")[0] for message in messages(answers["wrong"])] == [
        "host_tuning_reboot_timeout",
        "model_weights_python_index",
        "model_weights_sources",
        "vllm_service_api_keys.a",
    ]
    assert answers["wrong"]["options"]["model_weights_sources"][0]["name"] == "huggingface"


def test_a_mistyped_name_is_refused_and_a_strange_one_said(answers: dict[str, Any]) -> None:
    said = answers["mistyped"]
    assert messages(said) == [
        "There is no variable host_tuning_hugepage, so nothing reads it. "
        "Did you mean host_tuning_hugepages? Correct the name."
    ]
    assert said["findings"] == [
        "gaudi_rack is set, but there is no such variable. Is the name right? If it is yours, no role reads it."
    ]


def test_an_unknown_name_is_reported_by_one_host(answers: dict[str, Any]) -> None:
    (finding,) = answers["mistyped_as_well"]["findings"]
    assert finding.startswith("gaudi_row ")
    # A problem is every node's: each of them is refused.
    assert len(messages(answers["mistyped_as_well"])) == 1


def test_no_secret_is_printed_however_much_ansible_says(answers: dict[str, Any]) -> None:
    assert HIDDEN not in answers["output"]


def test_an_option_of_an_earlier_release_is_refused_with_its_new_name() -> None:
    names = ["preflight_host_nics_verified", "fabric_check_host_nics"]
    problems, findings = rules.unknown(names, ["fabric_check_host_nics"], [], ["preflight", "fabric_check"])
    assert findings == []
    (problem,) = problems
    assert problem.message.startswith("preflight_host_nics_verified is of an earlier release")
    assert "Set fabric_check_host_nics in its place." in problem.message


def test_the_preflight_uses_the_value_of_no_option_that_is_left_out() -> None:
    """Such an option has no value there (None), only whether it has one."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "roles/preflight").glob("*/*.yml"))
    used = set(re.findall(r"_known\.([a-z][a-z_]+)", text))
    assert len(used) > 20
    declared = role_options.declared().options
    assert [name for name in sorted(used) if declared[name].get("no_log")] == []
