"""Build one image: room, the base image, Docker's own build, and the registry of the site."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gaudi
from gaudi.base.certificates import registry_advice
from gaudi.base.documents import Damaged
from gaudi.base.paths import STATE
from gaudi.base.refusal import Refusal
from gaudi.base.units import human_bytes
from gaudi.engine.image_record import digest_of, parse_packages, repository_of
from gaudi.image.addresses import check_reached, unknown_to_builds
from gaudi.image.dockerfile import CERTIFICATES, PACKAGES_FOLDER, PROGRAMS_FOLDER, with_certificates
from gaudi.image.inside import PROGRAM, ImageFindings, answer, question
from gaudi.image.labels import BASE, BASE_DIGEST
from gaudi.image.output import Follower, failure
from gaudi.image.pytorch import PyTorchReplacement, refusal
from gaudi.image.versions import UNLABELLED, version_labels
from gaudi.node import inspection
from gaudi.node.documents import read_json

from .engine import EngineClient, last, without_secrets
from .request import ImageRequest

Tell = Callable[[dict[str, Any]], None]

RECORD = Path(STATE) / "images.json"
# Of the library, what steps import; the build runs on the image's Python.
_OF_LIBRARY = (
    "__init__.py",
    "base/__init__.py",
    "base/printable.py",
    "base/refusal.py",
    "image/__init__.py",
    "image/lock.py",
    "image/requirements.py",
)
_PROGRAMS = Path(__file__).parent / "context"
DOCKERFILE = "Dockerfile"
_LABELLING = "the labels with versions"
# The engine's own runtime, which passes no cards.
_ISOLATION = ("--runtime", "runc", *inspection.ISOLATION)
_LISTING = ("-m", "pip", "list", "--format=json", "--disable-pip-version-check")


def build(request: ImageRequest, engine: EngineClient, tell: Tell) -> dict[str, Any]:
    """Build the image, unless the engine or the site's registry has it. Raises Refusal with what to do."""
    engine.check_buildkit()
    found = engine.inspect(request.reference)
    if not found and request.push and take(request, engine, tell):
        return {"reference": request.reference, "id": engine.inspect(request.reference)["Id"]}
    if not found:
        named = known_hosts(list(request.hosts))
        check_reached(request.network, [(host, named.get(host, host), said) for host, said in request.hosts.items()])
        check_room(request, engine.directory())
        base, digest = base_image(request, engine, tell)
        of_base = check_release(request, engine, base, tell)
        whole = request.reference + UNLABELLED
        try:
            replaced = run(request, engine, tell, base, digest, named)
            inside = inspect(request, engine, tell, whole)
            check_pytorch(request, inside, of_base, replaced)
            label(request, engine, tell, whole, inside)
        finally:
            # The image that has the labels holds the same layers.
            engine.untag(whole)
        found = engine.inspect(request.reference)
    if request.push:
        push(request, engine, tell)
    return {"reference": request.reference, "id": found.get("Id")}


def take(request: ImageRequest, engine: EngineClient, tell: Tell) -> bool:
    """Pull the image where another node has pushed it before; returns whether it is here now.

    Registries use similar errors for a missing image and for a denied one, so any error here means "not there"; if the
    registry has a fault, the push reports it.
    """
    status, lines = pull(engine, tell, request.reference, "look for the image in the registry")
    if status:
        print(f"The registry gives no {request.reference} ({last(lines)}); building it.", flush=True)
    return not status


