"""The packages and modules of a driver, from ``catalog/driver.yml``, and those that one release needs on one system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.checks import Reader, sequence
from ..base.refusal import Refusal
from ..preflight import versions

WHERE = "catalog/driver.yml"
DEB, RPM = "deb", "rpm"
# Package format by family of systems, as Ansible's facts name the families.
FORMATS = {"Debian": DEB, "RedHat": RPM}
# The package with the driver itself, by format; its version is the driver's.
DRIVERS = {DEB: "habanalabs-dkms", RPM: "habanalabs"}

_OF_KERNEL = ("images", "headers", "extra")
KERNEL = re.compile(r"[0-9][A-Za-z0-9._+~-]{0,99}")
"""The form of a kernel's release (uname -r), which becomes part of a package's name."""
_WITH_BUILD = re.compile(r"[0-9]+(\.[0-9]+){2}-[0-9]+")


@dataclass(frozen=True)
class ModuleOrder:
    """The load and unload orders of a driver's kernel modules, valid from release ``since`` on."""

    since: str
    load: tuple[str, ...]
    unload: tuple[str, ...]


@dataclass(frozen=True)
class UnbuildableKernels:
    """Kernels on which drivers do not build: drivers up to one version, kernels from one version on."""

    drivers_to: str
    kernels_from: str


@dataclass(frozen=True)
class ReleasePackages:
    """The packages that one release needs on one system; ``version`` is as packages have it."""

    format: str
    version: str
    packages: tuple[str, ...]

    @property
    def exact(self) -> list[str]:
        """The packages with their version, as apt-get and dnf take them."""
        joint = "=" if self.format == DEB else "-"
        return [f"{name}{joint}{self.version}" for name in self.packages]


@dataclass(frozen=True)
class DriverCatalogue:
    """The content of the file. Names are by format (deb or rpm); those of a kernel's packages contain {kernel}."""

    packages: Mapping[str, tuple[str, ...]]
    images: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, tuple[str, ...]]
    extra: Mapping[str, tuple[str, ...]]
    unbuildable: tuple[UnbuildableKernels, ...]
    modules: tuple[ModuleOrder, ...]
    traces: tuple[str, ...]

    @classmethod
    def from_document(cls, document: object) -> DriverCatalogue:
        """Read the file's content; raises Refusal with file and key."""
        keys = ("schema", "packages", "kernel_packages", "unbuildable", "modules", "installer")
        top = Reader(document, WHERE, keys)
        named = [
            Reader(entry, f"{WHERE}: packages[{place}]", (DEB, RPM, "about", "source"))
            for place, entry in enumerate(sequence(top.raw("packages"), f"{WHERE}: packages"))
        ]
        kernel = Reader(top.raw("kernel_packages"), f"{WHERE}: kernel_packages", (*_OF_KERNEL, "source"))
        by_format = {key: Reader(kernel.raw(key), f"{WHERE}: {key}", (DEB, RPM)) for key in _OF_KERNEL}
        fails = [
            Reader(entry, f"{WHERE}: unbuildable[{place}]", ("drivers_to", "kernels_from", "source"))
            for place, entry in enumerate(sequence(top.raw("unbuildable"), f"{WHERE}: unbuildable"))
        ]
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
            images={format: by_format["images"].texts(format) for format in (DEB, RPM)},
            headers={format: by_format["headers"].texts(format) for format in (DEB, RPM)},
            extra={format: by_format["extra"].texts(format) for format in (DEB, RPM)},
            unbuildable=tuple(UnbuildableKernels(each.text("drivers_to"), each.text("kernels_from")) for each in fails),
            modules=tuple(orders),
            traces=installer.texts("traces", required=True),
        )

    def wanted(self, software: Mapping[str, object], family: str, suffix: str = "") -> ReleasePackages:
        """Return the packages that a release (``software`` of its file) needs on a family of systems.

        suffix: the end of an rpm's version, such as ``.el9``. Raises Refusal for a family that the vendor has no
        packages for, and for a release without a known build.
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
        return ReleasePackages(format, version + (suffix if format == RPM else ""), self.packages[format])

    def order(self, version: str) -> ModuleOrder:
        """Return the module order of a driver version; the newest order if the version cannot be parsed."""
        read = versions.vendors(version)
        found = self.modules[-1 if read is None else 0]
        for entry in self.modules:
            since = versions.read(entry.since)
            if read is not None and since is not None and versions.compare(read, since) >= 0:
                found = entry
        return found

    def images_of(self, format: str, kernel: str) -> list[str]:
        """Return the packages that contain a kernel."""
        return _for_kernel(self.images[format], kernel)

    def builds_on(self, version: str, kernel: str) -> bool:
        """Whether nothing is known that keeps a driver from being built for a kernel."""
        return not any(
            _order(version, fails.drivers_to) <= 0 <= _order(kernel, fails.kernels_from) for fails in self.unbuildable
        )

    def headers_of(self, format: str, kernel: str) -> list[str]:
        """Return the header packages that DKMS needs for a kernel."""
        return _for_kernel(self.headers[format], kernel)

    def extra_of(self, format: str, kernel: str) -> list[str]:
        """Return further packages that a kernel needs, if the distribution has them."""
        return _for_kernel(self.extra[format], kernel)


def _order(version: str, limit: str) -> int:
    """As versions.compare, which takes the numbers that both have. Raises Refusal for a text that is no version."""
    one, other = versions.vendors(version), versions.read(limit)
    if one is None or other is None:
        raise _no_kernel(version)
    return versions.compare(one, other)


def _no_kernel(text: str) -> Refusal:
    return Refusal(
        "no_kernel_release", f"{text!r} is no release of a kernel, such as 6.8.0-45-generic. Look at uname -r."
    )


def _for_kernel(names: tuple[str, ...], kernel: str) -> list[str]:
    if not KERNEL.fullmatch(kernel):
        raise _no_kernel(kernel)
    return [name.format(kernel=kernel) for name in names]
