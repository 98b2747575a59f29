"""Read apt's sources, keyrings and settings, and have it read its repositories."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..apt import config, faults, sources
from ..apt.faults import AptFault
from ..apt.sources import AptSource
from ..base import access
from ..base.refusal import Refusal
from ..base.values import without_accounts, without_login
from ..engine.openpgp import keyring
from . import web

ETC = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
LISTS = Path("/var/lib/apt/lists")
# Seconds between two attempts while another program has the lock of the lists, for which apt does not wait.
LOCK_PAUSE = 2
# The last characters of unknown output.
LAST = 1500


def read_sources() -> list[AptSource]:
    """Return all enabled sources of the node, in apt's order."""
    parts = ETC / "sources.list.d"
    files = [
        ETC / "sources.list",
        *sorted(file for suffix in ("list", "sources") for file in parts.glob(f"*.{suffix}")),
    ]
    found: list[AptSource] = []
    for file in files:
        if file.is_file():
            found += sources.parse(str(file), file.read_text(encoding="utf-8", errors="replace"))
    return found


def keys_of(path: str) -> list[str]:
    """Return the fingerprints in a keyring, or in all keyrings that apt trusts for ""; [] if it cannot be read."""
    files = [Path(path)] if path else [ETC / "trusted.gpg", *sorted((ETC / "trusted.gpg.d").glob("*.[ga][ps][gc]"))]
    found: list[str] = []
    for file in files:
        if file.is_file():
            try:
                found += keyring(file.read_bytes())
            except Refusal:
                # No keys that apt would read either.
                continue
    return found


def existing_source(repository: str, suite: str, fingerprint: str) -> str:
    """Return the file of the node's own source for a repository; "" if there is none. Raises Refusal.

    suite: "" means the codename of the system.
    """
    file: str = sources.existing(read_sources(), repository, suite or codename(), fingerprint, keys_of, os.path.exists)
    return file


def in_conflict(printed: str) -> Refusal | None:
    """Return the refusal, with their files, for sources that name different keys; None if apt printed no such error."""
    found = [fault for fault in faults.parse(printed) if fault.kind == "conflict"]
    return faults.unreadable(found[0], read_sources()) if found else None


def _in_effect(module: AnsibleModule) -> dict[str, str]:
    """Return the settings of apt in this process; {} without apt.

    Those of our source's file are left out, as they repeat the site's.
    """
    program = module.get_bin_path("apt-config")
    status, out, _ = module.run_command([program, "dump"]) if program else (1, "", "")
    ours = _lines(ETC / "apt.conf.d" / Path(access.SOURCE_CONF).name)
    found = config.without_parents(config.parse(out)) if status == 0 else {}
    return {name: value for name, value in found.items() if ours.get(name) != value}


