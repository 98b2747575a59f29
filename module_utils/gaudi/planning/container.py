"""How a plan's container is run, and what must be true on the node before it is: the least that works."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import paths
from ..base.measured import MEASURED, measured_files
from ..base.places import CALIBRATIONS, check_place, check_writable, is_below
from ..base.recipes import RecipeKey, folder_of
from ..base.refusal import Refusal
from ..catalogue.entries import ModelEntry, ReleaseEntry
from ..catalogue.fabric import HOST_NICS_CAPABILITY, HOST_NICS_VARIABLES
from ..image.recipe import recipe
from ..model.headers import Weights
from ..request.node import Node
from ..request.options import InstanceRequest, RecipeCache
from ..rules.memory import MIB
from ..serving.plan import AT_START, DOOR_DIRECTORY, GUARD_DIRECTORY, KEYS_DIRECTORY, PYTHON_PATH
from .writable import SCRATCH, VARIABLES, check_leading, places, tmpfs

# A trace of the profiler outlives the container here, a directory for each instance.
PROFILE_ROOT = "/var/lib/gaudi-serving/profiles"
# Shared memory of the server's processes: messages between workers, batches of pictures. vLLM's own pages give a
# container 2 GiB (NVIDIA) or 8 GiB (AMD, docs/deployment/k8s.md at 031a0c049) and 16 GiB (TPU, quoted in the manual of
# 1.18); the largest of them, since nobody publishes one for these cards. Memory is taken as it is written.
SHARED_MEMORY_MIB = 16384
# Processes and threads. A number of ours: eight workers with a pool of threads for each of 192 CPUs, twice over. A fork
# bomb ends here, before the node's own limit does.
PROCESSES = 32768
# Soft and hard limit of open files; what Intel's own cloud sets for every account of a Gaudi node.
OPEN_FILES = 1048576


@dataclass(frozen=True)
class Setting:
    """What the container and the requirements are made from."""

    request: InstanceRequest
    release: ReleaseEntry
    entry: ModelEntry | None
    weights_path: str
    weights: Weights | None
    quantization: str | None
    cards: int
    weights_root: str
    # Servers of one key share compiled recipes.
    recipes: RecipeKey
    # Whether the cards talk over host NICs.
    host_nics: bool = False
    # The interface over which they find each other then; None where none is known.
    interface: str | None = None
    # Whether every request must bring an API key.
    guarded: bool = False

    @property
    def working_directory(self) -> str:
        """Where the server starts: relative names (a profile, a calibration) are below it."""
        return f"{PROFILE_ROOT}/{self.request.instance or 'unnamed'}" if self.request.profile else SCRATCH

    @property
    def calibration(self) -> tuple[str, str, str] | None:
        """A model's own calibration: directory on the node, directory in the container, file name.

        A file that is named in the request, or lies beside the measurements, has the same path in both. The release's
        default is below ``quantization`` in the weights root, where the output of calibrate_model.sh goes. Files that
        come with the fork are in the image.
        """
        file = self.quantization
        if file is None or file.startswith(f"{self.release.fork_directory}/scripts/quant_configs/"):
            return None
        directory, _, name = file.rpartition("/")
        beside = self.measurements is not None and directory.startswith(f"{self.measurements}/")
        if self.request.quantization_config is not None or beside:
            return directory or "/", directory or "/", name
        model = re.sub(r".*/quantization/", "", directory)
        target = f"{self.working_directory}/{directory[2:]}" if directory.startswith("./") else directory
        return f"{self.weights_root}/{CALIBRATIONS}/{model}", target, name

    @property
    def measured_in(self) -> str | None:
        """Directory in the container where the server looks for measurements, and keeps its scales."""
        measurements = self.release.constants.get("measurements")
        return f"{self.release.fork_directory}/{measurements}" if self.measurements is not None else None

    @property
    def measurements(self) -> str | None:
        """Directory of the measurement files on the node."""
        if self.entry is None or self.entry.measurements is None or not self.release.constants.get("measurements"):
            return None
        return f"{self.weights_root}/{self.entry.measurements.directory}"


def image(release: ReleaseEntry, node: Node, needs: Sequence[str]) -> str:
    """The image reference: the site's ready one, the one that is built for these needs, or that of the registry.

    The registry's carries its digest when the release file has one.
    """
    if node.image.ref:
        return node.image.ref
    if node.image.build:
        return recipe(release, node.image, needs, node.registry).reference
    reference = f"{node.registry or release.image['registry']}/{release.image['path']}:{release.image['tag']}"
    return f"{reference}@{release.image['digest']}" if release.image["digest"] else reference


def base_image(release: ReleaseEntry, node: Node) -> str:
    """The image that holds compiler and libraries: a ready one, the base of one that is built, or the registry's."""
    if node.image.ref:
        return node.image.ref
    return node.image.base or f"{release.image['path']}:{release.image['tag']}"


