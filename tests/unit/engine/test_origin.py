"""Which engine a node has, who installed it, and whether instances can use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.engine import origin
from ansible.module_utils.gaudi.node import containers, engine_look

from library import container_runtime_info
from tests.unit.engine.test_packages import UBUNTU, UNIT, program
from tests.unit.preflight.conftest import Answer, Run
from tests.unit.preflight.test_contracts import load
from tests.unit.preflight.test_templates import ROLES, evaluate, results, runs

NO_UNIT = "ActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\nLoadState=not-found\nMainPID=0\n"
UNIX = "Num       RefCount Protocol Flags    Type St Inode Path\n"
LISTENS = UNIX + (
    "0000000000000000: 00000003 00000000 00000000 0001 03 7001 /run/docker.sock\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 7000 /run/docker.sock\n"
)
JOURNAL = "journalctl --unit=docker.service --lines=50 --no-pager --quiet --output=cat --identifier=dockerd"
# Of 20.10.24, at each of systemd's attempts.
LOG = 3 * (
    "unable to configure the Docker daemon with file /etc/docker/daemon.json: the following directives don't match any "
    "configuration option: bogus\n"
)
HABANA = "usr/bin/habana-container-runtime"


class DebianNode:
    """A Debian node with what a test puts there."""

    def __init__(self, root: Path, run: Run) -> None:
        self.root, self.run = root, run
        self.unit = NO_UNIT
        self.answers: dict[str, Answer] = {}
        self.owners: dict[str, str] = {}
        self.installed: dict[str, str] = {}
        (root / "os-release").write_text(UBUNTU)
        (root / "proc/net").mkdir(parents=True)
        program(root, HABANA)

    def program(self, name: str, owner: str = "") -> None:
        program(self.root, name)
        if owner:
            self.owners[f"/{name}"] = owner

    def process(self, pid: int, exe: str, unit: str, *, listens: bool = True, comm: str = "dockerd") -> None:
        """A process, which may hold the engine's socket."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
        (folder / "exe").symlink_to(exe)
        if listens:
            (folder / "fd" / "3").symlink_to("socket:[7000]")
            (self.root / "proc/net/unix").write_text(LISTENS)
            (self.root / "run").mkdir(exist_ok=True)
            if not (self.root / "run/docker.sock").is_symlink():
                (self.root / "run/docker.sock").touch()

    def engine(self, package: str, path: str = "usr/bin/dockerd") -> None:
        """A package with an engine whose unit is active."""
        self.program(path, package)
        self.program("usr/bin/docker", f"{package}-cli" if package == "docker-ce" else package)
        self.unit = UNIT.replace("/usr/sbin/dockerd", f"/{path}") + "MainPID=50\n"
        self.process(50, f"/{path}", "docker.service")

    def read(self, refuse: bool = False, **given: Any) -> dict[str, Any]:
        listed = [f"{name} installed {version}" for name, version in self.installed.items()]
        answers: dict[str, Answer] = {
            "/usr/local/bin/dockerd --version": (0, "Docker version 24.0.7, build 311b9ff\n", ""),
            "systemctl show docker.service": (0, self.unit, ""),
            "dpkg-query --search": (1, "".join(f"{name}: {path}\n" for path, name in self.owners.items()), ""),
            "dpkg-query --show": (1, "\n".join(line.rpartition(" ")[0] for line in listed), ""),
            "dpkg-query --show --showformat=${Package} ${db:Status-Status} ${Version}": (1, "\n".join(listed), ""),
            **self.answers,
        }
        arguments = {"habana_path": str(self.root / HABANA), "refuse": refuse, **given}
        return self.run(container_runtime_info, arguments, answers).result

    def origin(self) -> dict[str, Any]:
        found: dict[str, Any] = self.read()["origin"]
        return found


