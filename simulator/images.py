"""The simulator's images, each named by a hash of what went into it and built only when it is not there."""

from __future__ import annotations

import io
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, cast

import docker
from docker import DockerClient

from simulator import apt, context, host, keys, wheelhouse, wheels
from simulator.context import ContextFile, Files
from simulator.settings import CACHE, IMAGES, LABEL, SIMULATOR, SimulatorError

REPOSITORY = "gaudi-serving-simulator"
LABELS = {LABEL: IMAGES, "org.opencontainers.image.description": "Simulated: not an Intel Gaudi product"}

_SOURCES = SIMULATOR / "images"
# The stand-in for numactl, as the serving image has it.
_NUMACTL = ("bin/numactl", "gaudi_simulated/numactl.py")
_CHUNK = 1 << 20  # bytes

Say = Callable[[str], None]


def base(client: DockerClient, say: Say, system: str = apt.SYSTEM) -> str:
    """Give the root file system that every simulated machine starts from: Debian, minimal."""
    configuration = apt.read(apt.SUITES[system])
    packages = (_SOURCES / "base" / "packages.txt").read_text().split()
    reference = f"{REPOSITORY}/base:{context.digest(configuration.files, configuration.suite, *packages)}"
    if not exists(client, reference):
        say(f"Make a root file system with debootstrap ({configuration.suite})")
        host.install_packages({"debootstrap": "debootstrap", apt.KEYRING: "debian-archive-keyring"}, say)
        _debootstrap(client, reference, packages, configuration)
    return reference


def node(client: DockerClient, say: Say, system: str = apt.SYSTEM) -> str:
    """Give the image of a simulated node of one of the systems (apt.SUITES)."""
    source = _SOURCES / "node"
    files = {
        **context.tree(source),
        **context.tree(SIMULATOR / "standins" / "node", prefix="standins/"),
        "files/usr/local/share/ca-certificates/gaudi-simulator.crt": context.text(keys.authority().public),
    }
    return build(client, "node", files, {"BASE": base(client, say, system)}, say)


def vault(client: DockerClient, say: Say) -> str:
    """Give the image of the simulated vault: Debian's docker-registry."""
    return build(client, "vault", context.tree(_SOURCES / "vault"), {"BASE": base(client, say)}, say)


def vllm(client: DockerClient, say: Say) -> str:
    """Give the image with the real vLLM for CPUs, on which the stand-in serving image is built.

    Installed in a container that is then committed, not by a Dockerfile: a build would carry the 0.7 GB of
    wheels into its context and into a layer of their own.
    """
    source = _SOURCES / "vllm"
    files = context.tree(source)
    root = base(client, say)
    reference = f"{REPOSITORY}/vllm:{context.digest(files, root)}"
    if exists(client, reference):
        return reference
    say("Download vLLM for CPUs")
    wheels = wheelhouse.directory(source / "requirements.txt")
    say("Build the vLLM image")
    container = client.containers.create(
        root,
        ["sh", "/usr/local/src/vllm/install.sh"],
        labels=LABELS,
        volumes={str(wheels): {"bind": "/mnt", "mode": "ro"}},
        detach=True,
    )
    try:
        placed = {f"usr/local/src/vllm/{path}": file for path, file in files.items()}
        container.put_archive("/", context.archive(placed))
        container.start()
        status = container.wait()["StatusCode"]
        if status:
            log = container.logs(tail=20, stream=False).decode(errors="replace")
            raise SimulatorError(f"vLLM could not be installed in its image (status {status}):\n{log}")
        path = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        repository, tag = reference.rsplit(":", 1)
        container.commit(repository, tag, changes=f"ENV PATH={path}\nCMD bash")
    finally:
        container.remove(force=True)
    return reference


def vendor(client: DockerClient, tag: str, say: Say) -> str:
    """Give the stand-in for the vendor's image that others are built on: no PyTorch, no vLLM, its own packages."""
    source = _SOURCES / "vendor"
    packages = {name: ContextFile(content) for name, content in wheels.vendor(tag.replace("-", ".")).items()}
    real = wheelhouse.directory(source / "requirements" / f"{tag}.txt")
    files = {
        **{name: file for name, file in context.tree(source).items() if not name.startswith("requirements/")},
        **{f"wheels/{name}": file for name, file in {**context.tree(real), **packages}.items()},
        **{f"numactl/{name}": ContextFile((_SOURCES / "serving" / name).read_bytes(), 0o755) for name in _NUMACTL},
    }
    return build(client, "vendor", files, {"BASE": base(client, say)}, say)


