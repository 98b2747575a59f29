"""The modules that list and remove weights, and what role and program have to agree on."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from ansible.module_utils.gaudi.node import folders
from ansible.module_utils.gaudi.node import weight_folders as weights_folders
from ansible.module_utils.gaudi.weights import record as weights
from ansible.module_utils.gaudi.weights.table import table
from ansible.module_utils.testing import patch_module_args
from ansible.utils.display import Display

from filter_plugins.weight_folders import weight_folders
from plugin_utils import releases
from tests.unit.preflight.test_templates import evaluate, results, runs, task_of
from tests.unit.weights.reports import reporting

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/model_weights"


def run_main(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a module answers, whether it ends well or not."""
    output = io.StringIO()
    with patch_module_args(dict(arguments)), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        importlib.import_module(name).main()
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the node keeps its plans."""
    folder = tmp_path / "instances"
    for function in (weights_folders.users, weights_folders.describe, weights_folders.look):
        defaults = function.__defaults__ or ()
        monkeypatch.setattr(function, "__defaults__", (*defaults[:-1], folder))
    monkeypatch.setattr(weights_folders, "PLANS", folder)
    return folder


@pytest.fixture
def root(tmp_path: Path, plans: Path) -> Path:
    """A weights root with a whole model, a fetch that was interrupted, and a folder of somebody's own."""
    root = tmp_path / "models"
    whole = root / "Whole-7B"
    (whole / weights.FOLDER).mkdir(parents=True)
    (whole / "a.safetensors").write_bytes(b"abc")
    (whole / "config.json").write_bytes(b"{}")
    entries = (weights.RecordedFile("a.safetensors", 3, "0" * 64), weights.RecordedFile("config.json", 2, "1" * 64))
    record = weights.Manifest("hub", "maker/Whole-7B", "2" * 40, "2026-01-31T08:00:00Z", entries)
    (whole / weights.MANIFEST).write_text(record.render())
    (root / "Part-7B.partial" / weights.FOLDER).mkdir(parents=True)
    (root / "Part-7B.partial/a.safetensors").write_bytes(b"ab")
    (root / "Made-7B-G2" / weights.FOLDER).mkdir(parents=True)
    (root / "Made-7B-G2" / weights.FOLDER / "fp8.json").write_text("{}")
    (root / "Mine").mkdir()
    (root / "Mine/precious").write_bytes(b"x" * 7)
    (root / "a-file").write_bytes(b"")
    (root / "a-link").symlink_to("Whole-7B")
    return root


def report(root: Path, **more: Any) -> Any:
    """The part of the node's report, as playbooks read it."""
    return weight_folders(run_main("node_report", {"parts": ["weight_folders"], "weights_root": str(root), **more}))


def look(root: Path) -> dict[str, dict[str, Any]]:
    return {folder["directory"]: folder for folder in report(root)["folders"]}


def use(plans: Path, path: str, name: str = "chat") -> None:
    """Have an instance's plan mount a path."""
    (plans / name).mkdir(parents=True)
    plan = {"container": {"mounts": [{"source": path}]}, "requires": {"weights_path": path}}
    (plans / name / "plan.json").write_text(json.dumps(plan))


def test_each_folder_is_called_what_it_is(root: Path) -> None:
    found = look(root)
    assert {name: (folder["status"], folder["bytes"]) for name, folder in found.items()} == {
        "Made-7B-G2": ("converted", 2),
        "Mine": ("unknown", 7),
        "Part-7B.partial": ("unfinished", 2),
        "Whole-7B": ("whole", 5),
    }
    assert found["Whole-7B"]["revision"] == "2" * 40


@pytest.mark.parametrize("content", [None, b"ab", b"abcd"])
def test_a_missing_or_short_file_makes_it_incomplete(root: Path, content: bytes | None) -> None:
    file = root / "Whole-7B/a.safetensors"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert (look(root)["Whole-7B"]["status"], look(root)["Whole-7B"]["wrong"]) == ("incomplete", ["a.safetensors"])


def test_what_a_verification_found_counts(root: Path) -> None:
    note = {"verified": "2026-02-28T08:00:00Z", "wrong": ["config.json"]}
    (root / "Whole-7B" / weights.VERIFIED).write_text(json.dumps(note))
    found = look(root)["Whole-7B"]
    assert (found["status"], found["wrong"], found["verified"]) == (
        "incomplete",
        ["config.json"],
        "2026-02-28T08:00:00Z",
    )


