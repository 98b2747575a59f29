"""The site's proxies and certificates: what each role makes of them, and that a site without them gets what it had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from action_plugins import role_options as action
from plugin_utils import role_options
from tests.unit.node.outside import CertificateAuthority
from tests.unit.preflight.test_contracts import ROOT, load, tasks
from tests.unit.preflight.test_templates import evaluate, render, results

HIDDEN = "p%40ss%25%5C%20"
PROXY = f"http://reader:{HIDDEN}@proxy.example:3128"
OTHER = "http://other.example:3128"
SITE = {"gaudi_http_proxy": PROXY, "gaudi_https_proxy": PROXY, "gaudi_no_proxy": ".inside.example,10.0.0.0/8"}
CA = CertificateAuthority()


def judged(**site: Any) -> tuple[list[str], list[str]]:
    problems, findings, _ = action.judged(role_options.HostOptions(DataLoader(), site))
    return [problem.message for problem in problems], findings


# The engine


@pytest.mark.report("E15")
def test_the_engine_gets_the_sites_proxies_as_they_are_encoded() -> None:
    assert render("container_runtime", "proxy.env.j2", **SITE).splitlines()[1:] == [
        f"HTTP_PROXY={PROXY}",
        f"HTTPS_PROXY={PROXY}",
        "NO_PROXY=localhost,127.0.0.1,.inside.example,10.0.0.0/8",
    ]


@pytest.mark.parametrize(("site", "written"), [("", False), (".b", True)])
def test_an_engine_of_others_keeps_its_exceptions_unless_the_site_sets_some(site: str, written: bool) -> None:
    found = {"origin": {"by_others": True}}
    given = {**SITE, "gaudi_no_proxy": site, **results("container_runtime", container_runtime_info=found)}
    assert ("NO_PROXY" in render("container_runtime", "proxy.env.j2", **given)) is written


def test_the_preflight_judges_all_variables_that_an_engine_gets() -> None:
    _, *lines = render("container_runtime", "proxy.env.j2", **SITE).splitlines()
    names = {line.partition("=")[0] for line in lines}
    for playbook in ("site.yml", "playbooks/serve.yml"):
        given = [
            task["vars"]["preflight_engine_proxies"]
            for play in load(ROOT / playbook)
            for task in [*play.get("pre_tasks", []), *play.get("tasks", [])]
            if "preflight_engine_proxies" in task.get("vars", {})
        ]
        assert [set(each) for each in given] == [names]


def test_an_option_of_the_engine_overrides_the_sites_even_where_it_is_empty() -> None:
    given = {**SITE, "container_runtime_https_proxy": OTHER, "container_runtime_http_proxy": ""}
    said = render("container_runtime", "proxy.env.j2", **given)
    assert f"HTTPS_PROXY={OTHER}\n" in said
    assert HIDDEN not in said


def test_a_site_with_the_engines_own_options_gets_the_same_file() -> None:
    given = {"container_runtime_http_proxy": OTHER, "container_runtime_https_proxy": "socks5://other.example:1080"}
    assert render("container_runtime", "proxy.env.j2", **given) == (
        "# Ansible managed\n"
        "HTTP_PROXY=http://other.example:3128\n"
        "HTTPS_PROXY=socks5://other.example:1080\n"
        "NO_PROXY=localhost,127.0.0.1\n"
    )
    (configure,) = (task for task in load(ROOT / "roles/container_runtime/tasks/configure.yml") if "node_files" in task)
    files = evaluate("container_runtime", configure["node_files"]["files"])
    assert {file["state"] for file in files} == {"absent"}


def test_registries_of_the_site_get_its_certificates(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CA.pem)
    given = {
        "gaudi_image_registry": "registry.example:5000",
        "container_runtime_registry_mirrors": ["https://mirror.example"],
        "gaudi_ca_certificates": str(tmp_path / "ca.pem"),
    }
    (configure,) = [task for task in load(ROOT / "roles/container_runtime/tasks/configure.yml") if "node_files" in task]
    files = evaluate("container_runtime", configure["node_files"]["files"], **given)
    assert [file for file in files if "certs.d" in file["path"]] == [
        {"path": f"/etc/docker/certs.d/{host}/gaudi-serving.crt", "content": CA.pem}
        for host in ("registry.example:5000", "mirror.example")
    ]
    files = evaluate("container_runtime", configure["node_files"]["files"], **{**given, "gaudi_ca_certificates": ""})
    assert {file["state"] for file in files if "certs.d" in file["path"]} == {"absent"}


@pytest.mark.parametrize(
    ("wrong", "valid"),
    [
        ([], True),
        (["gaudi_driver_suite"], True),
        (["gaudi_https_proxy"], False),
        (["container_runtime_http_proxy"], False),
        (["gaudi_ca_certificates"], False),
    ],
)
def test_what_depends_on_a_wrong_proxy_is_not_judged(wrong: list[str], valid: bool) -> None:
    tasks = load(ROOT / "roles/preflight/tasks/read.yml")
    (options,) = (task for task in tasks if "role_options" in task)
    (read,) = (task for task in tasks if "gaudi_preflight" in task)
    given = {options["register"]: {"wrong": wrong}}
    assert evaluate("preflight", read["gaudi_preflight"]["access_valid"], **given) is valid


# Builds


def request(**given: Any) -> dict[str, Any]:
    (recipe,) = ({"reference": "site/vllm:1", "tag": "1"},)
    site = {"gaudi_image_registry": "vault.habana.ai", **given}
    read: dict[str, Any] = json.loads(render("serving_image", "request.json.j2", item=recipe, **site))
    return read


def test_a_build_gets_the_sites_proxies_and_certificates() -> None:
    read = request(**SITE, gaudi_ca_certificates="/etc/site/ca.pem")
    assert (read["proxies"]["https_proxy"], read["proxies"]["NO_PROXY"]) == (
        PROXY,
        "localhost,127.0.0.1,.inside.example,10.0.0.0/8",
    )
    assert read["secrets"] == {"ca": "/etc/gaudi-serving/access/ca-certificates.crt"}
    assert request(**SITE, serving_image_https_proxy=OTHER)["proxies"]["HTTPS_PROXY"] == OTHER


def test_a_build_of_a_site_without_them_is_as_before() -> None:
    read = request()
    assert (read["proxies"], read["secrets"]) == ({}, {})
    assert request(serving_image_http_proxy=OTHER)["proxies"] == {
        "HTTP_PROXY": OTHER,
        "HTTPS_PROXY": "",
        "http_proxy": OTHER,
        "https_proxy": "",
        "NO_PROXY": "localhost,127.0.0.1",
        "no_proxy": "localhost,127.0.0.1",
    }


# Weights


def sources(*asked: dict[str, Any], **site: Any) -> list[dict[str, Any]]:
    given = {
        "gaudi_weights_root": "/data/models",
        "model_weights_directory": "m",
        "model_weights_repository": "a/m",
        "model_weights_sources": [{"name": f"s{number}", **source} for number, source in enumerate(asked)],
        **site,
    }
    read: list[dict[str, Any]] = json.loads(render("model_weights", "request.json.j2", **given))["sources"]
    return read


def environment_of_fetches(**given: Any) -> Any:
    (job, *_) = (task for task in load(ROOT / "roles/model_weights/tasks/fetch.yml") if "node_job" in task)
    return evaluate("model_weights", job["node_job"]["environment"], **given)


@pytest.mark.report("W01", "W04")
def test_a_source_takes_the_sites_proxy_unless_it_says_otherwise() -> None:
    asked = (
        {"endpoint": "https://hub.example"},
        {"endpoint": "https://hub.inside.example"},
        {"endpoint": "https://hub.example", "proxy": OTHER},
        {"endpoint": "https://hub.example", "proxy": ""},
    )
    found = sources(*asked, **SITE)
    assert [source["proxy"] for source in found] == [PROXY, None, OTHER, ""]
    assert [source.get("no_proxy") for source in found] == [SITE["gaudi_no_proxy"]] * 2 + [None] * 2
    variables = environment_of_fetches(gaudi_ca_certificates=CA.pem)
    assert (
        variables["SSL_CERT_FILE"] == variables["REQUESTS_CA_BUNDLE"] == "/etc/gaudi-serving/access/ca-certificates.crt"
    )


def test_sources_of_a_site_without_them_are_as_before() -> None:
    given = {"gaudi_weights_root": "/data/models", "model_weights_directory": "m", "model_weights_repository": "a/m"}
    said = render("model_weights", "request.json.j2", **given)
    assert '   "proxy": null,\n   "xet": true,\n' in said
    assert "no_proxy" not in said
    assert environment_of_fetches() == {
        "PYTHONPATH": "/usr/local/lib/gaudi-serving",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


# What is refused before a node is changed


@pytest.mark.parametrize(
    "value",
    [
        "socks5://proxy.example:1080",
        "https://proxy.example:3128",
        "proxy.example:3128",
        "http://proxy.example:3128/path",
        "http://proxy.example:99999",
        "http://u:hunter2@x@proxy.example:3128",
        "http://u:hunter2:x@proxy.example:3128",
        "http://u:hunter2/x@proxy.example:3128",
        "http://u:hunter2#x@proxy.example:3128",
        "http://u:hunter2%zz@proxy.example:3128",
        "http://u:hunter2%0A@proxy.example:3128",
        "http://u:hunter2$x@proxy.example:3128",
        "http://u:hunter2\\x@proxy.example:3128",
        "http://u:hunter2 x@proxy.example:3128",
        "http://u:hunter2ü@proxy.example:3128",
        "http://fd00::1:3128",
        5,
        ["http://proxy.example"],
    ],
)
@pytest.mark.report("E15", "W01")
def test_a_proxy_that_not_every_program_can_use_is_refused_without_its_account(value: Any) -> None:
    (said,) = judged(gaudi_https_proxy=value)[0]
    assert "gaudi_https_proxy" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "value", ["http://proxy", "http://proxy.example:3128/", "http://[fd00::1]:3128", "http://u:@proxy", PROXY, ""]
)
def test_a_proxy_that_every_program_can_use_is_taken(value: str) -> None:
    assert judged(gaudi_http_proxy=value, gaudi_https_proxy=value, gaudi_no_proxy="*.a, 10.0.0.0/8,[::1]") == ([], [])


@pytest.mark.parametrize(
    ("proxy", "wrong"),
    [(PROXY, 0), ("https://u:p@proxy:3128", 0), ("", 0), ("socks5h://u:hunter2@proxy:1", 1), ("u:hunter2@proxy:1", 1)],
)
@pytest.mark.report("W01")
def test_a_source_has_a_proxy_that_the_downloader_can_use(proxy: str, wrong: int) -> None:
    source = {"name": "hub", "endpoint": "https://hub.example", "proxy": proxy}
    problems, _ = judged(model_weights_sources=[source])
    assert len(problems) == wrong
    assert "hunter2" not in "".join(problems)


@pytest.mark.report("E15")
def test_the_engines_proxy_has_no_percent_that_the_engine_cannot_read() -> None:
    assert judged(container_runtime_https_proxy="http://u:p%40%25@proxy:3128")[0] == []
    (said,) = judged(container_runtime_https_proxy="http://u:hunter2%x@proxy:3128")[0]
    assert "%25" in said
    assert "hunter2" not in said


def test_certificates_are_judged_on_the_controller(tmp_path: Path) -> None:
    old = CertificateAuthority("Old CA", days=-2)
    file = tmp_path / "ca.pem"
    file.write_text(CA.pem + old.pem)
    problems, (finding,) = judged(gaudi_ca_certificates=str(file))
    assert problems == []
    assert "certificate 2 (Old CA)" in finding
    assert judged(gaudi_ca_certificates=CA.pem) == ([], [])
    for value, word in (
        (old.pem, "Old CA"),
        (CA.pem + CA.private, "private key"),
        ("ca.pem", "absolute path"),
        (str(tmp_path / "none.pem"), "cannot be read"),
        (str(tmp_path), "cannot be read"),
        ("/dev/null\n/etc/passwd", "absolute path"),
        (CA.pem.replace(CA.pem.splitlines()[1][-9:], "A" * 9), "OpenSSL|cannot be read"),
    ):
        (said,) = judged(gaudi_ca_certificates=value)[0]
        assert any(each in said for each in word.split("|")), said
        assert CA.private.splitlines()[1] not in said


# Tasks


def test_no_task_has_a_proxy_with_an_account_in_its_environment() -> None:
    """Everybody on a node sees the environment that Ansible gives a module: it is an argument of a shell."""
    environment = [
        (path.name, str(task["environment"]))
        for path in [*(ROOT / "roles").glob("*/tasks/*.yml"), *(ROOT / "playbooks").rglob("*.yml")]
        for task in every(yaml.safe_load(path.read_text(encoding="utf-8")))
        if "environment" in task
    ]
    assert environment
    assert [found for found in environment if "_proxy" in found[1]] == []


def every(node: Any) -> list[dict[str, Any]]:
    found = list(tasks(node)) if isinstance(node, list) else []
    blocks = [item for item in node if isinstance(item, dict) and "block" in item] if isinstance(node, list) else []
    return [*found, *blocks]


def test_a_measuring_image_is_built_through_the_sites_proxies() -> None:
    measuring = load(ROOT / "playbooks/vars/measuring.yml")["measuring_proxies"]
    assert evaluate("serving_image", measuring["https_proxy"], serving_image_https_proxy=OTHER, **SITE) == OTHER
    assert evaluate("preflight", measuring["https_proxy"], **SITE) == PROXY
    assert evaluate("preflight", measuring["https_proxy"]) == ""
