"""Translate errors of apt, DKMS and modprobe into a sentence with an id.

The patterns match the tools' messages under LC_ALL=C. An error that no pattern matches is shown as it was printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..apt import faults
from ..base.kernel_log import MISSING_FIRMWARE, MISSING_SYMBOL
from ..base.refusal import Refusal
from ..faults import words
from . import build_log
from .boot import FREE_BOOT

# A kernel, or the name or version of a package. Commands in sentences have them, and a text may be anybody's: nothing
# that a shell would read as more than one word.
_WORD = r"\w[\w.+~-]{0,99}"
_PACKAGE = r"\w[\w.+:-]{0,99}(?![^\s;])"

# The lock that all package managers take.
DATABASE = "dpkg's database"

_BAD_BUILD = re.compile(
    rf"(?:Bad return status for module build on kernel|Build of habanalabs\S+ failed for): (?P<kernel>{_WORD})"
)
# dpkg, of a package whose script failed; 10 is the status with which dkms says that a build failed (dkms 3.0).
_SCRIPT = re.compile(
    r"(?P<package>habanalabs-\S+) package (?P<script>[a-z-]+) script subprocess returned error exit status "
    r"(?P<status>\d+)"
)
_BUILD_STATUS = "10"
_NO_HEADERS = re.compile(
    rf"Your kernel headers for kernel (?P<kernel>{_WORD}) cannot be found"
    # DKMS 2 of Ubuntu 22.04 goes on without the module.
    rf"|Module build for kernel (?P<skipped>{_WORD}) was skipped since the\s+kernel headers"
)
_LEFT_OVER = re.compile(rf"DKMS tree already contains: (?P<module>\w[\w-]{{0,99}}?)-(?P<version>(?=[0-9]){_WORD})")
_UNKNOWN = re.compile(
    rf"module/version combo: (?P<module>habanalabs\w*)[-/](?P<version>(?=[0-9]){_WORD})\s+"
    "is not located in the DKMS tree"
)
_BUILD_LOG = re.compile(r"Consult (?P<log>/\S+)")
_REJECTED = re.compile(
    r"Key was rejected by service|Required key not available|unsigned module loading is restricted|"
    r"Loading of (unsigned module|module with unavailable key) is rejected",
    re.IGNORECASE,
)
# modprobe names no symbol.
_LACKS_SYMBOL = "Unknown symbol in module"
_NOT_FOUND = re.compile(rf"Module (?P<module>habanalabs\w*) not found in directory /lib/modules/(?P<kernel>{_WORD})")
_NOT_A_MODULE = re.compile(
    r"could not (?:insert|get modinfo from) '(?P<module>habanalabs\w*)': (?P<why>Invalid argument|Exec format error)"
)
_IN_USE = re.compile(r"Module (?P<module>habanalabs\w*) is in use")

_LOCKED = re.compile(
    r"Could not get lock (?P<file>/\S+?)\.?(?: It is held by process (?P<who>\d+ \([^)]*\)))?(?=[.\s]|$)"
    # dpkg's own words, where no apt stands before it.
    r"|dpkg: error: dpkg (?:frontend|database) lock (?:is|was) locked by another process(?: with pid (?P<process>\d+))?"
)
_INTERRUPTED = re.compile(r"dpkg was interrupted")
_HELD = re.compile(r"held packages were changed", re.IGNORECASE)
_BROKEN = re.compile(r"Unable to correct problems, you have held broken packages", re.IGNORECASE)
_NO_SPACE = re.compile(r"No space left on device|You don't have enough free space in (?P<where>/\S+?)\.?(\s|$)")
# lz4, zstd and gzip of mkinitramfs have their own messages for a file system that is full.
_BOOT_FULL = re.compile(
    r"Error 24 : Write error|cannot write compressed block|error 25 : Write error|error 70 : Write error"
    r"|(?:/boot|initrd|mkinitramfs|update-initramfs)[^\n]{0,300}No space left on device"
    r"|No space left on device[^\n]{0,300}\n(?:[^\n]{0,300}\n){0,5}?[^\n]{0,300}(?:mkinitramfs|update-initramfs)"
)
_UNREACHABLE = re.compile(
    r"(?:Failed to fetch|Could not (?:connect to|resolve)|Connection (?:refused|timed out)|Unable to connect to) *"
    r"(?P<where>[^\s']*)"
    # All that Ansible's module prints if python-apt gives no reason; seen with an address where nobody listens.
    r"|Failed to update apt cache(?: after \d+ retries)?:\s*(?:unknown reason)?\s*\Z"
)
# A package in the index of a mirror or a folder whose file differs, or is missing.
_NOT_AS_INDEXED = re.compile(
    r"Failed to fetch (?P<where>\S+\.(?:deb|rpm)) +"
    r"(?P<why>File not found|Hash Sum mismatch|File has unexpected size|404 +Not Found)"
)
_NO_SUITE = re.compile(r"The repository '(?P<what>[^']+)' (?:does(?:n't| not)|no longer) ha(?:ve|s) a Release file")
_NO_VERSION = re.compile(r"Version '(?P<what>[^']+)'(?: for '(?P<name>[^']+)')?")
# Ansible's module, where a preference ranks another version above the one that is asked for.
_NO_CANDIDATE = re.compile(
    r"no available installation candidate for '?(?P<name>[\w.+:-]{1,100})=(?P<what>[^\s']{1,100})"
)
_NOWHERE = re.compile(
    r"E: (?:Unable to locate package |Package '?)(?P<name>[\w.+:-]{1,100})(?:$|'? has no installation)", re.MULTILINE
)
# apt prints these lines before "you have held broken packages", also where no package is on hold. Only the first line
# of a package has its name.
_UNMET = re.compile(
    rf"^ *(?:(?P<name>{_PACKAGE}) : )?(?P<how>(?:Pre)?Depends|Breaks|Conflicts): (?P<needs>{_PACKAGE})"
    r"(?P<what> \([^)\n]{1,100}\))? but "
    r"(?:(?P<other>\S{1,100}) is (?:to be )?installed|(?P<but>it is not [a-z ]{1,40}))",
    re.MULTILINE,
)
_VERBS = {"Breaks": "breaks", "Conflicts": "conflicts with"}
# The same of dpkg, for a package that is there in another version. One that is not configured yet follows from what
# kept it from that.
_NEEDS = re.compile(
    rf"^ (?P<name>{_PACKAGE}) depends on (?P<needs>{_PACKAGE})(?P<what> \([^)\n]{{1,100}}\))?; however:\n"
    r" +Version of \S{1,100} on system is (?P<other>\S{1,100})\.$",
    re.MULTILINE,
)
# The same of dnf.
_NEEDS_DNF = re.compile(
    r"^ *(?:Problem(?: \d{1,3})?: |- )(?:\w{1,20} )?package (?P<name>\S{1,200})(?: from \S{1,100})? requires "
    r"(?P<needs>[^,\n]{1,200}), but (?P<but>[^\n]{1,200})",
    re.MULTILINE,
)
_SHARED_FILE = re.compile(
    rf"trying to overwrite (?:shared )?'(?P<path>[^'\n]{{1,300}})',\s+which is (?:also in package (?P<owner>{_PACKAGE})"
    r"(?P<version> \S{1,100})?|different from other instances)"
)
_ARCHIVE = re.compile(r"error processing archive [^\n]{0,300}?(?P<file>[\w.+~%:-]{1,200}\.deb)\b")


def recognised(
    said: str,
    repository: str = "",
    ca_file: str = "",
    denials: Mapping[str, str] | None = None,
    newest: str = "",
) -> Refusal | None:
    """Return the cause of a tool's error; None if no pattern matches. Causes are tested before their consequences.

    repository: the address of the driver's, "" if it is not known. ca_file: as in certificates.advice(). denials: what
    an answer 407 means, by the address of a repository that is reached through a proxy. newest: as in
    build_log.cause().
    """
    return (
        _of_dkms(said, newest)
        or _of_modprobe(said)
        or faults.denied(said, denials or {})
        or faults.redirected(said, repository)
        or _of_apt(said, repository, ca_file)
        or _of_a_repository(said)
    )


def left_over(name: str) -> Refusal:
    """Return the refusal for a module and version (MODULE/VERSION) that DKMS refuses to add again."""
    return Refusal(
        "dkms_left_over",
        f"DKMS has {name} from an install that was interrupted, and does not add it again.",
        f"Run dkms remove {name} --all and dpkg --configure -a on the node, then run again.",
    )


def locked(who: str, what: str = DATABASE) -> Refusal:
    """Return the refusal for a locked package database. who: the process, if it is known. what: the lock."""
    by = f" ({who})" if who else ""
    return Refusal(
        "packages_locked", f"Another program installs packages{by} and holds {what}.", "Run again when it is done."
    )


def interrupted() -> Refusal:
    """Return the refusal for a dpkg that was interrupted; apt does nothing until that is resolved."""
    return Refusal(
        "packages_interrupted",
        "dpkg was interrupted on this node.",
        "Run dpkg --configure -a there, look at what it says, then run again.",
    )


def others_by_half(names: Iterable[str]) -> Refusal:
    """Return the refusal for half-installed packages that are not the driver's."""
    return Refusal(
        "other_packages_half_installed",
        "dpkg was cut off on this node, and left other packages than the driver's installed by half: "
        f"{', '.join(names)}. This run does not repair them.",
        "Run dpkg --configure -a on the node, then apt-get install --reinstall NAME for what it passes over. Then run "
        "again.",
    )