def test_what_another_node_wrote_is_asked_for_before_it_is_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, note = root / "Whole-7B", root.parent / "note"
    note.write_text(json.dumps({"verified": "2026-02-28T08:00:00Z", "wrong": ["config.json"]}))
    published = folder.rename(root.parent / "published")

    # As NFS does: before it is asked for what is in a folder, it knows nothing of what others put there.
    def revalidate_directory(*folders: Path) -> None:
        if root in folders:
            published.rename(folder)
        if folder / weights.FOLDER in folders:
            note.rename(folder / weights.VERIFIED)

    monkeypatch.setattr(folders, "revalidate_directory", revalidate_directory)
    answer = report(root, weight_folders=["Whole-7B"])
    assert [(found["status"], found["wrong"]) for found in answer["folders"]] == [("incomplete", ["config.json"])]


def test_to_ask_for_folders_that_are_not_there_is_no_fault(root: Path) -> None:
    folders.revalidate_directory(root, root / "none", root / "a-file")


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1}'])
def test_a_record_that_cannot_be_read_is_damage(root: Path, text: str) -> None:
    (root / "Whole-7B" / weights.MANIFEST).write_text(text)
    assert look(root)["Whole-7B"]["status"] == "damaged"


def test_a_record_that_names_files_elsewhere_is_refused() -> None:
    record = weights.Manifest("hub", "a/b", "c", "d", (weights.RecordedFile("../../etc/shadow", 1, ""),))
    with pytest.raises(ValueError, match="leaves the folder"):
        weights.parse(record.render())


def test_a_record_survives_being_written(root: Path) -> None:
    text = (root / "Whole-7B" / weights.MANIFEST).read_text()
    assert weights.parse(text).render() == text


def test_the_table_names_who_uses_what(root: Path, plans: Path) -> None:
    use(plans, str(root / "Whole-7B"))
    lines = table(report(root)["folders"])
    size = look(root)["Whole-7B"]["bytes"]
    assert f"Whole-7B  {size} B  whole  used by chat" in lines
    assert [line for line in lines if line.startswith("Mine  ") and line.endswith(" B  unknown  used by nobody")]


def test_a_root_that_is_not_there_has_no_weights(tmp_path: Path) -> None:
    folders = report(tmp_path / "none")["folders"]
    assert (folders, table(folders)) == ([], ["no weights"])


