"""Name the long work on a folder of weights after the folder, and describe the long work of a node."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ansible.errors import AnsibleFilterError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.jobs.decisions import table
from ansible.module_utils.gaudi.jobs.report import jobs_in


def job_key(folder: str) -> str:
    """Return the folder's name in the letters a job's key, and so a unit's name, may have.

    >>> job_key("Qwen3-235B_A22B..FP8.")
    'qwen3-235b-a22b.fp8'
    """
    return re.sub("[.]+", ".", re.sub("[^a-z0-9.-]+", "-", folder.lower())).rstrip(".-")


def node_jobs(result: Mapping[str, object]) -> list[dict[str, str]]:
    """Return the jobs in the result of node_report, or fail where the node cannot tell which there are."""
    report = result.get("report")
    try:
        jobs: list[dict[str, str]] = jobs_in(report.get("jobs") if isinstance(report, Mapping) else None)
    except ValueError as why:
        raise AnsibleFilterError(f"Which long work the node has is not known: {why}") from None
    return jobs


def job_table(jobs: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the jobs as lines."""
    lines: list[str] = table(jobs)
    return lines


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"job_key": job_key, "job_table": job_table, "node_jobs": node_jobs}
