"""Files in places where somebody else may write, and that nothing else is used there."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.documents import Damaged
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import beneath, documents, files, folders

from tests.unit.refused import refused
from tests.unit.sources import nodes, tree

ROOT = Path(__file__).parents[3]
VICTIM = "somebody else's"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place, with a folder in it, beside what is to be out of reach."""
    (tmp_path / "place" / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "victim").write_text(VICTIM)
    return tmp_path / "place"


def outside(place: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (place.parent / "outside").iterdir()}


# Everything that reads or changes a file, given its path and the place.
ACTS: dict[str, Callable[[Path, Path], Any]] = {
    "read": lambda path, place: beneath.open_file(path, place).close(),
    "append": lambda path, place: beneath.open_file(path, place, "ab").close(),
    "continue": lambda path, place: beneath.open_file(path, place, "a+b").close(),
    "change": lambda path, place: beneath.open_file(path, place, "r+b").close(),
    "make": lambda path, place: beneath.open_file(path, place, "xb").close(),
    "make a folder": beneath.make_folders,
    "replace": lambda path, place: files.write_text(path, "ours", place=place),
    "remove": beneath.remove,
    "remove a tree": beneath.remove_tree,
    "rename": lambda path, place: beneath.rename(path, place, place / "renamed"),
    "rename to": lambda path, place: beneath.rename(place / "inner", place, path),
}
CHANGING_THE_LINK_ITSELF = ("replace", "remove", "rename")


@pytest.mark.parametrize("act", ACTS)
def test_no_link_in_a_folders_place_is_followed(place: Path, act: str) -> None:
    (place / "link").symlink_to(place.parent / "outside")
    with refused("link_in_the_way", "place/link"):
        ACTS[act](place / "link" / "victim", place)
    assert outside(place) == {"victim": VICTIM}


@pytest.mark.parametrize("act", ACTS)
def test_no_link_in_the_places_own_place_is_followed(place: Path, act: str) -> None:
    link = place.parent / "link"
    link.symlink_to(place.parent / "outside")
    with refused("link_in_the_way", link):
        ACTS[act](link / "victim", link)
    assert outside(place) == {"victim": VICTIM}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("leads", ["victim", "new"])
def test_no_link_in_a_files_place_is_followed(place: Path, act: str, leads: str) -> None:
    (place / "file").symlink_to(place.parent / "outside" / leads)
    if act in CHANGING_THE_LINK_ITSELF:
        ACTS[act](place / "file", place)
        assert act != "replace" or (place / "file").read_text() == "ours"
    else:
        with pytest.raises((Refusal, FileExistsError, NotADirectoryError)):
            ACTS[act](place / "file", place)
    assert outside(place) == {"victim": VICTIM}


# Seconds after which somebody opens a pipe that a program waits for.
WAITED = 5.0


