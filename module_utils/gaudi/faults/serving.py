"""Known faults of an instance that serves, and of logs that nothing else explains. A part of the list in known.py."""

from __future__ import annotations

from .entry import INFO, INSTANCES, WARNING, KnownFault
from .shared import DOCTOR, LOG_FILE, MANUAL, SERVING

FAULTS = (
    # Logs that playbooks/explain.yml reads, and that none of the above explains.
    KnownFault(
        "unknown",
        INSTANCES,
        LOG_FILE,
        "The cause is not known: no entry of docs/faults.md is in this log.",
        "Read the lines below, and the first error in the log. If a part of it was given, give all of it, from "
        "the start of the program, with its standard error. Then open an issue with the log.",
        "",
        WARNING,
    ),
    KnownFault(
        "no-failure",
        INSTANCES,
        LOG_FILE,
        "The log shows no failure.",
        "If the program runs, wait for its next line. A warm-up or a load that prints nothing for half an hour has "
        "stalled: read dmesg | grep habanalabs and hl-smi then. If it ended, give all of its log, and -e "
        "status=NUMBER.",
        "",
        INFO,
        remedies={"figures": "Nothing. If something failed beside it, give the log of that."},
    ),
    KnownFault(
        "stopped-on-purpose",
        INSTANCES,
        LOG_FILE,
        "The program was asked to stop (Ctrl-C, docker stop, or a signal of what manages it), and nothing had failed "
        "before.",
        "Start it again if it is to run. If nobody meant to stop it, journalctl -u docker, kubectl describe pod or the "
        "time limit of the job shows who did.",
        "vllm/entrypoints/launcher.py and uvicorn",
        INFO,
    ),
    # Messages of a server about a request, after which it goes on.
    KnownFault(
        "media-fetch-timeout",
        INSTANCES,
        DOCTOR,
        "{instance}: since yesterday, pictures, films or sounds that were asked about did not come in time: {count}.",
        "Raise VLLM_IMAGE_FETCH_TIMEOUT, VLLM_VIDEO_FETCH_TIMEOUT or VLLM_AUDIO_FETCH_TIMEOUT in extra_environment "
        "(seconds; 5, 30 and 10 where they are not set), or have clients send the data itself.",
        MANUAL + "; the lines: aiohttp, with which vllm/connections.py fetches, and its own of 1.24.1",
        WARNING,
        signs=r"raise asyncio\.TimeoutError from|HTTP fetch failed for \S+ \(attempt [^)]*\):  -- retrying",
        example="raise asyncio.TimeoutError from e",
    ),
    # What the supervisor counts while an instance serves.
    KnownFault(
        "not-warmed-up",
        INSTANCES,
        SERVING,
        "{instance}: since {since}, shapes that were not warmed up compiled while requests waited for them: {count}; "
        "most often {shape}.",
        "",
        "_check_config in the model runner of each release's vllm-fork or vllm-gaudi, which logs each such shape",
        WARNING,
        remedies={
            "variable": "{option} in extra_environment covers it. A warm-up then takes {more} more, {total} in all; "
            "input_range and output_range of the request set such variables, too.",
            "option": "{option} covers it. A warm-up then takes {more} more, {total} in all.",
            "file": "{option} that has the plan's shapes and those in the log covers it. A warm-up then takes {more} "
            "more, {total} in all.",
            "skipped": "Its plan skips the warm-up ({option}). Without that option each start captures {more}.",
            "log": "{option} cover it; each takes more graphs of the warm-up, which playbooks/plan.yml shows.",
            "unknown": "No option is known to cover it: {why}. playbooks/plan.yml shows the plan's shapes.",
        },
    ),
    KnownFault(
        "preempted",
        INSTANCES,
        SERVING,
        "{instance}: since {since}, the server interrupted requests because its KV cache was full, and computed them "
        "again: {count}.",
        "Lower max_num_seqs or max_model_len, or give it more memory: gpu_memory_utilization, or more cards "
        "(tensor_parallel_size).",
        "vllm:num_preemptions_total, vllm/engine/metrics.py of the forks and vllm/v1/metrics/loggers.py",
        WARNING,
    ),
    KnownFault(
        "requests-wait",
        INSTANCES,
        SERVING,
        "{instance}: since {since}, requests waited at {waited} of {checks} checks with requests, at most {most} at "
        "once.",
        "If they wait for long, raise max_num_seqs as far as the KV cache allows, or serve the model more than once.",
        "vllm:num_requests_waiting, which the supervisor reads every ten seconds",
        WARNING,
    ),
    KnownFault(
        "answers-cut",
        INSTANCES,
        SERVING,
        "{instance}: since {since}, {cut} of {count} answers were cut at their length.",
        "Clients raise max_tokens; without it an answer ends at max_model_len. Runs of site.yml count as well: they "
        "ask for answers of a fixed length.",
        "vllm:request_success_total with finished_reason length",
        WARNING,
    ),
)