def _lines(file: Path) -> dict[str, str]:
    """Return the settings in a file of ours, which has one a line; {} without it."""
    return config.parse(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else {}


def for_source(module: AnsibleModule, url: str, given: Mapping[str, str], bundle: str) -> str:
    """Return the settings with which every apt of the node reaches our source; "" where it needs none.

    given: the site's ``http_proxy``, ``https_proxy`` and ``no_proxy``. bundle: the file of certificates, "" without the
    site's. What the node's own settings say of that host, or of all, is left to them.
    """
    own = _of_owner(module)
    found, (key, _) = config.route(own, url), config.proxy_setting(own, url)
    proxies = ("", "") if key else (given.get("http_proxy", ""), given.get("https_proxy", ""))
    text: str = access.source_conf(url, *proxies, given.get("no_proxy", ""), bundle="" if found.ca else bundle)
    return text


def _of_owner(module: AnsibleModule) -> dict[str, str]:
    """Return the node's own settings of apt. The file of the site is for our own calls."""
    site = _lines(Path(access.APT_CONF))
    return {name: value for name, value in _in_effect(module).items() if site.get(name) != value}


def own_source() -> str:
    """Return the address of the source that this project wrote, without an account; "" without one."""
    ours = [
        source.uri
        for source in read_sources()
        if source.file == str(ETC / "sources.list.d" / Path(sources.OWN_FILE).name)
        and source.signed_by == sources.OWN_KEYRING
    ]
    return str(without_login(next(iter(ours), "")))


def unreached_by_owner(module: AnsibleModule, coming: Sequence[str], given: Mapping[str, str]) -> list[str]:
    """Return sentences on our sources that the owner's own calls of apt cannot reach; [] without apt.

    coming: addresses of sources that this run may write. given: as for for_source().
    """
    if not module.get_bin_path("apt-config"):
        return []
    own = _of_owner(module)
    proxies = (given.get("http_proxy", ""), given.get("https_proxy", ""), given.get("no_proxy", ""))
    addresses = [url for url in (own_source(), *coming) if url and not config.proxy_setting(own, url)[0]]
    return list(dict.fromkeys(said for url in addresses if (said := access.without_account(url, *proxies))))


def environment(module: AnsibleModule, url: str) -> dict[str, str]:
    """Return environment variables with which a program reaches an address as apt does; {} where apt sets nothing."""
    found = config.route(_in_effect(module), url)
    proxy = found.proxy
    if found.detector and os.access(found.detector, os.X_OK):
        status, out, _ = module.run_command([found.detector, url])
        printed = config.detected(out) if status == 0 else None
        proxy = proxy if printed is None else printed
    variables = dict.fromkeys(("http_proxy", "https_proxy"), proxy) if proxy else {}
    if proxy == "":
        variables = {"no_proxy": "*"}
    return {
        **{name: str(value) for name, value in variables.items()},
        **({"SSL_CERT_FILE": found.ca} if found.ca else {}),
    }


def route(module: AnsibleModule, url: str, access: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of environment() for what the site has not set itself.

    access: the site's ``http_proxy``, ``https_proxy`` and ``certificates``.
    """
    own = environment(module, url)
    if access.get("http_proxy") or access.get("https_proxy"):
        own = {name: value for name, value in own.items() if not name.endswith("_proxy")}
    if access.get("certificates"):
        own.pop("SSL_CERT_FILE", None)
    return own


def proxy(module: AnsibleModule, url: str) -> config.AptProxy | None:
    """Return the proxy through which apt reaches an address in this process, and what sets it; None without one."""
    if not url.startswith(("http:", "https:")):
        return None
    key, value = config.proxy_setting(_in_effect(module), url)
    address = environment(module, url).get("https_proxy", "")
    if not address:
        return None
    # /etc/apt wins over the file of the site.
    named = [str(file) for file in _settings() if _sets(file, value)]
    if not named and os.environ.get("APT_CONFIG") == access.APT_CONF:
        return _of_site(key, address)
    return config.AptProxy(address, f"{key} of {named[-1]}" if named else f"{key} of apt")


def request_proxy(module: AnsibleModule, url: str, given: Mapping[str, str]) -> config.AptProxy | None:
    """Return the proxy that a module's own request takes with route(), and what sets it; None without one.

    given: the site's ``http_proxy``, ``https_proxy`` and ``no_proxy``, which win here.
    """
    proxies = (given.get("http_proxy", ""), given.get("https_proxy", ""))
    if any(proxies):
        address = access.proxy_of(url, *proxies, given.get("no_proxy", ""))
        return _of_site(f"Acquire::{url.partition(':')[0]}:", address) if address else None
    return proxy(module, url)


def denials(module: AnsibleModule) -> dict[str, str]:
    """Return what an answer 407 of a proxy means, by the address of each repository that apt reaches through one."""
    through = {source.uri: proxy(module, source.uri) for source in read_sources()}
    return {without_login(address): one.denied() for address, one in through.items() if one}


def _of_site(key: str, address: str) -> config.AptProxy:
    """Return a proxy that the file of the site sets by a key of apt's."""
    option = "gaudi_https_proxy" if key.startswith("Acquire::https:") else "gaudi_http_proxy"
    return config.AptProxy(address, option, ours=True)


def _sets(file: Path, value: str) -> bool:
    """Whether a file of settings has a value outside of comments."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(value in line for line in lines if not line.lstrip().startswith(("//", "#")))


def _settings() -> list[Path]:
    """Return the files of settings that apt reads on this node, but for ours."""
    files = [ETC / "apt.conf", *sorted((ETC / "apt.conf.d").glob("*"))]
    return [file for file in files if file.is_file() and file.name != Path(access.SOURCE_CONF).name]


def coming(module: AnsibleModule, url: str, given: Mapping[str, str]) -> tuple[dict[str, str], config.AptProxy | None]:
    """Return how apt will reach an address once the site's settings are written: variables of the environment, a proxy.

    given: the site's ``http_proxy``, ``https_proxy``, ``no_proxy`` and ``certificates``. What /etc/apt sets wins.
    """
    own, dumped = route(module, url, {"certificates": given.get("certificates", "")}), _in_effect(module)
    proxies = (given.get("http_proxy", ""), given.get("https_proxy", ""))
    direct = access.apt_hosts(f"{url} {' '.join(source.uri for source in read_sources())}", given.get("no_proxy", ""))
    together = {**config.parse(access.apt_conf(*proxies, direct, bundle="")), **dumped}
    key, value = config.proxy_setting(together, url)
    if key and key.lower() not in dumped:
        # A setting of the site for this host, or there is none of apt's.
        own = {name: text for name, text in own.items() if not name.endswith("_proxy")}
        if value == "DIRECT":
            return {**own, "no_proxy": "*"}, None
        return {**own, "http_proxy": value, "https_proxy": value}, _of_site(key, value)
    return own, proxy(module, url)


def unusable_proxy(module: AnsibleModule, addresses: Sequence[str], given: Mapping[str, str]) -> Refusal | None:
    """Ask each proxy of the site once, as packages will be fetched; return the refusal if one serves no request.

    addresses: of repositories, beside the sources of the node. given: as for coming(). Proxies that only apt knows are
    left to apt, which says of each repository what is wrong.
    """
    asked: set[str] = set()
    for url in dict.fromkeys([*(source.uri for source in read_sources()), *addresses]):
        variables, through = coming(module, url, given) if url.startswith(("http:", "https:")) else ({}, None)
        if through is None or not through.ours or through.address in asked:
            continue
        asked.add(through.address)
        # The answer of the server itself is checked where the repository is read.
        if unusable := faults.unusable(web.error_of(url, given, variables), through):
            return Refusal("repository_behind_proxy", f"{unusable} Packages that this run installs come through it.")
    return None


def age() -> float:
    """Return the seconds since apt last read its repositories; infinity if it never did."""
    if not any(LISTS.glob("*_Packages*")):
        return float("inf")
    return time.time() - LISTS.stat().st_mtime


def update(module: AnsibleModule, lock_timeout: int) -> tuple[list[AptFault], str]:
    """Have apt read all repositories; return the faults, and the output if it failed without any.

    Waits while another program has the lock of the lists. Raises Refusal if that takes too long.
    """
    # any: apt otherwise ends with 0 if a repository does not answer, and this prints the same messages.
    command = [module.get_bin_path("apt-get", required=True), "-o", "APT::Update::Error-Mode=any", "update"]
    until = time.monotonic() + lock_timeout
    while True:
        status, out, err = module.run_command(command)
        found = faults.parse(f"{out}\n{err}")
        locks = [fault for fault in found if fault.kind == "lock"]
        if not locks:
            unknown = without_accounts(f"{out}\n{err}").strip()[-LAST:]
            return found, "" if status == 0 or found else unknown
        if time.monotonic() >= until:
            raise Refusal(
                "package_lists_locked",
                f"Another program has read package lists for {lock_timeout} s ({locks[0].message}). Run again when it "
                "is done.",
            )
        time.sleep(LOCK_PAUSE)


def codename() -> str:
    """Return the codename of the system, which suites are named by; "" if it has none."""
    match = re.search(r'^VERSION_CODENAME="?([a-z]+)', OS_RELEASE.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""
