"""Inspect an image: a program run by the image's own Python, and the meaning of its output.

The program checks for programs and packages, not for labels, so a ready image counts like one that was built here. It
parses a plan's argument vector with the server's own parser, without starting an engine and without a card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.documents import misfit
from ..base.printable import printable
from ..base.refusal import Refusal
from .parts import AUDIO, BENCHMARK, HOST_NICS, INC_CALIBRATION, NUMACTL, PARTS, PILLOW_SIMD, lacks_avx2, missing
from .requirements import project

INC_CALIBRATION_DIRECTORY = "/opt/inc-calibration"
"""The checkout of the branch of vllm-fork whose program measures FP8 weights, in images of other branches."""

INC_CALIBRATION_PROGRAM = "scripts/run_example_tp.py"
"""That program, below a checkout of its branch."""

PROGRAM = r"""
import contextlib, glob, importlib.metadata as metadata, importlib.util, io, json, os, re, shutil, subprocess, sys

asked = json.load(sys.stdin)
found = {"packages": {}, "programs": [], "pillow": None, "vllm": None, "rejected": {}}
found.update({"torch": None, "torch_import": None})
found["python"] = "%d.%d.%d" % sys.version_info[:3]
found.update({"os": ["", ""], "system": {"kind": "", "packages": []}, "checkouts": []})


