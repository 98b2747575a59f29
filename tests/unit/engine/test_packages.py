"""What a node has of an engine, and when the roles leave a settled node alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.engine import packages
from ansible.module_utils.gaudi.node import containers, engine_look

from library import container_runtime_info, docker_daemon_json, serving_image
from tests.integration.preflight.test_secrets import walk
from tests.unit.preflight.conftest import Answer, Run
from tests.unit.preflight.test_contracts import load
from tests.unit.preflight.test_modules import DIGEST, IMAGE, WISHES, docker_info
from tests.unit.preflight.test_templates import ROLES, evaluate, results, runs, task_of

UNIT = (
    "ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\nLoadState=loaded\n"
    "ExecStart={ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// ; ignore_errors=no }\n"
    "FragmentPath=/lib/systemd/system/docker.service\n"
)
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nID=ubuntu\nID_LIKE=debian\n'


@pytest.mark.parametrize(
    ("os_release", "family"),
    [
        (UBUNTU, "Debian"),
        ("ID=debian\n", "Debian"),
        ('ID="rhel"\nID_LIKE="fedora"\n', "RedHat"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "RedHat"),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "Debian"),
        ("ID=sles\nID_LIKE=suse\n", ""),
        ("", ""),
    ],
)
def test_the_family_of_a_system(os_release: str, family: str) -> None:
    assert packages.family_of(os_release) == family


def test_the_parser_of_apparmor_comes_where_the_kernel_has_it_on() -> None:
    assert packages.engine_packages("Debian", apparmor=True) == ["docker.io", "apparmor", "nftables"]
    assert packages.engine_packages("Debian", apparmor=False) == ["docker.io", "nftables"]
    assert packages.engine_packages("RedHat", apparmor=True) == [
        "docker-ce",
        "docker-ce-cli",
        "containerd.io",
        "nftables",
    ]
    assert packages.engine_packages("", apparmor=True) == []


DEBIAN_13 = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\nDEBIAN_VERSION_FULL=13.8\n'


@pytest.mark.parametrize(
    ("os_release", "client"),
    [
        (DEBIAN_13, "docker-cli"),
        ('VERSION_ID="12"\nID=debian\n', ""),
        ("ID=debian\n", ""),
        (UBUNTU, ""),
        ('ID=ubuntu\nVERSION_ID="24.04"\n', ""),
        ('ID="rhel"\nVERSION_ID="13.1"\n', ""),
    ],
)
def test_the_client_of_docker_io_is_a_package_of_its_own_from_debian_13_on(os_release: str, client: str) -> None:
    assert packages.client_of(os_release) == client


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ([], ["docker.io", "docker-cli", "nftables"]),
        (["docker.io=26.1.5+dfsg1-9"], ["docker.io=26.1.5+dfsg1-9", "docker-cli", "nftables"]),
        (["docker-ce", "docker-ce-cli"], ["docker-ce", "docker-ce-cli", "nftables"]),
    ],
)
def test_the_client_comes_with_docker_io_alone(requested: list[str], expected: list[str]) -> None:
    assert packages.engine_packages("Debian", False, requested, client="docker-cli") == expected


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Ubuntu with AppArmor, an engine and the vendor's runtime."""
    (tmp_path / "os-release").write_text(UBUNTU)
    apparmor = tmp_path / "sys/module/apparmor/parameters/enabled"
    apparmor.parent.mkdir(parents=True)
    apparmor.write_text("Y\n")
    program(tmp_path, "usr/bin/docker")
    program(tmp_path, "usr/sbin/dockerd")
    program(tmp_path, "habana")
    program(tmp_path, "run/docker.sock")
    monkeypatch.setattr(containers, "DEVICES", tmp_path / "no cards")
    monkeypatch.setattr(container_runtime_info, "OS_RELEASE", tmp_path / "os-release")
    for name, path in (("ROOT", tmp_path), ("PROC", tmp_path / "proc"), ("BROUGHT", tmp_path / "brought.json")):
        monkeypatch.setattr(engine_look, name, path)
    # This project has installed the engine.
    (tmp_path / "brought.json").write_text('{"packages": {"engine": ["docker-ce", "docker.io"]}}')
    return tmp_path


