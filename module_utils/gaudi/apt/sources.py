"""Sources of packages as apt reads them (sources.list(5)), and whether one is for a given repository and suite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..base.refusal import Refusal
from ..base.values import without_login
from ..engine.openpgp import fingerprints

# A field of several lines has a blank before each further line, and " ." for an empty one (deb822(5)).
_OPTIONS = re.compile(r"\[([^]]*)\]")
_NO = ("no", "false", "without", "off", "disable", "0")
_YES = ("yes", "true", "with", "on", "enable", "1")
_FINGERPRINT = re.compile(r"(?:0x)?([0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})!?")
# What the role container_runtime writes for the vendor's repository.
OWN_FILE = "/etc/apt/sources.list.d/habana.sources"
OWN_KEYRING = "/usr/share/keyrings/habana-artifactory.asc"
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True)
class AptSource:
    """One address and suite of an enabled source of binary packages.

    ``signed_by``: the value of Signed-By: paths, fingerprints, or an armoured key; "" if all keys of apt are trusted.
    ``architectures``: those that it is limited to. ``trusted``: signatures are not checked.
    """

    file: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()
    signed_by: str = ""
    architectures: tuple[str, ...] = ()
    trusted: bool = False


def parse(file: str, text: str) -> list[AptSource]:
    """Return the enabled sources of a file of sources.list.d; lines and stanzas that apt cannot read are left out."""
    return _of_stanzas(file, text) if file.endswith(".sources") else _of_lines(file, text)


def same_repository(one: str, other: str) -> bool:
    """Whether two addresses are those of one repository; http or https, accounts and trailing slashes do not count."""
    return _normalised(one) == _normalised(other)


def for_repository(sources: Iterable[AptSource], repository: str, suite: str) -> list[AptSource]:
    """Return the sources of a repository and suite."""
    return [
        source
        for source in sources
        if same_repository(source.uri, repository) and source.suite.strip("/") == suite.strip("/")
    ]


def existing(
    sources: Sequence[AptSource],
    repository: str,
    suite: str,
    fingerprint: str,
    keys_of: Callable[[str], Sequence[str]],
    exists: Callable[[str], bool] = lambda _path: True,
) -> str:
    """Return the file whose source is used instead of one of this project; "" if this project writes its own.

    fingerprint: of the key that the site names; "" if it names none. keys_of: reads the fingerprints of a keyring, and
    those of all of apt's keyrings for "". exists: whether there is a file. Raises Refusal if a source of the node
    cannot be used, as apt reads no repository at all if two sources of one name different keys.
    """
    found = for_repository(sources, repository, suite)
    ours = [source for source in found if source.file == OWN_FILE and source.signed_by == OWN_KEYRING]
    others = [source for source in found if source not in ours]
    # A node on which both have been until now, and apt accepts both.
    if ours and all(other.signed_by == OWN_KEYRING or _scheme(other.uri) != _scheme(repository) for other in others):
        return ""
    for other in others:
        _check(other, suite, fingerprint, keys_of, exists)
    return others[0].file if others else ""


def _check(
    source: AptSource,
    suite: str,
    fingerprint: str,
    keys_of: Callable[[str], Sequence[str]],
    exists: Callable[[str], bool],
) -> None:
    """Raise Refusal if a source of the node does not stand in for the one that the site describes."""
    where = f"{source.file} has a source for this repository and {suite}"
    if not suite.endswith("/") and "main" not in source.components:
        raise Refusal(
            "source_without_component",
            f"{where} already, without its component main. Add main there, or remove this source, then run again.",
        )
    if source.architectures and "amd64" not in source.architectures:
        raise Refusal(
            "source_of_other_architecture",
            f"{where} already, limited to {', '.join(source.architectures)}. Add amd64 there, or remove this source, "
            "then run again.",
        )
    wanted = re.sub(r"\s", "", fingerprint).upper()
    if not wanted:
        return
    if source.trusted:
        raise Refusal(
            "source_without_signature_check",
            f"{where} already, and its signatures are not checked (trusted=yes). Remove that option or this source, "
            "then run again.",
        )
    if wanted not in _keys(source, keys_of):
        words = [] if "BEGIN PGP" in source.signed_by else re.split(r"[,\s]+", source.signed_by)
        missing = [word for word in words if word.startswith("/") and not exists(word)]
        if missing:
            raise Refusal(
                "source_without_keyring",
                f"{where} already, signed by {' and '.join(missing)}, which does not exist. Put the key that this site "
                f"names ({wanted}) there, or remove this source, then run again.",
            )
        trusted = f"by {_shown(source.signed_by)}" if source.signed_by else "by the keys in /etc/apt/trusted.gpg.d"
        raise Refusal(
            "source_of_other_key",
            f"{where} already, trusted {trusted}, which does not have the key that this site names ({wanted}). apt "
            "would read no repository at all if a second source named another key. Compare the "
            "fingerprint that the site names, then either put it into that keyring or remove this source, and run "
            "again.",
        )


def _keys(source: AptSource, keys_of: Callable[[str], Sequence[str]]) -> set[str]:
    """Return the fingerprints that a source is trusted by."""
    if not source.signed_by:
        return set(keys_of(""))
    if "BEGIN PGP" in source.signed_by:
        return set(fingerprints(source.signed_by))
    found: set[str] = set()
    for word in re.split(r"[,\s]+", source.signed_by):
        match = _FINGERPRINT.fullmatch(word)
        found |= {match[1].upper()} if match else set(keys_of(word)) if word else set()
    return found


def _shown(signed_by: str) -> str:
    return "a key in the file itself" if "BEGIN PGP" in signed_by else signed_by


def _scheme(uri: str) -> str:
    return uri.partition("://")[0].lower()


def _normalised(uri: str) -> str:
    scheme, _, rest = without_login(uri.strip()).partition("://")
    host, _, path = rest.partition("/")
    host = host.lower().removesuffix(_PORTS.get(scheme.lower(), "\0"))
    kind = "http" if scheme.lower() in _PORTS else scheme.lower()
    return f"{kind}://{host}/{re.sub('/+', '/', path).strip('/')}"


def _of_lines(file: str, text: str) -> list[AptSource]:
    """Read lines such as ``deb [arch=amd64 signed-by=FILE] URI SUITE COMPONENT...``."""
    found = []
    for line in text.splitlines():
        rest = line.partition("#")[0].strip()
        kind, _, rest = rest.replace("\t", " ").partition(" ")
        if kind != "deb":
            continue
        options: dict[str, str] = {}
        if match := _OPTIONS.match(rest.strip()):
            rest = rest.strip()[match.end() :]
            for word in match[1].split():
                # arch+=i386 adds to the default, and arch-=i386 takes away.
                name, equals, value = word.partition("=")
                if equals and name[-1:] not in "+-":
                    options[name.lower()] = value
        words = rest.split()
        if len(words) < 2:
            continue
        found.append(
            AptSource(
                file,
                words[0],
                words[1],
                tuple(words[2:]),
                options.get("signed-by", ""),
                tuple(name for name in options.get("arch", "").split(",") if name),
                options.get("trusted", "").lower() in _YES,
            )
        )
    return found


def _of_stanzas(file: str, text: str) -> list[AptSource]:
    """Read stanzas of deb822; each address with each suite is a source."""
    found = []
    for fields in _stanzas(text):
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in _NO:
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                found.append(
                    AptSource(
                        file,
                        uri,
                        suite,
                        tuple(fields.get("components", "").split()),
                        fields.get("signed-by", ""),
                        tuple(re.split(r"[,\s]+", fields.get("architectures", "").strip()))
                        if fields.get("architectures", "").strip()
                        else (),
                        fields.get("trusted", "").lower() in _YES,
                    )
                )
    return found


def _stanzas(text: str) -> list[dict[str, str]]:
    stanzas: list[dict[str, str]] = [{}]
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
            name = ""
        elif line[0] in " \t":
            if name:
                further = line.strip()
                stanzas[-1][name] += "\n" + ("" if further == "." else further)
        else:
            name, colon, value = line.partition(":")
            name = name.strip().lower() if colon else ""
            if name:
                stanzas[-1][name] = value.strip()
    return [
        {key: value.strip() if key != "signed-by" else value.lstrip("\n") for key, value in one.items()}
        for one in stanzas
        if one
    ]
