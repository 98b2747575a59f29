"""The virtual machine's disk, named by a hash of what went into it and made only when it is not there."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from simulator import context, host, images, keys
from simulator.settings import CACHE, SIMULATOR, SimulatorError

DIRECTORY = CACHE / "vm"
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mkfs.ext4": "e2fsprogs",
    "sfdisk": "fdisk",
}

# Room for the system (1 GB) and for what the roles add to it.
_DISK_MIB = 3072
# The first partition begins at the usual 1 MiB; GRUB lives in the gap before it.
_START_MIB = 1
_FINISHED = "gaudi-simulator: image finished"
_FINISH_SECONDS = 600

ACCELERATION = ("-accel", "tcg,thread=multi,tb-size=256")
"""Software emulation: it works wherever QEMU does, also inside a virtual machine, and the same everywhere."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class DiskImage:
    """A disk that boots, and the keys to get in."""

    disk: Path
    private_key: Path
    host_key: str


def ensure(client: DockerClient, packages: Iterable[str], say: Say) -> DiskImage:
    """Give the disk of a simulated virtual machine with more of Debian's packages on it, after making it if needed."""
    host.install_packages(PACKAGES, say)
    with host.lock("vm"):
        user, machine = _pair("user"), _pair("host")
        lib = "files/usr/local/lib/gaudi-simulator"
        files = {
            **context.tree(SIMULATOR / "vm" / "image"),
            f"{lib}/authorized_keys": context.text(user.public + "\n", 0o600),
            f"{lib}/ssh_host_ed25519_key": context.text(machine.private, 0o600),
        }
        with host.lock("images"):
            arguments = {"BASE": images.base(client, say), "PACKAGES": " ".join(sorted(packages))}
            reference = images.build(client, "vm", files, arguments, say)
        disk = DIRECTORY / f"{reference.rpartition(':')[2]}.qcow2"
        if not disk.exists():
            say(f"Making the virtual machine's disk: {disk.name}")
            _make(client, reference, disk)
        return DiskImage(disk, DIRECTORY / "user.key", " ".join(machine.public.split()[:2]))


def _pair(name: str) -> keys.KeyPair:
    """Give a key pair of this checkout's own, made at first use."""
    private, public = DIRECTORY / f"{name}.key", DIRECTORY / f"{name}.pub"
    if not public.exists():
        made = keys.new_ssh_pair(f"gaudi-simulator-vm-{name}")
        keys.write_private(private, made.private)
        public.write_text(made.public)
    return keys.KeyPair(private.read_text(), public.read_text())


def _make(client: DockerClient, reference: str, disk: Path) -> None:
    """Turn an image's files into a partitioned disk, and boot it once to install GRUB on it."""
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as scratch:
        raw, qcow2 = Path(scratch) / "disk.raw", Path(scratch) / "disk.qcow2"
        with _exported(client, reference, Path(scratch) / "root") as root:
            for name in ("vmlinuz", "initrd.img"):
                host.run(host.as_root(["cp", "--dereference", str(root / name), f"{scratch}/{name}"]))
                host.run(host.as_root(["chmod", "0644", f"{scratch}/{name}"]))
            with raw.open("wb") as file:
                file.truncate(_DISK_MIB << 20)
            # Filling the file system from a directory needs no loop device and no mount.
            size = f"{_DISK_MIB - _START_MIB}M"
            layout = ["-q", "-L", "root", "-E", f"offset={_START_MIB << 20}", "-d", str(root)]
            host.run(host.as_root(["mkfs.ext4", *layout, str(raw), size]))
        subprocess.run(
            ["sfdisk", "--quiet", str(raw)],
            check=True,
            input=f"label: dos\nstart={_START_MIB}MiB, type=83, bootable\n",
            text=True,
            env=host.environment(),
        )
        host.run(["qemu-img", "convert", "-O", "qcow2", str(raw), str(qcow2)])
        _finish(Path(scratch), qcow2)
        qcow2.rename(disk)


@contextmanager
def _exported(client: DockerClient, reference: str, root: Path) -> Iterator[Path]:
    """Unpack an image's files into a directory, for as long as they are needed."""
    container = client.api.create_container(reference, ["true"], labels=images.LABELS)
    try:
        root.mkdir()
        with tempfile.NamedTemporaryFile(dir=root.parent) as tarball:
            for piece in client.api.export(container):
                tarball.write(piece)
            tarball.flush()
            into = f"--directory={root}"
            host.run(host.as_root(["tar", "--extract", "--numeric-owner", into, f"--file={tarball.name}"]))
        # Docker's mark in a container's root would make systemd take the machine for a container.
        host.run(host.as_root(["rm", "-f", f"{root}/.dockerenv"]))
        yield root
    finally:
        client.api.remove_container(container)
        host.run(host.as_root(["rm", "-rf", "--one-file-system", str(root)]))


def _finish(scratch: Path, disk: Path) -> None:
    log = DIRECTORY / "finish-image.log"
    command = [
        *("timeout", str(_FINISH_SECONDS), "qemu-system-x86_64", *ACCELERATION),
        *("-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-nic", "none"),
        *("-drive", f"file={disk},if=virtio,cache=unsafe"),
        *("-kernel", str(scratch / "vmlinuz"), "-initrd", str(scratch / "initrd.img")),
        "-append",
        # A failure ends init, which is a panic, which with panic=-1 and -no-reboot ends QEMU.
        "root=/dev/vda1 rw console=ttyS0,115200 panic=-1 no_timer_check "
        "init=/usr/local/lib/gaudi-simulator/finish-image",
    ]
    if _FINISHED not in host.run(command, log=log):
        raise SimulatorError(
            f"GRUB could not be installed on the virtual machine's disk:\n{host.last_lines(log.read_text())}"
        )
