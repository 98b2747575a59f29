"""Simulate an installation with the package manager of a node, before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ansible.module_utils.basic import AnsibleModule

from ..apt import faults
from ..base import certificates
from ..base.access import apt_conf, apt_hosts, dnf_access
from ..base.printable import printable
from ..base.refusal import Refusal
from ..driver.troubles import recognised
from ..engine import transaction
from ..engine.transaction import DEBIAN, RHEL, Transaction
from . import apt, package_states, web

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive"}
APT = Path("/etc/apt")
APT_LISTS = Path("/var/lib/apt/lists")
YUM = Path("/etc/yum.repos.d")
NOT_OFFERED = "packages_not_offered"
_SOURCES = (".list", ".sources")
# Lists of commands that apt runs with each update, and names behind all others in apt.conf.d.
_HOOKS = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")
_MAIN, _LAST = "zzzy-apt.conf", "zzzz-without-commands"


def simulate(
    module: AnsibleModule,
    family: str,
    wanted: Mapping[str, Sequence[str]],
    *,
    ours: Collection[str],
    own: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Transaction:
    """Return what an installation would do. Raises Refusal if it would harm packages of others, or cannot be done.

    wanted: packages by the part of this project that asks for them. ours: packages that this project installed. own:
    how names of packages begin that the part treats by rules of its own. options: further options of the package
    manager.
    """
    packages = [package for names in wanted.values() for package in names]

    def result(names: Sequence[str]) -> Transaction:
        found: Transaction = transaction.parse(family, _said(module, family, names, options, _help(wanted, names)))
        return found

    def cause(name: str) -> list[str]:
        def harms(package: str) -> bool:
            found = result([package])
            return name in (*found.removed, *found.downgraded, *found.held)

        return ([package for package in packages if harms(package)] if len(packages) > 1 else []) or packages

    whole = result(packages)
    others = whole.without(ours, own)
    if "--allow-change-held-packages" in options:
        others = replace(others, held=())
    # apt removes what dpkg has only unpacked in part: that is no conflict with what is requested.
    found = package_states.states(module, family, others.removed)
    half = tuple(name for name in others.removed if found.get(name) in package_states.HALF)
    removed = tuple(name for name in others.removed if name not in half)
    others = replace(others, removed=removed, unfinished=(*others.unfinished, *half))
    # The role gaudi_driver finishes packages of the driver (docs/driver.md).
    others = replace(others, unfinished=tuple(name for name in others.unfinished if not name.startswith("habana")))
    affected = (*others.removed, *others.downgraded, *others.held)
    causes = cause(affected[0]) if affected else []
    refusal = transaction.refusal(others, lambda _: causes, _help(wanted, causes or packages))
    if refusal is not None:
        raise refusal
    return whole


def _help(wanted: Mapping[str, Sequence[str]], packages: Sequence[str]) -> str:
    part = next((part for part, names in wanted.items() if set(names) & set(packages)), "weights")
    return transaction.HELP.get(part, transaction.HELP["weights"])


def _said(module: AnsibleModule, family: str, packages: Sequence[str], options: Sequence[str], help: str) -> str:
    command = transaction.simulation(family, packages, options)
    code, out, err = module.run_command(command, environ_update=ENVIRONMENT)
    # dnf ends with status 1 after a transaction that it was told not to do.
    if code != 0 and not (family == RHEL and "Operation aborted" in out + err):
        raise _reason(module, family, f"{out}\n{err}", packages, help) or Refusal(
            "apt_failed", printable((err or out).strip())
        )
    return str(out)


def _reason(module: AnsibleModule, family: str, printed: str, packages: Sequence[str], help: str) -> Refusal | None:
    """Return why packages cannot be installed; None if the package manager's words are not known."""
    found: Refusal | None = transaction.cannot(printed, packages, help)
    if found is not None and found.id == "packages_do_not_fit" and family == DEBIAN:
        _, holds, _ = module.run_command(["apt-mark", "showhold"], environ_update=ENVIRONMENT)
        held = transaction.held_among(holds.split(), printed)
        return transaction.on_hold(packages, held) if held else found
    return found or apt.in_conflict(printed) or recognised(printed)


