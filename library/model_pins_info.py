#!/usr/bin/python
"""Ask a hub which commit a repository has now, and what checksums the files have that need a pin."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_pins_info
short_description: Ask a hub for what pins a repository
version_added: "0.1.0"
author: The gaudi-serving authors
description:
  - Asks a hub that speaks Hugging Face's interface which commit a revision names, and computes the SHA-256 of its
    files. Safetensors, notes for people (such as C(README.md) and C(LICENSE)) and pictures need no pin. Every other
    file may decide how weights are read, or run when it is read.
  - What the hub states of them is held against what it sends. Files over 64 MiB are not read; what the hub states of
    them is taken. Nothing is changed.
options:
  endpoint:
    description: Address of the hub.
    type: str
    default: https://huggingface.co
  repository:
    description: Repository, as owner/name.
    type: str
    required: true
  revision:
    description: What to ask for. A commit gives the checksums of that commit.
    type: str
    default: main
  token:
    description: Token of an account there.
    type: str
  token_over_http:
    description: Whether the token may go to an endpoint without TLS.
    type: bool
    default: false
  proxy:
    description: Address of a proxy to the hub, such as C(http://proxy.example:3128). It may hold a password.
    type: str
    default: ""
  certificates:
    description: Certificates in PEM that are trusted beside the system's own.
    type: str
    default: ""
  timeout:
    description: How many seconds each question may take, the whole of its answer included.
    type: int
    default: 60
extends_documentation_fragment: attributes.reads
attributes:
  platform:
    description: The controller.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Ask for a commit and checksums
  model_pins_info:
    repository: Qwen/Qwen3-8B
  register: found
"""

RETURN = r"""
revision:
  description: The commit that the revision names now.
  type: str
  returned: always
  sample: b968826d9c46dd6066d109eabc6255188de91218
files:
  description: SHA-256 by name.
  type: dict
  returned: always
  sample: {"config.json": "..."}
repository:
  description: The repository that was asked for.
  type: str
  returned: always
  sample: Qwen/Qwen3-8B
sizes:
  description: Bytes of every file of the commit, by name.
  type: dict
  returned: always
  sample: {"config.json": 728}
refused_id:
  description: Id of the refusal, which stays the same between releases; C(msg) has the sentence.
  returned: when the task fails for a refusal
  type: str
  sample: hub_unreadable
"""

import hashlib
import json
import re
import ssl
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from ansible.module_utils.gaudi.base import certificates, values
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.node import web
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.gaudi.weights import pin_file
from ansible.module_utils.gaudi.weights.record import unsafe

ARGUMENT_SPEC: dict[str, Any] = {
    "endpoint": {"type": "str", "default": "https://huggingface.co"},
    "repository": {"type": "str", "required": True},
    "revision": {"type": "str", "default": "main"},
    "token": {"type": "str", "no_log": True},
    "token_over_http": {"type": "bool", "default": False, "no_log": False},
    "proxy": {"type": "str", "default": "", "no_log": True},
    "certificates": {"type": "str", "default": ""},
    "timeout": {"type": "int", "default": 60},
}
# Bytes of a file listing, with some hundred bytes for each file.
LONGEST_LIST = 16 * 1024 * 1024
COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def get(params: dict[str, Any], path: str, limit: int) -> bytes:
    """Return the hub's answer for a path, limited in bytes. Raises OSError or HTTPException."""
    request = urllib.request.Request(params["endpoint"].rstrip("/") + path)  # noqa: S310 - an address of HTTP
    if params["token"]:
        # Only for the hub, not for hosts that it redirects to.
        request.add_unredirected_header("Authorization", f"Bearer {params['token']}")
    proxies = {"http": params["proxy"], "https": params["proxy"]} if params["proxy"] else {}
    context = ssl.create_default_context()
    if params["certificates"]:
        context.load_verify_locations(cadata=params["certificates"])
    handlers = urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(*handlers)
    with web.within(params["timeout"]), opener.open(request, timeout=params["timeout"]) as answer:
        content: bytes = answer.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it sends more than {limit} bytes for {path}")
    return content