def _of_dkms(said: str, newest: str) -> Refusal | None:
    if match := _LEFT_OVER.search(said):
        return left_over(f"{match['module']}/{match['version']}")
    if match := _UNKNOWN.search(said):
        name = f"{match['module']}/{match['version']}"
        return Refusal(
            "dkms_does_not_know",
            f"A package's script takes {name} out of DKMS, which does not have it: the script was cut off once, or "
            "somebody took it out.",
            f"Run dkms add {name} on the node, then run again.",
        )
    if match := _NO_HEADERS.search(said):
        kernel = match["kernel"] or match["skipped"]
        return Refusal(
            "no_kernel_headers",
            f"The headers of kernel {kernel} are not on the node, so DKMS cannot build the driver for it.",
            f"Install linux-headers-{kernel} (RHEL: kernel-devel-{kernel}), or boot a kernel that has its headers.",
        )
    if match := _BAD_BUILD.search(said):
        log = _BUILD_LOG.search(said)
        suspects = [build_log.suspect(match["kernel"], newest), "a missing compiler", "or incomplete headers"]
        return build_log.cause(said, match["kernel"], newest=newest) or Refusal(
            "driver_does_not_build",
            f"The driver does not build on kernel {match['kernel']}"
            + (f"; the compiler's messages are in {log['log']}." if log else "."),
            f"Look for its first error: {', '.join(filter(None, suspects))}. Then run again.",
        )
    return None