def pull(engine: EngineClient, tell: Tell, reference: str, phase: str) -> tuple[int, list[str]]:
    """Have the engine pull an image; returns its status and what it said."""
    lines: list[str] = []

    def hear(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        layers = [said.partition(": ")[0] for said in lines if "Pulling fs layer" in said or "Already exists" in said]
        done = [said for said in lines if "Pull complete" in said or "Already exists" in said]
        tell({"phase": phase, "done": len(done), "total": len(layers), "unit": "layers"})

    return engine.follow(hear, {}, "pull", reference), lines


def check_room(request: ImageRequest, directory: Path) -> None:
    """Refuse a build that would fill the disk. Layers that exist already need no further space."""
    free = shutil.disk_usage(directory).free
    if free < request.room_bytes:
        raise Refusal(
            "no_room",
            f"Building {request.reference} takes up to {human_bytes(request.room_bytes)} below {directory}, but "
            f"{human_bytes(free)} are free. Make room (docker system df shows what takes it), or lower "
            "serving_image_build_gib if its layers are there already.",
        )


def base_image(request: ImageRequest, engine: EngineClient, tell: Tell) -> tuple[str, str]:
    """Pull the base image; how a build names it, and its digest. The engine's own where the registry does not answer.

    Raises Refusal for a base that is not the pinned one, or not the one that was built on before.
    """
    status, lines = pull(engine, tell, request.base, "pull the base image")
    found = engine.inspect(request.base)
    if status and not found:
        raise Refusal(
            "base_not_found",
            f"The base image {request.base} could not be pulled: {last(lines)} "
            + (
                registry_advice(last(lines), request.base, os.path.isfile)
                or "Check gaudi_image_registry (or serving_image_base), the engine's proxies, and the credentials if "
                "the registry asks for any."
            ),
        )
    # An image that was loaded has a digest of no registry: its own id stands for it.
    known = digest_of(found, request.base)
    digest = known or str(found["Id"])
    if status:
        print(f"The registry does not answer; building on the {request.base} that is here ({digest}).", flush=True)
    check_base(request, digest)
    # The build uses exactly the image that was inspected, even if the tag is moved meanwhile.
    return f"{repository_of(request.base)}@{known}" if known else request.base, digest


def check_base(request: ImageRequest, digest: str) -> None:
    """Refuse a base image whose tag was moved, unless the site accepts it."""
    if request.base_digest and digest != request.base_digest:
        raise Refusal(
            "base_differs",
            f"{request.base} has the digest {digest}, but {request.base_digest} is pinned. Pull the pinned one into "
            "the mirror, or correct the release file if the new image is the right one.",
        )
    before = built_on(request.base_name)
    if before and digest not in before and not request.accept_moved_base:
        raise Refusal(
            "base_moved",
            f"{request.base} has the digest {digest}; images here were built on {', '.join(sorted(before))}: the tag "
            "was moved. Set serving_image_accept_moved_base: true to build on the new one, or pin the old one.",
        )


def check_release(request: ImageRequest, engine: EngineClient, base: str, tell: Tell) -> str:
    """Refuse a base image with the vendor's software of another release, which would be found out after the build.

    Returns the version of its PyTorch, "" for none. What the base lacks is left to the inspection of the finished
    image: a step may install it.
    """
    tell({"phase": "look into the base image"})
    code, out, err = engine.run_once(*_ISOLATION, "--entrypoint=python3", base, *_LISTING)
    if code:
        raise Refusal(
            "base_silent",
            f"{request.base} could not be looked into: {last((out + err).splitlines())} A base image has Python 3 with "
            "pip: check serving_image_base.",
        )
    seen = parse_packages(out)
    differing = ((name, version, seen.get(name)) for name, version in request.versions.items())
    wrong = [
        f"{name} {found}, where it is {version}"
        for name, version, found in differing
        if version and found and found != version
    ]
    if wrong:
        raise Refusal(
            "base_of_other_release",
            f"The base image {request.base} holds {' and '.join(wrong)} in release {request.release}. Correct "
            "serving_image_base, or gaudi_release.",
        )
    return seen.get("torch", "")


def built_on(base: str) -> set[str]:
    """The digests of a base image that images of this node were built on, whatever registry it came from."""
    try:
        images = (read_json(RECORD, {"images": {str: dict}}) or {"images": {}})["images"].values()
    except Damaged:
        return set()
    labels = [image.get("built") or {} for image in images]
    return {str(said[BASE_DIGEST]) for said in labels if said.get(BASE) == base and BASE_DIGEST in said}


def run(
    request: ImageRequest, engine: EngineClient, tell: Tell, base: str, digest: str, named: Mapping[str, str]
) -> PyTorchReplacement | None:
    """Have Docker build all but the labels with versions; what is done and still the same comes from its cache.

    named: addresses of the hosts that a build would not know. Returns which step replaced PyTorch, as far as this build
    printed it.
    """
    follower = Follower(request.titles)

    def hear(line: str) -> None:
        print(line, flush=True)
        if follower.add(line):
            # A step begins when the one before it ends.
            tell({**follower.progress, "began": time.time()})

    with tempfile.TemporaryDirectory(prefix="gaudi-image-") as scratch:
        context = write_context(request, Path(scratch))
        secrets = [word for name, file in request.secrets.items() for word in ("--secret", f"id={name},src={file}")]
        # Without a value: it is taken from the environment, where no other user of the node reads it.
        proxies = [word for name in request.proxies for word in ("--build-arg", name)]
        names = [f"--add-host={name}:{address}" for name, address in named.items()]
        status = engine.follow(
            hear,
            # The client writes which builder it is below its home, and a job has none.
            {"DOCKER_BUILDKIT": "1", "HOME": scratch, **request.proxies},
            *("build", "--progress=plain", f"--network={request.network}", f"--tag={request.reference}{UNLABELLED}"),
            *(f"--build-arg=BASE={base}", f"--label={BASE_DIGEST}={digest}"),
            *(*names, *secrets, *proxies, f"--file={Path(scratch, DOCKERFILE)}", str(context)),
        )
    if status:
        shown = {without_secrets(address) for name, address in request.proxies.items() if name.lower() != "no_proxy"}
        raise failure(follower.title, follower.lines, sorted(shown - {""}), request.secrets.get(CERTIFICATES, ""))
    return follower.pytorch.replaced


def inspect(request: ImageRequest, engine: EngineClient, tell: Tell, whole: str) -> ImageFindings:
    """Inspect the finished image; its PyTorch is imported for that, without a card."""
    tell({"phase": "build: look into the image", "began": time.time()})
    looking = ("--interactive", *_ISOLATION, *inspection.ENVIRONMENT, "--entrypoint=python3")
    status, out, err = engine.run_once(*looking, whole, "-c", PROGRAM, given=question({}, pytorch=True))
    return answer(request.reference, f"{out}\n{err}" if status else out or err)


def check_pytorch(
    request: ImageRequest, inside: ImageFindings, of_base: str, replaced: PyTorchReplacement | None
) -> None:
    """Refuse an image whose PyTorch is not Habana's any more, whatever was installed after it.

    An image that was built before this check has it at its next build.
    """
    found = inside.torch or inside.packages.get("torch", "")
    wrong = refusal(request.reference, request.base, of_base, found, inside.torch_import, replaced)
    if wrong:
        raise wrong
    if inside.torch_import:
        print(f"PyTorch {found} was not imported, as no card is here: {inside.torch_import}", flush=True)


def label(request: ImageRequest, engine: EngineClient, tell: Tell, whole: str, inside: ImageFindings) -> None:
    """Give the image that is whole its name, and labels with the versions that are found in it. It costs no layer."""
    tell({"phase": f"build: {_LABELLING}", "began": time.time()})
    labels = version_labels(inside, request.constraints)
    with tempfile.TemporaryDirectory(prefix="gaudi-image-") as scratch:
        file, context = Path(scratch, DOCKERFILE), Path(scratch, "context")
        context.mkdir()
        file.write_text(f"FROM {whole}\n", encoding="utf-8")
        status, lines = engine.run(
            *("build", "--progress=plain", "--network=none", f"--tag={request.reference}"),
            *(f"--label={name}={version}" for name, version in labels.items()),
            *(f"--file={file}", str(context)),
            environment={"DOCKER_BUILDKIT": "1", "HOME": scratch},
        )
    if status:
        raise failure(_LABELLING, lines)


def known_hosts(names: Sequence[str]) -> dict[str, str]:
    """Addresses of hosts that this node knows and a build would not. Hosts unknown here are left to the build."""
    own, stub = (Path(path) for path in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"))
    text = (stub if stub.exists() else own).read_text(encoding="utf-8", errors="replace")
    asked = unknown_to_builds(names, Path("/etc/hosts").read_text(encoding="utf-8", errors="replace"), text)
    found = {}
    for name in asked:
        with contextlib.suppress(OSError):
            found[name] = socket.gethostbyname(name)
    return found


def write_context(request: ImageRequest, folder: Path) -> Path:
    """The build's context: the same files for the same recipe, so that Docker's cache knows them again.

    The Dockerfile lies beside it: within, another label would be another context for each step.
    """
    context = folder / "context"
    programs, packages = context / PROGRAMS_FOLDER, context / PACKAGES_FOLDER
    shutil.copytree(_PROGRAMS, programs, ignore=shutil.ignore_patterns("__pycache__"))
    library = Path(str(gaudi.__file__)).parent
    for name in _OF_LIBRARY:
        (programs / "gaudi" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library / name, programs / "gaudi" / name)
    packages.mkdir()
    (packages / "constraints.txt").write_text(request.constraints, encoding="utf-8")
    if request.lock:
        (packages / "lock.txt").write_text(request.lock, encoding="utf-8")
    for path in context.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "cards" else 0o644)
    text = with_certificates(request.dockerfile) if CERTIFICATES in request.secrets else request.dockerfile
    (folder / DOCKERFILE).write_text(text, encoding="utf-8")
    return context


def push(request: ImageRequest, engine: EngineClient, tell: Tell) -> None:
    """Bring the image to the registry of the site, which its name begins with."""
    tell({"phase": "push to the registry", "message": repository_of(request.reference), "began": time.time()})
    status, lines = engine.run("push", request.reference)
    if status:
        raise Refusal(
            "push_refused",
            f"{request.reference} is built, but the registry did not take it: {last(lines)} "
            + (
                registry_advice(last(lines), request.reference, os.path.isfile)
                or "Check serving_image_name, and the account (serving_image_username), which must be allowed to push; "
                "then run again."
            ),
        )
