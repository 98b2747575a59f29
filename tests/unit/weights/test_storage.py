"""File systems that refuse what a fetch needs: sentences, and whole fetches where the kernel refuses it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gaudi.base.refusal import Refusal
from gaudi.weights import storage
from gaudi.weights.storage import FileSystem, mount_of

from simulator.hub.server import SimulatedHub
from tests.integration.weights.test_program import describe, environment
from tests.unit.weights.models import SERVED

# System calls of x86-64.
WRITE, FLOCK, FSYNC, RENAME, MKDIRAT, RENAMEAT, RENAMEAT2 = 1, 73, 74, 82, 258, 264, 316


def refusing(number: int, *calls: int, from_bytes: int = 0) -> Callable[[], None]:
    """Have the kernel fail system calls of the process that is started: seccomp(2), a filter in classic BPF.

    from_bytes: of write(2) only those of so many bytes or more.
    """

    def install() -> None:
        steps = []
        for call in calls:
            test = [(0x20, 0, 0, 32), (0x35, 0, 1, from_bytes)] if from_bytes else []
            steps += [(0x20, 0, 0, 0), (0x15, 0, len(test) + 1, call), *test, (0x06, 0, 0, 0x50000 | number)]
        packed = b"".join(struct.pack("HBBI", *step) for step in [*steps, (0x06, 0, 0, 0x7FFF0000)])
        held = ctypes.create_string_buffer(packed)
        program = struct.pack("HxxxxxxP", len(packed) // 8, ctypes.addressof(held))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
            raise OSError(ctypes.get_errno(), "no filter of system calls")

    return install


def run(
    tmp_path: Path, request: Path, before: list[str] | None = None, install: Callable[[], None] | None = None
) -> tuple[str, str]:
    """Run a fetch that is refused; the id and the text. Where the kernel refuses all files, there is no id."""
    job = {} if install else environment(tmp_path)
    plain = {key: text for key, text in environment(tmp_path).items() if not key.startswith("GAUDI_JOB")}
    done = subprocess.run(
        [*(before or []), sys.executable, "-m", "gaudi_weights", "fetch", str(request)],
        env={**plain, **job},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=install,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stdout + done.stderr
    return str(json.loads((tmp_path / "result.json").read_text())["refused_id"]) if job else "", done.stderr


def namespace(*kinds: str) -> list[str]:
    """A command that runs another one as root of namespaces of its own."""
    own = ["--user", "--map-root-user"] if os.geteuid() or "--user" in kinds else []
    return ["unshare", *own, *(kind for kind in kinds if kind != "--user")]


@pytest.mark.report("W06")
def test_a_folder_that_root_may_not_write_to_is_not_to_be_given_to_root_by_chown(
    hub: SimulatedHub, tmp_path: Path
) -> None:
    """Root of a user namespace is to a folder of another account what a client's root is to a squashing server."""
    request = describe(tmp_path, hub)
    content = json.loads(request.read_text())
    if os.geteuid() == 0:
        (tmp_path / "models").mkdir()
        os.chown(tmp_path / "models", 1000, 1000)
    else:
        content["target"] = "/Small-Model"
        request.write_text(json.dumps(content))
    refused, said = run(tmp_path, request, namespace("--user"))
    assert refused == "others_may_write"
    assert "Root of this node may not write there, nor change its owner" in said
    assert "chown" not in said
    assert hub.seen == []