class TestRemove:
    """Removing weights."""

    def remove(self, root: Path, name: str, check: bool = False) -> dict[str, Any]:
        return run_main("model_weights_remove", {"root": str(root), "directory": name, "_ansible_check_mode": check})

    @pytest.mark.parametrize("name", ["Whole-7B", "Part-7B.partial", "Made-7B-G2"])
    def test_what_nothing_uses_goes(self, root: Path, name: str) -> None:
        before = {path.name for path in root.iterdir()}
        assert self.remove(root, name, check=True)["changed"]
        assert {path.name for path in root.iterdir()} == before
        assert self.remove(root, name)["changed"]
        assert {path.name for path in root.iterdir()} == before - {name}
        assert not self.remove(root, name)["changed"]

    @pytest.mark.parametrize("below", ["", "/subfolder"])
    def test_what_an_instance_uses_stays(self, root: Path, plans: Path, below: str) -> None:
        use(plans, str(root / "Whole-7B") + below)
        assert "is used by chat" in self.remove(root, "Whole-7B")["msg"]
        assert (root / "Whole-7B/a.safetensors").exists()

    def test_a_name_that_only_begins_alike_is_no_use(self, root: Path, plans: Path) -> None:
        use(plans, str(root / "Whole-7B-Chat"))
        assert self.remove(root, "Whole-7B")["changed"]

    def test_somebodys_own_stays(self, root: Path) -> None:
        assert "somebody's own" in self.remove(root, "Mine")["msg"]
        assert (root / "Mine/precious").exists()

    def test_what_is_being_fetched_stays(self, root: Path) -> None:
        with (root / "Part-7B.partial" / weights.LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "is being fetched" in self.remove(root, "Part-7B.partial")["msg"]

    @pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../models/Whole-7B", "/etc"])
    def test_only_names_of_folders_are_taken(self, root: Path, name: str) -> None:
        assert self.remove(root, name)["failed"]

    def test_a_link_is_not_followed(self, root: Path) -> None:
        assert not self.remove(root, "a-link")["changed"]
        assert (root / "Whole-7B/a.safetensors").exists()


class TestRole:
    """What role and program have to agree on."""

    INSTALLED = task_of("model_weights", "program", "node_files")["node_files"]["files"]
    SOURCES: ClassVar = [
        {"name": "site", "endpoint": "https://mirror.example.com/", "token": "hf_secret"},
        {"name": "huggingface", "endpoint": "https://huggingface.co", "proxy": "http://proxy.example.com:3128"},
        {"name": "modelscope", "kind": "modelscope", "endpoint": "https://www.modelscope.cn"},
        {"name": "forge", "kind": "git", "endpoint": "https://git.example.com", "user": "reader", "token": "glpat"},
    ]
    GIVEN: ClassVar = {
        "gaudi_weights_root": "/data/models",
        "model_weights_directory": "Qwen3-8B",
        "model_weights_repository": "Qwen/Qwen3-8B",
    }

    def test_the_whole_program_is_installed(self) -> None:
        installed = {file["path"]: file for file in self.template(self.INSTALLED)}
        place = "/usr/local/lib/gaudi-serving/gaudi_weights"
        for path in (ROLE / "files/gaudi_weights").glob("*.py"):
            assert installed.pop(f"{place}/{path.name}")["content"] == path.read_text()
        assert installed.pop(place)["state"] == "directory"
        assert {path: file["state"] for path, file in installed.items()} == {
            f"{place}/{name}": "absent" for name in ("SHA256SUMS", "folders.py", "record.py", "units.py")
        }

    def test_what_an_earlier_release_left_is_taken_over(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its modules were links in the checkout and files on the node, beside a list of their checksums."""
        monkeypatch.setattr("library.node_files.OWNER", (os.getuid(), os.getgid()))
        files = self.template(self.INSTALLED)
        here = str(tmp_path)
        wanted = [{**file, "path": file["path"].replace("/usr/local/lib/gaudi-serving", here)} for file in files]
        folder = tmp_path / "gaudi_weights"
        folder.mkdir()
        for name in ("SHA256SUMS", "__init__.py", "folders.py", "record.py", "units.py", "take.py"):
            (folder / name).write_text("of the release before\n")
        assert run_main("library.node_files", {"files": wanted})["changed"]
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            path.name: path.read_text() for path in (ROLE / "files/gaudi_weights").glob("*.py")
        }
        assert not run_main("library.node_files", {"files": wanted})["changed"]

    def test_the_node_gets_the_versions_the_tests_run_with(self) -> None:
        lines = (ROLE / "files/requirements.txt").read_text().replace("\\\n", " ").splitlines()
        pins = {line.split()[0]: line for line in lines if not line.startswith("#")}
        assert all("==" in pin and "--hash=sha256:" in line for pin, line in pins.items())
        # What those in turn import is older where Python 3.10 needs it.
        ours = [pin for pin in pins if pin.startswith(("huggingface_hub==", "modelscope-hub==", "urllib3=="))]
        assert len(ours) == 3
        assert set(ours) <= set((ROOT / "constraints.txt").read_text().splitlines())

    def template(self, text: str, **more: Any) -> Any:
        """A text of the role with its defaults, its own values and these."""
        return evaluate("model_weights", text, **{**self.GIVEN, **more})

    def fetches(self, folders: list[dict[str, Any]], **more: Any) -> bool:
        """Whether the role fetches the weights where these folders were found."""
        known = results("model_weights", node_report=reporting(folders))
        return runs("model_weights", task_of("model_weights", "main", "Fetch"), **{**self.GIVEN, **known, **more})

    def unpinned(self, folders: list[dict[str, Any]], **more: Any) -> str:
        """What the role says is not pinned."""
        says = task_of("model_weights", "pins", "debug")["ansible.builtin.debug"]["msg"]
        known = results("model_weights", node_report=reporting(folders))
        return str(self.template(says, **known, **more))

    def test_the_program_reads_what_the_role_writes(self, tmp_path: Path) -> None:
        from gaudi_weights import request

        text = self.template(
            (ROLE / "templates/request.json.j2").read_text(),
            model_weights_sources=self.SOURCES,
            gaudi_release=1.18,
            model_weights_repositories={
                "modelscope": {"repository": "Qwen/Other-Name"},
                "git": {"repository": "ours/qwen.git", "revision": "v1"},
            },
        )
        (tmp_path / "request.json").write_text(text if isinstance(text, str) else json.dumps(text))
        requested = request.load(tmp_path / "request.json")
        site, hub, scope, forge = requested.sources
        assert requested.target == Path("/data/models/Qwen3-8B")
        assert (site.endpoint, str(site.token_file), site.proxy) == (
            "https://mirror.example.com",
            "/etc/gaudi-serving/weights/site.token",
            None,
        )
        assert (hub.token_file, hub.proxy, hub.revision) == (None, "http://proxy.example.com:3128", "main")
        assert [source.kind for source in requested.sources] == ["huggingface", "huggingface", "modelscope", "git"]
        assert (scope.repository, scope.revision) == ("Qwen/Other-Name", "master")
        assert (forge.repository, forge.revision, forge.user) == ("ours/qwen.git", "v1", "reader")
        assert (requested.reserve, requested.jobs, requested.recheck) == (10_000_000_000, 8, False)
        assert requested.unpickles
        assert "hf_secret" not in (tmp_path / "request.json").read_text()

    @pytest.mark.parametrize(
        ("release", "expected"), [("1.18", True), ("own-fork", True), ("1.22", False), ("", False)]
    )
    def test_the_job_knows_whether_the_servers_of_a_release_unpickle(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, expected: bool
    ) -> None:
        """Those of a site's own release do what those of the release do that it extends."""
        for file in releases.FOLDER.glob("1.*.yml"):
            (tmp_path / file.name).symlink_to(file)
        (tmp_path / "own-fork.yml").write_text('{"name": "own-fork", "extends": "1.18"}')
        monkeypatch.setattr(releases, "FOLDER", tmp_path)
        template = (ROLE / "templates/request.json.j2").read_text()
        text = self.template(template, model_weights_sources=self.SOURCES, gaudi_release=release)
        request = json.loads(text) if isinstance(text, str) else text
        assert request["unpickles"] is expected

    def asked(self, **more: Any) -> list[str]:
        """The names of the sources that the program is to ask."""
        text = self.template((ROLE / "templates/request.json.j2").read_text(), **more)
        request = json.loads(text) if isinstance(text, str) else text
        return [source["name"] for source in request["sources"]]

    def test_sources_of_a_kind_the_model_is_not_known_on_are_passed_over(self) -> None:
        assert self.asked(model_weights_sources=self.SOURCES) == ["site", "huggingface"]

    def test_a_model_is_fetched_from_the_one_hub_that_has_it(self) -> None:
        known: dict[str, Any] = {
            "model_weights_repository": "",
            "model_weights_repositories": {"modelscope": {"repository": "o/Big"}},
            "model_weights_sources": self.SOURCES,
        }
        assert self.asked(**known) == ["modelscope"]
        assert self.unpinned([], **known).startswith("o/Big on ModelScope is not pinned")
        whole = {"status": "whole", "source": "of-earlier-days", "revision": "1" * 40}
        assert not self.fetches([whole], **known)

    def test_what_would_come_from_a_branch_is_named_unless_it_is_there(self) -> None:
        def moving(*folders: dict[str, Any], **more: Any) -> Any:
            known = {
                "model_weights_repositories": {
                    "modelscope": {"repository": "a/b"},
                    "git": {"repository": "a/b", "revision": "3" * 40},
                },
                "model_weights_sources": self.SOURCES,
            }
            said = self.unpinned(list(folders), **{**known, **more})
            return sorted(re.findall(r"kind (\w+) out of", said))

        assert moving(model_weights_revision="1" * 40) == ["modelscope"]
        assert moving(model_weights_revision="main") == ["huggingface", "modelscope"]
        # Checksums are required as well.
        assert moving(model_weights_revision="1" * 40, gaudi_require_pins=True) == ["git", "huggingface", "modelscope"]
        assert moving(model_weights_revision="1" * 40, model_weights_sources=self.SOURCES[:2]) == []
        assert moving({"status": "incomplete"}) == []

    @pytest.mark.parametrize(
        ("source", "revision", "there"),
        [
            ("huggingface", "1" * 40, True),
            ("huggingface", "2" * 40, False),
            ("modelscope", "2" * 40, True),
            ("modelscope", "1" * 40, False),
            ("forge", "3" * 40, True),
            ("of-earlier-days", "1" * 40, True),
            ("of-earlier-days", "3" * 40, False),
        ],
    )
    def test_what_is_there_is_of_the_revision_its_source_was_asked_for(
        self, source: str, revision: str, there: bool
    ) -> None:
        folder = {"status": "whole", "source": source, "revision": revision}
        fetches = self.fetches(
            [folder],
            model_weights_revision="1" * 40,
            model_weights_sources=self.SOURCES,
            model_weights_repositories={
                "modelscope": {"repository": "a/b", "revision": "2" * 40},
                "git": {"repository": "a/b"},
            },
        )
        assert fetches is not there
        assert self.fetches([])

    @pytest.mark.parametrize(
        ("directory", "key"),
        [("Qwen3-8B", "qwen3-8b"), ("a_b..C.", "a-b.c"), ("x" * 128, "x" * 128), ("Model__-", "model")],
    )
    def test_every_folder_of_the_catalogue_is_a_jobs_key(self, directory: str, key: str) -> None:
        from ansible.module_utils.gaudi.jobs import decisions as jobs

        named = task_of("model_weights", "verify", "node_job")["node_job"]["key"]
        assert self.template(named, model_weights_directory=directory) == f"verify.{key}"
        assert jobs.check_key(f"verify.{key}")


@pytest.mark.parametrize("content", ['{"container": 5}', "[1]", "{"])
def test_a_damaged_plan_keeps_every_folder(
    root: Path, plans: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text: said.append(text))
    (plans / "chat").mkdir(parents=True)
    (plans / "chat/plan.json").write_text(content)
    answer = run_main("model_weights_remove", {"root": str(root), "directory": "Whole-7B"})
    assert answer["failed"]
    assert answer["msg"].startswith(f"{plans}/chat/plan.json is damaged, so that nobody can tell whether chat uses")
    assert (root / "Whole-7B/config.json").exists()
    assert look(root)["Whole-7B"]["used_by"] == []
    assert said == ["/etc/gaudi-serving/instances/chat/plan.json is damaged: which folders chat uses is not known."]


def tasks_in(file: Path) -> list[dict[str, Any]]:
    """The tasks of a file, those in its blocks and plays among them."""
    found: list[dict[str, Any]] = []
    pending = list(yaml.safe_load(file.read_text()) or [])
    while pending:
        task = pending.pop()
        found.append(task)
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            pending += task.get(part) or []
    return found


def loops_below(file: Path) -> bool:
    """Whether a file of tasks, or one that it brings in, loops over item."""
    for task in tasks_in(file):
        if "loop" in task and (task.get("loop_control") or {}).get("loop_var", "item") == "item":
            return True
        if any(loops_below(inner) for inner in brought_in(task, file)):
            return True
    return False


def brought_in(task: Mapping[str, Any], file: Path) -> list[Path]:
    """The files of tasks that a task brings in, as far as its text names them."""
    found = []
    for kind in ("include", "import"):
        said = task.get(f"ansible.builtin.{kind}_tasks")
        if said is not None:
            found.append(file.parent / (said if isinstance(said, str) else said["file"]))
        role = task.get(f"ansible.builtin.{kind}_role")
        if role is not None:
            found.append(ROOT / "roles" / role["name"] / "tasks" / role.get("tasks_from", "main.yml"))
    return [path for path in found if path.is_file()]


def test_no_loop_over_tasks_takes_the_name_of_the_loops_in_them() -> None:
    """Ansible warns of a name that is in use already, on every run."""
    found = []
    playbooks = [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("playbooks/tasks/*.yml"), ROOT / "site.yml"]
    for file in [*ROOT.glob("roles/*/tasks/*.yml"), *playbooks]:
        for task in tasks_in(file):
            named_item = (task.get("loop_control") or {}).get("loop_var", "item") == "item"
            if "loop" in task and named_item and any(loops_below(path) for path in brought_in(task, file)):
                found.append(f"{file.relative_to(ROOT)}: {task['name']}")
    assert found == []


def test_a_token_of_a_source_that_was_dropped_leaves_the_node() -> None:
    """Of a source without a token as well, whatever it is called."""
    config = "/etc/gaudi-serving/weights"
    there = [{"path": f"{config}/{name}.token"} for name in ("site", "dropped", "open", "peer")]
    sources = [{"name": "site", "token": "x" * 20}, {"name": "open", "token": ""}]
    removed = task_of("model_weights", "request", "Remove tokens that are no longer given")["loop"]
    known = results("model_weights", find={"files": there})
    found = evaluate("model_weights", removed, model_weights_sources=sources, **known)
    assert sorted(found) == [f"{config}/{name}.token" for name in ("dropped", "open", "peer")]
