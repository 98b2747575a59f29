"""The Dockerfile of an image: its steps, each a call of ``steps.sh`` in the build context.

There is no ``# syntax=`` line, which an engine would download. Addresses and passwords are passed as BuildKit secrets:
these are in no layer and no history, and are not part of Docker's cache key, so a build continues after a mirror was
changed. Addresses of hosts that only the node knows (``--add-host``) are part of the cache key, so changing one repeats
every step.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ..catalogue.fabric import LIBFABRIC
from .parts import AUDIO, BENCHMARK, HOST_NICS, INC_CALIBRATION, NUMACTL, PILLOW_SIMD
from .recipe import Recipe

# Mount points of the build context's folders in a step: the programs, which all images share, and the files with the
# packages' versions. Files that a step sees are part of its cache key, so each step gets as few as possible; the
# Dockerfile, which differs for each image, is not mounted.
_PROGRAMS, _PACKAGES = "/run/gaudi-build", "/run/gaudi-packages"

PROGRAMS_FOLDER = "programs"
"""In the build's context: steps.sh, the programs that it calls, and what they import."""

PACKAGES_FOLDER = "packages"
"""In the build's context: constraints.txt and, where there is one, lock.txt."""

CERTIFICATES = "ca"
"""The secret with the certificates that a build trusts, where the site has some of its own."""

# Secrets that a step can get, each a file: sources of apt and their key, configurations of git and pip. Code of a
# repository or a package that runs in a step can read them, so a step that compiles a checkout gets none.
_APT, _APT_KEY, _GIT, _PIP = "apt", "apt_key", "git", "pip"
_SECRETS = {
    "checkout": (_GIT,),
    "hccl_ofi_wrapper": (),
    "install": (_PIP,),
    "libfabric": (),
    "locked": (_PIP,),
    "make": (),
    "packages": (_PIP,),
    "pillow_simd": (_PIP,),
    "requirements": (_PIP,),
    "system": (_APT, _APT_KEY),
}

# Distributions whose requirement lines name a branch, and the pins that replace them.
_REPLACED = {"vllm-hpu-extension": "vllm_hpu_extension", "neural-compressor-pt": "neural_compressor"}
# A directory among the programs with an hl-smi that reports a card.
_CARDS = "cards"


@dataclass(frozen=True)
class BuildStep:
    """One step: its title for people, its environment variables, and the arguments of ``steps.sh``."""

    title: str
    arguments: tuple[str, ...]
    environment: tuple[str, ...] = ()

    @property
    def instruction(self) -> str:
        """The RUN instruction."""
        secrets = _SECRETS[self.arguments[0]]
        mounts = [f"--mount=type=bind,source={PROGRAMS_FOLDER},target={_PROGRAMS}"]
        if _PIP in secrets:
            mounts.append(f"--mount=type=bind,source={PACKAGES_FOLDER},target={_PACKAGES}")
        mounts += [f"--mount=type=secret,id={name}" for name in secrets]
        words = shlex.join([*self.environment, "sh", f"{_PROGRAMS}/steps.sh", *self.arguments])
        return " \\\n    ".join([f"RUN {mounts[0]}", *mounts[1:], words])


def steps(recipe: Recipe) -> tuple[BuildStep, ...]:
    """Return all steps; those that most images share come first, so that Docker's cache serves the other images."""
    return tuple(_steps(recipe))


def dockerfile(recipe: Recipe) -> str:
    """Return the Dockerfile's text; its argument BASE is the base image by this site's address."""
    lines = ["# Written by gaudi-serving (role serving_image).", "ARG BASE", "FROM ${BASE}"]
    lines += [step.instruction for step in steps(recipe)]
    lines += [f"ENV {line}" for line in _environment(recipe)]
    lines += [f"LABEL {name}={_quoted(value)}" for name, value in recipe.labels.items()]
    # Vendor images set an entry point; a plan's argument vector is the whole command.
    lines += ["ENTRYPOINT []", 'CMD ["bash"]']
    return "\n".join(lines) + "\n"


def with_certificates(text: str) -> str:
    """Return a Dockerfile whose steps have the site's certificates as a secret too, readable by apt's own account.

    They are not part of the recipe: an image is the same with or without them.
    """
    mount = f"RUN --mount=type=secret,id={CERTIFICATES},mode=0444"
    return "".join(
        f"{mount} \\\n    {line[4:]}" if line.startswith("RUN --mount=") else line for line in text.splitlines(True)
    )


def constraints(recipe: Recipe) -> str:
    """Return the text of constraints.txt, which applies to every installation."""
    inferred = {name for name, entry in recipe.build.constraints.items() if entry.inferred}
    lines = [
        f"{name}{version}" + ("  # inferred" if name in inferred else "")
        for name, version in recipe.constraints.items()
    ]
    return "".join(f"{line}\n" for line in lines)


def lock(recipe: Recipe) -> str:
    """Return the text of lock.txt, the exact packages from an index; "" if any matching version may be installed."""
    return "".join(f"{line}\n" for line in recipe.lock)


