"""What an image is built from, and the name that follows from it.

The tag is a hash of what release file and site write down, so that a plan names its image without asking anyone.
Addresses are no part of it: a mirror serves the same commits and the same packages.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ..base.checks import Reader, mapping, matching, shown, text
from ..base.refusal import Refusal
from ..catalogue.build import Build, Pin
from ..catalogue.entries import ReleaseEntry
from .inside import together
from .parts import HOST_NICS, PILLOW_SIMD, check_offered, ordered

_T = TypeVar("_T")

VERSION = 1
"""Of the steps (dockerfile.py, and steps.sh of the role): a change of them that changes images raises it."""

NAME = "gaudi-serving/vllm"
"""The repository of built images where the site names none."""

LABEL = "gaudi-serving.image"
"""What the labels of a built image begin with."""

TAG_DIGITS = 12
"""Of the hash in an image's tag."""

BASE = f"{LABEL}.base"
"""The label with the base image, without a registry."""

LOCK = f"{LABEL}.lock"
"""The label with the SHA-256 of the lock, of an image that was built from one."""

BASE_DIGEST = f"{LABEL}.base-digest"
"""The label with the digest of the base image that was really built on, which only a build knows."""

# Where checkouts lie; what is only built, and then removed, lies below /opt/src.
_DIRECTORIES = {
    "vllm_hpu_extension": "/opt/vllm-hpu-extension",
    "neural_compressor": "/opt/neural-compressor",
    "vllm": "/opt/vllm",
    "hccl_demo": "/opt/hccl_demo",
    "libfabric": "/opt/src/libfabric",
    "hccl_ofi_wrapper": "/opt/src/hccl_ofi_wrapper",
}
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Printable ASCII without blank, quotes, backslash and dollar sign.
_PLAIN = r"[!#%&(-\[\]^_a-~]"
_REPOSITORY = re.compile(rf"(https?|ssh|git)://{_PLAIN}+|/{_PLAIN}+")
# The distribution reference grammar: a host with a dot or a port, and path components.
_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*((==|!=|<=|>=|<|>|~=)[!%&(-:<-\[\]^_a-~]+)")
# As pip writes and reads it: one distribution of one version, and the checksums of its files.
_LOCKED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)(( --hash=sha256:[0-9a-f]{64})+)")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")

# Repositories that an image of a kind is made of; those that are not required only where something pins them.
OF_KIND = {
    "fork": ("vllm_fork", "vllm_hpu_extension", "neural_compressor"),
    "plugin": ("vllm_gaudi", "vllm"),
}
_REQUIRED = {"fork": ("vllm_fork",), "plugin": ("vllm_gaudi", "vllm")}
_OF_PART = {HOST_NICS: ("libfabric", "hccl_ofi_wrapper")}
_ALWAYS = ("hccl_demo",)


class _Said(Reader):
    """A reader whose refusals name the option of the site (serving_image_KEY), not the bare key."""

    def _what(self, key: str) -> str:
        return f"serving_image_{key}"


