"""The recipe of an image: everything that it is built from, and the name that follows from it.

The tag is a hash of values in the release file and of the site, so a plan can name its image without building it.
Addresses are not part of it: a mirror has the same commits and packages.
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
from ..catalogue.build import ImageBuild, Pin
from ..catalogue.entries import ReleaseEntry
from .inside import INC_CALIBRATION_DIRECTORY, together
from .labels import BASE, LABEL, LOCK
from .parts import HOST_NICS, INC_CALIBRATION, PILLOW_SIMD, check_offered, ordered

_T = TypeVar("_T")

VERSION = 1
"""Of the steps (dockerfile.py, and steps.sh of the role): a change of them that changes images raises it."""

NAME = "gaudi-serving/vllm"
"""The repository of built images where the site names none."""

TAG_DIGITS = 12
"""Of the hash in an image's tag."""

# Directories of checkouts; repositories that are only built and then removed are below /opt/src.
_DIRECTORIES = {
    "vllm_hpu_extension": "/opt/vllm-hpu-extension",
    "neural_compressor": "/opt/neural-compressor",
    "vllm": "/opt/vllm",
    "hccl_demo": "/opt/hccl_demo",
    "inc_calibration": INC_CALIBRATION_DIRECTORY,
    "libfabric": "/opt/src/libfabric",
    "hccl_ofi_wrapper": "/opt/src/hccl_ofi_wrapper",
}
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Printable ASCII without blank, quotes, backslash and dollar sign.
_PLAIN = r"[!#%&(-\[\]^_a-~]"
_REPOSITORY = re.compile(rf"(https?|ssh|git)://{_PLAIN}+|/{_PLAIN}+")
# The distribution reference grammar: a host with a dot or a port, then path components.
_NAME = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*((==|!=|<=|>=|<|>|~=)[!%&(-:<-\[\]^_a-~]+)")
# The form that pip writes and reads: one distribution of one version, and the checksums of its files.
_LOCKED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)(( --hash=sha256:[0-9a-f]{64})+)")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")

# Repositories of each kind of image; those not in _REQUIRED are only used if a pin names them.
OF_KIND = {
    "fork": ("vllm_fork", "vllm_hpu_extension", "neural_compressor"),
    "plugin": ("vllm_gaudi", "vllm"),
}
_REQUIRED = {"fork": ("vllm_fork",), "plugin": ("vllm_gaudi", "vllm")}
_OF_PART = {HOST_NICS: ("libfabric", "hccl_ofi_wrapper"), INC_CALIBRATION: ("inc_calibration",)}
_ALWAYS = ("hccl_demo",)


class _OptionReader(Reader):
    """A reader whose refusals name the site's option (serving_image_KEY) instead of the bare key."""

    def _what(self, key: str) -> str:
        return f"serving_image_{key}"