def foresee(
    module: AnsibleModule,
    family: str,
    wanted: Mapping[str, Sequence[str]],
    ours: Collection[str],
    read_indexes: Callable[[], Mapping[str, str]],
    access: Mapping[str, str],
) -> list[str]:
    """Simulate an installation from repositories that the node may not know yet; nothing on the node changes.

    wanted, ours: as in simulate(), which also raises Refusal. read_indexes: reads what private_lists() takes. access:
    likewise. Returns what to report: packages of others that would be upgraded, or why nothing can be foreseen.
    """
    packages = [package for names in wanted.values() for package in names]

    def simulated(options: Sequence[str] = ()) -> list[str]:
        found = simulate(module, family, wanted, ours=ours, options=options)
        warnings: list[str] = transaction.upgrades(found.without(ours), packages)
        return warnings

    try:
        return simulated()
    except Refusal as refusal:
        # dnf reads repositories here, which may answer once it knows the site's proxy.
        if refusal.id in transaction.HARMS or (family == DEBIAN and refusal.id != NOT_OFFERED):
            raise
        last = str(refusal)
    indexes = read_indexes()
    # With the repositories that this project will add; then, for a node that never read its lists, with all.
    for update in (False, True) if family == DEBIAN else (False,):
        if not update and not indexes:
            continue
        with private_lists(module, family, indexes, access, update=update) as options:
            if options is None:
                return [f"packages: {last} Not all lists of packages can be read now."]
            try:
                return simulated(options)
            except Refusal as refusal:
                if refusal.id in transaction.HARMS or (update and refusal.id == NOT_OFFERED):
                    raise
                last = str(refusal)
    return [f"packages: {last}"]


def section(name: str, access: Mapping[str, str]) -> str:
    """Return a repository for dnf, of which only the list of packages is read. access: of base.access.dnf_access."""
    keys = {"name": name, **access, "enabled": "1", "gpgcheck": "0", "repo_gpgcheck": "0"}
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in keys.items())


@contextmanager
def private_lists(
    module: AnsibleModule,
    family: str,
    indexes: Mapping[str, str],
    access: Mapping[str, str],
    *,
    update: bool = False,
) -> Iterator[list[str] | None]:
    """Give the options with which the package manager also knows repositories that are not configured on the node.

    indexes: by name, what such a repository contains: the text of its file Packages for apt, its address for dnf.
    access: ``http_proxy``, ``https_proxy``, ``no_proxy``, and ``certificates`` in PEM, of the site. update: whether the
    node's own repositories are read as well, as where they never were. All of it is in a temporary directory of root's.
    None if apt cannot read all of them.
    """
    with TemporaryDirectory(prefix="gaudi-serving-") as name:
        folder = Path(name)
        if family == RHEL:
            bundle, no_proxy = _write_bundle(folder, access), access.get("no_proxy", "")
            proxies = (access.get("http_proxy", ""), access.get("https_proxy", ""))
            for index, url in indexes.items():
                _write_secret(folder / f"{index}.repo", section(index, dnf_access(url, *proxies, no_proxy, bundle)))
            yield [f"--setopt=reposdir={YUM},{folder}"]
            return
        options = _make_lists(folder, indexes, keep=not update)
        sources = ["-o", f"Dir::Etc::SourceParts={folder / 'sources'}"]
        # The indexes are files here; the node's own repositories are only asked where they have to be.
        only = ["-o", f"Dir::Etc::SourceParts={folder / 'ours'}", "-o", "Dir::Etc::SourceList=/dev/null"]
        code, printed = _update(module, folder, access, [*options, *(sources if update else only)])
        whole = code == 0 and "Failed to fetch" not in printed and "failed to download" not in printed
        yield [*options, *sources] if whole else None