@dataclass(frozen=True)
class Wish:
    """What a site says of its images: a ready one (``ref``), or that they are built, and what differs in them.

    ``way`` is one that the release file names beside its own pins.
    """

    ref: str = ""
    build: bool = False
    name: str = NAME
    base: str = ""
    way: str = ""
    pins: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    constraints: Mapping[str, str] = field(default_factory=dict)
    lock: tuple[str, ...] = ()
    push: bool = False

    KEYS = ("ref", "build", "name", "base", "way", "pins", "parts", "constraints", "lock", "push")

    @classmethod
    def from_mapping(cls, value: object) -> Wish:
        """Read the options ``serving_image_KEY`` of a site; keys that are null or empty are not said."""
        reader = _Said({k: v for k, v in mapping(value, "image").items() if v not in (None, "")}, "image", cls.KEYS)
        form = "the name of an image, such as registry.example.com/gaudi/vllm"
        wish = cls(
            ref=matching(reader.text("ref", default=NAME), "serving_image_ref", _REFERENCE, form)
            if reader.has("ref")
            else "",
            build=reader.switch("build", default=False),
            name=matching(reader.text("name", default=NAME), "serving_image_name", _NAME, f"{form}, without a tag"),
            base=matching(reader.text("base"), "serving_image_base", _REFERENCE, form) if reader.has("base") else "",
            way=reader.text("way", longest=64) if reader.has("way") else "",
            pins={name: mapping(pin, f"serving_image_pins.{name}") for name, pin in reader.mapping("pins").items()},
            parts=tuple(reader.texts("parts")),
            constraints=dict(_constraint(line) for line in reader.texts("constraints")),
            lock=_locked(reader.raw("lock")) if reader.has("lock") else (),
            push=reader.switch("push", default=False),
        )
        if wish.ref and wish.build:
            raise Refusal(
                "image_given_and_built",
                f"serving_image_ref names the image {wish.ref}, and serving_image_build is true. Keep one: a ready "
                "image is not built.",
            )
        if wish.build and wish.push:
            check_pushed(wish.name)
        if not wish.build:
            # Of one that is built the recipe says it, together with what else is wrong.
            ordered(wish.parts)
        return wish


def check_pushed(name: str) -> None:
    """Refuse to push an image whose name has no registry in it: an engine would bring it to Docker Hub."""
    host, slash, _ = name.partition("/")
    # What an engine takes for a registry (splitDockerDomain of github.com/distribution/reference).
    if not slash or not (host == "localhost" or "." in host or ":" in host):
        raise Refusal(
            "push_without_registry",
            f"serving_image_push is true, but serving_image_name is {shown(name)}, which begins with no registry: the "
            "image would be pushed to Docker Hub. Name a registry of yours in it, such as "
            "registry.example.com/gaudi/vllm, or set serving_image_push: false.",
        )


def _constraint(line: str) -> tuple[str, str]:
    """The package and its versions."""
    found = _REQUIREMENT.fullmatch(line.strip())
    if found is None:
        raise Refusal(
            "wrong_constraint",
            f"serving_image_constraints has {shown(line)}, which is no constraint such as transformers==4.57.1.",
        )
    return found[1], found[2]


def _locked(text_: object) -> tuple[str, ...]:
    """The lines of a lock, sorted; those that begin with # say something to people."""
    lines = [line.strip() for line in str(text_).splitlines()]
    lines = sorted(line for line in lines if line and not line.startswith("#"))
    for line in lines:
        if not _LOCKED.fullmatch(line):
            raise Refusal(
                "wrong_lock",
                f"serving_image_lock has the line {shown(line)}, which is no name==version --hash=sha256:... of 64 "
                "hexadecimal digits. Take the lock from an image that was built (docs/images.md).",
            )
    return tuple(lines)


