"""A package repository with stand-ins for the vendor's packages, of every release in the catalogue.

Names and versions are the catalogue's (catalog/driver.yml, catalog/releases). What is in the real ones was not seen:
here each installs what a simulated node has of it, such as a stand-in program, or nothing. Of habanalabs-dkms the
messages of its script are recorded, and that it builds before it installs, ends with the status of DKMS where that
fails, and has a modules-load.d file without habanalabs (richard-rhino/gaudi2-setup, JChen-318/gaudi2-single-card-
driver, 1.24.1); of habanalabs-qual, that it brings lm-sensors with its libraries (richard-rhino/gaudi2-setup, qual-
install.log).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import docker
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from docker import DockerClient

from plugin_utils import releases
from simulator import apt, context, host, images, keys, network, packages, supply
from simulator.context import ContextFile
from simulator.packages import Signer, SimulatedPackage
from simulator.settings import CACHE, ROOT, Scope, SimulatorError

HOST = "simulated-driver-packages"
# Where HOST sends who asks for a package.
STORE = "simulated-driver-store"
PORT = 8095
# The kernel of descriptions that name one: Ubuntu 24.04's, of which the nodes have no package either.
KERNEL, KERNEL_PACKAGE = "6.8.0-45-generic", "6.8.0-45.45"
# What an update of that kernel brings. The package of its image is there as well, so that it boots next.
NEXT, NEXT_PACKAGE = "6.8.0-60-generic", "6.8.0-60.63"
# A newer one, on which no driver up to 1.24.0 builds, as a distribution offers beside the others.
TOO_NEW, TOO_NEW_PACKAGE = "6.17.0-22-generic", "6.17.0-22.22"
# The one version in the suite NEWEST; the catalogue may have it as well.
NEWER = "1.23.0-695"
# A suite with that one alone, as a mirror that keeps no former release.
NEWEST = "newest"
ABOUT = "Simulated: not an Intel Gaudi product"
# What habanalabs-qual brings, in the versions of Debian 12, and newer than these, so that apt takes them from here.
SENSORS_VERSION = "1:3.6.0-7.1+simulated"
SENSORS: dict[str, tuple[str, ...]] = {
    "libsensors-config": (),
    "libsensors5": ("libsensors-config",),
    "lm-sensors": ("libsensors5",),
}
# Which of these packages brings the file was not seen; both owners had it beside habanalabs-dkms.
MODULES_LOAD = "habanalabs_compat\nhabanalabs_en\nhabanalabs_cn\nhabanalabs_ib\n"
# The script of habanalabs-dkms, with its words.
POSTINST = """\
#!/bin/sh
set -e
echo "Adding Module to DKMS build system habanalabs {version}"
dkms add habanalabs/{version}
kernel=$(cat /proc/sys/kernel/osrelease)
echo "Doing initial module build habanalabs {version}"
dkms build habanalabs/{version} -k "$kernel" >/dev/null
echo "Installing initial module habanalabs {version}"
dkms install habanalabs/{version} -k "$kernel" >/dev/null
cat <<'END'

The driver does not load automatically. To load the driver, do the following:
{unload}
{load}
or reboot
-------------------------------------------------------------------
Habanalabs Driver package was installed successfully.

END
"""

_STANDINS = "/usr/local/lib/gaudi-simulator/standins"

Say = Callable[[str], None]


def offered() -> list[SimulatedPackage]:
    """All packages of the repository."""
    names = [entry["deb"] for entry in yaml.safe_load((ROOT / "catalog/driver.yml").read_text())["packages"]]
    versions = sorted({NEWER, *(str(releases.read(release)["software"]["driver"]) for release in releases.names())})
    vendors = [_vendors(name, version) for version in versions for name in names]
    return [
        *vendors,
        *_sensors(),
        *(
            SimulatedPackage(f"linux-{kind}-{kernel}", version, ABOUT)
            for kernel, version in ((KERNEL, KERNEL_PACKAGE), (NEXT, NEXT_PACKAGE), (TOO_NEW, TOO_NEW_PACKAGE))
            for kind in ("headers", "modules-extra")
        ),
        *(_image(kernel, version) for kernel, version in ((NEXT, NEXT_PACKAGE), (TOO_NEW, TOO_NEW_PACKAGE))),
    ]


def _image(kernel: str, version: str) -> SimulatedPackage:
    """A kernel's package, which puts an image into /boot that nothing can boot."""
    image = {f"boot/vmlinuz-{kernel}": context.text(f"{ABOUT}: there is no such kernel\n")}
    return SimulatedPackage(f"linux-image-{kernel}", version, ABOUT, files=image)


