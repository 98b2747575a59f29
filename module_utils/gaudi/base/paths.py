"""Every path of ours on a node: where it lies, who writes it, and its mode.

"*" stands for one name, such as that of an instance or of a job. An owner is a role, a module or a program. What lies
in a directory that belongs to a program as a whole (hub-venv, profiles) is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAMS = "/usr/local/lib/gaudi-serving"
CONFIGURATION = "/etc/gaudi-serving"
STATE = "/var/lib/gaudi-serving"
ROOTS = (PROGRAMS, CONFIGURATION, STATE)

INSTANCES = f"{CONFIGURATION}/instances"
"""A directory for each instance, with its plan."""
INSTANCE_STATES = f"{STATE}/instances"
"""A directory for each instance, with what its supervisor says of it."""
JOBS = f"{STATE}/jobs"
"""A directory for each job."""
RESERVATIONS = f"{STATE}/cards.lock"
"""Which instance has which cards."""


@dataclass(frozen=True)
class Owned:
    """One path: who writes it, and its mode in octal.

    `ensured_by`: roles that make sure a directory is there before the owner does.
    """

    path: str
    owner: str
    mode: str
    ensured_by: tuple[str, ...] = ()


TABLE = (
    Owned(PROGRAMS, "node_job", "0755", ("vllm_service",)),
    Owned(f"{PROGRAMS}/calibrate.py", "fp8_calibration", "0644"),
    Owned(f"{PROGRAMS}/fp8_convert.py", "fp8_weights", "0644"),
    Owned(f"{PROGRAMS}/fp8_dynamic.py", "fp8_weights", "0644"),
    Owned(f"{PROGRAMS}/gaudi", "node_library", "0755"),
    Owned(f"{PROGRAMS}/gaudi_fp8", "fp8_weights", "0755"),
    Owned(f"{PROGRAMS}/gaudi_fp8/*", "fp8_weights", "0644"),
    Owned(f"{PROGRAMS}/gaudi_fp8/block", "fp8_weights", "0755"),
    Owned(f"{PROGRAMS}/gaudi_fp8/block/*", "fp8_weights", "0644"),
    Owned(f"{PROGRAMS}/gaudi_fp8/dynamic", "fp8_weights", "0755"),
    Owned(f"{PROGRAMS}/gaudi_fp8/dynamic/*", "fp8_weights", "0644"),
    Owned(f"{PROGRAMS}/gaudi_job.py", "node_job", "0644"),
    Owned(f"{PROGRAMS}/gaudi_weights", "model_weights", "0755"),
    Owned(f"{PROGRAMS}/gaudi_weights/*", "model_weights", "0644"),
    Owned(f"{PROGRAMS}/guard", "vllm_service", "0755"),
    Owned(f"{PROGRAMS}/guard/gaudi_guard.py", "vllm_service", "0644"),
    Owned(f"{PROGRAMS}/host_tuning.py", "host_tuning", "0755"),
    Owned(f"{PROGRAMS}/hub-requirements.txt", "model_weights", "0644"),
    Owned(f"{PROGRAMS}/hub-venv", "model_weights", "0755"),
    Owned(f"{PROGRAMS}/library-*", "node_library", "0755"),
    Owned(f"{PROGRAMS}/library.json", "node_library", "0644"),
    Owned(f"{PROGRAMS}/vllm_supervisor.py", "vllm_service", "0644"),
    Owned(CONFIGURATION, "vllm_service", "0755", ("serving_image",)),
    Owned(INSTANCES, "vllm_service", "0700"),
    Owned(f"{INSTANCES}/*", "vllm_service", "0700"),
    Owned(f"{INSTANCES}/*/environment", "vllm_service", "0600"),
    Owned(f"{INSTANCES}/*/explanation.json", "vllm_service", "0600"),
    Owned(f"{INSTANCES}/*/keys", "vllm_service", "0700"),
    Owned(f"{INSTANCES}/*/keys/api_keys", "vllm_service", "0600"),
    Owned(f"{INSTANCES}/*/plan.json", "vllm_service", "0600"),
    Owned(f"{CONFIGURATION}/registry", "serving_image", "0700"),
    Owned(f"{CONFIGURATION}/registry/config.json", "serving_image", "0600"),
    Owned(f"{CONFIGURATION}/weights", "model_weights", "0700", ("weights_supply",)),
    Owned(f"{CONFIGURATION}/weights/*.json", "model_weights", "0600"),
    Owned(f"{CONFIGURATION}/weights/*.take.json", "weights_supply", "0600"),
    Owned(f"{CONFIGURATION}/weights/*.token", "model_weights", "0600"),
    Owned(f"{CONFIGURATION}/weights/peer.token", "weights_supply", "0600"),
    Owned(STATE, "node_job", "0755", ("vllm_service",)),
    Owned(f"{STATE}/calibrations", "fp8_calibration", "0700"),
    Owned(f"{STATE}/calibrations/*.giver", "fp8_calibration", "0600"),
    Owned(f"{STATE}/calibrations/*.json", "fp8_calibration", "0600"),
    Owned(f"{STATE}/calibrations/*.token", "fp8_calibration", "0600"),
    Owned(RESERVATIONS, "card_reservation", "0600"),
    Owned(f"{RESERVATIONS}.guard", "card_reservation", "0600"),
    Owned(f"{STATE}/host_tuning.json", "host_tuning", "0644"),
    Owned(f"{STATE}/host_tuning_before.json", "host_tuning", "0644"),
    Owned(f"{STATE}/images.json", "serving_image", "0644"),
    Owned(INSTANCE_STATES, "vllm_service", "0700"),
    Owned(f"{INSTANCE_STATES}/*", "vllm_supervisor.py", "0700"),
    Owned(f"{INSTANCE_STATES}/*/lock", "vllm_supervisor.py", "0600"),
    Owned(f"{INSTANCE_STATES}/*/state.json", "vllm_supervisor.py", "0600"),
    Owned(JOBS, "node_job", "0700"),
    Owned(f"{JOBS}/*", "node_job", "0700"),
    Owned(f"{JOBS}/*/job.json", "node_job", "0600"),
    Owned(f"{JOBS}/*/lock", "node_job", "0644"),
    Owned(f"{JOBS}/*/log", "gaudi_job.py", "0600"),
    Owned(f"{JOBS}/*/progress.json", "gaudi_job.py", "0600"),
    Owned(f"{JOBS}/*/result.json", "gaudi_job.py", "0600"),
    Owned(f"{JOBS}/*/state.json", "gaudi_job.py", "0600"),
    Owned(f"{STATE}/profiles", "vllm_service", "0750"),
    Owned(f"{STATE}/profiles/*", "vllm_service", "0750"),
)

FORMER = (f"{PROGRAMS}/vllm_plan.py", f"{PROGRAMS}/vllm_signs.py")
"""Files of an earlier release that have no owner any more. The role vllm_service removes them."""