@dataclass(frozen=True)
class ImageSettings:
    """A site's image settings: a ready image (``ref``), or that images are built, and from what.

    ``way``: the name of an alternative in the release file to its own pins.
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
    def from_mapping(cls, value: object) -> ImageSettings:
        """Read a site's options ``serving_image_KEY``; null and empty values count as unset."""
        reader = _OptionReader(
            {k: v for k, v in mapping(value, "image").items() if v not in (None, "")}, "image", cls.KEYS
        )
        form = "the name of an image, such as registry.example.com/gaudi/vllm"
        settings = cls(
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
        if settings.ref and settings.build:
            raise Refusal(
                "image_given_and_built",
                f"serving_image_ref names the image {settings.ref}, and serving_image_build is true. Keep one: a ready "
                "image is not built.",
            )
        if settings.build and settings.push:
            check_pushed(settings.name)
        if not settings.build:
            # For an image that is built, the recipe reports this together with other errors.
            ordered(settings.parts)
        return settings


def check_pushed(name: str) -> None:
    """Refuse to push an image whose name has no registry, which an engine would push to Docker Hub."""
    host, slash, _ = name.partition("/")
    # The engine's rule for a registry (splitDockerDomain of github.com/distribution/reference).
    if not slash or not (host == "localhost" or "." in host or ":" in host):
        raise Refusal(
            "push_without_registry",
            f"serving_image_push is true, but serving_image_name is {shown(name)}, which begins with no registry: the "
            "image would be pushed to Docker Hub. Name a registry of yours in it, such as "
            "registry.example.com/gaudi/vllm, or set serving_image_push: false.",
        )


def _constraint(line: str) -> tuple[str, str]:
    """Return the package and its allowed versions."""
    found = _REQUIREMENT.fullmatch(line.strip())
    if found is None:
        raise Refusal(
            "wrong_constraint",
            f"serving_image_constraints has {shown(line)}, which is no constraint such as transformers==4.57.1.",
        )
    return found[1], found[2]


def _locked(text_: object) -> tuple[str, ...]:
    """Return the lines of a lock, sorted, without comments."""
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
    """The complete recipe of one image.

    ``base``: the site's base image with its registry, or else the release's without one; ``registry`` is then where
    this site gets it. ``base_digest``: its required digest, "" for any. With a ``lock``, packages of an index come from
    it alone; without one, any matching version is installed.
    """

    release: str
    base: str
    base_digest: str
    registry: str
    name: str
    build: ImageBuild
    fork_directory: str
    pins: Mapping[str, Pin]
    released: Mapping[str, str]
    parts: tuple[str, ...]
    constraints: Mapping[str, str]
    lock: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, object]:
        """Everything the image is made from, as one document; equal documents give equal images."""
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
        """The base image with the registry where this site gets it."""
        return f"{self.registry}/{self.base}" if self.registry else self.base

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels: commits (and the release's own commit of each), parts, constraints."""
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
        """Return the directory of a repository's checkout in the image."""
        return _DIRECTORIES.get(name, self.fork_directory)


def recipe(
    release: ReleaseEntry, settings: ImageSettings, needs: Iterable[str] = (), registry: str | None = None
) -> Recipe:
    """Return the recipe of the image for plans with these needs.

    registry: where this site gets the base image; None for the release's own. Raises Refusal for a release without
    build rules, a part that it cannot have, and a pin of the site that it does not use.
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
        refused, "way", (build, release.pins), functools.partial(_by_way, release, build, settings.way)
    )
    parts: tuple[str, ...] = _tried(
        refused, "parts", (), lambda: _parts([*settings.parts, *needs], build, release.name)
    )
    pins: dict[str, Pin] = _tried(refused, "pins", {}, lambda: _pins(release, build, of_release, settings, parts))
    if refused:
        raise together(refused)
    base, where = _base(release, settings, registry)
    return Recipe(
        release=release.name,
        base=base,
        base_digest=base.partition("@")[2],
        registry=where,
        name=settings.name,
        build=build,
        fork_directory=release.fork_directory,
        pins=pins,
        released={name: pin.commit for name, pin in release.pins.items()},
        parts=parts,
        constraints={**{name: entry.version for name, entry in build.constraints.items()}, **settings.constraints},
        lock=settings.lock,
    )


def base_reference(release: ReleaseEntry, settings: ImageSettings, registry: str | None = None) -> str:
    """Return the base image of built images with its registry, as ``recipe`` does: with a digest where it is pinned."""
    base, where = _base(release, settings, registry)
    return f"{where}/{base}" if where else base


def _base(release: ReleaseEntry, settings: ImageSettings, registry: str | None) -> tuple[str, str]:
    """Return the base image, and the registry that its name does not begin with ("" for one that the site names)."""
    if settings.base:
        return settings.base, ""
    image = release.image
    digest = f"@{image['digest']}" if image["digest"] else ""
    return f"{image['path']}:{image['tag']}{digest}", registry or image["registry"]


def pins_of_other_releases(release: ReleaseEntry, build: ImageBuild, way: str, pins: Mapping[str, object]) -> list[str]:
    """Return the site's pins that are for other releases: of vLLM's fork, where this release is not built from it, and
    commits of a repository that neither this release nor the pin names.
    """
    if build.kind != "fork":
        return [name for name in pins if name in OF_KIND["fork"]]
    named = {*release.pins, *(build.ways[way].pins if way in build.ways else ())}
    optional = set(OF_KIND["fork"]) - set(_REQUIRED["fork"]) - named
    return [name for name, pin in pins.items() if name in optional and "repository" not in mapping(pin, name)]


def _tried(refused: dict[str, Refusal], option: str, otherwise: _T, ask: Callable[[], _T]) -> _T:
    """Evaluate one option. A refusal is collected, so that all wrong options are reported together."""
    try:
        return ask()
    except Refusal as refusal:
        refused[option] = refusal
        return otherwise


def _parts(names: Iterable[str], build: ImageBuild, release: str) -> tuple[str, ...]:
    """Return the parts of the image. Raises Refusal for one that the release cannot have."""
    parts = ordered(names)
    check_offered(parts, build, release)
    return parts


def _by_way(release: ReleaseEntry, build: ImageBuild, name: str) -> tuple[ImageBuild, Mapping[str, Pin]]:
    """Return build rules and pins: the release's own, or those of the alternative that the site chose."""
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
    release: ReleaseEntry,
    build: ImageBuild,
    of_release: Mapping[str, Pin],
    settings: ImageSettings,
    parts: Iterable[str],
) -> dict[str, Pin]:
    """Return the repositories of the image at their commits, in build order."""
    names = [*OF_KIND[build.kind], *_ALWAYS, *(name for part in parts for name in _OF_PART.get(part, ()))]
    known = [*OF_KIND[build.kind], *_ALWAYS, *(name for more in _OF_PART.values() for name in more)]
    for name in settings.pins:
        if name not in known:
            raise Refusal(
                "unknown_image_pin",
                f"serving_image_pins names {shown(name)}, but release {release.name} is built from {', '.join(known)}.",
            )
    found = {name: _pin(name, of_release.get(name), settings.pins.get(name)) for name in names}
    for name in (*_REQUIRED[build.kind], *_ALWAYS, *(name for part in parts for name in _OF_PART.get(part, ()))):
        if found[name] is None:
            raise Refusal(
                "no_image_pin",
                f"Nothing names the commit of {name} that an image of release {release.name} is built from. Add it to "
                f"serving_image_pins, or to pins in catalog/releases/{release.name}.yml.",
            )
    return {name: pin for name, pin in found.items() if pin is not None}


def _pin(name: str, released: Pin | None, own: Mapping[str, object] | None) -> Pin | None:
    """Return a repository at the site's commit, else at the release's; None without either."""
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
    """Refuse an account in an address, which would be in the image's history, its checkout and the plan."""
    scheme, _, rest = repository.partition("://")
    account, at, _ = rest.partition("/")[0].rpartition("@")
    # An ssh user without a password is not secret.
    if at and (scheme.lower() != "ssh" or ":" in account):
        raise Refusal(
            "account_in_pin",
            f"{where} has an account in it, which whoever has the image could read. Write the address alone, and the "
            "account into serving_image_git_accounts.",
        )