def unread(module: AnsibleModule, repository: str, suite: str, options: str, access: Mapping[str, str]) -> list[str]:
    """Return warnings about repositories of others that apt cannot read; nothing on the node changes.

    repository, suite, options: of ours that packages come from, as apt/faults.judge() takes them, which raises Refusal
    as it does for the run. access: as in private_lists().
    """
    with TemporaryDirectory(prefix="gaudi-serving-") as name:
        folder = Path(name)
        lists = _make_lists(folder, {}, keep=False)
        # any: as in apt.update().
        how = ["-o", "Acquire::Languages=none", "-o", "APT::Update::Error-Mode=any"]
        _code, printed = _update(module, folder, access, [*lists, *how])
    found = faults.parse(printed)
    ways = {fault.uri: apt.coming(module, fault.uri, access) for fault in found}
    ca_file = certificates.OPTION if access.get("certificates") else ""
    proxies = {uri: proxy for uri, (_variables, proxy) in ways.items()}
    judged: list[str] = faults.judge(
        found, apt.read_sources(), repository, suite or apt.codename(), options, ca_file, proxies
    )
    return judged


def _update(module: AnsibleModule, folder: Path, access: Mapping[str, str], options: Sequence[str]) -> tuple[int, str]:
    """Have apt read repositories into private lists, through the site's proxies; return its status and output.

    Commands that the node has apt run before and after each update are left out, since they change the node.
    """
    bundle, no_proxy = _write_bundle(folder, access), access.get("no_proxy", "")
    proxies = (access.get("http_proxy", ""), access.get("https_proxy", ""))
    direct = apt_hosts("\n".join(source.uri for source in apt.read_sources()), no_proxy) if any(proxies) else []
    parts, own = folder / "parts", APT / "apt.conf.d"
    parts.mkdir()
    for file in own.iterdir() if own.is_dir() else ():
        (parts / file.name).symlink_to(file)
    if (APT / "apt.conf").is_file():
        (parts / _MAIN).symlink_to(APT / "apt.conf")
    (parts / _LAST).write_text("".join(f"#clear APT::Update::{name};\n" for name in _HOOKS), encoding="utf-8")
    # It is read first (apt.conf(5)), so the node's own settings win.
    before = [f'#include "{os.environ["APT_CONFIG"]}";\n'] if os.environ.get("APT_CONFIG") else []
    conf = apt_conf(*proxies, direct, bundle=bundle)
    _write_secret(
        folder / "apt.conf", "".join([*before, conf, f'Dir::Etc::Parts "{parts}";\nDir::Etc::Main "/dev/null";\n'])
    )
    command = ["apt-get", "--quiet", *options, "-o", "APT::Get::List-Cleanup=0", "-o", "APT::Sandbox::User=root"]
    command += ["-o", "Acquire::Retries=0", "update"]
    environment = {**ENVIRONMENT, "APT_CONFIG": str(folder / "apt.conf")}
    code, out, err = module.run_command(command, environ_update=environment)
    return int(code), f"{out}\n{err}"


def _write_bundle(folder: Path, access: Mapping[str, str]) -> str:
    """Write the certificates that the site's programs trust; return their path, "" without any of the site's."""
    file = folder / "ca-certificates.crt"
    if not access.get("certificates"):
        return ""
    file.write_text(web.bundle(access["certificates"]), encoding="utf-8")
    return str(file)


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _make_lists(folder: Path, indexes: Mapping[str, str], *, keep: bool) -> list[str]:
    """Write private lists and sources of apt; return the options that name the lists. keep: with those of the node."""
    for name in ("lists/partial", "cache/archives/partial", "sources", "ours"):
        (folder / name).mkdir(parents=True)
    parts = APT / "sources.list.d"
    for file in parts.iterdir() if parts.is_dir() else ():
        if file.suffix in _SOURCES:
            (folder / "sources" / file.name).symlink_to(file)
    for file in APT_LISTS.iterdir() if keep and APT_LISTS.is_dir() else ():
        if file.is_file() and file.name != "lock" and os.access(file, os.R_OK):
            (folder / "lists" / file.name).symlink_to(file)
    for name, text in indexes.items():
        (folder / name).mkdir()
        (folder / name / "Packages").write_text(text, encoding="utf-8")
        # Nothing is installed from it, so that nothing has to be signed.
        line = f"deb [trusted=yes] file:{folder / name} ./\n"
        for place in ("sources", "ours"):
            (folder / place / f"gaudi-serving-{name}.list").write_text(line, encoding="utf-8")
    return ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]