def _quoted(value: str) -> str:
    """Return a LABEL's value in double quotes, with backslashes, quotes and variables escaped."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def _environment(recipe: Recipe) -> list[str]:
    if HOST_NICS not in recipe.parts:
        return []
    return [f"LIBFABRIC_ROOT={LIBFABRIC}", f"LD_LIBRARY_PATH={LIBFABRIC}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"]


def _steps(recipe: Recipe) -> Iterator[BuildStep]:
    yield BuildStep("packages of the system", ("system", "ca-certificates", "git", "make", "g++"))
    if recipe.lock:
        # All packages of an index at once; later steps only install checkouts.
        yield BuildStep("the packages of the lock", ("locked",))
    if recipe.build.kind == "fork":
        yield from _fork(recipe)
    else:
        yield from _plugin(recipe)
    yield _checkout(recipe, "hccl_demo")
    yield BuildStep("hccl_demo", ("make", recipe.directory("hccl_demo")))
    if NUMACTL in recipe.parts:
        yield BuildStep("numactl", ("system", "numactl"))
    if HOST_NICS in recipe.parts:
        yield from _host_nics(recipe)
    if AUDIO in recipe.parts:
        name = "vllm" if recipe.build.kind == "plugin" else "vllm_fork"
        yield _install(recipe, name, "libraries for sound", extra=recipe.build.audio_extra)
    if BENCHMARK in recipe.parts:
        yield BuildStep("what the benchmark needs", ("packages", *recipe.build.benchmark))
    if INC_CALIBRATION in recipe.parts:
        yield _checkout(recipe, "inc_calibration")
    if PILLOW_SIMD in recipe.parts:
        yield BuildStep("what Pillow-SIMD is compiled with", ("system", "libjpeg-dev", "zlib1g-dev"))
        # This must be the last Python step: others require Pillow, and would install it again.
        yield BuildStep("Pillow-SIMD", ("pillow_simd", str(recipe.build.pillow_simd)))


def _checkout(recipe: Recipe, name: str) -> BuildStep:
    pin = recipe.pins[name]
    where = recipe.directory(name)
    return BuildStep(f"{name} at {pin.commit[:9]}", ("checkout", pin.repository, pin.commit, where))


def _install(recipe: Recipe, name: str, title: str, *options: str, extra: str | None = None) -> BuildStep:
    """Return the step that installs a vLLM checkout without build isolation, so it finds the vendor's PyTorch."""
    environment = [f"VLLM_TARGET_DEVICE={'empty' if name == 'vllm' else 'hpu'}"]
    if recipe.build.version:
        environment.append(f"SETUPTOOLS_SCM_PRETEND_VERSION={recipe.build.version}+g{recipe.pins[name].commit[:9]}")
    if recipe.build.sees_cards:
        environment.append(f"GAUDI_BUILD_PATH={_PROGRAMS}/{_CARDS}")
    what = recipe.directory(name) + (f"[{extra}]" if extra else "")
    return BuildStep(title, ("install", "--no-build-isolation", *options, "--editable", what), ("env", *environment))


def _fork(recipe: Recipe) -> Iterator[BuildStep]:
    """Yield the steps for a fork of vLLM: extension and quantiser first, as its requirements name them by branch."""
    fork = recipe.directory("vllm_fork")
    yield _checkout(recipe, "vllm_fork")
    replaced = [name for name, pin in _REPLACED.items() if pin in recipe.pins]
    for name, pin in _REPLACED.items():
        if pin in recipe.pins:
            yield _checkout(recipe, pin)
            options = ["--no-deps", "--editable"] if pin == "vllm_hpu_extension" else []
            environment = ("env", "INC_PT_ONLY=1") if pin == "neural_compressor" else ()
            yield BuildStep(name, ("install", *options, recipe.directory(pin)), environment)
    yield BuildStep(
        "the fork's requirements",
        ("requirements", fork, recipe.build.requirements, *(f"--replaced={name}" for name in replaced)),
    )
    yield _install(recipe, "vllm_fork", "the vLLM fork", "--no-deps")


def _plugin(recipe: Recipe) -> Iterator[BuildStep]:
    """Yield the steps for vLLM without a device and the plugin (.cd/Dockerfile.ubuntu.pytorch.vllm of vllm-gaudi)."""
    yield _checkout(recipe, "vllm_gaudi")
    yield _checkout(recipe, "vllm")
    build = recipe.build.build_requirements
    if build is not None:
        title = "what building vLLM needs"
        yield BuildStep(title, ("requirements", recipe.directory("vllm"), build, "--dropped=torch"))
    yield _install(recipe, "vllm", "vLLM")
    yield BuildStep(
        "the plugin's requirements",
        ("requirements", recipe.directory("vllm_gaudi"), recipe.build.requirements, "--dropped=torch"),
    )
    yield _install(recipe, "vllm_gaudi", "the vLLM plugin", "--no-deps")


def _host_nics(recipe: Recipe) -> Iterator[BuildStep]:
    """Yield the steps for libfabric and HCL's wrapper (README of hccl_ofi_wrapper); their sources are deleted."""
    yield BuildStep("what libfabric is compiled with", ("system", "autoconf", "automake", "libtool"))
    for name in ("libfabric", "hccl_ofi_wrapper"):
        yield _checkout(recipe, name)
        yield BuildStep(name, (name, recipe.directory(name), LIBFABRIC))
