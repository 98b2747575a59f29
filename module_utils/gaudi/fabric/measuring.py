"""Build an image for measurements only: a ready image without hccl_demo, with hccl_demo added and nothing else changed.

It is built on the node that measures, with git, make and a compiler of the ready image, which the vendor's images have
(HabanaAI/Setup_and_Install 00595be, dockerfiles/base). No instance uses it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..base.checks import Reader, mapping, matching
from ..base.printable import printable
from ..base.refusal import Refusal

NAME = "gaudi-serving/measuring"
"""The repository of these images."""

NETWORKS = ("default", "host")
"""What serving_image_build_network may be."""

BUILD_SECONDS = 900
"""A checkout of a few megabytes and a make of one file: a minute. What takes so long hangs."""

# Addresses without an account: they are build arguments, which every user of the node can read.
_PLAIN = r"[!#%&(-?A-\[\]^_a-~]{1,500}"
_ADDRESS = re.compile(rf"((https?|git)://|/){_PLAIN}|ssh://([a-z_][a-z0-9_-]{{0,31}}@)?{_PLAIN}")
_ACCOUNT = re.compile(r"://[^/@]*:[^/]*@")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Prefixes of the lines in which git, make, a shell and a compiler give a reason.
_REASON = re.compile(r"(fatal: |error: |make: |sh: ).+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINES = """\
ARG BASE
FROM ${BASE}
USER root
ARG REPOSITORY
ARG COMMIT
RUN ulimit -c 0 \\
 && git init --quiet DIRECTORY \\
 && git -C DIRECTORY remote add origin "$REPOSITORY" \\
 && git -C DIRECTORY fetch --quiet --depth 1 origin "$COMMIT" \\
 && git -C DIRECTORY checkout --quiet --detach FETCH_HEAD \\
 && make -C DIRECTORY
"""


@dataclass(frozen=True)
class Demo:
    """The source of hccl_demo: the address by which this site reaches it, and its commit.

    network: the build's network; default for the engine's own, host for the node's.
    """

    repository: str
    commit: str
    network: str = "default"

    @classmethod
    def from_mapping(cls, value: object) -> Demo | None:
        """Read fabric_check_demo: a pin of a release file, with a site's mirrors and build network.

        mirrors: replacement by beginning of an address. Returns None without a pin. Raises Refusal for a wrong address,
        commit or network.
        """
        if not set(mapping(value or {}, "fabric_check_demo")) - {"mirrors", "network"}:
            return None
        reader = Reader(value, "fabric_check_demo", ("repository", "commit", "reference", "mirrors", "network"))
        mirrors = mapping(reader.raw("mirrors"), "fabric_check_demo: mirrors") if reader.has("mirrors") else {}
        address = mirrored(reader.text("repository", longest=256), mirrors)
        if _ACCOUNT.search(address):
            raise Refusal(
                "address_with_account",
                "The repository of fabric_check_demo, or its mirror, names an account with a password, which anybody "
                "on the node could read while the image is built. Name an address that needs none.",
            )
        form = "an address without an account, such as https://git.example.com/hccl_demo"
        commit = reader.text("commit", longest=64)
        return cls(
            matching(address, "The repository of fabric_check_demo", _ADDRESS, form, longest=600),
            matching(commit, "The commit of fabric_check_demo", _COMMIT, "40 hexadecimal digits"),
            reader.choice("network", NETWORKS, "default"),
        )


def mirrored(address: str, mirrors: Mapping[str, object]) -> str:
    """Return an address with its longest matching beginning replaced by a mirror, as git's insteadOf does."""
    known = sorted((origin for origin in mirrors if address.startswith(origin)), key=len)
    return f"{mirrors[known[-1]]}{address[len(known[-1]) :]}" if known else address


def reference(image_id: str, demo: Demo) -> str:
    """Return the name of the measuring image for an image with this id."""
    return f"{NAME}:{hashlib.sha256(f'{image_id} {demo.commit}'.encode()).hexdigest()[:12]}"


def dockerfile(directory: str) -> str:
    """Return the Dockerfile; BASE, REPOSITORY and COMMIT are build arguments."""
    return _LINES.replace("DIRECTORY", directory)


def arguments(base: str, demo: Demo, hosts: Mapping[str, str], proxies: Collection[str]) -> tuple[str, ...]:
    """Return the arguments of docker build; the Dockerfile comes from standard input.

    hosts: addresses of hosts that a build could not resolve. proxies: names of the proxy variables; the build takes
    their values from its environment, where no other user of the node can read them.
    """
    given = [f"BASE={base}", f"REPOSITORY={demo.repository}", f"COMMIT={demo.commit}", *proxies]
    return (
        f"--network={demo.network}",
        *(f"--add-host={name}:{address}" for name, address in hosts.items()),
        *(word for each in given for word in ("--build-arg", each)),
        "-",
    )


def not_built(image: str, said: str) -> str:
    """Say why the image could not be built; said: what the build printed."""
    lines = [line for line in _COLOUR.sub("", said).splitlines() if line.strip()]
    # The last line is the builder's own, which only says that a command failed.
    why = next((found[0] for found in map(_REASON.search, lines) if found), (lines or ["it said nothing"])[-1])
    reason = printable(why.strip()[:300].rstrip("."))
    return (
        f"The image {image} has no hccl_demo, and none could be built on top: {reason}. "
        "Have the serving image built (serving_image_build), name another image to measure with, or see that a "
        "build reaches the repository (serving_image_git_mirrors, _https_proxy, _build_network)."
    )