def told(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


with contextlib.suppress(OSError), open("/etc/os-release") as stream:
    said = dict(line.strip().split("=", 1) for line in stream if "=" in line)
    found["os"] = [said.get(name, "").strip("\"'") for name in ("ID", "VERSION_ID")]
for kind, command in (
    ("deb", ["dpkg-query", "--show", "--showformat=${Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n"]),
    ("rpm", ["rpm", "--query", "--all", "--queryformat=%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}\tinstalled\n"]),
):
    rows = [line.split("\t") for line in told(*command).splitlines()]
    installed = sorted(row[:3] for row in rows if len(row) == 4 and row[3] == "installed")
    if installed:
        found["system"] = {"kind": kind, "packages": installed}
        break
for folder in sorted(name for place in asked["places"] for name in glob.glob(os.path.join(place, "*"))):
    if os.path.exists(os.path.join(folder, ".git")):
        git = ["git", "-c", "safe.directory=*", "-C", folder]
        commit = told(*git, "rev-parse", "HEAD")
        if commit:
            origin = re.sub(r"(?<=://)[^/@]*@", "", told(*git, "config", "--get", "remote.origin.url"))
            found["checkouts"].append([folder, commit, origin])
for each in metadata.distributions():
    name = each.metadata["Name"]
    if name:
        found["packages"].setdefault(re.sub(r"[-_.]+", "-", name).lower(), str(each.version))
fabric = os.path.join(os.environ.get("LIBFABRIC_ROOT", "/opt/libfabric"), "bin")
path = os.pathsep.join([os.environ.get("PATH", ""), fabric])
found["programs"] = [name for name in asked["programs"] if shutil.which(name, path=path) or os.path.exists(name)]
with contextlib.suppress(Exception):
    import PIL
    found["pillow"] = PIL.__version__
if asked["pytorch"] and "torch" in found["packages"]:
    # In a process of its own: an extension that does not fit may end it.
    first = "import torch; print('gaudi-torch ' + torch.__version__, flush=True); import habana_frameworks.torch"
    done = subprocess.run([sys.executable, "-c", first], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told_of = done.stdout.decode("utf-8", "replace").splitlines()
    found["torch"] = next((line[12:] for line in told_of if line.startswith("gaudi-torch ")), None)
    if done.returncode:
        words = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        found["torch_import"] = (words[-1].strip() if words else "status %d" % done.returncode)[:500]


def parser():
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        try:
            from vllm.utils import FlexibleArgumentParser
        except ImportError:
            FlexibleArgumentParser = None
    try:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    # The oldest releases make the parser themselves.
    return make_arg_parser(FlexibleArgumentParser()) if FlexibleArgumentParser else make_arg_parser()


said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    try:
        if asked["server"]:
            import vllm
        made = parser() if asked["arguments"] else None
    except BaseException as error:
        found["vllm"] = f"{type(error).__name__}: {error}"[:500]
    else:
        for name, vector in asked["arguments"].items():
            words = io.StringIO()
            try:
                with contextlib.redirect_stderr(words):
                    made.parse_args(vector)
            except BaseException as error:
                lines = [line for line in words.getvalue().splitlines() if line.strip()]
                found["rejected"][name] = (lines[-1] if lines else f"{type(error).__name__}: {error}")[:500]
print("gaudi-image " + json.dumps(found))
"""

_MARK = "gaudi-image "
_NONE = type(None)
_FORM = {
    "packages": {str: str},
    "programs": [str],
    "pillow": (str, _NONE),
    "vllm": (str, _NONE),
    "rejected": {str: str},
    "python": str,
    "os": [str],
    "system": {"kind": str, "packages": [[str]]},
    "checkouts": [[str]],
    "torch?": (str, _NONE),
    "torch_import?": (str, _NONE),
}
_WRAPPER = "/usr/lib/habanalabs/libhccl_ofi_wrapper.so"
_PROGRAMS = ("numactl", "fi_info", _WRAPPER, f"{INC_CALIBRATION_DIRECTORY}/{INC_CALIBRATION_PROGRAM}")
# Directories with checkouts: ours, and those of vendor images.
_PLACES = ("/opt", "/workspace", "/root")
# The suffix of Pillow-SIMD's versions.
_SIMD = re.compile(r"\.post[0-9]+$")
_SERVER = ("python3", "-m", "vllm.entrypoints.openai.api_server")
# The vendor's distributions, which have the version of the release's image (22.2-32 is 22.2.32 to pip).
VENDOR = ("habana-torch-plugin", "habana-torch-dataloader", "habana-media-loader", "habana-pyhlml")


@dataclass(frozen=True)
class Checkout:
    """A git repository in an image: its directory, its commit, and its origin without an account."""

    directory: str
    commit: str
    origin: str


@dataclass(frozen=True)
class ImageFindings:
    """The program's findings.

    ``rejected``: the parser's errors by instance. ``vllm``: why vLLM cannot be imported. ``os``: id and version of the
    system. ``system``: its packages with version and architecture, of the ``kind`` deb or rpm. ``torch``: the version
    that PyTorch prints of itself; ``torch_import``: why it or the vendor's plugin cannot be imported; "" if not asked.
    """

    packages: Mapping[str, str]
    programs: tuple[str, ...]
    pillow: str | None
    vllm: str | None
    rejected: Mapping[str, str]
    python: str
    os: tuple[str, str]
    kind: str
    system: tuple[tuple[str, str, str], ...]
    checkouts: tuple[Checkout, ...]
    torch: str = ""
    torch_import: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that the image has."""
        there = {
            NUMACTL: "numactl" in self.programs,
            HOST_NICS: {"fi_info", _WRAPPER} <= set(self.programs),
            INC_CALIBRATION: f"{INC_CALIBRATION_DIRECTORY}/{INC_CALIBRATION_PROGRAM}" in self.programs,
            AUDIO: {"librosa", "soundfile"} <= set(self.packages),
            BENCHMARK: "datasets" in self.packages,
            # Both packages use the directory PIL: if pip lists a pillow too, its files may come from either.
            PILLOW_SIMD: _SIMD.search(self.pillow or "") is not None and "pillow" not in self.packages,
        }
        return tuple(part for part in PARTS if there[part])


def question(arguments: Mapping[str, Sequence[str]], *, pytorch: bool = False) -> str:
    """Return the program's input: the argument vectors of plans, by instance; whether to import PyTorch."""
    # The server for several models on a card has its own parser, which is not part of vLLM's.
    vectors = {name: list(vector[3:]) for name, vector in arguments.items() if tuple(vector[:3]) == _SERVER}
    # Importing the server takes long, and is not needed without instances.
    asked = {"programs": list(_PROGRAMS), "arguments": vectors, "places": list(_PLACES), "server": bool(arguments)}
    asked["pytorch"] = pytorch
    return json.dumps(asked)


def answer(image: str, printed: str) -> ImageFindings:
    """Parse the program's output. Raises Refusal if the program did not finish."""
    line = next((line for line in reversed(printed.splitlines()) if line.startswith(_MARK)), "")
    try:
        said: Any = json.loads(line[len(_MARK) :])
    except json.JSONDecodeError:
        said = None
    if said is None or misfit(said, _FORM) or not _of_threes(said["system"]["packages"], said["checkouts"]):
        words = printable(printed.strip()[-300:]) or "nothing"
        raise Refusal(
            "image_silent",
            f"{image} could not be looked into: its Python printed {words!r}. It is no image of a serving "
            "release: check serving_image_ref, or build it again.",
        )
    # The image is not trusted yet, so its text is made printable.
    return ImageFindings(
        {name: printable(version) for name, version in said["packages"].items()},
        tuple(said["programs"]),
        said["pillow"] and printable(said["pillow"]),
        said["vllm"] and printable(said["vllm"]),
        {name: printable(why) for name, why in said["rejected"].items()},
        printable(said["python"]),
        (printable("".join(said["os"][:1])), printable("".join(said["os"][1:2]))),
        printable(said["system"]["kind"]),
        tuple(
            (printable(name), printable(version), printable(arch)) for name, version, arch in said["system"]["packages"]
        ),
        tuple(Checkout(*map(printable, checkout)) for checkout in said["checkouts"]),
        printable(said.get("torch") or ""),
        printable(said.get("torch_import") or ""),
    )


def _of_threes(*tables: list[list[str]]) -> bool:
    return all(len(row) == 3 for table in tables for row in table)


def expected(release_tag: str, quantization: str) -> dict[str, str]:
    """Return the vendor's distributions with their required versions ("" for any); ``release_tag`` is the image's."""
    return {**dict.fromkeys(VENDOR, release_tag.replace("-", ".")), project(quantization): ""}


def wrong_versions(image: str, inside: ImageFindings, versions: Mapping[str, str]) -> list[str]:
    """Return sentences on distributions that are missing, or not of the release's version."""
    said = []
    for name, version in versions.items():
        seen = inside.packages.get(project(name))
        if seen is None:
            said.append(f"{image} holds no {name} (pip list in it).")
        elif version and seen != version:
            said.append(f"{image} holds {name} {seen}, but the release is of {version}.")
    return said


def refusals(
    image: str,
    inside: ImageFindings,
    needs: Mapping[str, Sequence[str]],
    built: Collection[str] = (),
    cpuinfo: str = "",
) -> dict[str, Refusal]:
    """Return why this image cannot serve instances, by instance.

    needs: the parts that each instance requires. built: the parts that this project built into the image. cpuinfo: the
    text of /proc/cpuinfo. Raises Refusal for an unusable image if no instance is named.
    """
    useless = _useless(image, inside, needs, cpuinfo)
    if useless:
        if not needs:
            raise useless
        return dict.fromkeys(needs, useless.about(", ".join(needs)))
    found = {name: [_refused_arguments(image, name, said)] for name, said in inside.rejected.items()}
    for instance, parts in needs.items():
        lacking = missing(parts, inside.parts, built)
        if lacking:
            found.setdefault(instance, []).append(_lacking(image, instance, lacking, built))
    return {instance: _joined(said) for instance, said in found.items()}


def together(refused: Mapping[str, Refusal]) -> Refusal:
    """Join several refusals into one, each sentence once, so that all reasons are fixed together."""
    return _joined(list(refused.values()))


def _joined(said: Sequence[Refusal]) -> Refusal:
    return Refusal(said[0].id, "\n".join(dict.fromkeys(map(str, said))))


def _useless(image: str, inside: ImageFindings, needs: Collection[str], cpuinfo: str) -> Refusal | None:
    """Return why this image cannot serve any instance on this node; None if it can."""
    if inside.vllm:
        return Refusal(
            "image_without_server",
            f"{image} cannot import vLLM ({inside.vllm}). Build it again, or name another image in serving_image_ref.",
        )
    if needs and PILLOW_SIMD in inside.parts and lacks_avx2(cpuinfo):
        return Refusal(
            "image_needs_avx2",
            f"{image} has Pillow-SIMD, which is built for AVX2, which this node's processors lack. Name an image with "
            "plain Pillow in serving_image_ref, or leave pillow_simd out of serving_image_parts.",
        )
    return None


def _refused_arguments(image: str, instance: str, said: str) -> Refusal:
    return Refusal(
        "image_refuses_arguments",
        f"{instance}: the server in {image} does not take the planned arguments: {said}. Image and gaudi_release "
        "are of different releases, or extra_args has an option that this server has not.",
    )


def _lacking(image: str, instance: str, parts: Sequence[str], built: Collection[str]) -> Refusal:
    said = " and ".join(f"{part} ({PARTS[part]})" for part in parts)
    if set(parts) & set(built):
        return Refusal(
            "image_lacks_part",
            f"{instance}: {image} was built with {said}, and lacks it. Correct serving_image_lock or "
            f"serving_image_constraints, or have it built again (docker image rm {image}, then the run again).",
        )
    return Refusal(
        "image_lacks_part",
        f"{instance}: {image} lacks {said}. Use an image that has it (serving_image_ref), or have one built "
        "(serving_image_build: true).",
    )
