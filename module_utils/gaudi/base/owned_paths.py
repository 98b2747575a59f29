"""Every path of this project on a node: who writes it, and its mode.

"*" stands for one name, such as that of an instance or of a job. An owner is a role, a module or a program.
"long_work" is whatever work a job runs; it writes with node/long_work.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from .paths import (
    ACCEPTANCE,
    ACCEPTANCE_BURN_IN,
    ACCEPTANCE_LOCK,
    ACCEPTANCE_PAGE,
    BENCHMARKS,
    BROUGHT,
    CONFIGURATION,
    DRIVER_BEFORE,
    DRIVER_KEPT,
    ENGINE_SETTINGS,
    ENGINE_SETTINGS_RECORD,
    HOST_SETTINGS_RECORD,
    HOST_TUNING,
    IMAGE_RECORD,
    INSTANCE_STATES,
    INSTANCES,
    JOBS,
    PROGRAMS,
    RECIPES,
    RESERVATIONS,
    RUNTIME_PROOF,
    SBOMS,
    STATE,
)


@dataclass(frozen=True)
class OwnedPath:
    """One row of the table: a path, its owner, and its mode in octal.

    ``ensured_by``: roles that also create it, such as a directory that must exist before its owner runs; the owner
    removes it. ``whole``: a directory whose content belongs to one program and is not listed in the table.
    """

    path: str
    owner: str
    mode: str
    ensured_by: tuple[str, ...] = ()
    whole: bool = False


TABLE = (
    OwnedPath(PROGRAMS, "node_files", "0755"),
    OwnedPath(f"{PROGRAMS}/batch.py", "offline_batch", "0644"),
    OwnedPath(f"{PROGRAMS}/bench.py", "benchmark", "0644"),
    OwnedPath(f"{PROGRAMS}/bench_client.py", "benchmark", "0644"),
    OwnedPath(f"{PROGRAMS}/calibrate.py", "fp8_calibration", "0644"),
    OwnedPath(f"{PROGRAMS}/fp8_convert.py", "fp8_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/fp8_dynamic.py", "fp8_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi", "node_files", "0755", whole=True),
    OwnedPath(f"{PROGRAMS}/gaudi_fp8", "fp8_weights", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_fp8/*", "fp8_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_fp8/block", "fp8_weights", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_fp8/block/*", "fp8_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_fp8/dynamic", "fp8_weights", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_fp8/dynamic/*", "fp8_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_image", "serving_image", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_image/*", "serving_image", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_image/context", "serving_image", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_image/context/*", "serving_image", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_image/context/cards", "serving_image", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_image/context/cards/*", "serving_image", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_job.py", "node_job", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_weights", "model_weights", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_weights/*", "model_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/gaudi_supervisor", "vllm_service", "0755"),
    OwnedPath(f"{PROGRAMS}/gaudi_supervisor/*", "vllm_service", "0644"),
    OwnedPath(f"{PROGRAMS}/guard", "vllm_service", "0755"),
    OwnedPath(f"{PROGRAMS}/guard/gaudi_guard.py", "vllm_service", "0644"),
    OwnedPath(f"{PROGRAMS}/guard/sitecustomize.py", "vllm_service", "0644"),
    OwnedPath(f"{PROGRAMS}/host_tuning.py", "host_tuning", "0755"),
    OwnedPath(f"{PROGRAMS}/hub-requirements.txt", "model_weights", "0644"),
    OwnedPath(f"{PROGRAMS}/hub-venv", "model_weights", "0755", whole=True),
    OwnedPath(f"{PROGRAMS}/library-*", "node_files", "0755", whole=True),
    OwnedPath(f"{PROGRAMS}/vllm_supervisor.py", "vllm_service", "0644"),
    OwnedPath(
        CONFIGURATION, "vllm_service", "0755", ("model_weights", "serving_image", "site_access", "weights_supply")
    ),
    OwnedPath(INSTANCES, "vllm_service", "0700", ("instance_keys",)),
    OwnedPath(f"{INSTANCES}/*", "vllm_service", "0700", ("instance_keys",)),
    OwnedPath(f"{INSTANCES}/*/environment", "vllm_service", "0600"),
    OwnedPath(f"{INSTANCES}/*/explanation.json", "vllm_service", "0600"),
    OwnedPath(f"{INSTANCES}/*/firewall.json", "vllm_service_firewall", "0600"),
    OwnedPath(f"{INSTANCES}/*/guard", "instance_keys", "0700"),
    OwnedPath(f"{INSTANCES}/*/guard/keys.json", "instance_keys", "0600"),
    OwnedPath(f"{INSTANCES}/*/let_through.json", "vllm_service", "0600"),
    OwnedPath(f"{INSTANCES}/*/plan.json", "vllm_service", "0600"),
    OwnedPath(f"{CONFIGURATION}/access", "site_access", "0755"),
    OwnedPath(f"{CONFIGURATION}/access/apt.conf", "site_access", "0600"),
    OwnedPath(f"{CONFIGURATION}/access/ca-certificates.crt", "site_access", "0644"),
    OwnedPath(f"{CONFIGURATION}/image", "serving_image", "0700"),
    OwnedPath(f"{CONFIGURATION}/image/*.json", "serving_image", "0600"),
    OwnedPath(f"{CONFIGURATION}/image/apt", "serving_image", "0600"),
    OwnedPath(f"{CONFIGURATION}/image/git", "serving_image", "0600"),
    OwnedPath(f"{CONFIGURATION}/image/pip", "serving_image", "0600"),
    OwnedPath(f"{CONFIGURATION}/registry", "serving_image", "0700"),
    OwnedPath(f"{CONFIGURATION}/registry/config.json", "serving_image", "0600"),
    OwnedPath(f"{CONFIGURATION}/weights", "model_weights", "0700", ("weights_supply",)),
    OwnedPath(f"{CONFIGURATION}/weights/*.json", "model_weights", "0600"),
    OwnedPath(f"{CONFIGURATION}/weights/*.take.json", "model_weights", "0600", ("weights_supply",)),
    OwnedPath(f"{CONFIGURATION}/weights/*.token", "model_weights", "0600"),
    OwnedPath(f"{CONFIGURATION}/weights/pip.conf", "model_weights", "0600"),
    OwnedPath(f"{CONFIGURATION}/weights/peer.password", "model_weights", "0600", ("weights_supply",)),
    OwnedPath(
        STATE, "node_job", "0755", ("brought_packages", "container_runtime_proof", "fabric_check", "vllm_service")
    ),
    OwnedPath(ACCEPTANCE_PAGE, "fabric_check", "0644"),
    OwnedPath(ACCEPTANCE, "fabric_check", "0644"),
    OwnedPath(ACCEPTANCE_BURN_IN, "fabric_check", "0644"),
    OwnedPath(ACCEPTANCE_LOCK, "fabric_check", "0600"),
    OwnedPath(f"{STATE}/batches", "offline_batch", "0700"),
    OwnedPath(f"{STATE}/batches/*", "offline_batch", "0700"),
    OwnedPath(f"{STATE}/batches/*/input.jsonl", "offline_batch", "0600"),
    OwnedPath(f"{STATE}/batches/*/answered.jsonl", "batch.py", "0600", ("offline_batch",)),
    OwnedPath(f"{STATE}/batches/*/output.jsonl", "batch.py", "0600"),
    OwnedPath(BENCHMARKS, "benchmark", "0700"),
    OwnedPath(f"{BENCHMARKS}/*", "bench.py", "0700"),
    OwnedPath(f"{BENCHMARKS}/*.json", "benchmark", "0600"),
    OwnedPath(f"{BENCHMARKS}/*/*.json", "bench.py", "0600"),
    OwnedPath(BROUGHT, "brought_packages", "0644"),
    OwnedPath(ENGINE_SETTINGS, "container_runtime", "0600"),
    OwnedPath(ENGINE_SETTINGS_RECORD, "container_runtime", "0600"),
    OwnedPath(DRIVER_BEFORE, "gaudi_driver", "0600"),
    OwnedPath(DRIVER_KEPT, "gaudi_driver", "0700", whole=True),
    OwnedPath(f"{STATE}/calibrations", "fp8_calibration", "0700"),
    OwnedPath(f"{STATE}/calibrations/*.json", "fp8_calibration", "0600"),
    OwnedPath(f"{STATE}/calibrations/*.peer.json", "fp8_calibration", "0600"),
    OwnedPath(f"{STATE}/calibrations/*.token", "fp8_calibration", "0600"),
    OwnedPath(RESERVATIONS, "card_reservation", "0600"),
    OwnedPath(f"{RESERVATIONS}.guard", "card_reservation", "0600"),
    OwnedPath(HOST_TUNING, "host_tuning", "0644"),
    OwnedPath(f"{STATE}/host_tuning_before.json", "host_tuning", "0644"),
    OwnedPath(HOST_SETTINGS_RECORD, "host_tuning", "0600"),
    OwnedPath(IMAGE_RECORD, "serving_image", "0644"),
    OwnedPath(INSTANCE_STATES, "vllm_service", "0700"),
    OwnedPath(f"{INSTANCE_STATES}/*", "vllm_supervisor.py", "0700"),
    OwnedPath(f"{INSTANCE_STATES}/*/back.json", "vllm_supervisor.py", "0600", ("vllm_service",)),
    OwnedPath(f"{INSTANCE_STATES}/*/door", "vllm_supervisor.py", "0700"),
    OwnedPath(f"{INSTANCE_STATES}/*/door/closed", "vllm_supervisor.py", "0600"),
    OwnedPath(f"{INSTANCE_STATES}/*/door/probe", "vllm_supervisor.py", "0600"),
    OwnedPath(f"{INSTANCE_STATES}/*/lock", "vllm_supervisor.py", "0600"),
    OwnedPath(f"{INSTANCE_STATES}/*/pace.json", "vllm_service", "0600"),
    OwnedPath(f"{INSTANCE_STATES}/*/plans", "vllm_supervisor.py", "0700", ("vllm_service",)),
    OwnedPath(f"{INSTANCE_STATES}/*/plans/*.json", "vllm_supervisor.py", "0600", ("vllm_service",)),
    OwnedPath(f"{INSTANCE_STATES}/*/probe", "vllm_supervisor.py", "0600"),
    OwnedPath(f"{INSTANCE_STATES}/*/state.json", "vllm_supervisor.py", "0600"),
    OwnedPath(JOBS, "node_job", "0700"),
    OwnedPath(f"{JOBS}/*", "node_job", "0700"),
    OwnedPath(f"{JOBS}/*/cancelled", "node_job", "0644"),
    OwnedPath(f"{JOBS}/*/job.json", "node_job", "0600"),
    OwnedPath(f"{JOBS}/*/lock", "node_job", "0644"),
    OwnedPath(f"{JOBS}/*/log", "gaudi_job.py", "0600"),
    OwnedPath(f"{JOBS}/*/log.1", "gaudi_job.py", "0600"),
    OwnedPath(f"{JOBS}/*/progress.json", "long_work", "0600"),
    OwnedPath(f"{JOBS}/*/result.json", "long_work", "0600"),
    OwnedPath(f"{JOBS}/*/state.json", "gaudi_job.py", "0600"),
    OwnedPath(RUNTIME_PROOF, "container_runtime_proof", "0644"),
    OwnedPath(f"{STATE}/profiles", "vllm_service", "0750"),
    OwnedPath(f"{STATE}/profiles/*", "vllm_service", "0750", whole=True),
    OwnedPath(RECIPES, "vllm_service", "0750"),
    OwnedPath(f"{RECIPES}/*", "vllm_service", "0750"),
    OwnedPath(f"{RECIPES}/*/*", "vllm_service", "0750", whole=True),
    OwnedPath(SBOMS, "serving_image", "0755"),
    OwnedPath(f"{SBOMS}/*.cdx.json", "serving_image", "0644"),
)

_PASSING = re.compile(r"/__pycache__(/|$)|\.writing$|/incomplete-[^/]+(/|$)")


@dataclass(frozen=True)
class ObservedPath:
    """A path as found on a node: owner as USER:GROUP, mode in octal. For a link, both are those of its target."""

    path: str
    user: str
    mode: str


@cache
def _rows() -> list[tuple[re.Pattern[str], OwnedPath]]:
    """The most specific row first."""
    return [
        (re.compile(re.escape(owned.path).replace(r"\*", "[^/]+")), owned)
        for owned in sorted(TABLE, key=lambda owned: len(owned.path.replace("*", "")), reverse=True)
    ]


def owner_of(path: str) -> OwnedPath | None:
    """Return the row that owns a path; a path inside a ``whole`` directory belongs to that directory's row."""
    for pattern, owned in _rows():
        if pattern.fullmatch(path) or (owned.whole and re.match(f"{pattern.pattern}/", path)):
            return owned
    return None


def faults(tree: Iterable[ObservedPath]) -> list[str]:
    """Return the differences between a node's files and the table, as sentences.

    Ignored are Python's compiled files, and unfinished files that an interrupted run leaves behind.
    """
    said = []
    for seen in tree:
        if _PASSING.search(seen.path):
            continue
        owned = owner_of(seen.path)
        if owned is None:
            said.append(f"{seen.path} has no owner.")
        elif owned.whole and not _is_row(owned, seen.path):
            continue
        elif (seen.user, seen.mode) != ("root:root", owned.mode):
            said.append(f"{seen.path} of {owned.owner} is {seen.user} {seen.mode}, not root:root {owned.mode}.")
    return said


def _is_row(owned: OwnedPath, path: str) -> bool:
    return owned.path.count("/") == path.count("/")


def owners_of_programs(names: Iterable[str]) -> set[str]:
    """Return the roles that own programs with these names directly below PROGRAMS; they need the library there."""
    there = {f"{PROGRAMS}/{name}" for name in names}
    return {row.owner for row in TABLE if row.path in there} - {"node_files"}