@dataclass(frozen=True)
class Recipe:
    """All that goes into one image.

    ``base`` is what the site names, with its registry, or else the release's without one: ``registry`` is where this
    site gets that from, and ``base_digest`` the digest that it must have, empty for any. With a ``lock`` packages of an
    index come from it alone; without one, any that fit are installed.
    """

    release: str
    base: str
    base_digest: str
    registry: str
    name: str
    build: Build
    fork_directory: str
    pins: Mapping[str, Pin]
    released: Mapping[str, str]
    parts: tuple[str, ...]
    constraints: Mapping[str, str]
    lock: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, object]:
        """What the image is made from, as one document; equal documents give equal images."""
        return {
            "recipe": VERSION,
            "kind": self.build.kind,
            "base": self.base,
            "commits": {name: pin.commit for name, pin in self.pins.items()},
            "parts": list(self.parts),
            "constraints": dict(self.constraints),
            "requirements": [self.build.requirements, self.build.build_requirements],
            "version": self.build.version,
            "pillow_simd": self.build.pillow_simd if PILLOW_SIMD in self.parts else None,
            "directory": self.fork_directory,
            **({"lock": self.lock_digest} if self.lock else {}),
        }

    @property
    def lock_digest(self) -> str:
        """The SHA-256 of the lock's lines, sorted."""
        return hashlib.sha256("\n".join(self.lock).encode()).hexdigest()

    @property
    def tag(self) -> str:
        """The release's name and a hash of the inputs."""
        said = json.dumps(self.inputs, sort_keys=True, separators=(",", ":"))
        return f"{self.release}-{hashlib.sha256(said.encode()).hexdigest()[:TAG_DIGITS]}"

    @property
    def reference(self) -> str:
        """The image's name."""
        return f"{self.name}:{self.tag}"

    @property
    def base_reference(self) -> str:
        """The base image where this site gets it from."""
        return f"{self.registry}/{self.base}" if self.registry else self.base

    @property
    def labels(self) -> dict[str, str]:
        """What the image says of itself: commits, beside each the release's own if it has one, parts, constraints."""
        commits = {f"{LABEL}.commit.{name}": pin.commit for name, pin in self.pins.items()}
        released = {f"{LABEL}.released.{name}": commit for name, commit in self.released.items() if name in self.pins}
        return {
            f"{LABEL}.recipe": str(VERSION),
            f"{LABEL}.release": self.release,
            BASE: self.base,
            f"{LABEL}.parts": " ".join(self.parts),
            f"{LABEL}.constraints": " ".join(f"{name}{version}" for name, version in self.constraints.items()),
            **({LOCK: self.lock_digest} if self.lock else {}),
            **commits,
            **released,
        }

    def directory(self, name: str) -> str:
        """Where the checkout of a repository lies in the image."""
        return _DIRECTORIES.get(name, self.fork_directory)


def recipe(release: ReleaseEntry, wish: Wish, needs: Iterable[str] = (), registry: str | None = None) -> Recipe:
    """The recipe of the image that plans with these needs run in.

    registry: where this site gets the base image from; None for the release's own. Raises Refusal for a release that
    says no way, a part it cannot have, a pin of the site that it has no use for.
    """
    build = release.build
    if build is None:
        raise Refusal(
            "no_way_to_image",
            f"catalog/releases/{release.name}.yml says no way to its image (no key build). Name a ready image with "
            "serving_image_ref.",
        )
    refused: dict[str, Refusal] = {}
    build, of_release = _tried(
        refused, "way", (build, release.pins), functools.partial(_by_way, release, build, wish.way)
    )
    parts: tuple[str, ...] = _tried(refused, "parts", (), lambda: _parts([*wish.parts, *needs], build, release.name))
    pins: dict[str, Pin] = _tried(refused, "pins", {}, lambda: _pins(release, build, of_release, wish, parts))
    if refused:
        raise together(refused)
    digest = release.image["digest"]
    said = f"{release.image['path']}:{release.image['tag']}" + (f"@{digest}" if digest else "")
    return Recipe(
        release=release.name,
        base=wish.base or said,
        base_digest="" if wish.base else digest,
        registry="" if wish.base else registry or release.image["registry"],
        name=wish.name,
        build=build,
        fork_directory=release.fork_directory,
        pins=pins,
        released={name: pin.commit for name, pin in release.pins.items()},
        parts=parts,
        constraints={**{name: entry.version for name, entry in build.constraints.items()}, **wish.constraints},
        lock=wish.lock,
    )


def pins_of_the_fork(wish: Wish, build: Build) -> list[str]:
    """The site's pins of vLLM's fork, which an image that is not built from it has no use for."""
    return [name for name in wish.pins if name in OF_KIND["fork"]] if build.kind != "fork" else []


