"""What a driver is made of on a node, as ``catalog/driver.yml`` has it, and what of it one release and system want."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.checks import Reader, sequence
from ..base.refusal import Refusal
from ..preflight import versions

WHERE = "catalog/driver.yml"
DEB, RPM = "deb", "rpm"
# Families of systems, as Ansible's facts call them, and what their packages are.
FORMATS = {"Debian": DEB, "RedHat": RPM}
# The driver itself, in both families; a release's package carries its version.
DRIVERS = {DEB: "habanalabs-dkms", RPM: "habanalabs"}

# What uname -r prints becomes part of a package's name.
_KERNEL = re.compile(r"[0-9][A-Za-z0-9._+~-]{0,99}")
_WITH_BUILD = re.compile(r"[0-9]+(\.[0-9]+){2}-[0-9]+")


@dataclass(frozen=True)
class ModuleOrder:
    """The kernel modules of a driver: the release they hold from, and the orders."""

    since: str
    load: tuple[str, ...]
    unload: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """What one release wants on one system: ``version`` as the packages have it, and their names."""

    format: str
    version: str
    packages: tuple[str, ...]

    @property
    def exact(self) -> list[str]:
        """The packages with their version, as apt-get and dnf take them."""
        joint = "=" if self.format == DEB else "-"
        return [f"{name}{joint}{self.version}" for name in self.packages]


@dataclass(frozen=True)
class Facts:
    """What the file says. Names are by format, deb or rpm; ``headers`` and ``extra`` have {kernel} in them."""

    packages: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, tuple[str, ...]]
    extra: Mapping[str, tuple[str, ...]]
    modules: tuple[ModuleOrder, ...]
    traces: tuple[str, ...]

    @classmethod
    def from_document(cls, document: object) -> Facts:
        """Read the file's content; raises Refusal with file and key."""
        top = Reader(document, WHERE, ("schema", "packages", "kernel_packages", "modules", "installer"))
        named = [
            Reader(entry, f"{WHERE}: packages[{place}]", (DEB, RPM, "about", "source"))
            for place, entry in enumerate(sequence(top.raw("packages"), f"{WHERE}: packages"))
        ]
        kernel = Reader(top.raw("kernel_packages"), f"{WHERE}: kernel_packages", ("headers", "extra", "source"))
        by_format = {key: Reader(kernel.raw(key), f"{WHERE}: {key}", (DEB, RPM)) for key in ("headers", "extra")}
        orders = []
        for place, entry in enumerate(sequence(top.raw("modules"), f"{WHERE}: modules")):
            reader = Reader(entry, f"{WHERE}: modules[{place}]", ("since", "load", "unload", "source"))
            orders.append(
                ModuleOrder(
                    reader.text("since"), reader.texts("load", required=True), reader.texts("unload", required=True)
                )
            )
        installer = Reader(top.raw("installer"), f"{WHERE}: installer", ("traces", "source"))
        return cls(
            packages={format: tuple(reader.text(format) for reader in named) for format in (DEB, RPM)},
            headers={format: by_format["headers"].texts(format) for format in (DEB, RPM)},
            extra={format: by_format["extra"].texts(format) for format in (DEB, RPM)},
            modules=tuple(orders),
            traces=installer.texts("traces", required=True),
        )

    def wanted(self, software: Mapping[str, object], family: str, suffix: str = "") -> Wanted:
        """What a release's file (key ``software``) wants on a family of systems.

        suffix: what an rpm has behind its version, such as ``.el9``. Raises Refusal for a family without packages of
        the vendor's, and for a release whose build nobody knows.
        """
        format = FORMATS.get(family)
        if format is None:
            raise Refusal(
                "no_packages_for_system",
                "The vendor has packages for Debian's and Red Hat's families of systems, not for "
                f"{family or 'this one'}. Install the driver by hand, and leave gaudi_driver out.",
            )
        version = str(software.get("driver", ""))
        if not _WITH_BUILD.fullmatch(version):
            raise Refusal(
                "driver_without_build",
                f"The release's file names the driver {version or 'nowhere'}, without its build (1.22.2-32): packages "
                "are installed at exact versions. Add it (software.driver).",
            )
        return Wanted(format, version + (suffix if format == RPM else ""), self.packages[format])

    def order(self, version: str) -> ModuleOrder:
        """The modules of a driver, by its version; of one that cannot be read, those of the newest."""
        read = versions.vendors(version)
        found = self.modules[-1 if read is None else 0]
        for entry in self.modules:
            since = versions.read(entry.since)
            if read is not None and since is not None and versions.compare(read, since) >= 0:
                found = entry
        return found

    def headers_of(self, format: str, kernel: str) -> list[str]:
        """The packages without which DKMS builds nothing for a kernel."""
        return _for_kernel(self.headers[format], kernel)

    def extra_of(self, format: str, kernel: str) -> list[str]:
        """Packages that a kernel needs besides, where the distribution has them."""
        return _for_kernel(self.extra[format], kernel)


def _for_kernel(names: tuple[str, ...], kernel: str) -> list[str]:
    if not _KERNEL.fullmatch(kernel):
        raise Refusal(
            "no_kernel_release", f"{kernel!r} is no release of a kernel (6.8.0-45-generic). Look at uname -r."
        )
    return [name.format(kernel=kernel) for name in names]
