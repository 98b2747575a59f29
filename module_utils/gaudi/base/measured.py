"""Names of the files that a measurement for static FP8 consists of."""

from __future__ import annotations

# What the fork's configurations call them (dump_stats_path in scripts/quant_configs of vllm-fork deepseek_r1).
MEASURED = "inc_measure_output"


def measured_files(prefix: str, cards: int) -> list[str]:
    """Three files for each rank: maxima as JSON and as npz, and the list of modules."""
    ends = (".json", ".npz", "_mod_list.json")
    return [f"{prefix}_hooks_maxabs_{rank}_{cards}{end}" for rank in range(cards) for end in ends]