@contextlib.contextmanager
def ending(pipe: Path) -> Iterator[None]:
    """End an open of a pipe that waits for its other side, which would otherwise never end."""
    timer = threading.Timer(WAITED, lambda: os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK)))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.mark.parametrize("act", ["read", "append", "continue", "change"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_only_regular_files_are_opened(place: Path, act: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "it"
    monkeypatch.chdir(place)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as door:
            door.bind("it")
    else:
        path.mkdir()
    begun = time.monotonic()
    with ending(path), pytest.raises((Refusal, IsADirectoryError), match=r"is not a regular file|Is a directory"):
        ACTS[act](path, place)
    assert time.monotonic() - begun < WAITED


def test_a_temporary_name_cannot_be_foreseen(place: Path) -> None:
    seen = []
    for _ in range(2):
        with beneath.replacing(place / "it", place) as out:
            seen += [path.name for path in place.iterdir() if path.name.endswith(beneath.WRITING)]
            out.write(b"x")
    assert len(set(seen)) == 2
    assert sorted(path.name for path in place.iterdir()) == ["inner", "it"]


def test_what_fails_midway_leaves_the_old_file_and_nothing_else(place: Path) -> None:
    (place / "it").write_text("old")
    with pytest.raises(OSError, match="full"), beneath.replacing(place / "it", place) as out:
        out.write(b"new")
        raise OSError("full")
    assert {path.name for path in place.iterdir()} == {"inner", "it"}
    assert (place / "it").read_text() == "old"


def test_a_tree_goes_and_what_its_links_lead_to_stays(place: Path) -> None:
    (place / "inner" / "deep").mkdir()
    (place / "inner" / "deep" / "folder").symlink_to(place.parent / "outside")
    (place / "inner" / "deep" / "file").symlink_to(place.parent / "outside" / "victim")
    beneath.remove_tree(place, place)
    beneath.remove_tree(place, place)
    assert not place.exists()
    assert outside(place) == {"victim": VICTIM}


@pytest.fixture
def deep(place: Path) -> Iterator[Path]:
    """5000 folders in each other, as a container can make them: their paths are longer than the kernel takes."""
    handle = os.open(place, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    yield place
    # Neither pytest nor shutil can remove what a test leaves.
    subprocess.run(["rm", "-rf", str(place)], check=True)


def test_no_depth_ends_who_looks_at_what_lies_beneath(deep: Path) -> None:
    """More than Python's stack has: a supervisor ended with RecursionError at each start."""
    seen: set[Path] = set()
    for path, _ in beneath.all_in(deep):
        assert path.parent not in seen
        seen.add(path)
    assert len(seen) > 1500


def test_no_depth_keeps_a_folder_from_being_removed(deep: Path) -> None:
    beneath.remove_tree(deep, deep)
    assert not deep.exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_lock_cannot_be_held_by_another_user_of_the_node(place: Path, there: bool) -> None:
    lock = place / "lock"
    if there:
        lock.touch(mode=0o644)
    with beneath.open_lock(lock, place) as stream:
        assert stream.writable()
    assert lock.stat().st_mode & 0o077 == 0


def test_a_lock_is_never_open_to_others_for_a_moment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has it open then may hold it for ever."""
    seen: list[int] = []
    monkeypatch.setattr(os, "fchmod", lambda handle, _mode: seen.append(os.fstat(handle).st_mode & 0o077))
    before = os.umask(0o022)
    beneath.open_lock(place / "lock", place).close()
    os.umask(before)
    assert seen == [0]


def test_a_name_that_leads_out_is_refused(place: Path) -> None:
    for path in (place / ".." / "outside" / "victim", place.parent / "outside" / "victim", Path("/etc/passwd")):
        with refused("path_leads_out", path):
            beneath.open_file(path, place)
        assert folders.size_of(path, place) is None


def test_what_lies_behind_a_link_has_no_size_and_is_no_document(place: Path) -> None:
    (place.parent / "outside" / "it.json").write_text("{}")
    (place / "link").symlink_to(place.parent / "outside")
    (place / "it.json").symlink_to(place.parent / "outside" / "it.json")
    assert folders.sizes_in(place, ["link/it.json", "it.json"]) == {"link/it.json": None, "it.json": None}
    for path in (place / "link" / "it.json", place / "it.json"):
        with pytest.raises(Damaged, match=str(place / "it.json") if path.parent == place else str(place / "link")):
            documents.read_json(path, place=place)
    # Where nobody else writes, an administrator may have put a link.
    assert documents.read_json(place / "it.json") == {}


def test_a_link_that_stays_is_read_and_one_that_leaves_is_named(place: Path) -> None:
    (place / "blob").write_bytes(b"x")
    (place / "inner" / "stays").symlink_to("../blob")
    (place / "inner" / "leaves").symlink_to("../../outside/victim")
    with beneath.open_linked(place / "inner" / "stays", [place]) as stream:
        assert stream.read() == b"x"
    for within in ([place], [place / "inner"]):
        with refused("link_leads_out", "inner/leaves", "outside/victim"):
            beneath.open_linked(place / "inner" / "leaves", within)


def test_a_mode_that_empties_a_file_is_not_there(place: Path) -> None:
    with pytest.raises(ValueError, match="is none of"):
        beneath.open_file(place / "it", place, "wb")


# --- who may write above a place ---------------------------------------------------------------------------


def test_folders_of_ours_are_fine_and_what_is_missing_as_well(place: Path) -> None:
    beneath.refuse_writers(place)
    beneath.refuse_writers(place / "not" / "there")


@pytest.mark.parametrize(("mode", "who"), [(0o777, "everybody"), (0o1777, "everybody"), (0o702, "everybody")])
def test_a_folder_that_everybody_writes_to_is_refused(place: Path, mode: int, who: str) -> None:
    place.chmod(mode)
    for folder in (place, place / "not there"):
        with refused("others_may_write", place, who):
            beneath.refuse_writers(folder)
    if not mode & 0o1000:
        with refused("others_may_write", place):
            beneath.refuse_writers(place / "inner")


def test_a_folder_of_somebody_else_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.lstat

    def owned(path: Path) -> os.stat_result:
        seen = real(path)
        changed = [*seen[:4], *((1234, 1234) if path == place else seen[4:6]), *seen[6:]]
        return os.stat_result(changed)

    monkeypatch.setattr(Path, "lstat", owned)
    for folder in (place, place / "inner"):
        with refused("others_may_write", place, "user 1234"):
            beneath.refuse_writers(folder)


def test_a_group_that_writes_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o770)
    monkeypatch.setattr("os.getegid", lambda: 4321)
    if place.stat().st_gid == 0:
        beneath.refuse_writers(place)
    real = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: os.stat_result([*real(path)[:5], 99, *real(path)[6:]]))
    with refused("others_may_write", place, "group 99"):
        beneath.refuse_writers(place)


def test_an_acl_that_lets_others_write_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows as a mode of the group, which may be root's."""
    monkeypatch.setattr("os.listxattr", lambda path: ["system.posix_acl_access"] if path == place else [])
    place.chmod(0o750)
    beneath.refuse_writers(place)
    place.chmod(0o770)
    with refused("others_may_write", place, "its ACL names"):
        beneath.refuse_writers(place / "inner")


def test_members_of_a_group_rename_nothing_of_ours_in_a_sticky_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.lstat

    def of_group(path: Path) -> os.stat_result:
        seen = real(path)
        return os.stat_result([*seen[:5], 99, *seen[6:]]) if path == place else seen

    monkeypatch.setattr(Path, "lstat", of_group)
    place.chmod(0o1770)
    beneath.refuse_writers(place / "inner")
    with refused("others_may_write", place, "group 99"):
        beneath.refuse_writers(place / "not there")


@pytest.mark.parametrize("linked", [False, True])
def test_a_lease_of_another_process_is_waited_for(place: Path, linked: bool) -> None:
    """The kernel asks its holder for it, who is ended here by the signal, and takes it from one that goes on."""
    (place / "it").write_text("content")
    holds = (
        "import fcntl, sys; it = open(sys.argv[1], 'rb'); fcntl.fcntl(it, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holds, str(place / "it")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        with beneath.open_file(place / "it", None if linked else place) as opened:
            assert opened.read() == b"content"
    assert holder.returncode == -signal.SIGIO


def test_a_link_of_the_administrators_is_followed_to_where_it_leads(place: Path) -> None:
    (place.parent / "models").symlink_to("place")
    beneath.refuse_writers(place.parent / "models")
    place.chmod(0o777)
    with refused("others_may_write", place, "everybody"):
        beneath.refuse_writers(place.parent / "models")


@pytest.mark.parametrize(
    ("mode", "owner", "who"),
    [
        (0o644, (0, 0), ""),
        (0o664, (0, 0), ""),
        (0o666, (0, 0), "everybody"),
        (0o664, (0, 99), "group 99"),
        (0o644, (1234, 0), "user 1234"),
    ],
)
def test_an_open_file_that_others_may_write_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: tuple[int, int], who: str
) -> None:
    path = place / "it"
    path.write_text("content")
    path.chmod(mode)
    real = os.fstat
    with beneath.open_file(path, place) as stream:
        monkeypatch.setattr("os.fstat", lambda handle: os.stat_result([*real(handle)[:4], *owner, *real(handle)[6:]]))
        if who:
            with refused("others_may_write", f"{path} can be written by {who}", f"chmod go-w {path}"):
                beneath.refuse_file_writers(stream, path)
        else:
            beneath.refuse_file_writers(stream, path)


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        beneath.refuse_writers(tmp_path / "a")


# --- nothing else is used there ----------------------------------------------------------------------------

# What runs as root in the weights root: in staging folders, among measurements, on locks and records.
THERE = (
    *sorted((ROOT / "roles/model_weights/files/gaudi_weights").glob("*.py")),
    *sorted((ROOT / "roles/fp8_weights/files/gaudi_fp8").rglob("*.py")),
    ROOT / "roles/fp8_calibration/files/calibrate.py",
    ROOT / "module_utils/gaudi/node/folders.py",
    ROOT / "module_utils/gaudi/node/weights/measurements.py",
    ROOT / "module_utils/gaudi/node/weights/pinned.py",
    ROOT / "module_utils/gaudi/node/weight_folders.py",
    ROOT / "library/model_weights_remove.py",
    ROOT / "library/weights_giving.py",
    ROOT / "library/carried_recipes.py",
    ROOT / "roles/vllm_service/files/gaudi_supervisor/recipes.py",
)
METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "rename", "mkdir", "rmdir", "touch"),
    *("chmod", "symlink_to", "hardlink_to", "link_to"),
}
SYSTEM = {
    *("open", "replace", "rename", "renames", "unlink", "remove", "removedirs", "mkdir", "makedirs", "rmdir", "chmod"),
    *("chown", "link", "symlink", "truncate", "mkfifo", "utime"),
}
WRITERS = {"write_json", "write_text", "replacing"}
HARMLESS = {"shutil.which", "shutil.copyfileobj", "shutil.disk_usage"}
# What lies elsewhere, where only root writes: function, and call as it is written.
ELSEWHERE = {
    # The request and the tokens, in /etc/gaudi-serving and /var/lib/gaudi-serving.
    ("request.py", "self.token_file.read_text"),
    ("calibrate.py", "documents.read_json"),
    # The plans of instances, in /etc/gaudi-serving.
    ("weight_folders.py", "documents.read"),
    # What is mounted, as the kernel says it.
    ("weight_folders.py", "MOUNTINFO.read_text"),
    # Above the place, which refuse_writers has looked at.
    ("calibrate.py", "target.parent.mkdir"),
    ("calibrate.py", "staging.chmod"),
    # The variables of a container, in a file of root's own with a name that nobody can foresee.
    ("calibrate.py", "tempfile.NamedTemporaryFile"),
    # A member of an archive that is open already.
    ("measurements.py", "archive.open"),
    # The folder of a key, in /var/lib/gaudi-serving. Containers have single folders in it, none the folder itself.
    ("recipes.py", "folder.mkdir"),
    ("recipes.py", "folder.chmod"),
    ("recipes.py", "unfinished.chmod"),
    ("carried_recipes.py", "own.parent.chmod"),
    ("carried_recipes.py", "passing.chmod"),
    # /dev/null.
    ("workers.py", "os.open"),
    # The unit, the token and rsync's configuration, in /run.
    ("weights_giving.py", "path.unlink"),
    ("weights_giving.py", "os.open"),
    ("weights_giving.py", "directory.mkdir"),
    ("weights_giving.py", "unit.parent.mkdir"),
    ("weights_giving.py", "shutil.rmtree"),
    ("weights_giving.py", "unit.unlink"),
}

# All else that runs on nodes and opens, makes or removes files by itself, with the places where it does.
OURS = "/etc/gaudi-serving, /var/lib/gaudi-serving, /usr/local/lib/gaudi-serving or /run, where only root writes"
SYSTEM_FILES = "files of the system: /etc, /boot, /usr, /proc, /sys"
STEP = "the container of a build's step, which has nothing of the node"
APT = "folders of apt, where only root and apt write"
PLACES = {
    "library/apt_source.py": f"{APT}; {SYSTEM_FILES}",
    "library/batch_answers.py": OURS,
    "library/brought_packages.py": f"{OURS}; {APT}",
    "library/card_reservation.py": OURS,
    "library/container_runtime_proof.py": f"{OURS}; {SYSTEM_FILES}",
    "library/docker_daemon_json.py": f"{OURS}; {SYSTEM_FILES}",
    "library/driver_kernel_pin.py": SYSTEM_FILES,
    "library/fabric_check.py": f"{OURS}; {SYSTEM_FILES}",
    "library/fetched_key.py": SYSTEM_FILES,
    "library/gaudi_preflight.py": f"{OURS}; {SYSTEM_FILES}",
    "library/host_tuning_kernel_cmdline.py": SYSTEM_FILES,
    "library/host_tuning_sysctl.py": SYSTEM_FILES,
    "library/instance_keys.py": OURS,
    "library/model_pins_info.py": "the controller, over HTTP",
    "library/node_files.py": f"{OURS}; {SYSTEM_FILES}; makes what a server writes to, opens nothing in it",
    "library/node_job.py": OURS,
    "library/serving_image.py": OURS,
    "library/serving_image_prune.py": OURS,
    "library/site_access.py": f"{OURS}; {SYSTEM_FILES}",
    "library/vllm_service_firewall.py": OURS,
    "library/vllm_service_rollback.py": OURS,
    "library/vllm_service_verify.py": OURS,
    "module_utils/gaudi/node/apt.py": SYSTEM_FILES,
    "module_utils/gaudi/node/beneath.py": "where others write: what this is about",
    "module_utils/gaudi/node/host/boot_loader.py": SYSTEM_FILES,
    "module_utils/gaudi/node/containers.py": SYSTEM_FILES,
    "module_utils/gaudi/node/documents.py": OURS,
    "module_utils/gaudi/node/driver/look.py": SYSTEM_FILES,
    "module_utils/gaudi/node/driver/next_boot.py": SYSTEM_FILES,
    "module_utils/gaudi/node/engine_look.py": f"{OURS}; {SYSTEM_FILES}",
    "module_utils/gaudi/node/engine_config.py": SYSTEM_FILES,
    "module_utils/gaudi/node/files.py": OURS,
    "module_utils/gaudi/node/kept.py": f"{OURS}; {SYSTEM_FILES}",
    "module_utils/gaudi/node/links.py": f"{OURS}; {SYSTEM_FILES}",
    "module_utils/gaudi/node/listening.py": SYSTEM_FILES,
    "module_utils/gaudi/node/long_work.py": OURS,
    "module_utils/gaudi/node/package_look.py": f"{SYSTEM_FILES}; a temporary folder of root's",
    "module_utils/gaudi/node/package_states.py": SYSTEM_FILES,
    "module_utils/gaudi/node/report/in_time.py": "/dev/null",
    "module_utils/gaudi/node/iommu.py": f"{SYSTEM_FILES}; {OURS}",
    "module_utils/gaudi/node/programs.py": OURS,
    "module_utils/gaudi/node/report/errors.py": OURS,
    "module_utils/gaudi/node/report/weight_folders.py": SYSTEM_FILES,
    "module_utils/gaudi/node/recording.py": f"{OURS}; {SYSTEM_FILES}",
    "module_utils/gaudi/node/registers.py": SYSTEM_FILES,
    "module_utils/gaudi/node/reservations.py": OURS,
    "module_utils/gaudi/node/storage.py": SYSTEM_FILES,
    "module_utils/gaudi/node/host/desired_record.py": OURS,
    "module_utils/gaudi/node/host/kernel_settings.py": SYSTEM_FILES,
    "module_utils/gaudi/node/host/tuning.py": f"{OURS}; {SYSTEM_FILES}",
    "module_utils/gaudi/node/web.py": f"{SYSTEM_FILES}; a temporary file of root's",
    "roles/benchmark/files/bench.py": OURS,
    "roles/benchmark/files/bench_client.py": "the container of the client",
    "roles/host_tuning/files/host_tuning.py": f"{OURS}; {SYSTEM_FILES}",
    "roles/node_job/files/gaudi_job.py": OURS,
    "roles/offline_batch/files/batch.py": OURS,
    "roles/serving_image/files/gaudi_image/build.py": f"{OURS}; a temporary folder of the job's own /tmp",
    "roles/serving_image/files/gaudi_image/context/gaudi_build.py": STEP,
    "roles/serving_image/files/gaudi_image/context/gaudi_lock.py": STEP,
    "roles/vllm_service/files/gaudi_supervisor/container.py": OURS,
    "roles/vllm_service/files/gaudi_supervisor/door.py": OURS,
    "roles/vllm_service/files/gaudi_supervisor/instance.py": f"{OURS}; {SYSTEM_FILES}",
    "roles/vllm_service/files/gaudi_supervisor/loaded.py": SYSTEM_FILES,
    "roles/vllm_service/files/gaudi_supervisor/locks.py": OURS,
    "roles/vllm_service/files/gaudi_supervisor/low_memory.py": SYSTEM_FILES,
    "roles/vllm_service/files/gaudi_supervisor/reporter.py": OURS,
    "roles/vllm_service/files/gaudi_supervisor/run.py": f"{OURS}; {SYSTEM_FILES}",
    "roles/vllm_service/files/gaudi_supervisor/start_directory.py": OURS,
    "roles/vllm_service/files/gaudi_supervisor/startup_checks.py": OURS,
    "roles/vllm_service/files/guard/gaudi_guard.py": "the server's own container",
}
ON_NODES = ("library/*.py", "module_utils/gaudi/node/**/*.py", "roles/*/files/**/*.py")


def used_in(path: Path) -> list[str]:
    return list(used(tree(path)))


def used(parsed: ast.Module) -> Iterator[str]:
    """Calls that open, make, replace or remove a file without knowing whose place it is in."""
    for node in nodes(parsed):
        if not isinstance(node, ast.Call):
            continue
        said = ast.unparse(node.func)
        if isinstance(node.func, ast.Name):
            if said == "open" or (said in WRITERS and not any(keyword.arg == "place" for keyword in node.keywords)):
                yield said
            continue
        if not isinstance(node.func, ast.Attribute):
            continue
        of, name = ast.unparse(node.func.value), node.func.attr
        known = {keyword.arg for keyword in node.keywords}
        if of == "beneath":
            continue
        if of in ("documents", "files"):
            if name.startswith(("read", "write")) and not known & {"place", "within"} and len(node.args) < 3:
                yield said
        elif (
            (of == "shutil" and said not in HARMLESS)
            or (of == "os" and name in SYSTEM)
            or (of == "tempfile" and name != "TemporaryFile")
            or (of != "os" and name in METHODS)
            # text.replace has two arguments.
            or (name == "replace" and of not in ("os", "dataclasses") and len(node.args) == 1)
        ):
            yield said


def test_nothing_else_is_used_where_others_write() -> None:
    assert not [
        f"{path.relative_to(ROOT)}: {said}"
        for path in THERE
        for said in used_in(path)
        if (path.name, said) not in ELSEWHERE
    ]


def test_whatever_opens_files_on_a_node_says_where() -> None:
    """One that works where others write belongs to THERE, one that does not to PLACES."""
    files = {path for pattern in ON_NODES for path in ROOT.glob(pattern)} - set(THERE)
    assert {path.relative_to(ROOT).as_posix() for path in files if used_in(path)} == set(PLACES)


def test_the_list_of_exceptions_is_in_use() -> None:
    there = {(path.name, said) for path in THERE for said in used_in(path)}
    assert there == ELSEWHERE


@pytest.mark.parametrize(
    "text",
    [
        "open(path)",
        "path.open('rb')",
        "(folder / name).read_text()",
        "os.replace(a, b)",
        "staging.replace(target)",
        "shutil.rmtree(staging)",
        "tempfile.mkdtemp()",
        "documents.read_json(path)",
        "files.write_text(path, text)",
        "lock.touch()",
    ],
)
def test_what_is_not_to_be_used_is_found(text: str) -> None:
    assert list(used(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "beneath.open_file(path, place)",
        "documents.read_json(path, place=place)",
        "text.replace('a', 'b')",
        "files.write_text(path, text, place=place)",
        "shutil.which('git')",
    ],
)
def test_what_is_right_is_not_found(text: str) -> None:
    assert not list(used(ast.parse(text)))


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_becomes_a_link_while_all_is_listed_is_not_looked_into(tmp_path: Path, above: bool) -> None:
    """As a container does that writes there."""
    place, outside = tmp_path / "place", tmp_path / "outside"
    (place / "a/b").mkdir(parents=True)
    (place / "a" / "first" if above else place / "first").touch()
    (outside / "b").mkdir(parents=True)
    for folder in (outside, outside / "b"):
        (folder / "secret").touch()
    listing = beneath.all_in(place)
    seen = [next(listing)]
    (place / "a").rename(tmp_path / "gone")
    (place / "a").symlink_to(outside)
    seen += listing
    assert not [path for path, _ in seen if path.name == "secret"]
