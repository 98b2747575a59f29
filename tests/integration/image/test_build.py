"""The program that builds, against a stand-in for the engine's client that notes what it was asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gaudi.base.refusal import Refusal
from gaudi_image.build import DOCKERFILE, write_context
from gaudi_image.request import load

from filter_plugins.image_recipes import image_addresses, image_recipes
from tests import compiled
from tests.unit.image.made import document
from tests.unit.node.damages import FOR_PROGRAMS, damage
from tests.unit.preflight.test_templates import render

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "tests/unit/image/recorded"
BASE = "vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1"
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64

# What the stand-in does is in a file: by the first words of a command, its status, its lines, and what is there then.
DOCKER = """#!{python} -ES
import json, os, re, sys, time
from pathlib import Path
place = Path({folder!r})
words = re.sub(r" --name \\S+ --log-driver none --pull never", "", " ".join(sys.argv[1:]))
with (place / "asked").open("a") as asked:
    asked.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
answers = json.loads((place / "answers.json").read_text())
there = json.loads((place / "there.json").read_text())
if words.startswith("image rm") and sys.argv[-1] in there:
    del there[sys.argv[-1]]
    (place / "there.json").write_text(json.dumps(there))
    sys.exit(0)
if words.startswith("image rm"):
    print(f"Error: No such image: {{sys.argv[-1]}}", file=sys.stderr)
    sys.exit("--force" not in sys.argv)