def program(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("")
    (root / name).chmod(0o755)


def look(run: Run, node: Path, listed: str, unit: str = UNIT, **given: Any) -> dict[str, Any]:
    answers: dict[str, Answer] = {
        "dpkg-query": (0, listed, ""),
        "dpkg-query --search": (0, "docker.io: /usr/sbin/dockerd\n", ""),
        "systemctl show docker.service": (0, unit, ""),
    }
    return run(container_runtime_info, {"habana_path": str(node / "habana"), **given}, answers).result


def test_a_settled_node_lacks_nothing(run: Run, node: Path) -> None:
    found = look(run, node, "docker.io installed\napparmor installed\nnftables installed\n")
    assert (found["family"], found["packages"], found["missing"]) == (
        "Debian",
        ["docker.io", "apparmor", "nftables"],
        [],
    )
    assert (found["engine"], found["unit_settled"], found["habana"]) == (True, True, True)


def test_debian_13_lacks_the_client_of_an_engine_without_recommendations(run: Run, node: Path) -> None:
    (node / "os-release").write_text(DEBIAN_13)
    assert look(run, node, "docker.io installed\nnftables installed\napparmor installed\n")["missing"] == ["docker-cli"]


@pytest.mark.parametrize(("engine", "missing"), [("docker.io", ["docker-cli"]), ("docker-ce", [])])
def test_an_engine_of_others_gets_a_client_only_where_it_has_none(
    run: Run, node: Path, engine: str, missing: list[str]
) -> None:
    (node / "os-release").write_text(DEBIAN_13)
    (node / "brought.json").unlink()
    answers: dict[str, Answer] = {
        "dpkg-query": (0, f"{engine} installed\nnftables installed\napparmor installed\n", ""),
        "dpkg-query --search": (0, f"{engine}: /usr/sbin/dockerd\n", ""),
        "systemctl show docker.service": (0, UNIT, ""),
    }
    found = run(container_runtime_info, {"habana_path": str(node / "habana")}, answers).result
    assert (found["origin"]["by_others"], found["missing"]) == (True, missing)


def test_what_is_missing_is_named(run: Run, node: Path) -> None:
    (node / "usr/bin/docker").unlink()
    (node / "habana").chmod(0o644)
    found = look(run, node, "apparmor config-files\n", UNIT.replace("enabled", "disabled"))
    assert found["missing"] == ["docker.io", "apparmor", "nftables"]
    assert (found["engine"], found["unit_settled"], found["habana"]) == (False, False, False)


def test_packages_of_the_inventory_are_those_looked_for(run: Run, node: Path) -> None:
    found = look(run, node, "docker-ce installed\n", packages=["docker-ce", "docker-ce-cli"])
    assert (found["packages"], found["missing"]) == (
        ["docker-ce", "docker-ce-cli", "nftables"],
        ["docker-ce-cli", "nftables"],
    )


@pytest.mark.parametrize(
    ("names", "client", "plugin", "package"),
    [
        (["docker.io"], "Docker version 20.10.24+dfsg1, build 297e128", False, ""),
        (["docker.io"], "Docker version 28.2.2, build e6534b4", False, "docker-buildx"),
        (["docker.io"], "Docker version 23.0.1, build x", True, ""),
        (["docker-ce", "docker-ce-cli"], "Docker version 29.1.5, build x", False, "docker-buildx-plugin"),
        (["docker.io"], "", False, ""),
    ],
)
def test_a_client_builds_with_a_plugin_since_23(names: list[str], client: str, plugin: bool, package: str) -> None:
    assert packages.builder_package(names, client, plugin) == package


@pytest.mark.parametrize(("plugin", "missing"), [(1, ["docker-buildx"]), (0, [])])
def test_where_images_are_built_the_builder_is_looked_for(
    run: Run, node: Path, plugin: int, missing: list[str]
) -> None:
    answers: dict[str, Answer] = {
        "dpkg-query": (0, "docker.io installed\napparmor installed\nnftables installed\n", ""),
        "dpkg-query --search": (0, "docker.io: /usr/sbin/dockerd\n", ""),
        "systemctl show docker.service": (0, UNIT, ""),
        "/usr/bin/docker --version": (0, "Docker version 28.2.2, build e6534b4\n", ""),
        "/usr/bin/docker buildx version": (plugin, "", ""),
    }
    found = run(container_runtime_info, {"habana_path": str(node / "habana"), "builds": True}, answers).result
    assert found["missing"] == missing
    # A node on which nothing is built is not asked.
    assert look(run, node, "docker.io installed\napparmor installed\nnftables installed\n")["missing"] == []


def test_a_node_without_a_client_is_asked_again_when_it_has_one(run: Run, node: Path) -> None:
    (node / "usr/bin/docker").unlink()
    assert look(run, node, "", builds=True)["missing"] == ["docker.io", "apparmor", "nftables"]
    *_, last = load(ROLES / "container_runtime/tasks/install.yml")
    assert last["ansible.builtin.include_tasks"]["file"] == "engine.yml"
    found = results("container_runtime", container_runtime_info={"missing": ["docker-buildx"]})
    assert runs("container_runtime", last, **found, ansible_check_mode=False)


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/serve.yml", "playbooks/build_image.yml"])
def test_whoever_builds_says_so_to_the_engine(playbook: str) -> None:
    text = (ROLES.parent / playbook).read_text(encoding="utf-8")
    said = re.findall(r"container_runtime_builds: (.*)", text)
    assert said == (["true"] if "build_image" in playbook else ['"{{ serving_image_build | default(false) }}"'])


def test_rpm_is_asked_on_the_other_family(run: Run, node: Path) -> None:
    (node / "os-release").write_text('ID="rhel"\n')
    answers: dict[str, Answer] = {
        "rpm --query": (
            1,
            "docker-ce installed 26-1.el9\npackage containerd.io is not installed\npackage nftables is not installed\n",
            "",
        ),
        "rpm --query --file": (0, "docker-ce\n", ""),
        "systemctl show docker.service": (0, UNIT, ""),
    }
    found = run(container_runtime_info, {"habana_path": str(node / "habana")}, answers).result
    assert (found["family"], found["missing"]) == ("RedHat", ["docker-ce-cli", "containerd.io", "nftables"])


def test_documented_options_are_the_real_ones() -> None:
    options = yaml.safe_load(container_runtime_info.DOCUMENTATION)["options"]
    documented = {
        name: {key: said for key, said in option.items() if key != "description"} for name, option in options.items()
    }
    assert documented == container_runtime_info.ARGUMENT_SPEC


FOUND = {"family": "Debian", "packages": ["docker.io"], "missing": [], "engine": True, "unit_settled": True}
FOUND["habana"] = FOUND["proved"] = True
DAEMON = {"answers": True, "apply": "nothing"}


def settled(**answers: Any) -> dict[str, Any]:
    """What the modules of the role container_runtime answer on a settled node, but for what is given."""
    known = {"container_runtime_info": FOUND, "docker_daemon_json": DAEMON, "node_files": {"written": []}}
    return results("container_runtime", **{**known, **answers})


@pytest.mark.parametrize(
    ("found", "repository", "lacks"),
    [
        ({}, "", False),
        ({}, "https://vault.habana.ai/artifactory/debian", True),
        ({"missing": ["docker.io"]}, "", True),
        ({"engine": False}, "", True),
        ({"habana": False}, "", True),
        ({"family": "RedHat"}, "", True),
    ],
)
def test_a_node_that_lacks_nothing_installs_nothing(found: dict[str, Any], repository: str, lacks: bool) -> None:
    given = settled(container_runtime_info={**FOUND, **found})
    installs = task_of("container_runtime", "main", "what is missing is installed")
    assert runs("container_runtime", installs, **given, container_runtime_habana_repository=repository) is lacks


@pytest.mark.parametrize(
    ("habana", "changed", "reads"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_an_index_that_a_run_wrote_and_did_not_read_is_read_by_the_next(
    habana: bool, changed: bool, reads: bool
) -> None:
    """Where it was written just now, it was read just now; where nothing is taken of it, nobody needs it."""
    written = task_of("container_runtime", "vendor_source", "Write the package index (Debian")["register"]
    given = {
        **settled(container_runtime_info={**FOUND, "habana": habana}),
        written: {"changed": changed},
        "ansible_facts": {"os_family": "Debian"},
        "ansible_check_mode": False,
    }
    assert runs("container_runtime", task_of("container_runtime", "habana", "apt_update"), **given) is reads


@pytest.mark.parametrize(
    ("given", "unsettled"),
    [
        ({}, False),
        ({"container_runtime_info": {**FOUND, "engine": False}}, True),
        ({"container_runtime_info": {**FOUND, "unit_settled": False}}, True),
        ({"docker_daemon_json": {**DAEMON, "apply": "reload"}}, True),
        # An engine that cannot be asked has taken up nothing.
        ({"docker_daemon_json": {**DAEMON, "answers": False}}, True),
        ({"node_files": {"written": ["/proxy.conf"]}}, True),
        # The engine reads a registry's certificate at each pull.
        ({"node_files": {"written": ["/etc/docker/certs.d/r.example/gaudi-serving.crt"]}}, False),
    ],
)
def test_an_engine_that_runs_as_its_files_say_is_left_alone(given: dict[str, Any], unsettled: bool) -> None:
    takes_up = task_of("container_runtime", "main", "Have the engine take it up")
    assert runs("container_runtime", takes_up, **settled(**given)) is unsettled


def test_the_proxies_file_is_secret_and_goes_with_the_proxies() -> None:
    path = "/etc/systemd/system/docker.service.d/gaudi-serving-proxy.conf"
    secret = path.replace(".conf", ".env")
    gone = [{"path": path, "state": "absent"}, {"path": secret, "state": "absent"}]

    def files(**given: Any) -> Any:
        written = task_of("container_runtime", "configure", "node_files")["node_files"]["files"]
        return evaluate("container_runtime", written, **settled(), **given, container_runtime_certificate_registries=[])

    assert files() == gone
    folder, values, file = files(container_runtime_http_proxy="http://u:p@proxy:3128")
    assert folder == {"path": path.rpartition("/")[0], "state": "directory", "mode": "0755"}
    assert (values["path"], values["mode"], "content" in values) == (secret, "0600", False)
    assert "HTTP_PROXY=http://u:p@proxy:3128\n" in values["secret"]
    assert (file["path"], "u:p@" in file["secret"], "content" in file) == (path, False, False)


def test_the_credentials_file_is_secret_and_goes_with_the_account() -> None:
    def files(**given: Any) -> Any:
        written = task_of("serving_image", "credentials", "node_files")["node_files"]["files"]
        return evaluate("serving_image", written, gaudi_image_registry="r.example", **given)

    etc = {"path": "/etc/gaudi-serving", "state": "directory", "mode": "0755"}
    assert files() == [etc, {"path": "/etc/gaudi-serving/registry", "state": "absent"}]
    first, folder, file = files(serving_image_username="puller", serving_image_password="x" * 8)
    assert (first, folder["mode"]) == (etc, "0700")
    assert (file["path"], file["mode"], "content" in file) == (
        "/etc/gaudi-serving/registry/config.json",
        "0600",
        False,
    )
    assert '"auth"' in file["secret"]


@pytest.mark.parametrize(
    ("result", "lacking", "unforeseen"),
    [
        ({"current": True, "foreseen": True}, [], False),
        ({"current": False, "foreseen": True}, [IMAGE], False),
        ({"current": False, "foreseen": False}, [IMAGE], True),
    ],
)
def test_images_that_are_as_they_should_be_are_left_alone(
    result: dict[str, bool], lacking: list[str], unforeseen: bool
) -> None:
    found = task_of("serving_image", "look", "serving_image")["register"]
    given = {
        found: {"results": [{**result, "item": IMAGE, "unpinned": []}]},
        "ansible_check_mode": True,
        "inventory_hostname": "n1",
    }
    assert evaluate("serving_image", task_of("serving_image", "pull", "serving_image")["loop"], **given) == lacking
    said = evaluate("serving_image", task_of("serving_image", "say", "Say what would pin")["loop"], **given)
    assert bool(said) is unforeseen
    assert not unforeseen or "there is no engine on n1 yet" in said[0]


def test_check_mode_without_an_engine_foresees_nothing_of_an_image(run: Run, record: Path) -> None:
    ran = run(serving_image, {"image": IMAGE, "record": str(record), "digest": DIGEST}, {}, check=True)
    assert (ran["foreseen"], ran["current"]) == (False, False)


def test_an_engine_that_answers_is_told_from_one_that_does_not(run: Run, tmp_path: Path) -> None:
    arguments = {**WISHES, "path": str(tmp_path / "daemon.json")}
    assert run(docker_daemon_json, arguments, docker_info())["answers"] is True
    assert run(docker_daemon_json, arguments, {"docker info": (1, "", "Cannot connect")})["answers"] is False


def test_no_play_of_the_site_gathers_facts() -> None:
    """Seconds of every node, in every run; a role that installs something asks for the few it needs."""
    plays = load(ROLES.parent / "site.yml") + load(ROLES.parent / "playbooks/serve.yml")
    assert [play["name"] for play in plays if play.get("gather_facts") is not False] == []
    (first, *_) = load(ROLES / "container_runtime/tasks/install.yml")
    assert first["ansible.builtin.setup"] == {"gather_subset": ["!all", "!min", "distribution", "pkg_mgr"]}


# Tasks of a run that changes nothing, done and skipped, as its recap counts them; benchmarks/site.py measures it.
MOST_TASKS = 43


def counted(tasks: list[dict[str, Any]], folder: Path) -> list[str]:
    """What a settled node with one instance counts: nothing is included there but the role of the instance."""
    found: list[str] = []
    for task in tasks:
        role = task.get("ansible.builtin.import_role")
        if task.get("loop") == "{{ plans_served }}":
            role = task["ansible.builtin.include_role"]
            found.append(f"{folder.parent.name}: {task['name']}")
        if role is not None:
            place = ROLES / role["name"] / "tasks"
            found += counted(load(place / f"{role.get('tasks_from', 'main').replace('.yml', '')}.yml"), place)
        elif "ansible.builtin.import_tasks" in task:
            found += counted(load(folder / task["ansible.builtin.import_tasks"]), folder)
        elif task.get("ansible.builtin.meta") == "end_role":
            break
        elif "block" in task:
            found += counted(task["block"], folder)
        else:
            found.append(f"{folder.parent.name}: {task['name']}")
    return found


def test_a_run_that_changes_nothing_has_few_tasks() -> None:
    plays = [play for play in load(ROLES.parent / "site.yml") if play["hosts"] == "gaudi_nodes"]
    found = [name for play in plays for name in counted(play["tasks"], ROLES.parent)]
    assert len(found) <= MOST_TASKS, "\n".join(found)
    assert "vllm_service: verify | Look at the container, and ask the instance" in found


def test_a_node_that_no_other_gives_weights_needs_no_rsync() -> None:
    for alone in (True, False):
        assert ("rsync" in packages.of_fetches("Debian", "/usr/bin/python3", ["huggingface"], alone=alone)) is not alone


def test_no_task_prints_the_environment_of_the_engines_unit() -> None:
    """The account of a proxy may be in it, and systemd_service returns all properties of a unit."""
    found = [
        task
        for path in sorted(ROLES.glob("*/tasks/*.yml"))
        for task in walk(load(path), {})
        if (task.get("ansible.builtin.systemd_service") or {}).get("name") == "docker.service"
    ]
    assert found and all(task.get("no_log") is True for task in found)