def checksum(params: dict[str, Any], revision: str, file: Mapping[str, Any]) -> str:
    """The SHA-256 of one file, compared with what the hub states; for a large file, the hub's own statement.

    Raises Refusal if they differ.
    """
    if file["size"] > pin_file.LARGEST:
        stated = str(file["sha256"])
        if not _SHA256.fullmatch(stated):
            raise ValueError("a checksum that is none")
        return stated
    place = f"/{params['repository']}/resolve/{revision}/{quote(file['name'])}"
    content = get(params, place, pin_file.LARGEST)
    sha256 = hashlib.sha256(content).hexdigest()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if sha256 != file["sha256"] if file["sha256"] else git != file["blob"]:
        raise Refusal("hub_contradicts_itself", f"The hub sends another {file['name']} than it states. Pin nothing.")
    return sha256


def pinned(params: dict[str, Any]) -> tuple[str, dict[str, str], dict[str, int]]:
    """Return the hub's current commit, the SHA-256 of each file in it that needs a pin, and the bytes of all files.

    Raises the errors that main() turns into a sentence: OSError, HTTPException, and for an invalid answer ValueError,
    KeyError and TypeError.
    """
    path = f"/api/models/{quote(params['repository'])}/revision/{quote(params['revision'], safe='')}?blobs=true"
    said = json.loads(get(params, path, LONGEST_LIST))
    revision = str(said["sha"])
    listed = [
        {
            "name": str(file["rfilename"]),
            "size": int(file["size"]),
            "sha256": (file.get("lfs") or {}).get("sha256"),
            "blob": file.get("blobId"),
        }
        for file in said["siblings"]
    ]
    if not COMMIT.fullmatch(revision) or any(unsafe(file["name"]) for file in listed):
        raise ValueError("no commit, or names that do not stay in a folder")
    if COMMIT.fullmatch(params["revision"]) and revision != params["revision"]:
        raise ValueError(f"it answers with the commit {revision}")
    files = {file["name"]: checksum(params, revision, file) for file in pin_file.deciding(listed)}
    return revision, dict(sorted(files.items())), {str(file["name"]): int(file["size"]) for file in listed}


def with_scheme(proxy: str) -> str:
    """Return the address of a proxy with its scheme. Raises Refusal for one that Python cannot use, such as SOCKS."""
    return values.site_proxy(proxy if "://" in proxy else f"http://{proxy}", "pin_proxy")


def unreadable(params: Mapping[str, Any], error: Exception) -> Refusal:
    """Why a hub could not be asked. The proxy's own answer is not the hub's."""
    repository = params["repository"]
    if certificates.REJECTED.search(str(error)):
        ca_file = certificates.OPTION if params["certificates"] else ""
        todo = certificates.advice(str(error), urlsplit(params["endpoint"]).hostname or params["endpoint"], ca_file)
        return Refusal("hub_not_trusted", f"{repository} cannot be asked for: {error}. {todo}")
    if re.search(r"\b407\b", str(error)):
        return Refusal(
            "proxy_wants_account",
            f"{repository} cannot be asked for: the proxy wants an account, or refuses the one that it gets (status "
            "407). Correct pin_proxy, or gaudi_http_proxy and gaudi_https_proxy.",
        )
    return Refusal("hub_unreadable", f"{repository} cannot be asked for: {error}. Look at the endpoint.")


def main() -> None:
    """Ask, compute, report."""
    module = NodeModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        values.address(params["endpoint"], "endpoint")
        if params["proxy"]:
            params["proxy"] = with_scheme(params["proxy"])
        values.check_source("of the pins", params["endpoint"], bool(params["token"]), params["token_over_http"])
        revision, files, sizes = pinned(params)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal), refused_id=refusal.id)
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
        failed = unreadable(params, error)
        module.fail_json(msg=str(failed), refused_id=failed.id)
    found = {"repository": params["repository"], "revision": revision, "files": files}
    module.exit_json(changed=False, **found, sizes=dict(sorted(sizes.items())))


if __name__ == "__main__":
    main()
