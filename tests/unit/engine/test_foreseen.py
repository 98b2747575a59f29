"""What the preflight says of the engine and of packages, before anything is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import apt, package_look

from library import gaudi_preflight
from tests.unit.engine.test_origin import HABANA, DebianNode, node, snap
from tests.unit.node.outside import KeyServer, RedirectingServer, proxy, serving
from tests.unit.preflight.conftest import Answer
from tests.unit.preflight.test_modules import REAL_READ, plan, preflight

__all__ = ["node"]

REMOVES = (
    "Remv docker-ce [5:28.0.1-1]\nRemv containerd.io [1.7]\nInst containerd (1.6 x [amd64])\n"
    "Inst docker.io (20.10 x [amd64])\nInst nftables (1.0.6 x [amd64])\n"
)
NOTHING_OFFERED = "E: Unable to locate package docker.io\nE: Unable to locate package nftables\n"
INSTALL = "apt-get --simulate --quiet --no-install-recommends install"


@pytest.fixture(autouse=True)
def _debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    debian = "ID=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n"
    monkeypatch.setattr(
        gaudi_preflight, "read_text", lambda path: debian if path == "/etc/os-release" else str(REAL_READ(path))
    )
    monkeypatch.setattr(package_look, "APT", tmp_path / "no apt")
    monkeypatch.setattr(package_look, "APT_LISTS", tmp_path / "no lists")
    monkeypatch.setattr(apt, "ETC", tmp_path / "apt")


def judged(
    node: DebianNode,
    manage: bool = True,
    engine: Any = None,
    access: dict[str, Any] | None = None,
    check: bool = False,
    **answers: Answer,
) -> dict[str, Any]:
    """The preflight's result on a node.

    access: proxies of the site. answers: of apt-get, by simulation or private; of docker info, by info.
    """
    scripted = {
        INSTALL: answers.get("simulation", (0, "Inst nftables (1.0.6 x [amd64])\n", "")),
        f"{INSTALL} nftables": (0, "Inst nftables (1.0.6 x [amd64])\n", ""),
        "apt-get --quiet -o Dir::State::lists=": answers.get("update", (0, "", "")),
        "apt-get --simulate --quiet --no-install-recommends -o Dir::State::lists=": answers.get("private", (0, "", "")),
        "/usr/bin/docker info": answers.get("info", (1, "", "")),
        "timeout --kill-after=5 20 docker info": answers.get("info", (1, "", "")),
        "timeout --kill-after=5 20 docker ps --format {{.Names}}": answers.get("ps", (0, "", "")),
        "docker": (1, "", ""),
        "apt-config dump": answers.get("settings", (0, "", "")),
        "systemctl show docker.service": (0, node.unit, ""),
        "systemctl show": (0, "", ""),
        "dpkg-query --search": (1, "".join(f"{name}: {path}\n" for path, name in node.owners.items()), ""),
        "dpkg-query --show": answers.get("show", (1, "", "")),
    }
    given = {
        "engine": [],
        "builds": False,
        "manage": manage,
        "habana_path": f"/{HABANA}",
        "habana_package": "habanalabs-container-runtime",
        "rhel_repository": "",
    }
    arguments = preflight(packages=given, engine=engine or {}, **(access or {}))
    found: dict[str, Any] = node.run(gaudi_preflight, arguments, scripted, check=check).result
    return found


def ids(found: dict[str, Any]) -> list[str]:
    return [problem["id"] for problem in found["problems"]]


@pytest.mark.report("E01")
def test_an_installation_that_removes_packages_of_others_is_a_problem(node: DebianNode) -> None:
    node.program("usr/bin/containerd", "containerd.io")
    found = judged(node, simulation=(0, REMOVES, ""))
    assert ids(found) == ["packages_removed"]
    assert "Installing docker.io would remove docker-ce, containerd.io" in found["report"]
    assert ids(judged(node)) == []


@pytest.mark.report("E01")
def test_docker_ce_of_others_is_a_finding(node: DebianNode) -> None:
    node.engine("docker-ce")
    found = judged(node)
    assert ids(found) == []
    assert [line for line in found["findings"] if "docker-ce" in line and "others installed" in line]


@pytest.mark.report("E01")
@pytest.mark.parametrize(("package", "ours"), [("docker.io", True), ("docker-ce", False)])
def test_settings_of_our_own_engine_are_not_judged_on_one_that_others_installed_instead(
    node: DebianNode, package: str, ours: bool
) -> None:
    (node.root / "brought.json").write_text('{"packages": {"engine": ["docker.io", "nftables"]}}')
    node.engine(package)
    info = (0, json.dumps({"ServerVersion": "24.0.7", "Swarm": {"LocalNodeState": "active"}}), "")
    found = judged(node, engine={"runtimes": {}}, info=info)
    # Only of an engine of this project live-restore would have been set.
    assert bool([line for line in found["findings"] if "live-restore" in line]) is ours


@pytest.mark.report("E04")
def test_a_snap_is_a_problem_and_its_configuration_none(node: DebianNode) -> None:
    snap(node)
    info = (0, json.dumps({"ServerVersion": "24.0.7", "LiveRestoreEnabled": False}), "")
    settings = {"log_options": {"max-size": "1m"}}
    assert ids(judged(node, engine=settings, info=info, ps=(0, "database\t\n", ""))) == ["engine_is_snap"]


def test_an_engine_that_is_not_managed_is_judged_beforehand(node: DebianNode) -> None:
    assert ids(judged(node, manage=False)) == ["engine_missing"]
    node.engine("docker-ce")
    assert ids(judged(node, manage=False)) == ["engine_not_running", "engine_lacks_packages"]


@pytest.mark.parametrize(
    ("private", "update", "problems", "foreseen"),
    [
        ((0, REMOVES, ""), (0, "", ""), ["packages_removed"], True),
        ((0, "Inst docker.io (20.10 x [amd64])\n", ""), (0, "", ""), [], True),
        ((100, "", NOTHING_OFFERED), (0, "", ""), ["packages_not_offered"], True),
        # A mirror that does not answer now may answer when the engine is installed.
        ((0, "", ""), (0, "", "W: Failed to fetch http://mirror/x\n"), [], False),
        ((0, "", ""), (100, "", "E: The repository 'x' is not signed.\n"), [], False),
    ],
)
def test_lists_that_were_never_read_are_read_into_a_private_folder(
    node: DebianNode, private: Answer, update: Answer, problems: list[str], foreseen: bool
) -> None:
    found = judged(node, simulation=(100, "", NOTHING_OFFERED), private=private, update=update)
    assert ids(found) == problems
    assert bool([line for line in found["findings"] if line.startswith("packages: ")]) is not foreseen


def sources(node: DebianNode, *lines: str) -> None:
    (node.root / "apt").mkdir(exist_ok=True)
    (node.root / "apt/sources.list").write_text("".join(f"deb {line} bookworm main\n" for line in lines))


def test_a_proxy_that_denies_is_found_before_packages_are_fetched_through_it(node: DebianNode) -> None:
    with serving(KeyServer) as port, proxy() as (address, site):
        sources(node, f"http://deb.example:{port}/debian", f"http://security.example:{port}/debian", "file:/mirror")
        refused = judged(node, access={"http_proxy": address.replace("reader", "stranger")})
        assert ids(refused) == ["repository_behind_proxy"]
        where = f"127.0.0.1:{address.rpartition(':')[2]}"
        for word in (f"The proxy {where} rejects its account (407).", "gaudi_http_proxy"):
            assert word in refused["report"]
        assert "p%40ss" not in json.dumps(refused) and "p@ss" not in json.dumps(refused)
        site.asked.clear()
        assert ids(judged(node, access={"http_proxy": address})) == []
        # Once, not for each repository.
        assert len(site.asked) == 1
        # Hosts that are reached without it.
        without = {"http_proxy": f"http://{where}", "no_proxy": ".example"}
        assert ids(judged(node, access=without)) == []
        # A server that denies or lacks something is not the proxy's fault.
        sources(node, f"http://deb.example:{port + 1 if port < 65535 else 1}/debian")
        assert ids(judged(node, access={"http_proxy": address})) == []


def test_a_proxy_is_asked_once_whatever_a_server_answers_and_without_accounts_of_the_node(
    node: DebianNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("default login me password stolen\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(RedirectingServer, "asked", [])
    sources(node, "http://deb.example/debian")
    with serving(RedirectingServer) as port:
        assert ids(judged(node, access={"http_proxy": f"http://127.0.0.1:{port}"})) == []
    assert RedirectingServer.asked == [("http://deb.example/debian", None)]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("", True),
        # As apt-config prints a proxy for another host alone.
        ('Acquire::http::Proxy "";\nAcquire::http::Proxy::near.example "DIRECT";\n', True),
        ('Acquire::http::Proxy "DIRECT";\n', False),
    ],
)
def test_a_proxy_that_is_not_there_is_found_beforehand(node: DebianNode, settings: str, found: bool) -> None:
    with serving(KeyServer) as port:
        closed = f"http://127.0.0.1:{port}"
    sources(node, "http://deb.example/debian")
    refused = judged(node, access={"http_proxy": closed}, settings=(0, settings, ""))
    assert ids(refused) == (["repository_behind_proxy"] if found else [])
    assert ("gaudi_http_proxy" in refused["report"]) is found


def kept_away(node: DebianNode, image: str, proxies: dict[str, str], no_proxy: str = "", **given: Any) -> str:
    """Return why the engine cannot pull an image that it lacks. no_proxy: the running engine's exceptions."""
    info = (0, json.dumps({"ServerVersion": "24.0.7", "NoProxy": no_proxy}), "")
    plans = [{**plan(node.root, 0), "image": image}]
    given = {"plans": plans, "engine_proxies": proxies, "alone": True, **given}
    found = judged(node, engine={"runtimes": {}}, info=info, access=given)
    return "".join(problem["message"] for problem in found["problems"] if problem["id"] == "image_behind_proxy")