def build_failed(said: str) -> bool:
    """Whether a tool reports that the driver was not built, for any reason."""
    script = _SCRIPT.search(said)
    return bool(_BAD_BUILD.search(said) or (script and script["status"] == _BUILD_STATUS))


def _of_scripts(said: str) -> Refusal | None:
    """Return the refusal for a package whose script failed; dpkg configures the others."""
    match = _SCRIPT.search(said)
    if match is None:
        return None
    if match["status"] == _BUILD_STATUS:
        return Refusal(
            "driver_does_not_build",
            f"The {match['script']} script of {match['package']} ended with status {_BUILD_STATUS}: DKMS could not "
            "build the driver. The reason is in make.log below /var/lib/dkms/habanalabs.",
            "Remove it, then run again: the run has DKMS forget the attempt, and dpkg configure the package.",
        )
    return Refusal(
        "package_script_failed",
        f"The {match['script']} script of {match['package']} ended with status {match['status']}, so that dpkg left it "
        "half-installed. What it printed is below.",
        "Remove the cause, then run again, which configures the package.",
    )


def _of_modprobe(said: str) -> Refusal | None:
    if _REJECTED.search(said):
        return Refusal(
            "module_not_signed",
            "Secure Boot keeps the kernel from loading the driver: its modules were built on this node, and their "
            "key is not enrolled.",
            "Enrol DKMS's key (mokutil --import /var/lib/dkms/mok.pub, then confirm it at the console of the next "
            "boot), or switch Secure Boot off in the firmware's setup.",
        )
    if match := _NOT_FOUND.search(said):
        return Refusal(
            "kernel_without_driver",
            f"Kernel {match['kernel']} has no {match['module']} module.",
            f"Build it with dkms autoinstall -k {match['kernel']}, or boot a kernel that has one.",
        )
    if match := _NOT_A_MODULE.search(said):
        return Refusal(
            "module_file_damaged",
            f"The kernel does not accept the file of {match['module']} as a module ({match['why']}): it is empty, cut "
            "off or of another kernel, though dkms status may call it installed (ls -l /lib/modules/*/updates/dkms). "
            "After dkms remove, dkms install copies files that were never built.",
            "Run dkms build --force, then dkms install --force for the driver's version and this kernel; "
            "playbooks/driver.yml does both.",
        )
    if match := _IN_USE.search(said):
        return Refusal(
            "module_in_use",
            f"The kernel does not unload {match['module']}: something uses a card.",
            "Stop it (fuser /dev/accel/*), or reboot.",
        )
    if match := MISSING_SYMBOL.search(said):
        return _listed("symbols-missing", module=match["module"], symbols=match["symbol"])
    if _LACKS_SYMBOL in said:
        return _listed("symbols-missing", module="a module of the driver", symbols="a symbol that dmesg names")
    if match := MISSING_FIRMWARE.search(said):
        return _listed("firmware-missing", file=match["file"])
    return None