@pytest.mark.report("W06")
def test_a_read_only_file_system_is_refused_before_the_hub_is_asked(hub: SimulatedHub, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    mount = f'mount -t tmpfs -o ro,mode=0755 tmpfs {tmp_path}/models; exec "$@"'
    request = describe(tmp_path, hub)
    refused, said = run(tmp_path, request, [*namespace("--mount"), "sh", "-c", mount, "sh"])
    assert (refused, hub.seen) == ("read_only_storage", [])
    assert f"tmpfs (tmpfs, mounted at {tmp_path}/models)" in said


@pytest.mark.report("W06")
@pytest.mark.parametrize(
    ("number", "calls", "words"),
    [
        (errno.ENOLCK, (FLOCK,), "has no locks"),
        (errno.EOPNOTSUPP, (FLOCK,), "has no locks"),
        (errno.EINVAL, (FSYNC,), "written to the disk (fsync)"),
        (errno.ESTALE, (FSYNC,), "Mount it again"),
        (errno.EOPNOTSUPP, (RENAME, RENAMEAT, RENAMEAT2), "replaced in one step"),
        (errno.EROFS, (MKDIRAT,), "mounted read-only"),
        (errno.EDQUOT, (MKDIRAT,), "quota"),
    ],
)
def test_what_a_file_system_lacks_is_named_before_the_hub_is_asked(
    number: int, calls: tuple[int, ...], words: str, hub: SimulatedHub, tmp_path: Path
) -> None:
    _, said = run(tmp_path, describe(tmp_path, hub), install=refusing(number, *calls))
    assert hub.seen == []
    assert words in said
    assert os.strerror(number) in said or number == errno.EROFS
    assert not any((tmp_path / "models").rglob("*.safetensors"))


@pytest.mark.report("W06")
def test_a_quota_that_ends_in_the_middle_is_named_and_what_came_is_kept(hub: SimulatedHub, tmp_path: Path) -> None:
    _, said = run(tmp_path, describe(tmp_path, hub), install=refusing(errno.EDQUOT, WRITE, from_bytes=60_000))
    assert "quota" in said
    assert "What has arrived is kept" in said


@pytest.mark.report("W06")
def test_a_lock_that_another_process_holds_on_cifs_is_no_lack_of_locks(hub: SimulatedHub, tmp_path: Path) -> None:
    _, said = run(tmp_path, describe(tmp_path, hub), install=refusing(errno.EACCES, FLOCK))
    assert "is being fetched already" in said


@pytest.mark.report("W06")
def test_a_name_that_is_too_long_is_refused_before_the_first_byte(hub: SimulatedHub, tmp_path: Path) -> None:
    assert len(SERVED) > 1
    folder = tmp_path / "hub"
    (folder / f"{'x' * 250}.json").write_text("{}")
    name = next(iter(hub.repositories))
    hub.repository(name, folder)
    found, said = run(tmp_path, describe(tmp_path, hub))
    assert (found, hub.sent) == ("name_too_long", 0)
    assert "255 bytes" in said


NFS = FileSystem("/data", "nfs4", "filer:/models", frozenset({"rw"}))
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:50 / /data rw,relatime shared:2 - nfs filer:/models rw,vers=3,nolock
41 22 0:51 / /data/s3 ro,relatime shared:3 - fuse.s3fs s3fs rw,user_id=0
"""


@pytest.mark.parametrize(
    ("path", "kind", "option"),
    [
        ("/home", "ext4", "rw"),
        ("/data/models", "nfs", "nolock"),
        ("/data/s3", "fuse.s3fs", "ro"),
        ("/data2", "ext4", "rw"),
    ],
)
def test_the_mount_of_a_path(path: str, kind: str, option: str) -> None:
    found = mount_of(MOUNTS, path)
    assert found.kind == kind
    assert option in found.options


@pytest.mark.report("W06")
@pytest.mark.parametrize(
    ("on", "writable", "words", "absent"),
    [
        (NFS, False, "root_squash", "chown"),
        (NFS, True, "on its server", "chown"),
        (FileSystem("/data", "cifs", "//filer/models"), True, "dir_mode=0755", "chown"),
        (FileSystem("/data", "vfat", "/dev/sdb1"), True, "umask=022", "chown"),
        (FileSystem("/data", "fuse.s3fs", "s3fs"), True, "umask=022", "chown"),
        (FileSystem("/data", "ceph", "mon:/"), False, "no_root_squash", "chown"),
        (FileSystem("/", "ext4", "/dev/sda1"), True, "chown root:root /data", "server"),
        (FileSystem("/", "ext4", "/dev/sda1"), False, "ave its owner make it root's", "chown"),
    ],
)
def test_how_a_folder_becomes_roots(on: FileSystem, writable: bool, words: str, absent: str) -> None:
    said = storage.owner_advice("/data", on, writable)
    assert words in said
    assert absent not in said


@pytest.mark.report("W06")
@pytest.mark.parametrize(
    ("on", "words"),
    [
        (NFS, "no_root_squash"),
        (FileSystem("/data", "fuse.sshfs", "host:"), "allow_root"),
        (FileSystem("/data", "cifs", "//filer/models"), "username"),
        (FileSystem("/", "ext4", "/dev/sda1"), "lsattr"),
    ],
)
def test_why_root_may_not_write(on: FileSystem, words: str) -> None:
    refused = storage.not_writable("/data/models", on, read_only=False)
    assert refused.id == "root_may_not_write"
    assert words in str(refused)
    assert words in str(storage.fault(errno.EACCES, "Permission denied", "/data/models", on))


@pytest.mark.report("W06")
@pytest.mark.parametrize(
    "number", [errno.EDQUOT, errno.ESTALE, errno.ENAMETOOLONG, errno.EFBIG, errno.EIO, errno.ENOTCONN]
)
def test_a_fault_names_the_file_system(number: int) -> None:
    refused = storage.fault(number, os.strerror(number), "/data/x", NFS)
    assert isinstance(refused, Refusal)
    assert "nfs4 (filer:/models, mounted at /data)" in str(refused)
    assert os.strerror(number) in str(refused)


def test_a_full_disk_needs_no_other_words() -> None:
    assert storage.fault(errno.ENOSPC, "No space left on device", "/data/x", NFS) is None


@pytest.mark.report("W06")
@pytest.mark.parametrize(("kind", "words"), [("nfs", "rpc.statd"), ("cifs", "nobrl"), ("fuse.s3fs", "with locks")])
def test_how_locks_are_had(kind: str, words: str) -> None:
    assert words in str(storage.no_locks("/data/x", FileSystem("/data", kind, "x"), "No locks available"))


def test_a_file_that_a_small_file_system_cannot_hold() -> None:
    small = FileSystem("/data", "vfat", "/dev/sdb1")
    assert storage.too_large([("a/model.safetensors", 4_294_967_295)], small, 255) is None
    refused = storage.too_large([("a/model.safetensors", 4_294_967_296)], small, 255)
    assert refused is not None
    assert refused.id == "file_beyond_storage"