@pytest.fixture
def node(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> DebianNode:
    monkeypatch.setattr(containers, "DEVICES", tmp_path / "no cards")
    monkeypatch.setattr(container_runtime_info, "OS_RELEASE", tmp_path / "os-release")
    for name, path in (("ROOT", tmp_path), ("PROC", tmp_path / "proc"), ("BROUGHT", tmp_path / "brought.json")):
        monkeypatch.setattr(engine_look, name, path)
    monkeypatch.setattr("ansible.module_utils.gaudi.node.listening.PROC", tmp_path / "proc")
    return DebianNode(tmp_path, run)


@pytest.mark.report("E01")
@pytest.mark.parametrize(
    ("package", "path", "builder"),
    [
        ("docker-ce", "usr/bin/dockerd", "docker-buildx-plugin"),
        ("docker.io", "usr/sbin/dockerd", "docker-buildx"),
        ("moby-engine", "usr/bin/dockerd", "moby-buildx"),
    ],
)
def test_an_engine_that_others_installed_is_used(node: DebianNode, package: str, path: str, builder: str) -> None:
    node.engine(package, path)
    node.installed = {package: "5:28.0.1-1", "containerd.io": "1.7"}
    node.answers = {
        "/usr/bin/docker --version": (0, "Docker version 28.0.1, build x\n", ""),
        "/usr/bin/docker buildx version": (1, "", ""),
    }
    found = node.read(builds=True)
    assert {**found["origin"], "program": ""} == {
        "kind": package,
        "package": package,
        "version": "5:28.0.1-1",
        "program": "",
        "unit": "docker.service",
        "ours": False,
        "by_others": True,
        "suitable": True,
    }
    # None of an engine's packages, but what instances need beside it.
    assert (found["packages"], found["missing"]) == (["nftables", builder], ["nftables", builder])
    assert (found["engine"], found["unit_settled"]) == (True, True)
    # Not if the site names another engine's packages either.
    assert node.read(packages=["docker-ce", "containerd.io", "docker-ce-cli", "pigz"])["packages"] == [
        "pigz",
        "nftables",
    ]


def test_an_engine_that_this_project_installed_stays_as_it_is_managed(node: DebianNode) -> None:
    node.engine("docker.io", "usr/sbin/dockerd")
    (node.root / "brought.json").write_text(json.dumps({"packages": {"engine": ["docker.io", "runc"]}}))
    found = node.read()
    assert (found["origin"]["ours"], found["origin"]["by_others"]) == (True, False)
    assert found["packages"] == ["docker.io", "nftables"]


def test_an_engine_of_no_package_is_used_if_its_unit_runs_it(node: DebianNode) -> None:
    node.program("usr/local/bin/dockerd")
    node.program("usr/local/bin/docker")
    node.unit = UNIT.replace("/usr/sbin", "/usr/local/bin").replace("/lib/systemd", "/etc/systemd") + "MainPID=50\n"
    node.process(50, "/usr/local/bin/dockerd", "docker.service")
    found = node.read()
    assert found["origin"]["kind"] == "unpackaged"
    assert (found["origin"]["version"], found["origin"]["suitable"]) == ("24.0.7", True)
    assert (found["engine"], found["packages"]) == (True, ["nftables"])


@pytest.mark.parametrize(("wrapper", "owner"), [("usr/bin/env", "coreutils"), ("usr/local/bin/start-engine", "")])
def test_an_engine_that_a_wrapper_starts_is_the_one_of_its_package(node: DebianNode, wrapper: str, owner: str) -> None:
    node.engine("docker-ce")
    node.program(wrapper, owner)
    node.unit = node.unit.replace("path=/usr/bin/dockerd", f"path=/{wrapper}")
    node.installed = {"docker-ce": "5:28.0.1-1", "coreutils": "9.1-1"}
    found = node.origin()
    assert (found["kind"], found["suitable"], found["version"]) == ("docker-ce", True, "5:28.0.1-1")


def test_an_engine_of_others_gets_its_own_client(node: DebianNode) -> None:
    node.engine("moby-engine")
    (node.root / "usr/bin/docker").unlink()
    found = node.read()
    assert (found["origin"]["suitable"], found["missing"]) == (True, ["nftables", "moby-cli"])
    # Of an engine of no package, nobody knows which client belongs to it.
    node.owners.clear()
    node.answers = {"/usr/bin/dockerd --version": (0, "Docker version 24.0.7, build x\n", "")}
    assert node.read(refuse=True)["refused_id"] == "engine_without_client"


def test_a_unit_without_its_program_is_no_engine(node: DebianNode) -> None:
    node.unit = UNIT.replace("=active", "=failed")
    assert node.origin()["kind"] == "none"


def test_a_stopped_engine_is_suitable(node: DebianNode) -> None:
    node.program("usr/sbin/dockerd", "docker.io")
    node.unit = UNIT.replace("ActiveState=active", "ActiveState=inactive").replace("enabled", "disabled")
    found = node.read()
    assert (found["origin"]["kind"], found["origin"]["suitable"]) == ("docker.io", True)
    assert not found["unit_settled"]


@pytest.mark.parametrize("log", ["", LOG])
def test_an_engine_of_others_that_does_not_start_is_refused_with_its_message(node: DebianNode, log: str) -> None:
    node.program("usr/sbin/dockerd", "docker-ce")
    node.program("usr/bin/docker", "docker-ce-cli")
    node.unit = UNIT.replace("ActiveState=active", "ActiveState=failed")
    node.answers = {
        "journalctl --unit=docker.service": (0, "", ""),
        JOURNAL: (0, log, ""),
    }
    refused = node.read(refuse=True)
    assert refused["refused_id"] == "engine_does_not_start"
    assert "(docker-ce), which others installed, does not start" in refused["msg"]
    assert refused["msg"].count("match any configuration option: bogus") == (1 if log else 0)
    assert ("journalctl -u docker.service may show" in refused["msg"]) is not bool(log)
    # An engine of this project is started by the run.
    (node.root / "brought.json").write_text(json.dumps({"packages": {"engine": ["docker-ce"]}}))
    assert node.read(refuse=True)["origin"]["suitable"]


def test_errors_of_a_log_are_listed_once() -> None:
    first = 'time="2026-01-02T03:04:05.1Z" level=error msg="a"'
    again, other = first.replace("05.1", "09.7"), "failed to start daemon: b"
    normal = 'time="2026-01-02T03:04:06Z" level=info msg="c"'
    assert origin.errors_in("\n".join([first, other, normal, "", again, other])) == [again, other]


def test_an_engine_that_its_socket_starts_is_suitable(node: DebianNode) -> None:
    node.program("usr/sbin/dockerd", "docker.io")
    node.unit = UNIT.replace("ActiveState=active", "ActiveState=inactive") + "MainPID=0\n"
    node.process(1, "/usr/lib/systemd/systemd", "init.scope", comm="systemd")
    assert node.origin()["suitable"]


@pytest.mark.parametrize("unit", ["docker-ce", ""])
def test_an_engine_in_a_container_with_the_nodes_network_is_not_the_nodes(node: DebianNode, unit: str) -> None:
    if unit:
        node.engine(unit)
    node.process(90, "/usr/local/bin/dockerd", f"docker-{'0f' * 32}.scope", listens=False)
    (node.root / "proc/90/fd/3").symlink_to("socket:[6999]")
    others = LISTENS.replace(" 7000 ", " 6999 ").removeprefix(UNIX)
    table = node.root / "proc/net/unix"
    table.write_text(UNIX + others + (LISTENS.removeprefix(UNIX) if unit else ""))
    found = node.origin()
    assert (found["kind"], found.get("refused_id")) == (unit or "none", None)


def snap(node: DebianNode) -> None:
    node.program("usr/bin/snap", "snapd")
    (node.root / "snap/bin").mkdir(parents=True)
    (node.root / "snap/bin/docker").symlink_to("../../usr/bin/snap")


def snap_that_runs(node: DebianNode) -> None:
    snap(node)
    node.process(60, "/snap/docker/2963/bin/dockerd", "snap.docker.dockerd.service")


def snap_beside_a_package(node: DebianNode) -> None:
    node.engine("docker.io", "usr/sbin/dockerd")
    (node.root / "proc/50/fd/3").unlink()
    node.process(60, "/snap/docker/2963/bin/dockerd", "snap.docker.dockerd.service")


def podman(node: DebianNode) -> None:
    node.program("usr/bin/docker", "podman-docker")


def podman_on_the_socket(node: DebianNode) -> None:
    (node.root / "run/podman").mkdir(parents=True)
    (node.root / "run/podman/podman.sock").touch()
    (node.root / "run/docker.sock").symlink_to("podman/podman.sock")
    node.process(1, "/usr/lib/systemd/systemd", "init.scope", comm="systemd")


def rootless(node: DebianNode) -> None:
    node.process(1000, "/home/x/bin/dockerd", "user.slice", listens=False)


def rootless_instead(node: DebianNode) -> None:
    node.engine("docker-ce")
    node.unit = node.unit.replace("=active", "=inactive").replace("=enabled", "=disabled").replace("=50", "=0")
    (node.root / "proc/net/unix").unlink()
    rootless(node)


def masked(node: DebianNode) -> None:
    node.program("usr/bin/dockerd", "docker-ce")
    node.unit = "ActiveState=inactive\nUnitFileState=masked\nLoadState=masked\nFragmentPath=/dev/null\n"


def no_unit(node: DebianNode) -> None:
    node.program("usr/local/bin/dockerd")


def by_hand(node: DebianNode) -> None:
    node.program("usr/sbin/dockerd", "docker.io")
    node.unit = UNIT.replace("ActiveState=active", "ActiveState=failed") + "MainPID=0\n"
    node.process(70, "/opt/engine/dockerd", "session-4.scope")


def elsewhere(node: DebianNode) -> None:
    node.engine("docker-ce")
    (node.root / "run/docker.sock").unlink()
    (node.root / "proc/net/unix").write_text(UNIX)


@pytest.mark.report("E04")
@pytest.mark.parametrize(
    ("prepare", "kind", "id", "words"),
    [
        (snap, "snap", "engine_is_snap", "snap remove docker"),
        (snap_that_runs, "snap", "engine_is_snap", "snap remove docker"),
        (snap_beside_a_package, "snap", "engine_is_snap", "snap remove docker"),
        (podman, "podman", "engine_is_podman", "podman-docker"),
        (podman_on_the_socket, "podman", "engine_is_podman", "podman-docker"),
        (rootless, "rootless", "engine_is_rootless", "systemctl enable --now docker.service"),
        (rootless_instead, "rootless", "engine_is_rootless", "systemctl enable --now docker.service"),
        (masked, "docker-ce", "engine_masked", "systemctl unmask docker.service"),
        (no_unit, "unpackaged", "engine_without_unit", "/usr/local/bin/dockerd"),
        (by_hand, "other", "engine_of_other_unit", "/opt/engine/dockerd"),
        (elsewhere, "docker-ce", "engine_not_on_socket", "/run/docker.sock"),
    ],
)
def test_an_unsuitable_engine_is_refused_by_name(
    node: DebianNode, monkeypatch: pytest.MonkeyPatch, prepare: Any, kind: str, id: str, words: str
) -> None:
    # Of processes that are files of a test, all belong to one user.
    monkeypatch.setattr(engine_look, "_rootless", lambda: ["x"] if prepare in (rootless, rootless_instead) else [])
    prepare(node)
    found = node.origin()
    assert (found["kind"], found["suitable"], found["refused_id"]) == (kind, False, id)
    assert words in found["refused"]
    refused = node.read(refuse=True)
    assert (refused["failed"], refused["refused_id"], refused["msg"]) == (True, id, found["refused"])


@pytest.mark.parametrize(
    ("kubelet", "kind"), [(True, "kubernetes"), (False, "containerd")], ids=["Kubernetes", "containerd"]
)
def test_containerd_alone_is_no_engine(node: DebianNode, kubelet: bool, kind: str) -> None:
    node.program("usr/bin/containerd", "containerd.io")
    if kubelet:
        node.program("usr/bin/kubelet", "kubelet")
    found = node.origin()
    assert (found["kind"], found["package"], found["by_others"], found["suitable"]) == (
        kind,
        "containerd.io",
        False,
        False,
    )
    assert "refused" not in found


def test_a_bare_node_has_no_engine(node: DebianNode) -> None:
    found = node.read(refuse=True)
    assert (found["origin"]["kind"], found["origin"]["by_others"]) == ("none", False)
    assert found["packages"] == ["docker.io", "nftables"]


def managed_by_others(node: DebianNode, info: Answer | None = None, **given: Any) -> dict[str, Any]:
    habana = {"path": str(node.root / HABANA), "runtimeArgs": []}
    ready = json.dumps({"ServerVersion": "28.0.1", "Runtimes": {"habana": habana}})
    node.answers = {"/usr/bin/docker info": info or (0, ready, "")}
    return node.read(refuse=True, manage=False, **given)


def test_an_engine_that_is_not_managed_only_has_to_be_ready(node: DebianNode) -> None:
    node.engine("docker-ce")
    node.installed = {"docker-ce": "5:28.0.1-1", "nftables": "1"}
    assert managed_by_others(node)["origin"]["suitable"]


@pytest.mark.parametrize(
    ("info", "ids"),
    [
        ((1, "", "Cannot connect"), ["engine_not_running", "systemctl start docker.service", "nftables"]),
        (
            (0, '{"ServerVersion": "28.0.1", "Runtimes": {"runc": {}}}', ""),
            ["engine_lacks_runtime", "habana", "systemctl reload docker.service", "nftables"],
        ),
        (
            (0, '{"ServerVersion": "28.0.1", "Runtimes": {"habana": {"path": "/opt/habana"}}}', ""),
            ["engine_lacks_runtime", "/opt/habana", "nftables"],
        ),
        (
            (0, '{"ServerVersion": "19.03.15", "Runtimes": {}}', ""),
            ["engine_too_old", "19.03.15", "habana", "nftables"],
        ),
    ],
)
def test_what_an_engine_that_is_not_managed_lacks_is_refused_at_once(
    node: DebianNode, info: Answer, ids: list[str]
) -> None:
    node.engine("docker-ce")
    node.installed = {"docker-ce": "5:28.0.1-1"}
    refused = managed_by_others(node, info)
    id, *words = ids
    assert refused["refused_id"] == id
    assert [word for word in words if word not in refused["msg"]] == []


def test_an_engine_that_is_not_managed_and_missing_or_unsuitable_is_refused(node: DebianNode) -> None:
    missing = managed_by_others(node)
    assert (missing["refused_id"], "container_runtime_manage" in missing["msg"]) == ("engine_missing", True)
    snap(node)
    assert managed_by_others(node)["refused_id"] == "engine_is_snap"


def test_an_old_engine_of_others_is_refused(node: DebianNode) -> None:
    node.engine("docker-ce")
    node.installed = {"docker-ce": "5:19.03.15~3-0~ubuntu"}
    assert node.read(refuse=True)["refused_id"] == "engine_too_old"


@pytest.mark.parametrize(
    ("found", "follows", "file"),
    [
        ({"proved": True}, False, None),
        ({"proved": False}, False, "prove.yml"),
        ({"proved": False}, True, None),
        ({"proved": True, "unit_settled": False}, False, None),
    ],
)
def test_of_an_engine_that_is_not_managed_only_the_cards_are_proved(
    found: dict[str, Any], follows: bool, file: str | None
) -> None:
    *_, last = load(ROLES / "container_runtime/tasks/main.yml")
    given = {
        "container_runtime_manage": False,
        "container_runtime_habana_follows": follows,
        # The tasks with the other two were skipped.
        **results(
            "container_runtime",
            container_runtime_info={"engine": True, "unit_settled": True, **found},
            docker_daemon_json={"skipped": True},
            node_files={"skipped": True},
        ),
    }
    named = evaluate("container_runtime", last["ansible.builtin.include_tasks"]["file"], **given)
    assert (named if runs("container_runtime", last, **given) else None) == file


def test_tasks_that_change_the_engine_are_skipped_where_it_is_not_managed() -> None:
    _, install, configure, _ = load(ROLES / "container_runtime/tasks/main.yml")
    for task in (install, configure):
        assert not runs("container_runtime", task, container_runtime_manage=False)


@pytest.mark.parametrize(
    ("by_others", "ours", "came"),
    [
        (False, ["docker.io", "runc", "nftables"], True),
        # Beside an engine of others, only what instances need came with this project.
        (True, ["nftables"], False),
        # Others replaced the engine since.
        (True, ["docker.io", "nftables"], False),
    ],
)
def test_a_removal_takes_the_files_of_an_engine_that_came_with_this_project_alone(
    by_others: bool, ours: list[str], came: bool
) -> None:
    tasks = [task for name in ("look", "remove") for task in load(ROLES / f"container_runtime/tasks/{name}.yml")]
    proxy = "/etc/systemd/system/docker.service.d/gaudi-serving-proxy.env"
    restart = "systemctl restart docker, with what it ends"
    answers = {
        "brought_packages": {"ours": ours, "stays": [], "kept": ["runc, which podman needs"]},
        "container_runtime_info": {
            "origin": {"by_others": by_others, "package": "docker-ce", "program": ""},
            "restart": restart,
        },
        "ansible.builtin.find": {"files": [], "matched": 0},
        "docker_daemon_json": {
            "copies": [],
            "stays": ["/opt/daemon.json, unchanged"],
            "environment": ["HTTPS_PROXY"],
        }
        if by_others
        else {},
        "node_files": {"written": [proxy]},
    }
    given = {
        task["register"]: answer
        for task in tasks
        for module, answer in answers.items()
        if module in task and "register" in task
    }

    def value(module: str, key: str) -> Any:
        (task,) = (task for task in tasks if module in task)
        return evaluate("container_runtime", task[key] if key in task else task[module][key], **given)

    files = {file["path"]: file["state"] for file in value("node_files", "files")}
    assert files[proxy] == "absent"
    assert ("/etc/docker/daemon.json" in files) is came
    stays = value("ansible.builtin.debug", "loop")
    for name in ("docker-ce", "/opt/daemon.json", "the proxy of this site"):
        assert bool([line for line in stays if line.startswith(name)]) is by_others, name
    # Who restarts an engine of others must know what that ends.
    assert bool([line for line in stays if restart in line]) is by_others
    assert "runc, which podman needs" in stays
    (group,) = (task for task in tasks if "ansible.builtin.group" in task)
    assert evaluate("container_runtime", f"{{{{ {group['when']} }}}}", **given) is came


@pytest.mark.parametrize(
    ("version", "removes"), [("5:28.0.1-1~debian.12~bookworm", False), ("20.10.24+dfsg1-1+deb12u1", True), ("", True)]
)
def test_what_a_restart_ends_is_known_by_the_engines_version(node: DebianNode, version: str, removes: bool) -> None:
    node.engine("docker-ce")
    node.installed = {"docker-ce": version} if version else {}
    said = node.read()["restart"]
    assert "without live-restore" in said
    assert ("--rm" in said) is removes


@pytest.mark.parametrize(
    ("keys", "survives", "ends"),
    [
        (["log-driver", "log-opts"], True, "(running containers survive)"),
        (
            ["live-restore", "runtimes"],
            True,
            "(live-restore is turned on first, so running containers survive)",
        ),
        (["log-driver", "log-opts"], False, "(no running container of others ends)"),
        (["live-restore", "runtimes"], False, "(no running container of others ends)"),
    ],
)
def test_a_restart_of_the_engine_says_in_its_name_what_becomes_of_containers(
    keys: list[str], survives: bool, ends: str
) -> None:
    block = load(ROLES / "container_runtime/tasks/apply.yml")[0]["block"]
    (name,) = (task["name"] for task in block if "Restart the engine" in task["name"])
    given = {"container_runtime_daemon": {"keys": keys, "survives": survives}}
    said = f"apply | Restart the engine for {', '.join(keys)} {ends}"
    assert evaluate("container_runtime", name, **given) == said


def test_packages_beside_the_engine_are_named_where_they_are_installed() -> None:
    tasks = load(ROLES / "container_runtime/tasks/engine.yml")
    names = [task["name"] for task in tasks if {"ansible.builtin.apt", "ansible.builtin.dnf"} & task.keys()]
    found = results("container_runtime", container_runtime_info={"packages": ["nftables", "iptables"]})
    for system, name in zip(("Debian, Ubuntu", "RHEL"), names, strict=True):
        said = f"engine | Ensure these packages are installed ({system}): nftables, iptables"
        assert evaluate("container_runtime", name, **found) == said


def test_rpm_is_asked_for_each_file() -> None:
    (query,) = origin.owners_queries("RedHat", ["/usr/bin/dockerd"])
    assert query[:3] == ["rpm", "--query", "--file"]
    assert origin.owners(query, "docker-ce\n") == {"/usr/bin/dockerd": "docker-ce"}
    assert origin.owners(query, "file /usr/bin/dockerd is not owned by any package\n") == {}


def test_a_file_of_two_packages_and_a_diverted_one_have_an_owner() -> None:
    listed = "diversion by x from: /usr/bin/docker\ndocker.io:amd64, other: /usr/bin/docker\n"
    assert origin.owners(["dpkg-query"], listed) == {"/usr/bin/docker": "docker.io"}