def _listed(identifier: str, **facts: str) -> Refusal:
    """Return the refusal for an entry of the list of faults."""
    entry = words.fault(identifier)
    return Refusal(entry.id, *words.fill(entry, **facts))


def _of_apt(said: str, repository: str, ca_file: str) -> Refusal | None:
    if match := _LOCKED.search(said):
        return locked(match["who"] or match["process"] or "", match["file"] or DATABASE)
    if _INTERRUPTED.search(said):
        return interrupted()
    if _BOOT_FULL.search(said):
        return Refusal(
            "boot_full",
            "/boot is full: the initramfs of a kernel could not be written.",
            f"{FREE_BOOT} Then run again: apt finishes its packages.",
        )
    if match := _NO_SPACE.search(said):
        return Refusal(
            "no_room_for_packages",
            f"The packages do not fit: {match['where'] or 'a file system'} is full.",
            "Free some space (apt-get clean), then run again.",
        )
    if found := _of_dependencies(said):
        return found
    if _HELD.search(said):
        return Refusal(
            "held_package_in_the_way",
            "A package that is on hold keeps the release from being installed.",
            "Run apt-mark showhold, and apt-mark unhold for the one in the way.",
        )
    return _of_repositories(said, repository, ca_file) or _of_scripts(said) or _of_versions(said)


def _of_dependencies(said: str) -> Refusal | None:
    """Return which packages do not go together."""
    if match := _SHARED_FILE.search(said):
        before = list(_ARCHIVE.finditer(said, 0, match.start()))
        archive = before[-1]["file"] if before else "a package"
        owner = match["owner"] or "of another architecture"
        return Refusal(
            "packages_share_a_file",
            f"dpkg does not unpack {archive}: {match['path']} is also a file of the package {owner}"
            f"{match['version'] or ''}.",
            "The two are of different releases or vendors. Remove the one that is not wanted (apt-get remove NAME), "
            "run apt-get --fix-broken install, then run again. Do not force it: dpkg would mix the files of both.",
        )
    unmet, name = [], ""
    for match in _UNMET.finditer(said):
        name = match["name"] or name
        unmet.append((match, name))
    # Another version says most; what is not going to be installed has a reason of its own.
    unmet.sort(key=lambda each: (each[0]["other"] is None, each[0]["but"] != "it is not installable"))
    if unmet:
        match, name = unmet[0]
        but = f"{match['other']} would be there" if match["other"] else match["but"].strip()
        return _unmet(name or "a package", _VERBS.get(match["how"], "needs"), match, but)
    if match := _NEEDS.search(said):
        return _unmet(match["name"], "needs", match, f"{match['other']} is installed")
    if match := _NEEDS_DNF.search(said):
        return Refusal(
            "dependency_unmet",
            f"dnf cannot install the packages together: {match['name']} requires {match['needs'].strip()}, but "
            f"{match['but'].strip()}.",
            "Ask for versions that fit: packages of the driver have to be of one release, which playbooks/driver.yml "
            "installs. dnf list --showduplicates NAME shows what the repositories offer, and dnf versionlock list what "
            "is held.",
        )
    if _BROKEN.search(said):
        return Refusal(
            "dependency_unmet",
            "apt cannot install the packages together, and the lines that say why are missing here: those after 'The "
            "following packages have unmet dependencies'.",
            "Run the same command again and read them. apt-cache policy NAME shows which versions the repositories "
            "offer, and apt-mark showhold what is on hold.",
        )
    return None


