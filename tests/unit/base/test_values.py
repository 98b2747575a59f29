"""Values that land in files of the system stay one word there, whatever a site writes."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.gaudi.base import values
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.engine import daemon
from ansible.module_utils.gaudi.engine.openpgp import fingerprints
from ansible.module_utils.gaudi.preflight.values import FORMS, READERS, landing_faults
from ansible.parsing.dataloader import DataLoader
from hypothesis import example, given
from hypothesis import strategies as st

from plugin_utils import role_options
from tests.unit.preflight.test_templates import ROLES, evaluate, render, task_of
from tests.unit.vllm_service.made import make_plan

HIDDEN = "hunter2-hunter2"
# What starts a second section, a second variable, another directive, or another word.
HOSTILE = "http://p:1\n[Service]\nExecStartPre=/bin/sh -c 'id'"
PIECES = st.sampled_from(
    ["http://", "a", "user:pw@", "host", ":3128", "/x", "\n", "\r", "\0", " ", "\t", '"', "'", "\\", "$", "`", "%",
     "[Service]\n", "\u2028", "\x85", "-o", "#", ";", "é", "@", "//", "..", "[::1]"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=8).map("".join))
PLAN = {"vllm_service_plan": {**make_plan(30001, Path("/data/models/Tiny")), "explain": [], "warnings": []}}
LETHAL = re.compile(r"[\x00-\x1f\x7f-\xa0\u2028\u2029\"'`\\]")


@pytest.mark.parametrize("kind", sorted(values.KINDS))
@given(value=TEXTS)
@example(value=HOSTILE)
@example(value="http://host/\n")
@example(value="word\n")
def test_no_form_lets_a_line_or_a_quote_through(kind: str, value: str) -> None:
    try:
        taken = values.KINDS[kind](value, "x")
    except Refusal as refusal:
        assert refusal.id in ("wrong_form", "control_character", "empty", "too_long", "no_default_route")
    else:
        assert not LETHAL.search(taken)
        assert kind in ("no_proxy", "index") or "$" not in taken
        assert kind == "no_proxy" or (shlex.split(taken) == [taken] and not taken.startswith("-"))


@pytest.mark.parametrize("value", [None, 5, ["http://a"], {"a": 1}, True])
def test_what_is_no_text_is_refused(value: Any) -> None:
    for read in values.KINDS.values():
        with pytest.raises(Refusal):
            read(value, "x")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("address", "https://pypi.org/simple"),
        ("address", "http://u:p%40ss@[fe80::1]:8080/a/b?c=d"),
        ("index", "https://download.docker.com/linux/rhel/$releasever/$basearch/stable"),
        ("index", "file:///srv/mirror"),
        ("proxy", "http://user:p%40ss@proxy.example:3128"),
        ("proxy", "proxy.example:3128"),
        ("proxy", "socks5://proxy:1080"),
        ("no_proxy", "localhost,127.0.0.1, .example.com,10.0.0.0/8,[::1]"),
        ("program", "/usr/bin/python3.11"),
        ("word", "jammy/updates"),
        ("word", "habanalabs-container-runtime=1.22.2-32"),
    ],
)
def test_what_sites_write_is_taken(kind: str, value: str) -> None:
    assert values.KINDS[kind](value, "x") == value


def test_a_password_is_in_no_sentence() -> None:
    for kind in ("address", "index", "proxy"):
        with pytest.raises(Refusal) as refused:
            values.KINDS[kind](f"http://u:{HIDDEN}@host\n", "x")
        assert HIDDEN not in str(refused.value)


def test_the_defaults_of_the_roles_have_their_forms() -> None:
    host = role_options.HostOptions(DataLoader(), {})
    assert set(FORMS) <= set(role_options.declared().options)
    for name in FORMS:
        # A variable of the site has none.
        assert list(landing_faults(name, host.default(name) or "")) == []
        assert list(landing_faults(name, HOSTILE)) != []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("fabric_check_floors", [{"collective": "all_reduce", "nw_gb_s": "fast"}], "fast"),
        ("fabric_check_floors", [{"collective": "all_of_it", "nw_gb_s": 1}], "all_of_it"),
        ("fabric_check_tests", ["all_of_it"], "all_of_it"),
        ("fabric_check_tests", [{"collective": "all_reduce", "size": "32x"}], "32x"),
        ("fabric_check_tests", [{"collective": "all_reduce", "loop": 0}], "loop of all_reduce"),
        ("fabric_check_tests", [{"collective": "all_reduce", "loops": 5}], "loops"),
        ("fabric_check_tests", [{"collective": "all_reduce", 5: 5, "a": 1}], "5"),
        ("fabric_check_tests", [{"collective": "all2all", "size": 4}], "needs 8 bytes at least"),
        ("fabric_check_burn_in", ["everything"], "everything"),
        ("vllm_service_firewall_sources", ["10.20.0.0/16", "gateway"], "gateway"),
    ],
)
def test_an_option_is_refused_before_a_node_is_changed(name: str, value: object, words: str) -> None:
    (said,) = landing_faults(name, value)
    assert words in said
    assert said.endswith(".")


def test_options_of_a_measurement_that_can_be_are_left_alone() -> None:
    declared = role_options.declared()
    for name in READERS:
        assert list(landing_faults(name, declared.defaults[name])) == []
    tests = ["all2all", {"collective": "all_reduce", "size": "1g", "loop": 5}]
    assert list(landing_faults("fabric_check_tests", tests)) == []
    assert list(landing_faults("fabric_check_floors", [{"collective": "all_reduce", "nw_gb_s": 240}])) == []


def test_the_file_of_proxies_holds_a_variable_a_line() -> None:
    given_ = {"container_runtime_https_proxy": "http://user:p%40ss@proxy.example:3128"}
    assert render("container_runtime", "proxy.env.j2", **given_).splitlines() == [
        "# Ansible managed",
        "HTTPS_PROXY=http://user:p%40ss@proxy.example:3128",
        "NO_PROXY=localhost,127.0.0.1",
    ]
    drop_in = render("container_runtime", "proxy.conf.j2", **given_)
    assert f"EnvironmentFile={daemon.OWN_VARIABLES}\n" in drop_in


@pytest.mark.parametrize(
    ("role", "template", "given_"),
    [
        ("container_runtime", "proxy.env.j2", {"container_runtime_http_proxy": HOSTILE}),
        ("container_runtime", "proxy.env.j2", {"container_runtime_no_proxy": "a\nHTTP_PROXY=http://evil"}),
        ("container_runtime", "habana.sources.j2", {"container_runtime_habana_repository": "https://a\nTrusted: yes"}),
        (
            "container_runtime",
            "habana.sources.j2",
            {"container_runtime_habana_repository": "https://a", "container_runtime_habana_suite": "x\nTrusted: yes"},
        ),
    ],
)
def test_a_hostile_value_never_reaches_a_file(role: str, template: str, given_: dict[str, str]) -> None:
    with pytest.raises(AnsibleError):
        render(role, template, ansible_facts={"os_family": "Debian", "distribution_release": "jammy"}, **given_)


def test_a_unit_starts_a_program_and_nothing_else() -> None:
    unit = task_of("vllm_service", "compare", "vllm_service_changes")["vllm_service_changes"]["unit"]
    started = next(line for line in str(evaluate("vllm_service", unit, **PLAN)).splitlines() if line.startswith("Exec"))
    assert started.startswith("ExecStart=/usr/bin/python3 -s ")
    for python in ("/usr/bin/python3\nExecStartPost=/bin/evil", "python3", "/usr/bin/env evil", "-/bin/true", ""):
        with pytest.raises(AnsibleError):
            evaluate("vllm_service", unit, **PLAN, vllm_service_python=python)


def test_an_account_of_an_index_is_for_root_alone() -> None:
    address = "https://reader:p%40ss@vault.example/artifactory/debian"
    text = render(
        "container_runtime",
        "habana.sources.j2",
        ansible_facts={"os_family": "Debian", "distribution_release": "jammy"},
        container_runtime_habana_repository=address,
    )
    assert "URIs: https://vault.example/artifactory/debian" in text.splitlines()
    assert values.apt_login(address) == "machine https://vault.example/artifactory/debian login reader password p@ss\n"
    assert values.apt_login("https://vault.example/debian") == ""


def test_the_account_of_a_keys_address_is_in_no_failing_task() -> None:
    """A failure prints its address, and hides what it is given as a password."""
    tasks = yaml.safe_load((ROLES / "container_runtime/tasks/vendor_source.yml").read_text(encoding="utf-8"))
    (fetch,) = [task["fetched_key"] for task in tasks if "fetched_key" in task]
    address = f"https://reader:{HIDDEN.replace('-', '%2D')}@vault.example/key.asc"
    found = {
        name: evaluate("container_runtime", fetch[name], container_runtime_habana_key=address)
        for name in ("url", "url_username", "url_password")
    }
    assert found == {"url": "https://vault.example/key.asc", "url_username": "reader", "url_password": HIDDEN}
    assert values.login("https://vault.example/key.asc") == values.login("file:///srv/key.asc") == ("", "")


@given(name=TEXTS, password=TEXTS)
def test_an_account_is_one_line_of_apts(name: str, password: str) -> None:
    address = f"https://{name}:{password}@vault.example/debian"
    try:
        line = values.apt_login(values.index(address, "x"))
    except Refusal:
        return
    # A slash, a question mark or a hash in the name ends the host before it: such an address has no account.
    if urlsplit(address).username is None:
        assert line == ""
        return
    words = line.rstrip("\n").split(" ")
    assert words[::2] == ["machine", "login", "password"]
    assert words[1] == "https://vault.example/debian"
    assert line.count("\n") == 1


KEY = (Path(__file__).parents[1] / "preflight/nobody.asc").read_text(encoding="utf-8")
FINGERPRINT = "68B60407372208D22B0FB02D3CDFF4A7960A84B2"


def test_a_key_is_known_by_its_fingerprint() -> None:
    """As ``gpg --show-keys`` 2.2.40 prints it for a key that this version made."""
    assert fingerprints(KEY) == [FINGERPRINT]
    assert values.fingerprint("68b6 0407 3722 08D2 2B0F  B02D 3CDF F4A7 960A 84B2", "x") == FINGERPRINT
    assert fingerprints(KEY + KEY) == [FINGERPRINT] * 2


@given(st.one_of(st.text(max_size=200), st.integers(0, len(KEY)).map(lambda at: KEY[:at] + "A" + KEY[at + 1 :])))
def test_no_file_of_a_key_is_misread(text: str) -> None:
    try:
        found = fingerprints(text)
    except Refusal as refusal:
        assert refusal.id == "not_openpgp_keys"
    else:
        assert found


def test_a_key_that_is_armoured_otherwise_is_refused() -> None:
    with pytest.raises(Refusal):
        fingerprints(KEY + KEY.replace("BLOCK-----\n", "BLOCK----- \n", 1))


def armoured(*keys: bytes) -> str:
    """A block in which each part ends with what pads it."""
    lines = [base64.b64encode(key).decode() for key in keys]
    lines = [line[at : at + 64] for line in lines for at in range(0, len(line), 64)]
    return "\n".join(["-----BEGIN PGP PUBLIC KEY BLOCK-----", "", *lines, "-----END PGP PUBLIC KEY BLOCK-----", ""])


def key_packets() -> bytes:
    """What KEY holds."""
    lines = KEY.split("\n\n", 1)[1].splitlines()
    return base64.b64decode("".join(line for line in lines if line and line[0] not in "=-"))


# The packet of another primary key, of 46 bytes, as long as none of it is used.
OTHER = bytes([0xC6, 44, 4, *range(43)])


def test_a_second_key_after_padding_is_not_hidden() -> None:
    """apt 2.6.1 decodes a block with base64 -d, which goes on after padding: it trusted both keys of such a file."""
    named = key_packets()
    while len(named) % 3 == 0:
        named += bytes([0xC0 | 13, 2, 65, 65])
    assert fingerprints(armoured(named))[:1] == [FINGERPRINT]
    with pytest.raises(Refusal):
        fingerprints(armoured(named, OTHER))


@pytest.mark.parametrize("tag", [5, 7, 8, 10, 60])
def test_what_some_programs_take_for_a_key_is_refused(tag: int) -> None:
    """Secret keys, and packets that may hold others."""
    with pytest.raises(Refusal):
        fingerprints(armoured(key_packets() + bytes([0xC0 | tag]) + OTHER[1:]))


def source(**more: Any) -> dict[str, Any]:
    return {"name": "hub", "endpoint": "https://hub.example", **more}


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (source(), ""),
        (source(token=HIDDEN), ""),
        (source(endpoint="http://hub.example"), ""),
        (source(endpoint="http://127.0.0.1:8090", token=HIDDEN), ""),
        (source(endpoint="http://hub.example", token=HIDDEN, token_over_http=True), ""),
        (source(endpoint="http://hub.example", token=HIDDEN), "anybody on the way reads the token"),
        (source(endpoint="http://127.0.0.1.evil.example", token=HIDDEN), "anybody on the way reads the token"),
        (source(endpoint=f"https://u:{HIDDEN}@hub.example"), "has an account in it"),
        (source(endpoint="https://hub.example\nx"), "must be an address"),
        (source(proxy="http://p\nq"), "must be an address"),
    ],
)
def test_a_token_stays_with_its_hub(given_: dict[str, Any], said: str) -> None:
    found = "".join(landing_faults("model_weights_sources", [given_]))
    assert said in found
    assert bool(said) == bool(found)
    assert HIDDEN not in found


@pytest.mark.parametrize("said", ["10.0.0.7\n[x]\npath = /", "10.0.0.7 0.0.0.0/0", "*", "a\tb", "10.0.0.0/8", ""])
def test_another_nodes_address_is_one(said: str) -> None:
    """It lands in rsyncd.conf, where a line break begins a module that gives away everything."""
    with pytest.raises(Refusal):
        values.node(said, "An address")


@pytest.mark.parametrize("said", ["10.0.0.7", "fe80::1", "::1", "gaudi-01.example.org"])
def test_an_address_or_a_name_is_taken(said: str) -> None:
    assert values.node(said, "An address") == said


@pytest.mark.parametrize(
    ("address", "routable"),
    [
        *((each, True) for each in ("10.20.0.11", "172.17.0.1", "192.168.0.1", "100.64.0.1", "192.0.2.4", "8.8.8.8")),
        *((each, True) for each in ("fd00::11", "2001:db8::1", "2606:4700::1")),
        *((each, False) for each in ("0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.169.254", "192.0.0.192")),
        *((each, False) for each in ("224.0.0.1", "240.0.0.1", "255.255.255.255")),
        *((each, False) for each in ("::", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fe80::1", "ff02::1")),
        *((each, False) for each in ("2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "fd00::1%eth0")),
    ],
)
def test_is_routable_is_true_for_unicast_addresses_of_public_and_private_networks(address: str, routable: bool) -> None:
    assert values.is_routable(address) is routable