def _tried(refused: dict[str, Refusal], option: str, otherwise: _T, ask: Callable[[], _T]) -> _T:
    """What an option comes to. A refusal is kept beside those of others: whoever mends one is to know them all."""
    try:
        return ask()
    except Refusal as refusal:
        refused[option] = refusal
        return otherwise


def _parts(names: Iterable[str], build: Build, release: str) -> tuple[str, ...]:
    """The parts of the image, each of them one that the release has."""
    parts = ordered(names)
    check_offered(parts, build, release)
    return parts


def _by_way(release: ReleaseEntry, build: Build, name: str) -> tuple[Build, Mapping[str, Pin]]:
    """How the image is built, and the release's pins, where the site goes another way than the release's own."""
    if not name:
        return build, release.pins
    if name not in build.ways:
        raise Refusal(
            "unknown_way",
            f"serving_image_way is {shown(name)}, but release {release.name} knows "
            f"{', '.join(build.ways) or 'no other way than its own pins'}. Leave it out for the release's own pins.",
        )
    way = build.ways[name]
    if way.refused:
        raise Refusal("way_refused", f"{release.name} cannot be built the way {name}: {way.refused}")
    others = {pin: said for pin, said in release.pins.items() if not way.pins or pin not in OF_KIND[build.kind]}
    return build.by(way), {**others, **way.pins}


def _pins(
    release: ReleaseEntry, build: Build, of_release: Mapping[str, Pin], wish: Wish, parts: Iterable[str]
) -> dict[str, Pin]:
    """The repositories of the image at their commits, in the order in which they are needed."""
    names = [*OF_KIND[build.kind], *_ALWAYS, *(name for part in parts for name in _OF_PART.get(part, ()))]
    known = [*OF_KIND[build.kind], *_ALWAYS, *(name for more in _OF_PART.values() for name in more)]
    for name in wish.pins:
        if name not in known:
            raise Refusal(
                "unknown_image_pin",
                f"serving_image_pins names {shown(name)}, but release {release.name} is built from {', '.join(known)}.",
            )
    found = {name: _pin(name, of_release.get(name), wish.pins.get(name)) for name in names}
    for name in (*_REQUIRED[build.kind], *_ALWAYS):
        if found[name] is None:
            raise Refusal(
                "no_image_pin",
                f"Nothing names the commit of {name} that an image of release {release.name} is built from. Add it to "
                f"serving_image_pins, or to pins in catalog/releases/{release.name}.yml.",
            )
    return {name: pin for name, pin in found.items() if pin is not None}


def _pin(name: str, released: Pin | None, own: Mapping[str, object] | None) -> Pin | None:
    """A repository at the site's commit, else at the release's."""
    if own is None:
        if released is None:
            return None
        values: dict[str, object] = {"repository": released.repository, "commit": released.commit}
        where = f"pins.{name}"
    else:
        values = {"repository": released.repository if released else None, **own}
        where = f"serving_image_pins.{name}"
    pin = Pin.from_mapping(values, where)
    text(pin.repository, f"{where}.repository", longest=256)
    _check_no_account(pin.repository, f"{where}.repository")
    return Pin(
        matching(
            pin.repository, f"{where}.repository", _REPOSITORY, "an address such as https://github.com/OWNER/NAME"
        ),
        matching(pin.commit, f"{where}.commit", _COMMIT, "a whole commit id of 40 hexadecimal digits, never a branch"),
    )


def _check_no_account(repository: str, where: str) -> None:
    """Refuse an account in an address: it would be in the image's history, in its checkout, and in its plan."""
    scheme, _, rest = repository.partition("://")
    account, at, _ = rest.partition("/")[0].rpartition("@")
    # Of ssh a user alone is no secret.
    if at and (scheme.lower() != "ssh" or ":" in account):
        raise Refusal(
            "account_in_pin",
            f"{where} has an account in it, which whoever has the image could read. Write the address alone, and the "
            "account into serving_image_git_accounts.",
        )
