"""What a server and the drivers' user library write, where their environment says, else where the image says.

Every function ends with OSError where the place cannot be written to, as the real ones do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

# ENV of the vendor's images.
LOGS = "/var/log/habana_logs"
# The account that the image runs as.
ACCOUNT_HOME = "/root"


def cache_home(environment: Mapping[str, str]) -> Path:
    """Return where programs keep caches: XDG_CACHE_HOME, else below the home directory."""
    home = environment.get("HOME") or ACCOUNT_HOME
    return Path(environment.get("XDG_CACHE_HOME") or f"{home}/.cache")


def vllm_cache(environment: Mapping[str, str]) -> Path:
    """Return what vllm/envs.py calls VLLM_CACHE_ROOT."""
    return Path(environment.get("VLLM_CACHE_ROOT") or cache_home(environment) / "vllm")


def hub_modules(environment: Mapping[str, str]) -> Path:
    """Return where transformers copies the code of a model to before it runs it (HF_MODULES_CACHE)."""
    hub = environment.get("HF_HOME") or cache_home(environment) / "huggingface"
    return Path(environment.get("HF_MODULES_CACHE") or Path(hub, "modules"))


def compiled(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where numba, torch and triton keep what they compiled."""
    home = environment.get("HOME") or ACCOUNT_HOME
    scratch = environment.get("TMPDIR") or "/tmp"  # noqa: S108 - torch's own
    return (
        Path(environment.get("NUMBA_CACHE_DIR") or cache_home(environment) / "numba"),
        Path(environment.get("TORCHINDUCTOR_CACHE_DIR") or f"{scratch}/torchinductor_{os.getuid()}"),
        Path(environment.get("TRITON_CACHE_DIR") or Path(environment.get("TRITON_HOME") or home, ".triton", "cache")),
    )


def write_compiled(environment: Mapping[str, str]) -> None:
    """Keep something compiled in each place. numba would look for others before it gives up; here each has to do."""
    for folder in compiled(environment):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "simulated").write_text("simulated: nothing was compiled\n", encoding="ascii")


def write_caches(environment: Mapping[str, str], known: Path) -> None:
    """Fill vLLM's cache with what is known of the tiny model, which spares a minute at every start."""
    shutil.copytree(known, vllm_cache(environment), dirs_exist_ok=True)


def write_modules(environment: Mapping[str, str]) -> None:
    """Make the package of models' code, as every worker does with --trust-remote-code (init_hf_modules)."""
    folder = hub_modules(environment)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").touch()


def write_log(environment: Mapping[str, str]) -> None:
    """Begin the log of the drivers' user library, which every process that acquires a card does."""
    folder = Path(environment.get("HABANA_LOGS") or LOGS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"simulated-{os.getpid()}.log").write_text("simulated: no accelerator is used\n", encoding="ascii")
