"""The request a job reads: root's file, since it names token files."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gaudi.base.documents import Damaged
from gaudi.base.refusal import Refusal
from gaudi.base.values import check_source
from gaudi.node.documents import read_json
from gaudi.weights.hub_kinds import DEFAULT, hub_kind
from gaudi.weights.record import STAGING_SUFFIX

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubSource:
    """One place a model can come from.

    kind: huggingface (the hub, or a mirror that speaks its interface), modelscope, or git (any host of git-lfs, at
    endpoint/repository). The token lies in a root-only file; only its path is known here. revision: a commit id, a
    branch or a tag. user: who the token belongs to, where git asks for both. xet: whether hf_xet may fetch what a hub
    keeps in that storage. token_over_http: whether the token may go where there is no TLS.
    files: SHA-256 by name of files that the catalogue pins, whatever the source states of them. proxy: an address,
    with an account where the proxy wants one; no_proxy: hosts, domains and networks that are reached without it, by
    commas.
    """

    name: str
    endpoint: str
    repository: str
    revision: str
    token_file: Path | None
    proxy: str | None
    kind: str = DEFAULT
    user: str = "oauth2"
    xet: bool = True
    token_over_http: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    no_proxy: str = ""

    def __post_init__(self) -> None:
        """Refuse an account in the address, and a token that others could read; raises Refusal."""
        check_source(self.name, self.endpoint, self.token_file is not None, self.token_over_http)
        if self.proxy is not None:
            check_proxy(self.name, self.proxy)

    def token(self) -> str | None:
        """The token itself, read when it is needed and kept in no record."""
        if self.token_file is None:
            return None
        try:
            return self.token_file.read_text(encoding="utf-8").strip() or None
        except OSError as error:
            raise Refusal(
                "token_unreadable", f"the token of source {self.name} cannot be read from {self.token_file}"
            ) from error

    def proxy_for(self, url: str) -> str | None:
        """The proxy for an address; None where it is reached without one."""
        if self.proxy is None or without_proxy(urlsplit(url).hostname or "", self.no_proxy):
            return None
        return self.proxy

    @property
    def pinned(self) -> bool:
        """Whether the revision names content and not a branch that moves."""
        return COMMIT.fullmatch(self.revision) is not None


def check_proxy(name: str, proxy: str) -> None:
    """Raise Refusal for a proxy that not every kind of source can use. The sentence does not quote its password."""
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Refusal(
            "proxy_unusable",
            f"The proxy of source {name} is not the address of an HTTP proxy. SOCKS is not supported. Write it as "
            "http://HOST:PORT, with an account as http://USER:PASSWORD@HOST:PORT and special characters "
            "percent-encoded",
        )


def without_proxy(host: str, exceptions: str) -> bool:
    """Whether exceptions (names, domains, addresses, networks, or *) name a host."""
    items = [item.strip("[]").lower() for item in exceptions.replace(",", " ").split()]
    if "*" in items:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        names = [item.partition(":")[0].lstrip("*.") for item in items]
        return any(name and f".{host.lower()}".endswith(f".{name}") for name in names)
    for item in items:
        with contextlib.suppress(ValueError):  # it is a name
            if address in ipaddress.ip_network(item, strict=False):
                return True
    return False


@dataclass(frozen=True)
class WeightsRequest:
    """What is wanted: the model's folder, where it may come from, and what it may take.

    rate_limit: bytes per second, 0 for none; extra_room: bytes a later conversion needs on the same file system;
    reserve: bytes that stay free; recheck: read a finished model again instead of looking at sizes, to repair what is
    wrong; measured_cards: the tensor parallel size measurement files must be complete for, 0 for a model;
    mounted_on: what must be mounted before anything is written; wait_limit: seconds that are waited at most for a
    source that is away or asks to wait; root_option: the variable of the site that names the
    folder which the target lies in, empty where none does; unpickles: whether the servers of the node's release run
    what is in pickled tensors.
    """

    target: Path
    sources: tuple[HubSource, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    jobs: int = 4
    rate_limit: int = 0
    extra_room: int = 0
    reserve: int = 0
    recheck: bool = False
    measured_cards: int = 0
    mounted_on: Path | None = None
    wait_limit: float = 900.0
    root_option: str = "gaudi_weights_root"
    unpickles: bool = False

    @property
    def staging(self) -> Path:
        """Where the files are until all of them are right."""
        return self.target.with_name(self.target.name + STAGING_SUFFIX)


def read_whole(path: Path) -> dict[str, Any]:
    """Read the document of a request; raises Refusal where there is none."""
    try:
        content: dict[str, Any] | None = read_json(path)
    except Damaged as damage:
        raise Refusal("request_unreadable", f"the request {path} cannot be read ({damage.what})") from damage
    if content is None:
        raise Refusal("request_unreadable", f"the request {path} cannot be read (there is no such file)")
    return content


def load(path: Path) -> WeightsRequest:
    """Read a request the role has written; raises Refusal for one that is not whole."""
    try:
        content = read_whole(path)
        return WeightsRequest(
            target=Path(content["target"]),
            sources=tuple(
                HubSource(
                    name=str(entry["name"]),
                    endpoint=str(entry["endpoint"]).rstrip("/"),
                    repository=str(entry["repository"]),
                    revision=str(entry["revision"] or hub_kind(entry["kind"]).branch),
                    token_file=Path(entry["token_file"]) if entry.get("token_file") else None,
                    proxy=entry.get("proxy") or None,
                    kind=str(entry["kind"]),
                    user=entry.get("user") or "oauth2",
                    xet=bool(entry.get("xet", True)),
                    token_over_http=bool(entry.get("token_over_http", False)),
                    files=dict(entry.get("files") or {}),
                    no_proxy=str(entry.get("no_proxy") or ""),
                )
                for entry in content["sources"]
            ),
            include=tuple(content["include"]),
            exclude=tuple(content["exclude"]),
            jobs=int(content["jobs"]),
            rate_limit=int(content["rate_limit"]),
            extra_room=int(content["extra_room"]),
            reserve=int(content["reserve"]),
            recheck=bool(content["recheck"]),
            measured_cards=int(content["measured_cards"]),
            mounted_on=Path(content["mounted_on"]) if content["mounted_on"] else None,
            wait_limit=float(content.get("wait_limit", 900)),
            unpickles=bool(content.get("unpickles", False)),
        )
    except Refusal:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(
            "request_unreadable", f"the request {path} cannot be read ({type(error).__name__}: {error})"
        ) from error