if words.startswith("image inspect"):
    image = sys.argv[-1]
    if image not in there:
        print("[]")
        print(f"Error: No such image: {{image}}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps([there[image]]))
    sys.exit(0)
for beginning, (status, text, now) in sorted(answers.items(), key=lambda answer: -len(answer[0])):
    if (words + " ").startswith(beginning + " "):
        print(text, flush=True)
        if "--interactive" in beginning:
            (place / "given").write_text(sys.stdin.read())
        if beginning == "build" and "sleep" in text:
            time.sleep(60)
        if beginning == "build":
            context = Path(sys.argv[-1])
            found = [path for path in sorted(context.rglob("*")) if path.is_file()]
            files = {{str(path.relative_to(context)): [path.read_text(), path.stat().st_mode] for path in found}}
            (place / "context.json").write_text(json.dumps(files, sort_keys=True))
        if status == 0 and now:
            there.update(now)
            (place / "there.json").write_text(json.dumps(there))
        sys.exit(status)
sys.exit(9)
"""


# Habana's, as 1.22 calls it.
TORCH = "2.7.1+hpu_1.22.2-32.git4c5b0a1"


def listed(version: str) -> str:
    """What pip lists in a base image, with the vendor's software of a version."""
    return json.dumps([{"name": "habana_torch_plugin", "version": version}, {"name": "torch", "version": TORCH}])


# What the program that looks into an image finds.
FOUND: dict[str, Any] = {
    "packages": {"torch": TORCH, "vllm": "0.9.0.2+g4cd8c0613", "ray": "2.40", "pip": "24"},
    "programs": [],
    "pillow": None,
    "vllm": None,
    "rejected": {},
    "python": "3.10.12",
    "os": ["ubuntu", "22.04"],
    "system": {"kind": "deb", "packages": [["numactl", "2.0.14-3", "amd64"]]},
    "checkouts": [],
    "torch": TORCH,
    "torch_import": None,
}
# How the second build begins, which only adds labels.
LABELLING = "build --progress=plain --network=none"


class BuildNode:
    """A folder that stands for a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        client = folder / "bin" / "docker"
        client.parent.mkdir()
        client.write_text(DOCKER.format(python=sys.executable, folder=str(folder)))
        client.chmod(0o755)
        (self.recipe,) = image_recipes([{"requires": {"image": ["numactl"]}}], document(), {})
        self.reference = str(self.recipe["reference"])
        self.whole = f"{self.reference}-unlabelled"
        self.base = str(self.recipe["base"])
        self.there: dict[str, Any] = {}
        self.answers: dict[str, Any] = {
            "version": (0, "20.10.24", {}),
            "info": (0, str(folder), {}),
            "pull": (0, "abc: Pulling fs layer\nabc: Pull complete", {self.base: self.image(NEW)}),
            f"pull {self.reference}": (1, "manifest unknown: manifest unknown", {}),
            "build": (0, "#5 [1/3] FROM x\n#5 CACHED\n#6 [2/3] RUN y\n#6 DONE 1s", {self.whole: self.image(None)}),
            LABELLING: (0, "#3 [1/1] FROM x\n#3 DONE 0s", {self.reference: self.image(None)}),
            "push": (0, "pushed", {}),
            "run": (0, listed("1.22.2.32"), {}),
            "run --rm --interactive": (0, "gaudi-image " + json.dumps(FOUND), {}),
        }

    @staticmethod
    def image(digest: str | None) -> dict[str, Any]:
        """What the engine says of one."""
        return {"Id": "sha256:id", "RepoDigests": [f"{BASE}@{digest}"] if digest else []}

    def request(self, **changes: object) -> Path:
        """Write what is wished, with addresses that hold passwords."""
        said = {
            "git_mirrors": {"https://github.com/": "https://git.example.com/"},
            "git_accounts": [{"address": "https://git.example.com/", "username": "me", "password": "hidden-git"}],
            "python_indexes": ["https://me:hidden-pip@index.example.com/simple"],
            "apt_sources": "",
            "apt_key": "",
        }
        files = [file for file in image_addresses(said, str(self.folder)) if "secret" in file]
        for file in files:
            Path(file["path"]).write_text(file["secret"])
        content = {
            **self.recipe,
            "accept_moved_base": False,
            "secrets": {Path(file["path"]).name: file["path"] for file in files},
            "hosts": {},
            "network": "default",
            "proxies": {"HTTP_PROXY": "http://me:hidden-proxy@proxy:3128"},
            "room_bytes": 1,
            "push": False,
            "docker_config": "",
            **changes,
        }
        path = self.folder / "request.json"
        path.write_text(json.dumps(content))
        return path

    def start(self, **changes: object) -> subprocess.Popen[str]:
        """Begin to build."""
        (self.folder / "answers.json").write_text(json.dumps(self.answers))
        (self.folder / "there.json").write_text(json.dumps(self.there))
        (self.folder / "asked").write_text("")
        search = os.pathsep.join([str(ROOT / "module_utils"), str(ROOT / "roles/serving_image/files")])
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": search,
            **compiled.SETTINGS,
            "GAUDI_JOB_PROGRESS": str(self.folder / "progress.json"),
            "GAUDI_JOB_RESULT": str(self.folder / "result.json"),
        }
        record = self.folder / "images.json"
        program = f"import gaudi_image.build, pathlib, sys; gaudi_image.build.RECORD = pathlib.Path({str(record)!r})"
        program += "; from gaudi_image.__main__ import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "build", str(self.request(**changes))]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def build(self, **changes: object) -> tuple[int, str]:
        """Build to the end: status and what was printed."""
        work = self.start(**changes)
        printed, _ = work.communicate(timeout=300)
        return work.returncode, printed

    @property
    def asked(self) -> list[list[str]]:
        """The commands, in order."""
        return [json.loads(line)[0] for line in (self.folder / "asked").read_text().splitlines()]

    @property
    def words(self) -> list[str]:
        """The first word of each command that does something."""
        return [words[0] for words in self.asked if words[0] in ("pull", "build", "push")]

    @property
    def result(self) -> dict[str, Any]:
        """What the job is told."""
        content: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return content


@pytest.fixture
def node(tmp_path: Path) -> BuildNode:
    return BuildNode(tmp_path)


def built_before(node: BuildNode, digest: str) -> None:
    labels = {"gaudi-serving.image.base": node.recipe["base_name"], "gaudi-serving.image.base-digest": digest}
    record = {"schema": 1, "images": {"gaudi-serving/vllm:1.22-other": {"id": "x", "built": labels}}}
    (node.folder / "images.json").write_text(json.dumps(record))


def test_it_pulls_the_base_and_builds_on_its_digest(node: BuildNode) -> None:
    status, printed = node.build()
    assert status == 0, printed
    assert node.words == ["pull", "build", "build"]
    command = next(words for words in node.asked if words[0] == "build")
    assert f"--label=gaudi-serving.image.base-digest={NEW}" in command
    assert f"--tag={node.whole}" in command
    assert "--network=default" in command
    assert f"--build-arg=BASE={BASE}@{NEW}" in command
    assert node.result["reference"] == node.reference


def test_its_progress_says_which_step_it_is_at_and_since_when(node: BuildNode) -> None:
    begun = time.time()
    assert node.build()[0] == 0
    progress = json.loads((node.folder / "progress.json").read_text())
    assert begun < progress.pop("began") < time.time()
    assert progress == {"phase": "build: the labels with versions"}
    node.there.clear()
    node.answers["run --rm --interactive"] = (1, "", {})
    node.answers["build"] = (1, node.answers["build"][1], {})
    assert node.build()[0] == 1
    progress = json.loads((node.folder / "progress.json").read_text())
    assert begun < progress.pop("began") < time.time()
    assert progress == {"phase": "build: packages of the system", "done": 1, "total": 11, "unit": "steps"}


def test_labels_say_the_versions_that_are_found_in_the_whole_image(node: BuildNode) -> None:
    status, printed = node.build()
    assert status == 0, printed
    (command,) = [words for words in node.asked if " ".join(words).startswith(LABELLING)]
    labels = [word.removeprefix("--label=") for word in command if word.startswith("--label=")]
    assert labels == [
        f"gaudi-serving.image.version.{said}"
        for said in ("numactl=2.0.14-3", "python=3.10.12", "ray=2.40", f"torch={TORCH}", "vllm=0.9.0.2+g4cd8c0613")
    ]
    assert f"--tag={node.reference}" in command
    assert not [word for word in command if word.startswith(("--secret", "--build-arg", "--add-host"))]
    asked = json.loads((node.folder / "given").read_text())
    assert (asked["arguments"], asked["server"]) == ({}, False)
    look = next(words for words in node.asked if words[0] == "run" and "--interactive" in words)
    assert {"--read-only", "HABANA_VISIBLE_DEVICES=none", "OMP_NUM_THREADS=1", node.whole} <= set(look)
    # Of the two names the build leaves one.
    assert ["image", "rm", node.whole] in node.asked
    assert set(json.loads((node.folder / "there.json").read_text())) == {node.base, node.reference}


def test_both_containers_that_look_into_an_image_are_limited_and_removed(node: BuildNode) -> None:
    status, printed = node.build()
    assert status == 0, printed
    looks = [" ".join(words) for words in node.asked if words[0] == "run"]
    assert len(looks) == 2
    for look in looks:
        for wall in (
            *("--runtime runc", "--network none", "--cap-drop ALL", "--security-opt no-new-privileges", "--read-only"),
            *("--memory 16g", "--pids-limit 256", "--ulimit core=0:0", "--log-driver none"),
            "--pull never",
        ):
            assert f" {wall} " in look
        name = look.partition(" --name ")[2].split()[0]
        assert [words for words in node.asked if words[0] == "rm"] == [["rm", "--force", "--volumes", name]] * 4


@pytest.mark.parametrize(
    ("change", "id_"),
    [
        ({"run --rm --interactive": (137, "", {})}, "image_silent"),
        ({LABELLING: (1, "#3 ERROR: nobody knows why", {})}, "build_failed"),
        ({"build": (1, "#6 1.0 OSError: No space left on device", {})}, "disk-full"),
    ],
)
def test_an_image_without_its_labels_has_no_name(node: BuildNode, change: dict[str, Any], id_: str) -> None:
    """Until the image is whole it has none; the next run, with all of it in Docker's cache, gives it."""
    sound = dict(node.answers)
    node.answers.update(change)
    assert node.build()[0] == 1
    assert node.result["refused_id"] == id_
    assert set(json.loads((node.folder / "there.json").read_text())) == {node.base}
    node.answers = sound
    assert node.build()[0] == 0
    assert node.result["reference"] == node.reference


REPLACED = """\
#6 [2/12] RUN --mount=type=bind y
#6 70.1   Attempting uninstall: torch
#6 70.2     Found existing installation: torch {before}
#6 70.3       Successfully uninstalled torch-{before}
#6 71.0 Successfully installed accelerate-1.14.0 torch-2.12.1+cu130 triton-3.5.0
#6 DONE 72s"""


@pytest.mark.parametrize("printed", [REPLACED.format(before=TORCH), "#6 [2/12] RUN y\n#6 CACHED"])
def test_an_image_whose_pytorch_was_replaced_gets_no_name(node: BuildNode, printed: str) -> None:
    cuda = "2.12.1+cu130"
    words = f"AssertionError: Current PyTorch version {cuda} is detected as neither HPU fork nor CPU upstream."
    found = {**FOUND, "packages": {**FOUND["packages"], "torch": cuda}, "torch": cuda, "torch_import": words}
    node.answers["run --rm --interactive"] = (0, "gaudi-image " + json.dumps(found), {})
    node.answers["build"] = (0, printed, node.answers["build"][2])
    assert node.build()[0] == 1
    assert node.result["refused_id"] == "pytorch_not_habanas"
    said = node.result["refused"]
    assert f"holds PyTorch {cuda}, which does not support Gaudi cards; {TORCH}, that of its base image," in said
    step = f"The step packages of the system replaced {TORCH} with accelerate-1.14.0."
    assert (step in said) is ("Successfully installed" in printed)
    assert set(json.loads((node.folder / "there.json").read_text())) == {node.base}
    assert json.loads((node.folder / "given").read_text())["pytorch"] is True


def test_an_import_that_fails_for_want_of_a_card_does_not_fail_a_build(node: BuildNode) -> None:
    for words, status in (("RuntimeError: synDeviceAcquire failed", 0), ("ImportError: undefined symbol: _ZN3c10", 1)):
        found = {**FOUND, "torch_import": words}
        node.answers["run --rm --interactive"] = (0, "gaudi-image " + json.dumps(found), {})
        done, printed = node.build()
        assert done == status
        if status:
            assert node.result["refused_id"] == "pytorch_not_importable"
            assert words in node.result["refused"]
        else:
            assert words in printed
            node.there.clear()


def test_what_a_build_that_was_killed_left_is_taken_up(node: BuildNode) -> None:
    node.there[node.whole] = node.image(None)
    assert node.build()[0] == 0
    assert set(json.loads((node.folder / "there.json").read_text())) == {node.base, node.reference}


def test_a_base_that_was_loaded_has_no_digest_of_a_registry(node: BuildNode) -> None:
    node.there[node.base] = node.image(None)
    node.answers["pull"] = (1, "no route to host", {})
    assert node.build()[0] == 0
    command = next(words for words in node.asked if words[0] == "build")
    assert f"--build-arg=BASE={node.base}" in command


def test_a_base_that_is_up_to_date_is_built_on_by_its_digest(node: BuildNode) -> None:
    """What the engine prints of the vendor's image that it has: no layer is pulled."""
    printed = (RECORDED / "docker_pull_digest_1.24.1.txt").read_text(encoding="utf-8")
    (digest,) = [line.partition(": ")[2] for line in printed.splitlines() if line.startswith("Digest: ")]
    node.answers["pull"] = (0, printed, {node.base: node.image(digest)})
    assert node.build()[0] == 0
    command = next(words for words in node.asked if words[0] == "build")
    assert f"--build-arg=BASE={BASE}@{digest}" in command


def test_an_image_that_is_there_is_not_built_again(node: BuildNode) -> None:
    node.there[node.reference] = node.image(None)
    assert node.build()[0] == 0
    assert node.words == []


def test_passwords_are_no_arguments_and_are_not_printed(node: BuildNode) -> None:
    node.answers["build"] = (0, "#6 1.0 Looking in indexes: https://me:hidden-pip@index.example.com/simple", {})
    _, printed = node.build()
    assert "hidden" not in printed
    assert "https://***@index.example.com" in printed
    assert "hidden" not in json.dumps(node.asked)
    assert "hidden" not in (node.folder / "context.json").read_text()
    environments = [json.loads(line)[1] for line in (node.folder / "asked").read_text().splitlines()]
    assert [said.get("HTTP_PROXY") for said in environments].count("http://me:hidden-proxy@proxy:3128") == 1
    command = next(words for words in node.asked if words[0] == "build")
    assert [word for word in command if word.startswith("id=")] == [
        f"id={name},src={node.folder}/{name}" for name in ("git", "pip")
    ]


def test_certificates_are_a_secret_of_each_step_and_change_nothing_else(node: BuildNode) -> None:
    """Neither what is built from, nor its name, nor an argument has them."""
    (node.folder / "ca.crt").write_text("the site's certificate")
    assert node.build(secrets={"ca": str(node.folder / "ca.crt")})[0] == 0
    command = next(words for words in node.asked if words[0] == "build")
    assert [word for word in command if word.startswith("id=")] == [f"id=ca,src={node.folder}/ca.crt"]
    assert any(word.startswith(f"--tag={node.reference}") for word in command)
    assert "the site's certificate" not in (node.folder / "context.json").read_text()
    write_context(load(node.request(secrets={"ca": str(node.folder / "ca.crt")})), node.folder)
    text = (node.folder / DOCKERFILE).read_text()
    mount = "--mount=type=secret,id=ca,mode=0444 \\\n    "
    assert text.count(mount) == node.recipe["dockerfile"].count("RUN ") > 0
    assert text.replace(mount, "") == node.recipe["dockerfile"]


def test_a_proxy_that_lets_nothing_through_is_named_without_its_password(node: BuildNode) -> None:
    node.answers["build"] = (1, "#6 1.0 WARNING: ... broken by 'ProxyError('Cannot connect to proxy.', x)': /x/", {})
    status, printed = node.build()
    assert (status, node.result["refused_id"]) == (1, "proxy-unreachable")
    assert "(http://***@proxy:3128: Cannot connect to proxy)" in node.result["refused"]
    assert "hidden" not in printed + json.dumps(node.result)


def test_the_same_recipe_gives_docker_the_same_context(node: BuildNode) -> None:
    node.build()
    first = (node.folder / "context.json").read_text()
    node.build()
    assert (node.folder / "context.json").read_text() == first
    files = json.loads(first)
    assert {"steps.sh", "gaudi_build.py", "cards/hl-smi", "gaudi/image/requirements.py"} <= {
        name.removeprefix("programs/") for name in files
    }
    assert files["programs/cards/hl-smi"][1] & 0o111


def test_what_differs_between_images_is_seen_by_no_step_that_does_not_need_it(node: BuildNode) -> None:
    """Docker's cache knows a step by all that it sees: with the labels among it, no two images would share a step."""
    node.build()
    first = json.loads((node.folder / "context.json").read_text())
    (other,) = image_recipes(
        [{"requires": {"image": ["numactl", "audio"]}}], document(), {"constraints": ["transformers==4.57.0"]}
    )
    assert other["dockerfile"] != node.recipe["dockerfile"]
    node.build(**{key: other[key] for key in ("dockerfile", "constraints", "titles")})
    second = json.loads((node.folder / "context.json").read_text())
    assert {name for name in second if second[name] != first.get(name)} == {"packages/constraints.txt"}
    assert set(first) == set(second)
    command = next(words for words in node.asked if words[0] == "build")
    (file,) = [word.removeprefix("--file=") for word in command if word.startswith("--file=")]
    assert not file.startswith(command[-1])


def test_the_context_has_all_that_its_program_imports(node: BuildNode) -> None:
    """The library of the node is not in a build."""
    node.build()
    context = node.folder / "seen"
    for name, (content, _) in json.loads((node.folder / "context.json").read_text()).items():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(content)
    (node.folder / "hpu.txt").write_text("ray\n")
    command = [sys.executable, "-S", "-m", "gaudi_build", str(node.folder / "hpu.txt")]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(context / "programs")},
        cwd=context / "programs",
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("change", "id_", "words"),
    [
        (
            lambda node: node.answers.update(version=(0, "28.2.2", {}), buildx=(1, "", {})),
            "no_buildkit",
            "docker-buildx",
        ),
        (lambda node: node.answers.update(pull=(1, "manifest unknown", {})), "base_not_found", "manifest unknown"),
        (
            lambda node: node.answers.update(pull=(1, (RECORDED / "docker_pull_timeout_29.1.3.txt").read_text(), {})),
            "base_not_found",
            "i/o timeout The registry does not answer the engine.",
        ),
        (lambda node: built_before(node, OLD), "base_moved", f"{NEW}; images here were built on {OLD}"),
        (
            lambda node: node.answers.update(build=(1, "#6 1.0 OSError: No space left on device", {})),
            "disk-full",
            "Make room",
        ),
        (lambda node: node.answers.update(info=(1, "", {})), "engine_silent", "systemctl status docker"),
        (
            lambda node: node.answers.update(run=(0, listed("1.21.3.57"), {})),
            "base_of_other_release",
            "holds habana-torch-plugin 1.21.3.57, where it is 1.22.2.32 in release 1.22",
        ),
        (lambda node: node.answers.update(run=(127, "python3: not found", {})), "base_silent", "python3: not found"),
    ],
)
def test_what_goes_wrong_is_a_refusal(
    node: BuildNode, change: Callable[[BuildNode], None], id_: str, words: str
) -> None:
    change(node)
    status, printed = node.build()
    assert status == 1
    assert node.result["refused_id"] == id_, printed
    assert words in node.result["refused"]
    assert printed.strip().endswith(node.result["refused"])