def test_a_proxy_of_the_engine_is_asked_for_the_registry_of_a_missing_image(node: DebianNode) -> None:
    node.engine("docker-ce")
    image = "registry.example/vllm:1"
    with proxy() as (address, site):
        given = {"HTTPS_PROXY": address.replace("reader", "stranger")}
        said = kept_away(node, image, given)
        for part in ("(407)", "container_runtime_https_proxy", image):
            assert part in said
        assert len(site.asked) == 1
        assert kept_away(node, "hub-path/vllm:1", given) == ""
        assert kept_away(node, image, {**given, "NO_PROXY": ".example"}) == ""
        # An engine of others keeps its own exceptions if the site sets none.
        assert kept_away(node, image, given, "registry.example") == ""
        assert kept_away(node, image, given, image_built=True) == ""
        assert kept_away(node, image, {}) == ""
        assert len(site.asked) == 1


def test_a_node_that_lacks_no_package_asks_no_proxy(node: DebianNode) -> None:
    node.engine("docker.io")
    names = ("docker.io", "nftables", "apparmor", "docker-buildx")
    there = (0, "".join(f"{name} installed 1\n" for name in names), "")
    with proxy() as (address, site):
        sources(node, "http://deb.example/debian")
        access = {"http_proxy": address.replace("reader", "stranger")}
        for check in (False, True):
            assert ids(judged(node, access=access, show=there, check=check)) == []
        assert site.asked == []


BROKEN = (
    "Err:1 http://others.example/x stable InRelease\n"
    "  Could not connect to others.example:80 (127.0.0.1). - connect (111: Connection refused)\n"
)
CONFLICT = (
    "E: Conflicting values set for option Signed-By regarding source http://others.example/x/ stable: /a.asc != \n"
    "E: The list of sources could not be read.\n"
)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("printed", "problems"), [(BROKEN, []), (CONFLICT, ["sources_in_conflict"])])
def test_check_mode_names_what_apt_cannot_read_as_the_run_does(
    node: DebianNode, check: bool, printed: str, problems: list[str]
) -> None:
    sources(node, "http://others.example/x")
    found = judged(node, check=check, update=(100, printed, ""))
    assert ids(found) == (problems if check else [])
    named = [line for line in found["findings"] if "http://others.example/x stable" in line]
    assert bool(named) is (check and not problems)