def check_places(setting: Setting) -> None:
    """Refuse mounts that would hide the release's own files, and a cache that cannot be written to."""
    request, fork = setting.request, setting.release.fork_directory
    if setting.weights_path.startswith("/"):
        said = "weights" if request.weights is not None else "weights (weights_root and the model's directory)"
        check_place(setting.weights_path, said, fork)
    else:
        check_place(f"{setting.weights_root}/.hub", "weights_root (where a hub's weights are kept)", fork)
    if request.quantization_config is not None and setting.calibration is not None:
        check_place(setting.calibration[0], "quantization_config (its directory)", fork)
    if not isinstance(request.recipe_cache, RecipeCache):
        return
    cache = request.recipe_cache.directory
    check_place(cache, "recipe_cache", fork)
    if is_below(cache, setting.weights_path) or is_below(setting.weights_path, cache):
        raise Refusal(
            "cache_and_weights_nested",
            f"recipe_cache is {cache} and the weights are {setting.weights_path}: one holds the other, but the weights "
            f"are read only and the cache is written to. Give the cache a directory beside them.",
        )


def ipc_of(setting: Setting) -> str:
    """``private``, or ``host`` if the request asks for it, or if the cards talk over host NICs (only seen so).

    The release's manual is the upper limit. Raises Refusal for a request beyond it.
    """
    most = setting.release.container.ipc
    chosen = setting.request.ipc or ("host" if setting.host_nics and most == "host" else "private")
    if chosen == "host" and most != "host":
        raise Refusal(
            "more_than_the_manual",
            f"ipc is host, but the manual of release {setting.release.name} does not ask for the node's shared memory. "
            f"Leave ipc out.",
        )
    return chosen


def container(setting: Setting, said: Mapping[str, str]) -> dict[str, Any]:
    """The ``container`` part of a plan. No ``--privileged``, no ``/dev``, a read-only root.

    ``said`` is the server's environment: what it says wins over the container's own variables. Raises
    Refusal where it leads a library to a place that cannot be written to.
    """
    request, release = setting.request, setting.release
    environment = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", **VARIABLES}
    mounts: dict[str, dict[str, object]] = {}

    def mount(source: str, target: str | None = None, *, writable: str = "") -> None:
        """Mount a directory; ``writable`` is what a refusal calls one that the server writes to."""
        place = target or source
        if writable:
            check_writable(source, writable, setting.weights_root)
        mounts.setdefault(place, {"source": source, "target": place, "read_only": not writable})

    if setting.weights_path.startswith("/"):
        mount(setting.weights_path)
    else:
        # A hub id is fetched by the server itself, which needs a place that outlives it.
        environment["HF_HOME"] = f"{setting.weights_root}/.hub"
        mount(environment["HF_HOME"], writable="weights_root (where a hub's weights are kept)")
    if isinstance(request.recipe_cache, RecipeCache):
        cache = request.recipe_cache
        source = folder_of(setting.recipes, request.instance) if cache.keyed and request.instance else cache.directory
        mount(source, cache.directory, writable="recipe_cache")
    if request.profile:
        mount(setting.working_directory, writable="profile (its directory)")
    for place in _read(setting):
        mount(*place)
    if setting.measurements is not None:
        # The server keeps the scales it computes beside the measurements: in memory, newly for each start. The
        # measurements themselves, which root of the node reads as well, it cannot change.
        for name in measured_files(MEASURED, setting.cards):
            mount(f"{setting.measurements}/{name}", f"{setting.measured_in}/{name}")
    if setting.guarded:
        # The directories: a file that is replaced in one is seen in the container.
        instance = request.instance or "unnamed"
        mount(paths.GUARD, GUARD_DIRECTORY)
        mount(f"{paths.INSTANCES}/{instance}/{paths.KEYS_FILE}".rpartition("/")[0], KEYS_DIRECTORY)
        mount(f"{paths.INSTANCE_STATES}/{instance}/{paths.DOOR}", DOOR_DIRECTORY)
    check_leading(said, request.extra_args, setting.working_directory, places(list(mounts.values())))
    environment.update(_host_nics(setting))
    return {
        "name": f"vllm-{request.instance}" if request.instance else None,
        "runtime": "habana",
        "capabilities": _capabilities(setting),
        "ulimits": {
            "nofile": OPEN_FILES,
            **({"memlock": -1} if release.container.memlock or setting.host_nics else {}),
        },
        "ipc": (ipc := ipc_of(setting)),
        # With the node's own shared memory there is nothing to size.
        "shm_mib": SHARED_MEMORY_MIB if ipc == "private" else None,
        "pids": PROCESSES,
        "network": release.container.network,
        "read_only": True,
        "tmpfs": tmpfs(setting.measured_in),
        "working_directory": setting.working_directory,
        "mounts": list(mounts.values()),
        "environment": {name: value for name, value in environment.items() if name not in said},
        # Variables whose values are only known at the start. The supervisor adds these and no others.
        "at_start": [*AT_START, *([PYTHON_PATH] if setting.guarded else [])],
    }


