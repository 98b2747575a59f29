#!/usr/bin/python
"""Write how the programs of a node reach what is outside the site."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_access
short_description: Write how the programs of a node reach what is outside the site
description:
  - Writes the site's proxies and certificates below C(/etc/gaudi-serving/access), as configuration of apt and
    as a bundle with the certificates of the node's own system. A program uses them where a task names the files in its
    environment.
  - Where this project wrote a source of packages, C(/etc/apt/apt.conf.d/00gaudi-serving-source) has the same for its
    host alone, for every apt of the node. Proxies with an account, and what the node's own apt sets, are left out.
    Nothing else on the node is changed.
author: gaudi-serving
options:
  http_proxy:
    description: Proxy for http. Its address may hold a password. Empty for none.
    type: str
    default: ""
  https_proxy:
    description: Proxy for https, likewise.
    type: str
    default: ""
  no_proxy:
    description: Hosts that are reached without them.
    type: str
    default: ""
  certificates:
    description: Certificates of the site's own authorities, in PEM. Empty for none.
    type: str
    default: ""
  hosts:
    description: Hosts whose packages apt fetches, beside those of its sources. The exceptions among them take no proxy.
    type: list
    elements: str
    default: []
  repository:
    description: >-
      Address of our own source of packages, without an account. Empty for the one that is on the node, if there is one.
    type: str
    default: ""
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Of the file in C(/etc/apt/apt.conf.d) alone, with the proxy masked; the others may hold a password.
    support: partial
"""

EXAMPLES = r"""
- name: Write proxies and certificates
  site_access:
    https_proxy: http://proxy.example:3128
    certificates: "{{ lookup('ansible.builtin.file', '/etc/site/ca.pem') }}"
  register: access

- name: Install a package through them
  ansible.builtin.apt:
    name: rsync
  environment: "{{ access.environment }}"
"""

RETURN = r"""
environment:
  description: >-
    Variables for programs that fetch something; none where nothing is set, and in check mode while a file is missing.
  type: dict
  returned: always
  sample: {APT_CONFIG: /etc/gaudi-serving/access/apt.conf}
bundle:
  description: Path of the bundle of certificates; empty without certificates of the site.
  type: str
  returned: always
  sample: /etc/gaudi-serving/access/ca-certificates.crt
written:
  description: Paths that were, or would be, written or removed.
  type: list
  elements: str
  returned: always
  sample: [/etc/gaudi-serving/access/apt.conf]
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.base import access
from ansible.module_utils.gaudi.node import apt, web
from ansible.module_utils.gaudi.node.files import write_text
from ansible.module_utils.gaudi.node.module import NodeModule

ARGUMENT_SPEC: dict[str, Any] = {
    **web.ACCESS,
    "hosts": {"type": "list", "elements": "str", "default": []},
    "repository": {"type": "str", "default": ""},
}
FOLDER = Path(access.FOLDER)
APT = Path("/etc/apt")
SOURCE_CONF = Path(access.SOURCE_CONF)
ACCOUNTS = 0o600
OPEN = 0o644


def apt_sources(hosts: list[str]) -> str:
    """Return the text of apt's sources, and further hosts as addresses."""
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()]
    return "\n".join([*texts, *(f"https://{host}/" for host in hosts)])


def for_source(module: NodeModule) -> str:
    """Return apt's configuration for the host of our own source; "" without one."""
    params = module.params
    address = params["repository"] or apt.own_source()
    return apt.for_source(module, address, params, access.BUNDLE if params["certificates"] else "") if address else ""


def wanted(params: dict[str, Any], source: str) -> dict[Path, tuple[str, int]]:
    """Return text and permissions by path; an empty text for a file that is not to exist. source: of SOURCE_CONF."""
    proxies, no_proxy, certificates = (params["http_proxy"], params["https_proxy"]), params["no_proxy"], ""
    if params["certificates"]:
        certificates = web.bundle(params["certificates"])
    direct = access.apt_hosts(apt_sources(params["hosts"]), no_proxy) if any(proxies) else []
    files = {
        access.APT_CONF: (access.apt_conf(*proxies, direct, bundle=access.BUNDLE if certificates else ""), True),
        access.BUNDLE: (certificates, False),
        # Of an earlier release; the role model_weights has its own.
        f"{access.FOLDER}/pip.conf": ("", True),
    }
    found = {FOLDER / Path(path).name: (text, ACCOUNTS if secret else OPEN) for path, (text, secret) in files.items()}
    return {**found, SOURCE_CONF: (source, OPEN)}


def differing(files: dict[Path, tuple[str, int]]) -> list[Path]:
    """Return the paths that are not as wanted."""
    found = []
    for path, (text, mode) in files.items():
        there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if there != text or path.is_file() != bool(text) or (text and path.stat().st_mode & 0o777 != mode):
            found.append(path)
    return found


def write(path: Path, text: str, mode: int) -> None:
    """Write a file, or remove one that is not to exist."""
    if not text:
        path.unlink(missing_ok=True)
        return
    for folder in () if path == SOURCE_CONF else (FOLDER.parent, FOLDER):
        folder.mkdir(exist_ok=True)
        # Whatever the umask is: apt's own account reads there.
        folder.chmod(0o755)
    write_text(path, text, mode=mode)


def main() -> None:
    """Compare, write what differs unless in check mode, and say how programs find it."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    files = wanted(params, for_source(module))
    changed = differing(files)
    before = SOURCE_CONF.read_text(encoding="utf-8", errors="replace") if SOURCE_CONF.is_file() else ""
    diff = {"before": before, "after": files[SOURCE_CONF][0], "before_header": str(SOURCE_CONF)}
    for path in [] if module.check_mode else changed:
        write(path, *files[path])
    environment = access.environment(
        params["http_proxy"], params["https_proxy"], params["no_proxy"], certificates=bool(params["certificates"])
    )
    if module.check_mode and set(changed) - {SOURCE_CONF}:
        environment = {}
    bundle = access.BUNDLE if params["certificates"] else ""
    written = sorted(map(str, changed))
    module.exit_json(changed=bool(changed), written=written, environment=environment, bundle=bundle, diff=diff)


if __name__ == "__main__":
    main()