def _unmet(name: str, verb: str, match: re.Match[str], but: str) -> Refusal:
    """Return the refusal for packages that do not go together. match: with the groups needs and what."""
    needs = match["needs"]
    return Refusal(
        "dependency_unmet",
        f"apt cannot install the packages together: {name} {verb} {needs}{match['what'] or ''}, but {but}.",
        "Ask for versions that fit (apt-get install NAME=VERSION for each); packages of the driver have to be of one "
        f"release, which playbooks/driver.yml installs. apt-cache policy {needs} shows what the repositories offer, "
        "and apt-mark showhold whether it is on hold.",
    )


def _of_versions(said: str) -> Refusal | None:
    """Return why apt has no package, or not in this version."""
    if match := _NO_VERSION.search(said):
        return Refusal(
            "package_version_nowhere",
            f"No package repository of this node has {match['name'] or 'a package'} in version {match['what']}.",
            "Use a mirror that keeps it.",
        )
    if match := _NOWHERE.search(said):
        return Refusal(
            "package_nowhere",
            f"No package repository that this node has read has {match['name']}.",
            "Run apt-get update and read its errors; playbooks/driver.yml adds the repository of the release.",
        )
    if match := _NO_CANDIDATE.search(said):
        return Refusal(
            "package_version_not_preferred",
            f"apt does not take version {match['what']} of {match['name']}: a preference ranks another one above it, "
            "or no repository has it.",
            f"apt-cache policy {match['name']} shows both. An older version than the installed one needs "
            "gaudi_driver_replace: true.",
        )
    return None


def _of_repositories(said: str, repository: str, ca_file: str) -> Refusal | None:
    """Return the fault of the driver's repository, then that of another one, from what apt-get update printed."""
    printed = faults.parse(said)
    for fault in printed:
        if fault.kind in ("conflict", "unreadable"):
            return faults.unreadable(fault, [])
    # Files of packages are named without a suite.
    found = [fault for fault in printed if fault.suite and fault.kind != "absent"]
    ours = [fault for fault in found if faults.is_ours(fault, repository, "")]
    if ours:
        return faults.refusal(ours[0], ca_file=ca_file)
    return faults.of_any(found[0], known=bool(repository)) if found else None


def _of_a_repository(said: str) -> Refusal | None:
    if match := _NO_SUITE.search(said):
        return Refusal(
            "no_such_suite",
            f"There is no package repository at {match['what']}.",
            "Look at gaudi_driver_repository and gaudi_driver_suite.",
        )
    if match := _NOT_AS_INDEXED.search(said):
        return Refusal(
            "package_file_not_as_indexed",
            f"A package repository does not have a file as the node's package lists say: {match['where']} "
            f"({match['why']}).",
            "Run apt-get update, then run again: the lists may be older than the repository, which drops files of "
            "earlier versions. If that does not help, copy the file there again, or write the repository's index "
            "again (a mirror: synchronise it).",
        )
    if match := _UNREACHABLE.search(said):
        return Refusal(
            "repository_down",
            f"A package repository does not answer ({match['where'] or 'no address was said'}).",
            "Look at gaudi_driver_repository, at the node's proxy, and whether the server is up.",
        )
    return None
