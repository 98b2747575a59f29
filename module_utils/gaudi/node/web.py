"""Ask servers outside the site from a module, through the site's proxy and with its certificates."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from ansible.module_utils.urls import ConnectionError as NotConnected
from ansible.module_utils.urls import open_url

from ..base.access import proxy_of

# Seconds within which a proxy answers; one that does not may be waiting for the server behind it.
PROXY_SECONDS = 20
# Characters of an error that are quoted: the reason of an HTTP answer may have 64 KiB.
LONGEST_REASON = 500
# Seconds for a whole answer.
WHOLE_SECONDS = 120.0

# The certificates of a system, on Debian and Ubuntu, and on RHEL.
SYSTEM_BUNDLES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))

# Options of a module that asks such servers, as through() takes them. The address of a proxy may hold a password.
ACCESS: dict[str, Any] = {
    "http_proxy": {"type": "str", "default": "", "no_log": True},
    "https_proxy": {"type": "str", "default": "", "no_log": True},
    "no_proxy": {"type": "str", "default": "", "no_log": False},
    "certificates": {"type": "str", "default": ""},
}
# For requests of Ansible's: the accounts in root's ~/.netrc are for programs that root starts.
WITHOUT_ACCOUNTS: dict[str, Any] = {"use_netrc": False}


def bundle(certificates: str) -> str:
    """Return the node's own certificates and further ones (PEM)."""
    system = next((path for path in SYSTEM_BUNDLES if path.is_file()), None)
    own = system.read_text(encoding="utf-8", errors="replace") if system else ""
    return f"{own}{'' if own.endswith(chr(10)) or not own else chr(10)}{certificates}"


@contextmanager
def through(address: str, access: Mapping[str, str]) -> Iterator[None]:
    """Have Python ask an address through the site's proxy, and trust its certificates, within the block.

    access: ``http_proxy``, ``https_proxy``, ``no_proxy``, and ``certificates`` in PEM; where the site sets none, the
    environment of the process counts as before. It is changed for this process alone, whose /proc/PID/environ does not
    show it: start no program within the block, which would inherit it.
    """
    changed: dict[str, str | None] = {}
    with ExitStack() as stack:
        proxies = [access.get(name, "") for name in ("http_proxy", "https_proxy")]
        if any(proxies):
            proxy = proxy_of(address, proxies[0], proxies[1], access.get("no_proxy", ""))
            names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
            changed.update(dict.fromkeys((*names, "no_proxy", "NO_PROXY")))
            changed.update({"http_proxy": proxy, "https_proxy": proxy} if proxy else {})
        if access.get("certificates"):
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".crt"))
            file.write(bundle(access["certificates"]))
            file.flush()
            changed["SSL_CERT_FILE"] = file.name
        with variables(changed):
            yield


def error_of(address: str, access: Mapping[str, str], changed: Mapping[str, str | None] | None = None) -> str:
    """Ask an address as through() does; return the error, "" if it answers.

    An answer with an error of HTTP is one as well: whose it is, the text tells. changed: variables of the environment
    that win over those of through().
    """
    try:
        # No server chooses what else is asked here: a redirect is an answer as well.
        alone = {**WITHOUT_ACCOUNTS, "follow_redirects": "none"}
        with through(address, access), variables(changed or {}), within(WHOLE_SECONDS):
            open_url(address, timeout=PROXY_SECONDS, **alone).close()
        return ""
    except (OSError, ValueError, HTTPException, NotConnected) as error:
        # The reason of an HTTP answer lacks its number.
        return str(error if hasattr(error, "code") else getattr(error, "reason", error))[:LONGEST_REASON]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer; a socket's own timeout restarts with every received byte."""

    def over(_number: int, _frame: object) -> None:
        raise TimeoutError(f"the answer was not whole after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def variables(changed: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables of this process within the block; None removes one."""
    before = {name: os.environ.get(name) for name in changed}
    _set(changed)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
