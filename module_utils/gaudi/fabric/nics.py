"""Judge host NICs and libfabric, from facts read in a container of the serving image and on the node.

HCL falls back silently if the wrapper, the provider or Gaudi Direct is missing. So each is checked, and one run asks
for Gaudi Direct explicitly, which HCL then does not drop (hl_ofi.cpp and ofi_plugin.cpp of HabanaAI/HCL, release
1.21.0). What it then prints was never recorded on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..base.checks import shown
from ..faults.entry import ERROR
from ..faults.words import fault, say
from .output import RunOutput
from .static import StaticFault

# MINIMAL_LIBFABRIC_VERSION of HCL (hl_ofi.h of release 1.21.0) for every provider, whatever the manuals say.
LEAST_LIBFABRIC = (1, 20)
WRAPPER = "libhccl_ofi_wrapper.so"
# "libfabric: 1.22.0" of fi_info --version; "libfabric api: 1.22" is the interface's.
_VERSION = re.compile(r"^libfabric:\s*([0-9]{1,3})\.([0-9]{1,3})(?:\.([0-9]{1,3}))?", re.MULTILINE)
# Blanks within one line only: an image may print nothing but line breaks, which a wider pattern would scan repeatedly.
_PROVIDER = re.compile(r"^[ \t]*provider:[ \t]*(\S+)", re.MULTILINE)
# Failures by which a run with HCCL_GAUDI_DIRECT=1 says that Gaudi Direct is not available.
_NO_DIRECT = ("hccl-gaudi-direct", "hccl-no-provider")

# What is said of Gaudi Direct.
SLOWER = "Traffic goes through the host's memory, which is slower."
DIRECT: Mapping[bool | None, str] = {True: "in use", False: "not in use", None: "not known"}


@dataclass(frozen=True)
class HostNicFacts:
    """Facts about host NICs. None: the command could not be run or read.

    version_text: ``fi_info --version``. info_text and info_status: output (both streams) and status of ``fi_info -p
    PROVIDER``. loader_text and loader_status: where the loader found the wrapper, or why it did not. All were run in
    the image, with the variables of a run. dmabuf: ib_umem_dmabuf_get is in /proc/kallsyms.
    """

    version_text: str | None
    info_text: str | None
    info_status: int | None
    dmabuf: bool | None
    loader_text: str | None
    loader_status: int | None


@dataclass(frozen=True)
class HostNics:
    """The judgement: libfabric's version, the provider, the wrapper's path (None: not found), and Gaudi Direct.

    gaudi_direct is None if it is unknown. A fault that is not fatal only costs speed.
    """

    libfabric: str | None
    provider: str | None
    wrapper: str | None
    gaudi_direct: bool | None
    faults: tuple[StaticFault, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as the verdict has it."""
        return {**asdict(self), "faults": [fault.as_dict() for fault in self.faults]}


def goes_without(direct: RunOutput) -> bool:
    """Whether a run that asked for Gaudi Direct must be repeated without it, because it is not available."""
    return direct.failure is not None and direct.failure.id in _NO_DIRECT


def judge_nics(seen: HostNicFacts, provider: str, direct: RunOutput | None) -> HostNics:
    """Return the judgement; direct: output of the run that asked for Gaudi Direct, None without such a run.

    It is a run over host NICs with command(..., direct=True); a run that did not ask says nothing about Gaudi Direct.
    If goes_without() holds, the run is repeated with direct=False, and that one is measured.
    """
    version, faults = _libfabric(seen)
    found = _PROVIDER.findall(seen.info_text or "") if seen.info_status == 0 else []
    offered = next((name for name in found if name.split(";")[0] == provider), None)
    if offered is None:
        others = f", only {', '.join(sorted(set(found)))}" if found else ""
        faults.append(_fault("provider-missing", provider=shown(provider), others=others))
    loaded = (seen.loader_text or "").strip().rpartition("\n")[2]
    wrapper = loaded if seen.loader_status == 0 and loaded else None
    if wrapper is None:
        why = f" ({shown(loaded)})" if loaded else ""
        faults.append(_fault("wrapper-missing", wrapper=WRAPPER, why=why))
    holds, slower = _direct(seen, direct)
    return HostNics(version, offered, wrapper, holds, (*faults, *slower))


def _fault(identifier: str, **facts: object) -> StaticFault:
    """Return a fault with the words of the list."""
    return StaticFault(identifier, say(identifier, **facts), fatal=fault(identifier).severity == ERROR)


def _libfabric(seen: HostNicFacts) -> tuple[str | None, list[StaticFault]]:
    found = _VERSION.search(seen.version_text or "")
    if found is None:
        return None, [_fault("libfabric-missing")]
    version = ".".join(part for part in found.groups() if part is not None)
    if (int(found[1]), int(found[2])) >= LEAST_LIBFABRIC:
        return version, []
    return version, [_fault("libfabric-old", version=version, least=".".join(map(str, LEAST_LIBFABRIC)))]


def _direct(seen: HostNicFacts, direct: RunOutput | None) -> tuple[bool | None, tuple[StaticFault, ...]]:
    """Return whether Gaudi Direct is in use, and what prevents it."""
    failure = direct.failure if direct is not None else None
    if direct is not None and failure is None:
        return True, ()
    if direct is not None and failure is not None and goes_without(direct):
        return False, (StaticFault(failure.id, f"{failure.sentence} {SLOWER}", fatal=False),)
    if seen.dmabuf is False:
        return False, (_fault("no-dmabuf"),)
    if failure is not None:
        return None, (StaticFault(failure.id, f"The run that asks for Gaudi Direct failed. {failure.sentence}"),)
    return None, (_fault("host-nics-not-used"),)