def measuring(client: DockerClient, say: Say) -> str:
    """Give a small image that cards and links are proved in: hccl_demo, libfabric and a small PyTorch, and no vLLM."""
    files = {**context.tree(_SOURCES / "measuring"), **context.tree(_SOURCES / "pytorch", prefix="pytorch/")}
    for name in ("hccl_demo", "libfabric"):
        files |= context.tree(SIMULATOR / "repositories" / name, prefix=f"{name}/")
    files["libfabric/fi_info"] = ContextFile(files["libfabric/fi_info"].content, 0o755)
    return build(client, "measuring", files, {"BASE": base(client, say)}, say)


def serving(client: DockerClient, release: str, tag: str, say: Say) -> str:
    """Give the stand-in for the vendor's serving image of a release: the real vLLM behind that release's front."""
    arguments = {
        "BASE": vllm(client, say),
        "RELEASE": release,
        # The vendor's plugin carries the version and build of its image: 1.22.2-32 brings 1.22.2.32.
        "PLUGIN_VERSION": tag.replace("-", "."),
    }
    return build(client, "serving", context.tree(_SOURCES / "serving"), arguments, say)


def exists(client: DockerClient, reference: str) -> bool:
    """Tell whether the engine has an image."""
    try:
        client.images.get(reference)
    except docker.errors.ImageNotFound:
        return False
    return True


def build(client: DockerClient, name: str, files: Files, arguments: Mapping[str, str], say: Say) -> str:
    """Build an image from a context with a Dockerfile, unless the engine has it."""
    inputs = [f"{key}={value}" for key, value in sorted(arguments.items())]
    reference = f"{REPOSITORY}/{name}:{context.digest(files, *inputs)}"
    if exists(client, reference):
        return reference
    say(f"Build the {name} image")
    output: list[str] = []
    for event in client.api.build(
        fileobj=io.BytesIO(context.archive(files)),
        custom_context=True,
        tag=reference,
        buildargs=dict(arguments),
        labels=LABELS,
        rm=True,
        forcerm=True,
        decode=True,
    ):
        output.append(event.get("stream", ""))
        if "error" in event:
            raise SimulatorError(
                f"The {name} image cannot be built: {event['error']}\n{host.last_lines(''.join(output), 20)}"
            )
    return reference


def _debootstrap(client: DockerClient, reference: str, packages: list[str], configuration: apt.Configuration) -> None:
    proxy = {"http_proxy": configuration.proxy} if configuration.proxy else {}
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        root = str(Path(scratch) / "root")
        try:
            host.run(
                [
                    *host.as_root(["env", *(f"{name}={value}" for name, value in proxy.items())]),
                    "debootstrap",
                    "--variant=minbase",
                    f"--keyring={apt.KEYRING}",
                    f"--include={','.join(packages)}",
                    configuration.suite,
                    root,
                    configuration.mirrors.main,
                ],
                log=CACHE / "debootstrap.log",
            )
            # debootstrap's own sources file gives way to ours, and its downloads are of no more use.
            host.run(
                host.as_root(["sh", "-c", 'rm -f "$0"/etc/apt/sources.list "$0"/var/cache/apt/archives/*.deb', root])
            )
            _unpack(context.archive(configuration.files), root)
            tar = subprocess.Popen(
                host.as_root(["tar", "--create", "--numeric-owner", f"--directory={root}", "."]),
                stdout=subprocess.PIPE,
                env=host.environment(),
            )
            repository, tag = reference.rsplit(":", 1)
            with tar, cast("IO[bytes]", tar.stdout) as stream:
                client.api.import_image_from_stream(
                    iter(lambda: stream.read(_CHUNK), b""),
                    repository=repository,
                    tag=tag,
                    changes=[f'LABEL {name}="{value}"' for name, value in LABELS.items()],
                )
            if tar.returncode:
                client.images.remove(reference)
                raise SimulatorError(f"tar could not pack the root file system (status {tar.returncode}).")
        finally:
            host.run(host.as_root(["rm", "-rf", "--one-file-system", root]))


def _unpack(archive: bytes, directory: str) -> None:
    subprocess.run(
        host.as_root(["tar", "--extract", f"--directory={directory}"]),
        check=True,
        input=archive,
        env=host.environment(),
    )
