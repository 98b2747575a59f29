"""The images in an archive that ``docker save`` wrote, read so strictly that an engine cannot find others in it.

An engine unpacks an archive with Go's reader and takes the names of images from it: a file that this program read
otherwise could bring other images than it says. So only the plain form is taken that docker save writes (POSIX.1-1988
headers, pax records for sizes and times), each path once, and JSON with the keys that are known here alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_BLOCK = 512
# Bytes of what is read into memory: docker's own lists, and what pax says of one file.
_LONGEST = 1 << 20
_MAGIC = b"ustar\x0000"
_REGULAR, _LINK, _FOLDER, _PAX = b"0", b"2", b"5", b"x"
_OCTAL = re.compile(rb"([0-7]{1,12})[\0 ]*")
_PATH = re.compile(rb"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+)*")
# A layer that an image has in common with another one, as engines before 25 write it.
_SHARED, _SHARED_WITH = re.compile(r"[0-9a-f]{64}/layer\.tar"), re.compile(rb"\.\./[0-9a-f]{64}/layer\.tar")
_RECORD = re.compile(rb"([0-9]{1,9}) ")
# Of what pax may say; anything else could give a file another name.
_PASSED_OVER = re.compile(rb"[acm]time|SCHILY\.xattr\..+")
_IMAGE = {"Config", "RepoTags", "Layers", "Parent", "LayerSources"}
_INDEX = {"schemaVersion", "mediaType", "artifactType", "manifests", "subject", "annotations"}
_MANIFEST = {"mediaType", "artifactType", "digest", "size", "urls", "data", "annotations", "platform"}
_OF_IMAGE = {"schemaVersion", "mediaType", "artifactType", "config", "layers", "subject", "annotations"}
# How engines with containerd's store name an image, and what they take where that is missing.
_NAME, _OTHER_NAME = "io.containerd.image.name", "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class _Member:
    """A file, link or folder; size in bytes, begin is where they begin."""

    path: str
    kind: bytes
    size: int
    begin: int


def images(stream: BinaryIO) -> tuple[list[str], set[str]]:
    """The names of the images in an archive, and what an engine may give as their ids: of configuration or manifest.

    Raises ValueError for what docker save does not write.
    """
    _, listed, tops = _lists(stream)
    names, ids = [], set()
    for image in listed:
        names += [str(name) for name in image["RepoTags"] or []]
        ids.add(f"sha256:{str(image['Config']).rpartition('/')[2].partition('.')[0]}")
    for top in tops:
        said: Mapping[str, Any] = top.get("annotations") or {}
        name = _familiar(str(said.get(_NAME) or said.get(_OTHER_NAME) or ""))
        names += [name] if name and name not in names else []
        ids.add(str(top["digest"]))
    return names, ids


def same_as(stream: BinaryIO, given: str) -> set[str]:
    """The ids that an image of this id may have in any engine, where the archive holds that image and no other.

    An id is a checksum: of the configuration, or of the manifest that names it, by engine. The archive's own statements
    about its parts are ignored: each part is read, and must have the checksum that names it. Raises ValueError for
    another image.
    """
    found, listed, tops = _lists(stream)
    same = {given}
    for top in tops:
        document = _blob(stream, found, str(top["digest"]))
        inner = [str(each["digest"]) for each in document.get("manifests") or []]
        if inner and top["digest"] == given:
            # Of other processors, and what says how it was built, docker save may have left out.
            there = {digest: _blob(stream, found, digest) for digest in inner if _path_of(digest) in found}
            same |= {*there, *(str(each["config"]["digest"]) for each in there.values())}
        elif not inner:
            # Whoever wrote it may have named another configuration as well, in capitals.
            (said,) = _each([document], _OF_IMAGE)
            (configuration,) = _each([said["config"]], _MANIFEST)
            pair = {str(top["digest"]), str(configuration["digest"])}
            same |= pair if given in pair else set()
    held = {_sum(stream, found, str(image["Config"])) for image in listed} | {str(top["digest"]) for top in tops}
    if not held <= same:
        raise ValueError(f"it holds {', '.join(sorted(held - same))}, which is not the image {given}")
    return same


def _lists(stream: BinaryIO) -> tuple[dict[str, _Member], list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """What is in an archive by path, the images that it lists, and the manifests of its index."""
    found: dict[str, _Member] = {}
    for member in _members(stream):
        if member.path in found:
            raise ValueError(f"it has {member.path} twice")
        found[member.path] = member
    for path in found:
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if any(folder in found and found[folder].kind != _FOLDER for folder in above):
            raise ValueError(f"{path} lies in what is no folder")
    listed = _json(stream, found, "manifest.json")
    index = _json(stream, found, "index.json") if "index.json" in found else {"manifests": []}
    return found, list(_each(listed, _IMAGE)), list(_each(next(_each([index], _INDEX))["manifests"], _MANIFEST))


def _path_of(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _sum(stream: BinaryIO, found: Mapping[str, _Member], path: str) -> str:
    """The checksum of a file, as a digest."""
    return f"sha256:{hashlib.sha256(_content(stream, found, path)).hexdigest()}"


def _blob(stream: BinaryIO, found: Mapping[str, _Member], digest: str) -> dict[str, Any]:
    """A manifest that has the checksum by which it is named."""
    if _sum(stream, found, _path_of(digest)) != digest:
        raise ValueError(f"it has something else under the name {digest}")
    document = _json(stream, found, _path_of(digest))
    if not isinstance(document, dict):
        raise ValueError(f"{digest} is no manifest")
    return document


def _familiar(name: str) -> str:
    """A name as docker's client shows it."""
    for beginning in ("docker.io/library/", "docker.io/"):
        if name.startswith(beginning):
            return name[len(beginning) :]
    return name


