"""Parse BuildKit's output: the progress of a build, and why it failed, in a sentence that says what to try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..base import certificates
from ..base.refusal import Refusal
from ..faults.build import FAULTS
from ..faults.entry import KnownFault
from ..faults.words import fault, fill, groups
from .pytorch import Watcher

# "#9 [ 4/12] RUN ..." begins a step, "#9 CACHED" and "#9 DONE 12.3s" end one, "#9 1.234 text" is its output.
_BEGUN = re.compile(r"#(\d{1,9}) \[\s*(?:\S+\s+)?(\d{1,9})/(\d{1,9})\] ")
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


_AGAIN = "What is done is kept: the next run goes on from there."
# A full disk also looks like a package that cannot be built.
_SIGNS = tuple((known, re.compile(known.signs)) for known in (fault("disk-full"), fault("engine-not-running"), *FAULTS))
# Their sentences name the proxies of the build.
_OF_PROXIES = ("proxy-refuses", "proxy-unreachable")


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
    for known, pattern in _SIGNS:
        found = next((found for found in map(pattern.search, said) if found), None)
        if found:
            return _refusal(known, found, proxies if known.id in _OF_PROXIES else (), ca_file).about(at)
    printed = [found[1] for found in map(_PRINTED.match, lines) if found and found[1].strip()]
    last = (printed or [line for line in said if line.strip()] or ["nothing"])[-1]
    return Refusal("build_failed", f"{at}. Its last words: {last.strip()[:300]}", _AGAIN)


def _refusal(known: KnownFault, found: re.Match[str], proxies: Sequence[str], ca_file: str) -> Refusal:
    """Return the refusal for a fault of the list. found: where its pattern matches. ca_file: as in failure()."""
    host = _HTTPS.search(found.string)
    server = next(filter(None, host.groups())) if host else "a server"
    case = "known" if "known" in known.remedies else ""
    advice = certificates.advice(found.string, server, ca_file) if case else ""
    it = ": ".join([*proxies, groups(found)])
    sentence, remedy = fill(known, case, it=it, advice=advice)
    return Refusal(known.id, sentence, f"{remedy} {_AGAIN}")
