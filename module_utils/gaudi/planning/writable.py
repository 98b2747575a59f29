"""Where a server may write. Its root is read only; every other place is named here, with its size and mode.

All of it is memory of the node and goes with the container. What has to outlive the container (compiled recipes, a
profiler's traces, weights fetched from a hub) lies in directories of the node, which are mounts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ..base.checks import shown
from ..base.places import is_below, normal
from ..base.refusal import Refusal
from ..serving.plan import RECIPES
from .arguments import value_in

# Where a server starts; Ray, sockets, and all that Python's tempfile makes.
SCRATCH = "/tmp"  # noqa: S108 - a tmpfs of the container's own
# Not /root: an image may hold something there, which a tmpfs would hide.
HOME = "/run/gaudi-serving/home"
# What the vendor's images say as well (ENV HABANA_LOGS in dockerfiles/base of HabanaAI/Setup_and_Install).
LOGS = "/var/log/habana_logs"


@dataclass(frozen=True)
class Tmpfs:
    """A place in memory. Size in MiB: the most it may take, nothing is taken before it is written."""

    path: str
    size_mib: int
    mode: str


# A size protects the node from a file without end: a tmpfs without one may take half of the node's memory, and a node
# has up to eight servers. The sizes are ours, generous against what is known to be written: nobody publishes any.
TMPFS = (
    # The largest files here are compiler dumps, and profiles without a directory of their own. World-writable, as any
    # /tmp.
    Tmpfs(SCRATCH, 8192, "1777"),
    # Caches: code of models (kB), compiled kernels (hundreds of MB), a data set that is measured (less than 1 GB).
    Tmpfs(HOME, 8192, "0700"),
    # Errors only, unless LOG_LEVEL_ALL asks for more; then the oldest lines are not worth the node's memory.
    Tmpfs(LOGS, 1024, "0700"),
)

# MiB for the scales that a server computes from measurements. Ours: a measurement is three files a card of some ten
# megabytes for the largest models, and scales are of the same form.
SCALES_MIB = 2048

# Set for every server, so that neither an image nor a library chooses. vLLM's own places (VLLM_CACHE_ROOT,
# VLLM_CONFIG_ROOT) follow the two of XDG; numba, torch and triton look for theirs beside their own files or in /tmp.
VARIABLES = {
    "HOME": HOME,
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "XDG_CONFIG_HOME": f"{HOME}/.config",
    # Code that comes with a model is copied below it before it is run, from local weights as well.
    "HF_HOME": f"{HOME}/.cache/huggingface",
    "NUMBA_CACHE_DIR": f"{HOME}/.cache/numba",
    "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/.cache/torchinductor",
    "TRITON_CACHE_DIR": f"{HOME}/.cache/triton",
    "HABANA_LOGS": LOGS,
}
# Every variable that says where something is written, set here or not.
LEADING = (
    *VARIABLES,
    "HF_ASSETS_CACHE",
    "HF_DATASETS_CACHE",
    "HF_HUB_CACHE",
    "HF_MODULES_CACHE",
    "HF_XET_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "MODELSCOPE_CACHE",
    "MPLCONFIGDIR",
    "OUTLINES_CACHE_DIR",
    "PROMETHEUS_MULTIPROC_DIR",
    "TMPDIR",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_HOME",
    "TRANSFORMERS_CACHE",
    "TRITON_HOME",
    "VLLM_ASSETS_CACHE",
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "VLLM_RPC_BASE_PATH",
    "VLLM_TORCH_PROFILER_DIR",
)
# Shared memory of the server's processes. With ipc host it is the node's own, where leftovers are never removed.
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - refused


def tmpfs(scales: str | None) -> list[dict[str, object]]:
    """The places in memory, as the ``container`` part of a plan has them.

    ``scales``: where a server keeps those that it computes from measurements; None for one that computes none.
    """
    return [asdict(place) for place in (*TMPFS, *([Tmpfs(scales, SCALES_MIB, "0700")] if scales else []))]


def places(mounts: Sequence[Mapping[str, object]]) -> list[str]:
    """Every directory that a container with these mounts may write to, without /dev/shm."""
    return [place.path for place in TMPFS] + [str(mount["target"]) for mount in mounts if not mount["read_only"]]


def check_leading(
    environment: Mapping[str, str], arguments: Sequence[str], working_directory: str, below: Sequence[str]
) -> None:
    """Refuse what leads the server to where it cannot write; a relative value is below the working directory.

    ``arguments`` are the request's ``extra_args``.
    """
    for name in LEADING:
        if name in environment:
            _check(f"extra_environment sets {name} to", environment[name], name, working_directory, below)
    recipes = environment.get(RECIPES, "").partition(",")[0]
    if recipes:
        said = f"extra_environment sets {RECIPES}, whose directory is"
        _check(said, recipes, f"{RECIPES} out and use the option recipe_cache", working_directory, below)
    directory = value_in(arguments, "--download-dir")
    if directory is not None:
        _check("extra_args sets --download-dir to", directory, "--download-dir", working_directory, below)


def _check(said: str, value: str, left_out: str, working_directory: str, below: Sequence[str]) -> None:
    """Refuse one place, in a sentence that begins with who named it."""
    seen = f"{said} {shown(value)}"
    advice = f"Choose a directory below {', '.join(below[:-1])} or {below[-1]}, or leave {left_out}"
    advice += "." if left_out.endswith("recipe_cache") else " out."
    if not value:
        raise Refusal("empty", f"{seen}, which names no place. {advice}")
    if value.startswith("~"):
        raise Refusal(
            "tilde_in_path",
            f"{seen}, and not everything that reads it knows what ~ is. Write the absolute path. {advice}",
        )
    path = normal(value if value.startswith("/") else f"{working_directory}/{value}").rstrip("/")
    if is_below(path, SHARED_MEMORY):
        raise Refusal(
            "outlives_container",
            f"{seen}. That is for what processes share; with ipc host it is the node's own, so that what is left there "
            f"outlives the container. {advice}",
        )
    if not any(is_below(path, place) for place in below):
        raise Refusal("not_writable", f"{seen}, where the server cannot write: its root is read only. {advice}")