def _members(stream: BinaryIO) -> Iterator[_Member]:
    """What is in an archive, in its order."""
    at, said = 0, None
    while True:
        header = _read(stream, at, _BLOCK)
        at += _BLOCK
        if not any(header):
            if said is not None or any(_read(stream, at, _BLOCK)):
                raise ValueError("it does not end where it says")
            return
        kind, size = header[156:157].replace(b"\0", _REGULAR), _number(header[124:136])
        blank = header[:148] + b" " * 8 + header[156:]
        if header[257:265] != _MAGIC or any(header[500:]) or _number(header[148:156]) != sum(blank):
            raise ValueError("it has a header of another form")
        if kind == _PAX and said is None:
            said = _pax(_read(stream, at, size))
        else:
            size = size if not said else said.get("size", size)
            yield _member(header, kind, size, at)
            said = None
        at += -(-size // _BLOCK) * _BLOCK


def _member(header: bytes, kind: bytes, size: int, begin: int) -> _Member:
    name, prefix = (part.partition(b"\0")[0] for part in (header[:100], header[345:500]))
    path = prefix + b"/" + name if prefix else name
    if kind == _FOLDER and path.endswith(b"/"):
        path = path[:-1]
    if not _PATH.fullmatch(path) or kind not in (_REGULAR, _LINK, _FOLDER) or (kind != _REGULAR and size):
        raise ValueError(f"it holds {path[:100]!r} of the kind {kind!r}, which no image needs")
    text = path.decode("ascii")
    leads = header[157:257].partition(b"\0")[0]
    if kind == _LINK and not (_SHARED.fullmatch(text) and _SHARED_WITH.fullmatch(leads)):
        raise ValueError(f"it has a link {text}, which no image needs")
    return _Member(text, kind, size, begin)


def _pax(content: bytes) -> dict[str, int]:
    """The size that pax has of the next file, where it is too large for a header."""
    found: dict[str, int] = {}
    while content:
        length = _RECORD.match(content)
        record = content[: int(length[1])] if length else b""
        key, equals, value = record[length.end() if length else 0 :].partition(b"=")
        if not equals or not value.endswith(b"\n") or len(record) != int(length[1] if length else 0):
            raise ValueError("it has a pax record that cannot be read")
        if key == b"size" and "size" not in found and re.fullmatch(rb"[0-9]{1,15}\n", value):
            found["size"] = int(value)
        elif not _PASSED_OVER.fullmatch(key):
            raise ValueError(f"it has the pax record {key[:60]!r}, which no image needs")
        content = content[len(record) :]
    return found


def _number(field: bytes) -> int:
    found = _OCTAL.fullmatch(field)
    if found is None:
        raise ValueError("it has a header of another form")
    return int(found[1], 8)


def _read(stream: BinaryIO, begin: int, size: int) -> bytes:
    if size > _LONGEST:
        raise ValueError("it has a list that is longer than any")
    stream.seek(begin)
    content = stream.read(size)
    if len(content) != size:
        raise ValueError("it is cut off")
    return content


def _content(stream: BinaryIO, found: Mapping[str, _Member], path: str) -> bytes:
    member = found.get(path)
    if member is None or member.kind != _REGULAR:
        raise ValueError(f"it has no {path}")
    return _read(stream, member.begin, member.size)


def _json(stream: BinaryIO, found: Mapping[str, _Member], path: str) -> Any:
    return json.loads(_content(stream, found, path).decode("utf-8"), object_pairs_hook=_mapping)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping, each of whose keys is there once."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("it says something twice")
    return made


def _each(listed: object, keys: set[str]) -> Iterator[Mapping[str, Any]]:
    """Mappings of a list. Go takes keys whatever their case: what is not known here may be another name of one."""
    for each in listed if isinstance(listed, list) else [None]:
        if not isinstance(each, dict) or not set(each) <= keys:
            raise ValueError("it has a list of images of another form")
        yield each