def _vendors(name: str, version: str) -> SimulatedPackage:
    """A package of the vendor's with what a simulated node has of it."""
    programs = {
        "habanalabs-firmware-tools": ("hl-smi", "hl_smi.py"),
        "habanalabs-container-runtime": ("habana-container-runtime", "habana_container_runtime.py"),
    }
    files: dict[str, ContextFile] = {}
    scripts: dict[str, str] = {}
    if name in programs:
        program, standin = programs[name]
        files[f"usr/bin/{program}"] = context.text(f'#!/bin/sh\nexec {_STANDINS}/{standin} "$@"\n', 0o755)
    if name == "habanalabs-dkms":
        order = _order(version)
        unload = "; ".join(f"rmmod {module}" for module in order["unload"])
        load = " && ".join(f"modprobe {module}" for module in order["load"])
        scripts["postinst"] = POSTINST.format(version=version, unload=unload, load=load)
        scripts["prerm"] = f"#!/bin/sh\nset -e\ndkms remove habanalabs/{version} --all\n"
        files["etc/modules-load.d/habanalabs.conf"] = context.text(MODULES_LOAD)
    depends = ("lm-sensors",) if name == "habanalabs-qual" else ()
    return SimulatedPackage(name, version, ABOUT, depends, files=files, scripts=scripts)


def _order(version: str) -> dict[str, list[str]]:
    """The order of a version's modules in the catalogue."""
    release = [int(part) for part in version.split("-")[0].split(".")]
    entries: list[dict[str, Any]] = yaml.safe_load((ROOT / "catalog/driver.yml").read_text())["modules"]
    return [entry for entry in entries if [int(part) for part in entry["since"].split(".")] <= release][-1]


def _sensors() -> list[SimulatedPackage]:
    """Packages of the distribution's that habanalabs-qual needs, without a service."""
    return [SimulatedPackage(name, SENSORS_VERSION, ABOUT, depends) for name, depends in SENSORS.items()]


def repository(signer: Signer) -> dict[str, ContextFile]:
    """The files of the repository."""
    made = offered()
    newest = [package for package in made if package.version == NEWER or package.name in SENSORS]
    files = dict(packages.repository(newest, NEWEST, signer))
    for suite in apt.SUITES.values():
        files |= packages.repository(made, suite, signer)
    return files


def signer() -> Signer:
    """The repository's key, made at first use. Callers hold the lock "images"."""
    path = CACHE / "driver-packages.key"
    if not path.exists():
        made = rsa.generate_private_key(65537, 3072)
        pem = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        keys.write_private(path, pem.decode())
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise SimulatorError(f"{path} is not a key the simulator made. Remove it, and it makes another.")
    return Signer(key, "simulated packages <nobody@localhost>")


def site() -> dict[str, object]:
    """What an inventory says of the repository."""
    with host.lock("images"):
        fingerprint = signer().fingerprint
    address = f"http://{HOST}:{PORT}"
    return {
        "gaudi_driver_repository": address,
        "gaudi_driver_key": f"{address}/key.asc",
        "gaudi_driver_key_fingerprint": fingerprint,
    }


def start(client: DockerClient, scope: Scope, say: Say) -> None:
    """Start the scope's repository, or find it running."""
    with host.lock("images"):
        image = images.base(client, say)
        files = {f"srv/packages/{path}": file for path, file in repository(signer()).items()}
    program = {"srv/redirecting.py": context.text((ROOT / "simulator/redirecting.py").read_text(encoding="utf-8"))}
    redirecting = ["python3", "/srv/redirecting.py", "/srv/packages", str(PORT), f"http://{STORE}:{PORT}"]
    with host.lock(f"scope-{scope.name}"):
        network.ensure(client, scope)
        commands = {STORE: (files, supply.static("/srv/packages", PORT)), HOST: ({**files, **program}, redirecting)}
        for name, (content, command) in commands.items():
            supply.wait(supply.container(client, scope, image, name, content, command), PORT)


def remove(client: DockerClient, scope: Scope) -> None:
    """Remove the scope's repository."""
    for name in (HOST, STORE):
        with contextlib.suppress(docker.errors.NotFound):
            client.containers.get(f"{scope.prefix}-{name}").remove(force=True, v=True)
