"""Parse BuildKit's output: the progress of a build, and why it failed, in a sentence that says what to try."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..base import certificates
from ..base.refusal import Refusal
from .pytorch import Watcher

# "#9 [ 4/12] RUN ..." begins a step, "#9 CACHED" and "#9 DONE 12.3s" end one, "#9 1.234 text" is its output.
_BEGUN = re.compile(r"#(\d+) \[\s*(?:\S+\s+)?(\d+)/(\d+)\] ")
_ENDED = re.compile(r"#(\d+) (?:CACHED|DONE\b)")
_SAID = re.compile(r"#\d+ (?:\d+\.\d+ )?(.*)")
_PRINTED = re.compile(r"#\d+ \d+\.\d+ (.*)")
# Refusals that steps.sh and gaudi_build.py print.
_REFUSED = re.compile(r"gaudi-image refused (?P<refused_id>[a-z_]+): (?P<refused>.*)")
# pip's error does not always name the index (that depends on its urllib3) or the package; earlier lines do. For the
# default index pip prints no such line.
_ASKED = re.compile(r"Looking in indexes: (\S.*)")
_ABOUT = re.compile(r"(?:Obtaining|Processing|Collecting) (\S+)")
# git names the host that it could not connect to: the repository's, or the proxy.
_NOWHERE = re.compile(r"Failed to connect to (\S+) port (\d+)")
_CONNECTION = re.compile(r"after connection broken by (?!.*\(host=')")
_HTTPS = re.compile(r"host='([^']+)'|https://(?:[^/@\s]*@)?([^/\s'\":]+)")
_RAN = re.compile(r"\S+ .* did not run successfully")
_PYPI = "https://pypi.org/simple"
_KEPT = 200  # lines: pip prints this much after the line that matters
_LONGEST = 4000  # characters of a line that are searched; the patterns take more than linear time


@dataclass
class Follower:
    """Reads a build's output line by line. ``titles``: titles of its RUN instructions, in order."""

    titles: Sequence[str]
    lines: list[str] = field(default_factory=list)
    _steps: dict[str, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    current: int = 0
    pytorch: Watcher = field(default_factory=Watcher)

    def add(self, line: str) -> bool:
        """Add a line; return whether it begins or ends a step."""
        self.lines = [*self.lines[-_KEPT:], line]
        begun, ended = _BEGUN.match(line), _ENDED.match(line)
        if begun:
            # The first step of a stage is FROM.
            self.current = int(begun[2]) - 1
            self._steps[begun[1]] = self.current
        elif ended and ended[1] in self._steps:
            self.ended.add(self._steps[ended[1]])
        said = _SAID.match(line)
        self.pytorch.add(said[1] if said else line, self.title)
        return bool(begun or ended)

    @property
    def title(self) -> str:
        """The title of the current step."""
        return self.titles[self.current - 1] if 0 < self.current <= len(self.titles) else "the base image"

    @property
    def progress(self) -> dict[str, object]:
        """The progress in the form of a job's document."""
        done = len([step for step in self.ended if step])
        return {"phase": f"build: {self.title}", "done": done, "total": len(self.titles), "unit": "steps"}


_PROXIES = "gaudi_http_proxy and gaudi_https_proxy (serving_image_http_proxy and serving_image_https_proxy where set)"
_MIRRORS = f"serving_image_git_mirrors and the proxies, {_PROXIES}"
_INDEXES = f"serving_image_python_indexes and the proxies, {_PROXIES}"
_AGAIN = "What is done is kept: the next run goes on from there."

Say = Callable[[str, str], Refusal]


def _of_proxy(at: str, it: str) -> Refusal:
    return Refusal(
        "proxy_refuses",
        f"{at}: the proxy refuses ({it}). Correct {_PROXIES}. {_AGAIN}",
    )


def _of_no_proxy(at: str, it: str) -> Refusal:
    return Refusal(
        "proxy_unreachable",
        f"{at}: the proxy does not answer ({it}). Correct {_PROXIES}. {_AGAIN}",
    )


def _of_certificate(at: str, it: str, line: str = "", ca_file: str = "") -> Refusal:
    """Return the refusal of a server. line: the whole line. ca_file: as in failure()."""
    host = _HTTPS.search(line)
    server = next(filter(None, host.groups())) if host else "a server"
    return Refusal(
        "certificate_not_trusted",
        f"{at}: a program does not trust {server} ({it}). {certificates.advice(line, server, ca_file)} {_AGAIN}",
    )


_NAMING_PROXIES = (_of_proxy, _of_no_proxy)

# Patterns that recognise a failure, each with its sentence: ``at`` names the step, ``it`` has the pattern's groups. The
# most specific cause comes first: a full disk also looks like a package that cannot be built.
_FAULTS: tuple[tuple[str, Say], ...] = (
    (
        r"[Nn]o space left on device",
        lambda at, it: Refusal(
            "disk_full",
            f"{at}: the disk that Docker builds on is full. Make room; docker system df shows what takes it, docker "
            f"builder prune gives up what builds have cached. {_AGAIN}",
        ),
    ),
    (
        r"failed to receive status: rpc error|code = Unavailable|Cannot connect to the Docker daemon|^unexpected EOF$",
        lambda at, it: Refusal(
            "engine_ended",
            f"{at}: the Docker engine ended while it built. Look why: journalctl -u docker. {_AGAIN}",
        ),
    ),
    (
        r"Tunnel connection failed: ([^'\")]+)|CONNECT tunnel failed, (response \d+)|(407 Proxy Auth[^'\")]*)",
        _of_proxy,
    ),
    (r"(Could not resolve proxy)|(Cannot connect to proxy)", _of_no_proxy),
    (
        # Of pip, git with OpenSSL, git with GnuTLS, and apt.
        r"CERTIFICATE_VERIFY_FAILED\] ([^'\")]*)|SSL certificate problem: ([^'\"]*)|"
        r"(server certificate verification failed)|Certificate verification failed: ([^'\"]*?)\. ",
        _of_certificate,
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES",
        lambda at, it: Refusal(
            "not_as_locked",
            f"{at}: the Python index has another file than serving_image_lock says; the lines after it in the journal "
            "name it. Ask another index (serving_image_python_indexes), and trust a file of that name only when you "
            f"know why it changed. {_AGAIN}",
        ),
    ),
    (
        r"HTTPS?ConnectionPool\(host='([^']+)'|HTTPS?Connection\(host='([^']+)'|Could not fetch URL (\S+?):? |"
        r"after connection broken by .* asked of (\S.*)",
        lambda at, it: Refusal(
            "index_unreachable", f"{at}: the Python index {it} does not answer. Check {_INDEXES}. {_AGAIN}"
        ),
    ),
    (
        r"No matching distribution found for (\S.*)",
        lambda at, it: Refusal(
            "no_wheel",
            f"{at}: the Python index has no {it} for this image. Name an index that has it in "
            f"serving_image_python_indexes, or another version of it in serving_image_constraints. {_AGAIN}",
        ),
    ),
    (
        r"ERROR: (Cannot install .*?) because these package versions have conflicting dependencies",
        lambda at, it: Refusal(
            "requirements_conflict",
            f"{at}: {it}, since the Python index has nothing that fits requirements and constraints alike. Change the "
            f"constraint in serving_image_constraints, or name another index in serving_image_python_indexes. {_AGAIN}",
        ),
    ),
    (
        r"fatal: could not read (?:Username|Password) for '([^']+)'|fatal: Authentication failed for '([^']+)'",
        lambda at, it: Refusal(
            "git_account_refused",
            f"{at}: {it} lets nobody read without an account, or does not know the one that it was given. Name the "
            "account that may read there in serving_image_git_accounts (address, username, password or token), or a "
            f"mirror that asks for none in serving_image_git_mirrors. {_AGAIN}",
        ),
    ),
    (
        r"fatal: unable to access '([^']+)': (.*)|"
        r"fatal: repository '([^']+)' not found|fatal: unable to connect to (\S+)",
        lambda at, it: Refusal(
            "git_host_unreachable",
            f"{at}: nothing could be fetched from {it}. Check {_MIRRORS}, and serving_image_git_accounts for a host "
            f"that asks who fetches. {_AGAIN}",
        ),
    ),
    (
        r"E: The repository '(\S+) [^']*' is not signed",
        lambda at, it: Refusal(
            "package_source_not_signed",
            f"{at}: {it} is signed by no key that the build trusts it by. Name its public key in "
            "serving_image_apt_key, after you made sure that it is the right one. Where the image has that key, name "
            f"its keyring in the source's line of serving_image_apt_sources (signed-by). {_AGAIN}",
        ),
    ),
    (
        r"(?:E|W): Failed to fetch (\S+)|E: The repository '(\S+) [^']*' does not have a Release file",
        lambda at, it: Refusal(
            "package_source_unreachable",
            f"{at}: {it} could not be fetched. Name a mirror in serving_image_apt_sources, and check the proxies, "
            f"{_PROXIES}. {_AGAIN}",
        ),
    ),
    (
        r"E: Unable to locate package (\S+)|E: Package '([^']+)' has no installation candidate",
        lambda at, it: Refusal(
            "no_system_package",
            f"{at}: the package sources of the image have no {it}. Check that they answer, or name others in "
            f"serving_image_apt_sources. {_AGAIN}",
        ),
    ),
    (
        # The vendor's plugin, imported by what a step runs.
        r"Current PyTorch version (\S+) is detected as neither HPU fork nor CPU upstream|"
        r"(Failed to load the backend extension: \S+)",
        lambda at, it: Refusal(
            "pytorch_replaced",
            f"{at}: the PyTorch of the image is not Habana's any more ({it}); a package before this step brought it. "
            "Pin that package to a version that accepts the PyTorch of the base image (serving_image_constraints, "
            f"serving_image_pins), or leave it out. {_AGAIN}",
        ),
    ),
    (
        r"Failed building (?:wheel|editable) for (\S+)|Failed to build '?([^'\s]+)'?|"
        r"did not run successfully for (\S+)",
        lambda at, it: Refusal(
            "package_not_built",
            f"{at}: {it} could not be built; its compiler says why in the journal. Name a version that comes as a "
            "wheel in serving_image_constraints, or correct the commit it is built from (serving_image_pins). "
            f"{_AGAIN}",
        ),
    ),
    (
        r"make(?:\[\d+\])?: \*\*\* (.*)",
        lambda at, it: Refusal(
            "not_compiled",
            f"{at}: a program could not be compiled ({it}); the lines before it in the journal say why. Correct the "
            f"commit it is built from (serving_image_pins). {_AGAIN}",
        ),
    ),
)
FAULTS = tuple((re.compile(pattern), say) for pattern, say in _FAULTS)


def _with_subjects(lines: Sequence[str]) -> Iterator[str]:
    """Yield pip's lines; those without their index or package get it from earlier lines."""
    asked, about = _PYPI, ""
    for line in lines:
        index, package = _ASKED.match(line), _ABOUT.match(line)
        asked, about = index[1] if index else asked, package[1] if package else about
        if _CONNECTION.search(line):
            yield f"{line} asked of {asked}"
        elif about and _RAN.match(line):
            yield f"{line.rstrip('.')} for {about}"
        else:
            yield line


def _with_proxies(lines: Iterable[str], proxies: Sequence[str]) -> Iterator[str]:
    """Yield git's lines; a line that names an unreachable proxy as the host says that it is the proxy."""
    for line in lines:
        host = _NOWHERE.search(line)
        ours = host and any(
            proxy.rstrip("/").endswith((f"/{host[1]}:{host[2]}", f"@{host[1]}:{host[2]}")) for proxy in proxies
        )
        yield f"{line} (Cannot connect to proxy)" if ours else line


def failure(title: str, lines: Sequence[str], proxies: Sequence[str] = (), ca_file: str = "") -> Refusal:
    """Return why a build failed: a refusal of our own step, else a known failure, else the last output line.

    title: the step that failed. proxies: those of the build, without passwords. ca_file: path of the certificates
    that the build trusts besides those of its image; "" if there are none.
    """
    at = f"The image could not be built, at {title}"
    lines = [line[:_LONGEST] for line in lines]
    said = [found[1] if found else line for line, found in ((line, _SAID.match(line)) for line in lines)]
    said = list(_with_proxies(_with_subjects([line.strip() for line in said]), proxies))
    own = next((found for line in said for found in [_REFUSED.search(line)] if found), None)
    if own:
        return Refusal.from_keys(own.groupdict()).about(at)
    for pattern, say in FAULTS:
        found = next((found for found in map(pattern.search, said) if found), None)
        if found:
            words = [group.strip().rstrip(".") for group in found.groups() if group]
            if say is _of_certificate:
                return _of_certificate(at, ": ".join(words), found.string, ca_file)
            return say(at, ": ".join([*(proxies if say in _NAMING_PROXIES else ()), *words]))
    printed = [found[1] for found in map(_PRINTED.match, lines) if found and found[1].strip()]
    last = (printed or [line for line in said if line.strip()] or ["nothing"])[-1]
    return Refusal("build_failed", f"{at}. Its last words: {last.strip()[:300]} {_AGAIN}")
