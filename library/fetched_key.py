#!/usr/bin/python
"""Fetch the key of a package repository, through the site's proxy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fetched_key
short_description: Fetch the key of a package repository, through the site's proxy
description:
  - Unlike C(ansible.builtin.get_url) it takes a proxy with an account as an option, which no list of processes shows.
  - The file is fetched each time, since what is there may come from another address; it is written where it differs.
author: gaudi-serving
options:
  url:
    description: Address of the key, without an account.
    type: str
    required: true
  url_username:
    description: Account of the address.
    type: str
  url_password:
    description: Password of that account.
    type: str
  checksum:
    description: What the file must have, such as C(sha256:...). Empty accepts any.
    type: str
    default: ""
  fingerprint:
    description: Fingerprint of the key. A file with any other key, alone or beside it, is refused. Empty accepts any.
    type: str
    default: ""
  dest:
    description: Path that the key is written to, readable by everybody.
    type: path
    required: true
  http_proxy:
    description: Proxy for http. Without a proxy those of the environment are used.
    type: str
    default: ""
  https_proxy:
    description: Proxy for https.
    type: str
    default: ""
  no_proxy:
    description: Hosts that are reached without them.
    type: str
    default: ""
  certificates:
    description: Certificates in PEM that are trusted beside the node's own.
    type: str
    default: ""
extends_documentation_fragment: attributes.node
attributes:
  check_mode:
    description: Fetches nothing; only a file that is missing counts as a change.
    support: partial
  diff_mode:
    description: Not supported.
    support: none
"""

EXAMPLES = r"""
- name: Fetch a key
  fetched_key:
    url: https://mirror.example/key.asc
    fingerprint: 68B6 0407 3722 08D2 2B0F B02D 3CDF F4A7 960A 84B2
    dest: /usr/share/keyrings/example.asc
"""

RETURN = r"""
refused_id:
  description: Which refusal it is, where there is one.
  type: str
  returned: on failure
  sample: checksum_differs
"""

import hashlib
from pathlib import Path
from typing import Any

from ansible.module_utils.gaudi.apt import faults
from ansible.module_utils.gaudi.apt.config import AptProxy
from ansible.module_utils.gaudi.base import certificates, values
from ansible.module_utils.gaudi.base.printable import printable
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.engine import openpgp
from ansible.module_utils.gaudi.node import apt, web
from ansible.module_utils.gaudi.node.beneath import replacing
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.urls import fetch_url

ARGUMENT_SPEC: dict[str, Any] = {
    "url": {"type": "str", "required": True},
    "url_username": {"type": "str"},
    "url_password": {"type": "str", "no_log": True},
    "checksum": {"type": "str", "default": ""},
    "fingerprint": {"type": "str", "default": ""},
    "dest": {"type": "path", "required": True},
    **web.ACCESS,
}
# Bytes: a page that stands in a key's place is not read to its end.
LARGEST = 1024 * 1024
SECONDS = 20
OK = 200


def fetched(module: NodeModule) -> bytes:
    """Return the content. Raises Refusal with the server's answer."""
    url = module.params["url"]
    route, proxy = apt.route(module, url, module.params), apt.request_proxy(module, url, module.params)
    try:
        with web.through(url, module.params), web.variables(route), web.within(web.WHOLE_SECONDS):
            response, info = fetch_url(module, url, timeout=SECONDS, **web.WITHOUT_ACCOUNTS)
            if response is None or (info["status"] != OK and not url.startswith("file:")):
                ca_file = certificates.OPTION if module.params["certificates"] else route.get("SSL_CERT_FILE", "")
                raise not_fetched(url, printable(info["msg"][: web.LONGEST_REASON]), ca_file, proxy)
            content: bytes = response.read(LARGEST + 1)
    except TimeoutError as late:
        raise not_fetched(url, str(late)) from late
    if len(content) > LARGEST:
        raise not_fetched(url, f"it is larger than {LARGEST >> 20} MiB, and no key")
    return content


def not_fetched(url: str, why: str, ca_file: str = "", proxy: AptProxy | None = None) -> Refusal:
    """Return the refusal for a key that could not be fetched. ca_file, proxy: as in faults.advice()."""
    if not certificates.REJECTED.search(why) and (denial := faults.of_proxy(why, proxy)):
        return Refusal(
            "repository_behind_proxy",
            f"{denial} Through it the key of a package repository could not be fetched from {url} ({why}).",
        )
    todo = faults.advice(why, "Check its address, the proxy, and whether the server is up.", url, ca_file, proxy)
    return Refusal(
        "key_not_fetched",
        f"The key of the package repository could not be fetched from {url} ({why}). {todo} Its address is in "
        "gaudi_driver_key, container_runtime_habana_key or container_runtime_rhel_key.",
    )


def check(content: bytes, checksum: str) -> None:
    """Refuse a file with another checksum."""
    algorithm, _, digest = checksum.partition(":")
    if not checksum:
        return
    if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake"):
        raise Refusal(
            "checksum_unknown", f"The checksum of a key begins with its algorithm, as sha256:..., not {algorithm!r}."
        )
    actual = hashlib.new(algorithm, content).hexdigest()
    if actual != digest.strip().lower():
        raise Refusal(
            "checksum_differs",
            f"The key has the checksum {algorithm}:{actual}, but {checksum} is required. Compare the checksum in the "
            "inventory with the one that the vendor publishes.",
        )


def check_fingerprint(content: bytes, fingerprint: str) -> None:
    """Refuse a file that holds another key than the one with this fingerprint, also if it holds both."""
    if not fingerprint:
        return
    required = values.fingerprint(fingerprint, "fingerprint")
    found = openpgp.fingerprints(content.decode("ascii", "replace"))
    if found != [required]:
        raise Refusal(
            "another_key",
            f"The file of the key holds the keys {', '.join(found)}, but this site names {fingerprint}. The file was "
            "not installed. Ask whose packages they are which key is right, then correct container_runtime_habana_key "
            "and its fingerprint (gaudi_driver_key for the driver's repository, container_runtime_rhel_key for the "
            "engine's).",
        )


def main() -> None:
    """Fetch, compare, write."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    dest = Path(module.params["dest"])
    if module.check_mode:
        module.exit_json(changed=not dest.exists())
    try:
        content = fetched(module)
        check(content, module.params["checksum"])
        check_fingerprint(content, module.params["fingerprint"])
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    changed = not dest.is_file() or dest.read_bytes() != content
    if changed:
        dest.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with replacing(dest, None, 0o644, durable=False) as out:
            out.write(content)
    elif dest.stat().st_mode & 0o777 != 0o644:
        changed = True
        dest.chmod(0o644)
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