def _host_nics(setting: Setting) -> dict[str, str]:
    """The variables of cards that talk over host NICs; which way HCL takes over them it finds itself."""
    if not setting.host_nics:
        return {}
    interface = {} if setting.interface is None else {"HCCL_SOCKET_IFNAME": setting.interface}
    return {**HOST_NICS_VARIABLES, **interface}


def _capabilities(setting: Setting) -> list[str]:
    """Those of the release's manual, and what host NICs need."""
    own = setting.release.container.capabilities
    return [*own, *([HOST_NICS_CAPABILITY] if setting.host_nics and HOST_NICS_CAPABILITY not in own else [])]


def _read(setting: Setting) -> list[tuple[str, ...]]:
    """Directories that the server reads beside its weights: of a bucket file, of adapters, of a model that guesses,
    of its calibration.
    """
    request = setting.request
    files = [(request.bucketing_file.rpartition("/")[0],)] if request.bucketing_file is not None else []
    calibration = [setting.calibration[:2]] if setting.calibration is not None else []
    return [*files, *((folder,) for folder in (*request.lora_modules.values(), *_guessing(request))), *calibration]


def _guessing(request: InstanceRequest) -> list[str]:
    """The directory of the draft model of speculative decoding, if it lies on the node."""
    model = (request.speculative_config or {}).get("model")
    return [model] if isinstance(model, str) and model.startswith("/") else []


def requires(setting: Setting) -> dict[str, Any]:
    """The ``requires`` part of a plan. Raises Refusal for measurements made for another number of cards."""
    entry, weights, request = setting.entry, setting.weights, setting.request
    size = weights.bytes if weights is not None else None
    if size is None and entry is not None:
        size = entry.weights_bytes
    recipe_mib = 0
    if isinstance(request.recipe_cache, RecipeCache):
        recipe_mib = request.recipe_cache.size_mib or setting.release.constants.get("recipe_cache_mib", 0)
    local = setting.weights_path.startswith("/")
    return {
        "weights_path": setting.weights_path if local else None,
        "weights_bytes": size,
        "weights_missing": list(weights.missing) if weights is not None else [],
        "disk_bytes": recipe_mib * MIB,
        "cards": setting.cards,
        "files": _files(setting),
        "measurements": _measurements(setting),
        "conversion": _conversion(entry, setting.weights_path),
    }


def _files(setting: Setting) -> list[str]:
    """Files that must be there: of the calibration, of buckets, of adapters, of a model that guesses."""
    calibration, request = setting.calibration, setting.request
    named = [f"{calibration[0]}/{calibration[2]}"] if calibration is not None else []
    adapters = [f"{adapter}/adapter_config.json" for adapter in request.lora_modules.values()]
    guessing = [f"{folder}/config.json" for folder in _guessing(request)]
    buckets = [request.bucketing_file] if request.bucketing_file is not None else []
    return [*named, *buckets, *adapters, *guessing]


def _measurements(setting: Setting) -> dict[str, object] | None:
    if setting.measurements is None or setting.entry is None or setting.entry.measurements is None:
        return None
    made_for = setting.entry.measurements.tensor_parallel_size
    if made_for != setting.cards:
        raise Refusal(
            "measured_for_other_cards",
            f"The measurement files of {setting.entry.name} are for {made_for} cards, the instance has "
            f"{setting.cards}.",
            f"Use {made_for} cards.",
        )
    if setting.weights is not None and not setting.weights.fits_published:
        raise Refusal(
            "measured_for_other_conversion",
            f"{setting.weights_path} was converted by another factor than 240/448 (its record says so), which the "
            f"measurement files of {setting.entry.name} were not made for. Convert it without --exact-half.",
        )
    # A JSON file, an npz file and a list of modules for each rank.
    return {"path": setting.measurements, "files": 3 * setting.cards}


def _conversion(entry: ModelEntry | None, weights_path: str) -> Mapping[str, object] | None:
    """How the served directory comes to be, where it is not what the hub has."""
    if entry is None or entry.conversion is None or not weights_path.endswith(f"/{entry.directory}"):
        return None
    return {"tool": entry.conversion.tool, "from_directory": entry.conversion.from_directory}
