"""The simulated vault: a registry that answers as vault.habana.ai on the simulated nodes' network.

Each scope has a vault of its own, so that a test may stop it; all of them serve one volume, so that an
image is pushed once.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import docker
import requests
from docker import DockerClient
from docker.models.containers import Container

from simulator import containers, context, host, images, keys, network
from simulator.settings import CACHE, IMAGES, LABEL, Scope, SimulatorError

NAME = "vault.habana.ai"
# As a mirror of it is named.
MIRROR = "registry.simulated"
VOLUME = "gaudi-simulator-vault"

_START_SECONDS = 30
_PORT = "443/tcp"
_MANIFESTS = ", ".join(
    (
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
    )
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Vault:
    """A running vault, as reached from this machine."""

    port: int  # on 127.0.0.1

    @property
    def address(self) -> str:
        """The registry part of an image reference for this machine's engine, which trusts 127.0.0.0/8."""
        return f"{network.ADDRESS}:{self.port}"

    def digest(self, repository: str, tag: str) -> str | None:
        """Give the digest of an image the vault holds, None if it does not hold it."""
        response = self._ask("HEAD", f"{repository}/manifests/{tag}")
        if response.status_code == requests.codes.not_found:
            return None
        response.raise_for_status()
        return response.headers["Docker-Content-Digest"]

    def answers(self) -> bool:
        """Tell whether the registry is up."""
        try:
            return self._ask("GET", "").ok
        except requests.exceptions.ConnectionError:
            return False

    def get(self, path: str) -> bytes:
        """Give a manifest or a blob."""
        return self._asked("GET", path).content

    def put(self, path: str, content: bytes, kind: str) -> None:
        """Have it hold a manifest, whose blobs it holds."""
        self._asked("PUT", path, content, {"Content-Type": kind})

    def upload(self, repository: str, content: bytes) -> str:
        """Have it hold a blob; give its digest (OCI distribution specification, monolithic upload)."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        place = self._asked("POST", f"{repository}/blobs/uploads/").headers["Location"].partition("/v2/")[2]
        joint = "&" if "?" in place else "?"
        self._asked("PUT", f"{place}{joint}digest={digest}", content, {"Content-Type": "application/octet-stream"})
        return digest

    def _asked(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """What it answers; SimulatorError where it refuses."""
        response = self._ask(method, path, content, headers)
        if not response.ok:
            raise SimulatorError(f"The simulated vault refuses {method} {path}: {response.status_code} {response.text}")
        return response

    def _ask(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False  # a proxy has no business between this machine and itself
            return session.request(
                method,
                f"https://{self.address}/v2/{path}",
                data=content,
                headers={"Accept": _MANIFESTS, **(headers or {})},
                verify=str(CACHE / "authority.crt"),
                timeout=30,
            )


def start(client: DockerClient, scope: Scope, say: Say) -> Vault:
    """Start the scope's vault, or find it running."""
    with host.lock("images"):
        image = images.vault(client, say)
        authority = keys.authority()
    with host.lock(f"scope-{scope.name}"):
        container = _container(client, scope, image, authority)
        vault = Vault(int(container.attrs["HostConfig"]["PortBindings"][_PORT][0]["HostPort"]))
        deadline = time.monotonic() + _START_SECONDS
        while not vault.answers():
            container.reload()
            if container.status != "running" or time.monotonic() > deadline:
                log = container.logs(tail=12, stream=False).decode(errors="replace")
                raise SimulatorError(f"The simulated vault does not answer (container {container.status}):\n{log}")
            time.sleep(0.1)
    return vault


def hold(client: DockerClient, vault: Vault, image: str, repository: str, tag: str, say: Say) -> None:
    """Make sure the vault holds a local image under the name the vendor gave it.

    What it holds already is known by a second tag, the hash in the local image's name.
    """
    mark = f"simulated-{image.rsplit(':', 1)[1]}"
    with host.lock("vault"):
        held = vault.digest(repository, tag)
        if held is not None and held == vault.digest(repository, mark):
            return
        say(f"Push the stand-in image {tag} into the simulated vault")
        local = client.images.get(image)
        # The mark goes last: it says that all before it arrived.
        for name in (tag, mark):
            remote = f"{vault.address}/{repository}"
            local.tag(remote, name)
            try:
                for event in client.images.push(remote, name, stream=True, decode=True):
                    if "error" in event:
                        raise SimulatorError(f"The simulated vault does not take {repository}:{name}: {event['error']}")
            finally:
                client.images.remove(f"{remote}:{name}")


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's vault. What it held stays for the other scopes."""
    with contextlib.suppress(docker.errors.NotFound):
        client.containers.get(_name(scope)).remove(force=True)


def _name(scope: Scope) -> str:
    return f"{scope.prefix}-vault"


def _container(client: DockerClient, scope: Scope, image: str, authority: keys.KeyPair) -> Container:
    names = [NAME, MIRROR]
    inputs = context.digest({}, image, authority.public, *names)
    if existing := containers.running(client, _name(scope), inputs, containers.remove):
        return existing
    network.ensure(client, scope)
    client.volumes.create(VOLUME, labels={LABEL: IMAGES})
    certificate = keys.new_certificate(authority, [*names, network.ADDRESS], datetime.datetime.now(datetime.UTC))
    container = client.containers.create(
        image,
        name=_name(scope),
        hostname="simulated-vault",
        labels={**scope.labels, containers.INPUTS: inputs},
        network=scope.prefix,
        networking_config={scope.prefix: client.api.create_endpoint_config(aliases=names)},
        ports={_PORT: (network.ADDRESS, network.free_ports(1)[0])},
        volumes={VOLUME: {"bind": "/var/lib/docker-registry", "mode": "rw"}},
        detach=True,
    )
    files = {
        "etc/docker/registry/vault.crt": context.text(certificate.public),
        "etc/docker/registry/vault.key": context.text(certificate.private, 0o600),
    }
    container.put_archive("/", context.archive(files))
    container.start()
    container.reload()
    return container