def test_nothing_is_built_on_a_base_of_another_release(node: BuildNode) -> None:
    node.answers["run"] = (0, listed("1.21.3.57"), {})
    assert node.build()[0] == 1
    assert node.words == ["pull"]
    command = next(words for words in node.asked if words[0] == "run")
    assert " --runtime runc --network none --cap-drop ALL " in " ".join(command)
    assert f"{BASE}@{NEW}" in command


def test_a_client_with_the_plugin_builds(node: BuildNode) -> None:
    node.answers.update(version=(0, "28.2.2", {}), buildx=(0, "v0.20", {}))
    assert node.build()[0] == 0


def test_room_is_looked_for_before_anything_begins(node: BuildNode) -> None:
    status, _ = node.build(room_bytes=1 << 60)
    assert (status, node.result["refused_id"], node.words) == (1, "no_room", [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_mirror_on_the_nodes_loopback_is_refused_before_anything_begins(node: BuildNode, host: str) -> None:
    status, _ = node.build(hosts={"10.0.0.9": "x", host: "serving_image_git_mirrors"})
    assert (status, node.result["refused_id"], node.words) == (1, "mirror_on_loopback", [])
    assert f"from {host} (in serving_image_git_mirrors" in node.result["refused"]
    assert node.build(hosts={host: "serving_image_git_mirrors"}, network="host")[0] == 0
    assert "--network=host" in next(words for words in node.asked if words[0] == "build")


def test_a_moved_base_is_taken_where_the_site_accepts_it(node: BuildNode) -> None:
    built_before(node, OLD)
    assert node.build(accept_moved_base=True)[0] == 0


def test_the_same_base_as_before_is_taken(node: BuildNode) -> None:
    built_before(node, NEW)
    assert node.build()[0] == 0


def test_another_digest_than_the_pinned_one_is_refused(node: BuildNode) -> None:
    status, _ = node.build(base_digest=OLD, accept_moved_base=True)
    assert (status, node.result["refused_id"], node.words) == (1, "base_differs", ["pull"])


def test_without_a_registry_the_base_that_is_there_is_built_on(node: BuildNode) -> None:
    node.answers["pull"] = (1, "connection refused", {})
    node.there[node.base] = {"Id": "sha256:loaded", "RepoDigests": []}
    status, printed = node.build()
    assert status == 0
    assert "The registry does not answer" in printed
    command = next(words for words in node.asked if words[0] == "build")
    assert "--label=gaudi-serving.image.base-digest=sha256:loaded" in command


def test_a_built_image_is_pushed_where_the_site_says_so(node: BuildNode) -> None:
    status, printed = node.build(push=True)
    assert status == 0
    assert node.words == ["pull", "pull", "build", "build", "push"]
    assert f"The registry gives no {node.reference} (manifest unknown: manifest unknown); building it." in printed
    node.answers["push"] = (1, "denied: requested access to the resource is denied", {})
    assert node.build(push=True)[0] == 1
    assert node.result["refused_id"] == "push_refused"
    assert "denied: requested access" in node.result["refused"]


def test_what_another_node_pushed_is_pulled_and_not_built(node: BuildNode) -> None:
    node.answers[f"pull {node.reference}"] = (0, "abc: Pull complete", {node.reference: node.image(None)})
    assert node.build(push=True, room_bytes=1 << 60)[0] == 0
    assert node.words == ["pull"]
    assert node.result == {**node.result, "reference": node.reference, "id": "sha256:id"}


def test_without_pushing_no_registry_is_asked_for_the_image(node: BuildNode) -> None:
    assert node.build()[0] == 0
    assert ["pull", node.reference] not in node.asked


def test_a_stop_ends_the_build(node: BuildNode) -> None:
    node.answers["build"] = (0, "sleep", {})
    work = node.start()
    for line in work.stdout or ():
        if line.strip() == "sleep":
            break
    work.send_signal(signal.SIGTERM)
    printed, _ = work.communicate(timeout=300)
    assert work.returncode == 130
    assert "goes on from there" in printed


def test_a_request_that_cannot_be_read_is_said(node: BuildNode) -> None:
    node.request()
    work = node.start()
    work.communicate(timeout=300)
    (node.folder / "request.json").write_text("{")
    search = os.pathsep.join([str(ROOT / "module_utils"), str(ROOT / "roles/serving_image/files")])
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_image", "build", str(node.folder / "request.json")],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": search, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert "is damaged" in done.stderr


@pytest.mark.parametrize("kind", FOR_PROGRAMS)
def test_a_damaged_request_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    damage(path, kind)
    with pytest.raises(Refusal) as refused:
        load(path)
    assert refused.value.id == "request_unreadable"
    assert str(refused.value).startswith(f"{path} is damaged: it ")


def test_the_program_reads_what_the_role_writes(tmp_path: Path) -> None:
    (recipe,) = image_recipes([], document(), {})
    site = {
        "gaudi_image_registry": "vault.habana.ai",
        "serving_image_git_mirrors": {"https://github.com/": "https://git.example.com/"},
        "serving_image_pins": {"vllm_fork": {"repository": "http://forks.example.com/x", "commit": "a" * 40}},
        "serving_image_http_proxy": "proxy:3128",
    }
    for network, said in (("default", {}), ("host", {"serving_image_build_network": "host"})):
        request = tmp_path / "request.json"
        request.write_text(render("serving_image", "request.json.j2", item=recipe, **site, **said))
        read = load(request)
        assert (read.reference, read.network) == (recipe["reference"], network)
        assert read.hosts == {
            "forks.example.com": "serving_image_pins",
            "git.example.com": "serving_image_git_mirrors",
            "proxy": "serving_image_http_proxy",
        }
