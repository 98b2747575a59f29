"""A log from anywhere: public reports, neighbours of them, prefixes of other programs, and files that are no log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.doctor import log_file
from ansible.module_utils.gaudi.faults.causes import Cause, explain
from ansible.module_utils.gaudi.faults.facts import Facts
from ansible.module_utils.gaudi.faults.known import FAULTS
from hypothesis import given
from hypothesis import strategies as st

TESTS = Path(__file__).resolve().parents[2]
REPORTS = {case["id"]: case for case in json.loads((TESTS / "reports/gaudi_logs.json").read_text(encoding="utf-8"))}


def explained(text: str, **known: Any) -> Cause:
    return log_file.explain_file(log_file.read(text.encode()), **known)


# By report: the id, words of cause, remedy and lines, and whether it is tried again.
CASES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "vllm-gaudi-1549-log": ("model-not-for-card", ("Sparse Attention is not supported on HPU", "release"), False),
    "genaiexamples-1119": ("unknown", ("'NoneType' object has no attribute 'device'",), True),
    "vllm-gaudi-567-log": ("quantization-not-for-card", ("0.21", "PlatformEnum.HPU"), False),
    "vllm-13054": ("model-not-for-card", ("view size",), False),
    "vllm-fork-710-log": ("lazy-mode", ("enforce_eager",), False),
    "vllm-fork-776-log": ("lazy-mode", ("enforce_eager",), False),
    "genaiexamples-137": ("card-not-acquired", ("another container with all cards", "its own cards"), True),
    "pub-55976238066-busy": ("card-not-acquired", ("processes on a card",), True),
    "vllm-fork-484": ("graph-compiler", ("driver and image are of one release",), False),
    "optimum-habana-1426": ("graph-compiler", ("driver and image are of one release",), False),
    "model-references-5": ("runtime-too-old", ("habanalabs-container-runtime", "-console-socket"), False),
    "model-references-28": ("runtime-missing", ("container_runtime",), False),
    "tgi-gaudi-93-gated": ("hub-gated", ("Accept the licence", "token"), False),
    "fmwork-44": ("no-plugin", ("ready-made",), False),
    "vllm-gaudi-728-log": ("pipeline-parallel", ("--pipeline-parallel-size", "sampled_token_ids"), False),
    "vllm-fork-201": ("no-failure", ("prompt 1/56",), True),
    "vllm-gaudi-1331": ("no-failure", ("prompt 0/108", "stalled"), True),
    "hccl-demo-22": ("hccl-hangs", ("waits for another one",), True),
    "pub-60013763179-hccl": ("no-verbs", ("habanalabs_ib is not loaded", "linux-modules-extra", "ib_uverbs"), False),
    "vllm-hpu-extension-68": ("calibration-versions", ("of two versions", "pair of one release"), False),
    "pub-68317971951": ("not-warmed-up", ("batch 40, 128 blocks", "VLLM_PROMPT_SEQ_BUCKET_MAX of at least 2108"), True),
    "tgi-3139-hl-smi": ("no-failure", ("3 x HL-225 (98304 MiB)", "1.20.0-bd87f71"), True),
    "vllm-fork-484-hl-smi": ("no-failure", ("3 x HL-225 (98304 MiB)", "1.18.0-ee698fb"), True),
}


@pytest.mark.report("pub-68317971951")
@pytest.mark.report("vllm-gaudi-1549-log", "genaiexamples-1119", "vllm-gaudi-567-log", "vllm-13054")
@pytest.mark.report("vllm-fork-710-log", "vllm-fork-776-log", "genaiexamples-137", "pub-55976238066-busy")
@pytest.mark.report("vllm-fork-484", "optimum-habana-1426", "model-references-5", "model-references-28")
@pytest.mark.report("tgi-gaudi-93-gated", "fmwork-44", "vllm-gaudi-728-log", "vllm-fork-201", "vllm-gaudi-1331")
@pytest.mark.report("hccl-demo-22", "pub-60013763179-hccl", "vllm-hpu-extension-68", "tgi-3139-hl-smi")
@pytest.mark.report("vllm-fork-484-hl-smi")
@pytest.mark.parametrize("report", CASES)
def test_a_report_is_explained(report: str) -> None:
    found = explained(REPORTS[report]["input"])
    identifier, words, retry = CASES[report]
    assert (found.id, found.retry) == (identifier, retry)
    said = " ".join((found.cause, found.remedy, *found.lines))
    assert [word for word in words if word not in said] == []
    # What did not exist, or is not known to be there, is not named.
    assert "gpt-oss" not in said
    assert "See stack trace" not in said


WORKERS = ["(Worker_TP0 pid=17)", "(Worker_TP3 pid=4017)", "(Worker_DP1_TP7_EP15 pid=9)", "(VllmWorker rank=5 pid=5)"]


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize(
    ("line", "identifier"),
    [
        ("NotImplementedError: Sparse Attention is not supported on HPU.", "model-not-for-card"),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-2;3)", "hub-gated"),
        ("KeyError: <PlatformEnum.HPU: 4>", "quantization-not-for-card"),
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", "card-busy"),
    ],
)
@pytest.mark.parametrize("colour", [("", ""), ("\x1b[0;36m", "\x1b[0;0m"), ("\x1b[1;31m", "\x1b[0m")])
def test_an_exception_of_any_worker_is_the_cause(
    worker: str, line: str, identifier: str, colour: tuple[str, str]
) -> None:
    begin, end = colour
    at = f"{begin}{worker}{end} ERROR 11-26 10:00:00 [multiproc_executor.py:671] "
    wrapper = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace"
    lines = [
        f"{at}WorkerProc failed to start.",
        f"{at}Traceback (most recent call last):",
        f'{at}  File "/opt/vllm/worker.py", line 3, in load',
        f"{at}    raise it",
        f"{at}{line}",
        f"(EngineCore_DP0 pid=7) ERROR 11-26 10:00:00 [core.py:844] {wrapper} for root cause.",
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {}",
    ]
    assert explained("\n".join(lines)).id == identifier


BEFORE = [
    "{}",
    "2025-11-26T10:00:00.123456789Z {}",
    "2025-11-26T10:00:00.123456789+01:00 stderr F {}",
    "Nov 26 10:00:00 gaudi-01 gaudi-vllm[4242]: {}",
    "2025-11-26T10:00:00+0000 gaudi-01 vllm-chat[4242]: {}",
    "Nov 26 10:00:00.123456 gaudi-01 gaudi-vllm[4242]: {}",
    "Wed 2025-11-26 10:00:00 UTC gaudi-01 gaudi-vllm[4242]: {}",
    "[12345.678901] gaudi-01 gaudi-vllm[4242]: {}",
    "1764151200.123456 gaudi-01 gaudi-vllm[4242]: {}",
    "vllm-server-1  | {}",
    "vllm-server  | {}",
    "[pod/vllm-0/server] {}",
    "    {}",
    "[gaudi-01: chat] {}",
    "> {}",
    "ERROR 2025-11-26T10:00:00.123456789Z {}",
    "{}\r",
    "\x1b[31m{}\x1b[0m",
    # Without their escape character, and as cat -v shows them.
    "[1;36m{}[0;0m",
    "^[[1;36m{}^[[0;0m^M",
]
# What only a server's lines are recognised behind.
BEFORE_A_SERVER = [
    "[2025-11-26 10:00:00] {}",
    "10:00:00 {}",
    "vLLM STDOUT: {}",
    "vllm-0 server {}",
    "test\tRun server\t2025-11-26T10:00:00.1234567Z {}",
    "\u2502 {}",
]


# What docker and journalctl --output=json keep of a line; journald writes one with colours as numbers.
KEPT: dict[str, Callable[[str], dict[str, Any]]] = {
    "docker": lambda line: {"log": f"{line}\n", "stream": "stderr", "time": "2025-11-26T10:00:00Z"},
    "docker, in another order": lambda line: {"stream": "stderr", "log": f"{line}\n"},
    "journald": lambda line: {"__CURSOR": "s=1", "MESSAGE": line, "_PID": "4242"},
    "journald, with colours": lambda line: {"MESSAGE": list(f"\x1b[31m{line}\x1b[0m".encode())},
}


def put(form: str, line: str) -> str:
    """A line as another program keeps it."""
    return json.dumps(KEPT[form](line)) if form in KEPT else form.format(line)


@pytest.mark.parametrize("form", [*BEFORE, *KEPT])
@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        (REPORTS["vllm-gaudi-1549-log"]["input"], "model-not-for-card"),
        (REPORTS["genaiexamples-1119"]["input"], "unknown"),
        (REPORTS["pub-60013763179-hccl"]["input"], "no-verbs"),
        (REPORTS["model-references-5"]["input"], "runtime-too-old"),
        ("Error! DKMS tree already contains: habanalabs-1.24.0-1007", "dkms_left_over"),
        ("habanalabs_ib: Unknown symbol uverbs_idr_class", "symbols-missing"),
    ],
)
def test_what_other_programs_put_before_a_line_does_not_count(form: str, text: str, identifier: str) -> None:
    lines = text.split("\n")
    found = explained("\n".join(put(form, line) for line in lines))
    assert found.id == identifier
    assert found == explained(text)


@pytest.mark.parametrize("form", BEFORE_A_SERVER)
@pytest.mark.parametrize("report", ["vllm-gaudi-1549-log", "genaiexamples-1119", "vllm-gaudi-728-log"])
def test_what_an_unknown_program_puts_before_each_line_of_a_server_does_not_count(form: str, report: str) -> None:
    text = REPORTS[report]["input"]
    before = "\n".join(form.format(line) for line in text.split("\n"))
    assert explained(f"### Log\n{before}\n") == explained(text)


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        (
            "2025-11-26 10:00:00,123 [rank0]: TypeError: f() got an unexpected keyword argument 'a'",
            "TypeError: f() got",
        ),
        ("2025-11-26T10:00:00Z Internal Error: Received signal - Segmentation fault", "Internal Error: Received"),
        ("Nov 26 10:00:00 fatal error: habana.h: No such file", "fatal error: habana.h: No such file"),
    ],
)
def test_the_name_of_an_error_behind_a_time_is_no_name_of_a_program(line: str, quoted: str) -> None:
    assert quoted in log_file.read(line.encode())[0]


@pytest.mark.parametrize("end", ["```", "</details>", "---", "Thanks for any help!", "$ docker ps -a"])
def test_what_follows_a_traceback_that_was_cut_is_no_exception(end: str) -> None:
    cut = 'Traceback (most recent call last):\n  File "/vllm/b.py", line 3, in b\n    c()\n'
    assert end not in explained(f"{cut}{end}\n", status=1).lines
    # What a report indents is a frame, and explains where no exception does.
    assert explained(f"{cut}    Graph compile failed. synStatus=26\n{end}\n").id == "graph-compiler"


NEIGHBOURS = [
    # Hubs.
    ("OSError: You are trying to access a gated repo.", "hub-gated"),
    ("Access to model a/b is restricted. You must have access to it and be authenticated to access it.", "hub-gated"),
    ("Access to model a/b is restricted and you are not in the authorized list. Visit its page to ask.", "hub-gated"),
    ("Repo model a/b is gated. You must be authenticated to access it.", "hub-gated"),
    ("huggingface_hub.utils._errors.GatedRepoError: 401 Client Error.", "hub-gated"),
    ("huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.", "hub-not-found"),
    (
        "OSError: a/b is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        "hub-not-found",
    ),
    ("huggingface_hub.errors.RevisionNotFoundError: 404 Client Error.", "hub-not-found"),
    ("huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://h/a", "hub-busy"),
    ("huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/a", "hub-offline"),
    (
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and "
        "outgoing traffic has been disabled. To enable hf.co look-ups set 'local_files_only' to False.",
        "hub-offline",
    ),
    ("huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate it.", "hub-unreachable"),
    ("OSError: We couldn't connect to 'https://huggingface.co' to load the files.", "hub-unreachable"),
    (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max "
        "retries exceeded with url: /api/models/a/b (Caused by NameResolutionError('Failed to resolve'))",
        "hub-unreachable",
    ),
    (
        "requests.exceptions.ReadTimeout: (HTTPSConnectionPool(host='huggingface.co'): Read timed out.",
        "hub-unreachable",
    ),
    # The container runtime and its registry.
    (
        "docker: Error response from daemon: OCI runtime create failed: flag provided but not defined: "
        "-systemd-cgroup: unknown.",
        "runtime-too-old",
    ),
    (
        "Error response from daemon: failed to create shim task: OCI runtime create failed: flag provided but "
        "not defined: -root: unknown",
        "runtime-too-old",
    ),
    ("docker: Error response from daemon: unknown or invalid runtime name: habana.", "runtime-missing"),
    (
        "Error response from daemon: OCI runtime create failed: fork/exec /usr/bin/habana-container-runtime: "
        "no such file or directory: unknown.",
        "runtime-not-installed",
    ),
    ('docker: exec: "habana-container-runtime": executable file not found in $PATH', "runtime-not-installed"),
    (
        'Error response from daemon: Get "https://vault.habana.ai/v2/": dial tcp: lookup vault.habana.ai: no such host',
        "registry-unreachable",
    ),
    ("Error response from daemon: net/http: TLS handshake timeout", "registry-unreachable"),
    (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "other-vendors-option",
    ),
    ("docker: permission denied while trying to connect to the Docker daemon socket at unix:///d", "engine-forbidden"),
    ("ImportError: /usr/lib/habanalabs/libhabana_pytorch_plugin.so: undefined symbol: _ZN3c10", "vendor-libraries"),
    ("OSError: libhcl.so.1: cannot open shared object file: No such file or directory", "vendor-libraries"),
    ("OSError: Incorrect path_or_model_id: '/models/x'. Please provide a local folder.", "weights-path-missing"),
    (
        "requests.exceptions.SSLError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
        "exceeded with url: /a (Caused by SSLError(SSLCertVerificationError(1, '[SSL: "
        "CERTIFICATE_VERIFY_FAILED] certificate verify failed')",
        "hub-certificate",
    ),
    ("RuntimeError: Data processing error: CAS service error : Reqwest Error", "hub-unreachable"),
    ("HABANA_RUNTIME_ERROR=habana-container-hook was not found on the system", "runtime-not-installed"),
    ("no AIPs available", "cards-not-offered"),
    (
        "docker: Error response from daemon: error gathering device information while adding custom device "
        '"/dev/accel/accel0": no such file or directory.',
        "cards-not-offered",
    ),
    ("habana-container-hook: error: driver not loaded", "runtime-hook-failed"),
    # Models.
    (
        "ValueError: The checkpoint has model type `x` but Transformers does not recognize this architecture.",
        "model-unknown",
    ),
    (
        "ValueError: FooForCausalLM has no vLLM implementation and the Transformers one is not compatible",
        "model-unknown",
    ),
    (
        "ValueError: Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
        "code-not-trusted",
    ),
    # Whatever the option is, some classes of vLLM ask for the code.
    (
        "NotADirectoryError: [Errno 20] Not a directory: '/dev/null/trust_remote_code_is_off'",
        "code-not-trusted",
    ),
    (
        "NotADirectoryError: [Errno 20] Not a directory: "
        "'/run/gaudi-serving/trust_remote_code_is_off/transformers_modules/Own'",
        "code-not-trusted",
    ),
    # Calibration.
    (
        "TypeError: PatchedVLLMKVCache.forward() missing 2 required positional arguments: 'a' and 'b'",
        "calibration-versions",
    ),
    (
        "[rank3]: TypeError: PatchedMoeMatmul.forward_quant() takes 3 positional arguments but 4 were given",
        "calibration-versions",
    ),
    (
        "ImportError: cannot import name 'VLLMKVCache' from 'vllm_hpu_extension.utils' (/opt/u.py)",
        "calibration-versions",
    ),
    (
        "docker: Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?",
        "engine-not-running",
    ),
    (
        "docker: failed to connect to the docker API at unix:///run/docker.sock; check if the path is correct",
        "engine-not-running",
    ),
    ("ModuleNotFoundError: No module named 'vllm_hpu_extension.flags'", "calibration-versions"),
    ("TypeError: EngineArgs.__init__() got an unexpected keyword argument 'scheduling_policy'", "calibration-versions"),
    (
        "bash: /opt/vllm-hpu-extension/calibration/calibrate_model.sh: No such file or directory",
        "calibration-tool-missing",
    ),
    (
        "python3: can't open file '/workspace/step-2-measure-scales.py': [Errno 2] No such file or directory",
        "calibration-tool-missing",
    ),
    ("cp: cannot stat 'inc_tmp/qwen3-8b/g3/*': No such file or directory", "calibration-not-measured"),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: 'inc_output/measure_hooks_maxabs_0_8.json'",
        "calibration-not-measured",
    ),
    ("datasets.exceptions.DatasetNotFoundError: Dataset 'a/b' doesn't exist on the Hub", "calibration-dataset"),
    # Cards, their links and the vendor's software.
    (
        "RuntimeError: synNodeCreateWithId failed for node: batch_gemm with synStatus 26 [Generic failure]. .",
        "graph-compiler",
    ),
    (
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_SYNHELPER workspace Allocation of size ::859 failed!",
        "out-of-device-memory",
    ),
    ("RuntimeError: synStatus=17 [Device in reset] synEventSynchronize failed.", "card-reset"),
    (
        "ValueError: The number of required HPUs exceeds the total number of available HPUs in the placement group.",
        "too-few-cards",
    ),
    ("TypeError: FusedSDPA.forward() takes from 4 to 9 positional arguments but 12 were given", "software-versions"),
    ("TypeError: HPUAttentionImpl.__init__() got an unexpected keyword argument 'sinks'", "software-versions"),
    # vllm-gaudi 652, vllm-hpu-extension 184, optimum-habana 1163.
    ("TypeError: Qwen2_5_VisionBlock.__init__() got an unexpected keyword argument 'use_fa'", "software-versions"),
    ("TypeError: HPUMoEMethod.__init__() takes 3 positional arguments but 4 were given", "software-versions"),
    ("ImportError: cannot import name 'Attention' from 'vllm.attention' (/v/__init__.py).", "software-versions"),
    ("AttributeError: 'LlamaForCausalLM' object has no attribute 'embedding_padding'", "software-versions"),
    ("AttributeError: 'Qwen2Tokenizer' object has no attribute 'all_special_tokens_extended'", "software-versions"),
    ("TypeError: scaled_fp8_quant() got an unexpected keyword argument 'num_token_padding'", "software-versions"),
    ("TypeError: BaseConfig.from_dict() got an unexpected keyword argument 'method'", "software-versions"),
    ("ModuleNotFoundError: No module named 'vllm.attention.layer'", "software-versions"),
    # Every server on Gaudi prints this, and it says nothing.
    (
        'WARNING 08-26 14:56:40 [_custom_ops.py:20] Failed to import from vllm._C with ModuleNotFoundError("No module '
        "named 'vllm._C'\")",
        "no-failure",
    ),
    ("AttributeError: 'NoneType' object has no attribute 'forward'", "unknown"),
    ("AttributeError: module 'torch' has no attribute 'hpu'", "no-plugin"),
    # vllm-fork 192 and 495.
    (
        "(RayWorkerWrapper pid=9) ERROR 08-16 05:39:57 worker_base.py:382] RuntimeError: collective nonSFG is not "
        "supported during hpu graph capturing [repeated 6x across cluster]",
        "lazy-collectives",
    ),
    # milabench 356.
    (
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_SYNHELPER synStatus 31 [Synapse is being terminated due to "
        "fatality]. Event creation failed",
        "card-fatal-error",
    ),
    ("ImportError: cannot import name 'Gemma3TextConfig' from 'transformers' (/usr/lib/t.py)", "software-versions"),
    ("RuntimeError: Found no NVIDIA driver on your system.", "no-plugin"),
    ("Internal Error: Received signal - Segmentation fault", "crashed"),
    # Registries, once an image is named that is not on the host.
    (
        "docker: Error response from daemon: manifest for vault.habana.ai/x:1 not found: manifest unknown",
        "image-not-in-registry",
    ),
    ("Error response from daemon: pull access denied for a/b, repository does not exist", "image-not-in-registry"),
    ("Error response from daemon: toomanyrequests: You have reached your pull rate limit.", "registry-busy"),
    (
        'Error response from daemon: Get "https://vault.habana.ai/v2/": tls: failed to verify certificate: x509: '
        "certificate signed by unknown authority",
        "registry-certificate",
    ),
    ("failed to register layer: write /usr/lib/habanalabs/libSynapse.so: no space left on device", "disk-full"),
    # What the server was given.
    (
        "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3).",
        "refused-configuration",
    ),
    ("OSError: [Errno 99] Cannot assign requested address", "address-missing"),
    ("ValueError: Couldn't instantiate the backend tokenizer from one of:", "tokenizer"),
    (
        "OSError: Can't load tokenizer for 'Qwen/Qwen3-8B'. If you were trying to load it from a hub, check.",
        "tokenizer",
    ),
    ("_pickle.UnpicklingError: invalid load key, 'v'.", "weights-incomplete"),
    (
        "huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: Please enable access to public gated repositories in "
        "your fine-grained token settings to view this repository.",
        "hub-forbidden",
    ),
    # pip, git and compilers, outside a build as well.
    (
        'docker: Error response from daemon: Conflict. The container name "/v" is already in use',
        "container-name-in-use",
    ),
    ("ERROR: No matching distribution found for habana_media_loader==1.24.1.482", "no-wheel"),
    (
        "ERROR: Cannot install vllm==0.19.0 and vllm-gaudi because these package versions have conflicting "
        "dependencies.",
        "requirements-conflict",
    ),
    ("ERROR: Failed building wheel for vllm", "package-not-built"),
    ("fatal: Authentication failed for 'https://github.com/HabanaAI/x.git/'", "git-account-refused"),
    ("fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com", "git-host-unreachable"),
    ("fatal: unable to access 'https://g/x/': Could not resolve proxy: proxy", "proxy-unreachable"),
    ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "not-as-locked"),
    # Pipelines.
    ("(EngineCore pid=3) AttributeError: 'NoneType' object has no attribute 'sampled_token_ids'", "pipeline-parallel"),
]


@pytest.mark.parametrize(("line", "identifier"), NEIGHBOURS)
def test_other_wordings_are_the_same_cause(line: str, identifier: str) -> None:
    assert explained(f"INFO 11-26 10:00:00 [x.py:1] starting\n{line}\n").id == identifier


def hcl(file: str, condition: str, text: str) -> str:
    return f"/home/build/repos/hcl/src/{file}: The condition [ {condition} ] failed. {text}\n"


def direct(*errors: str) -> str:
    """A chain of exceptions, each the direct cause of the next one."""
    follows = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    return follows.join(
        f'Traceback (most recent call last):\n  File "/a.py", line 1, in a\n    b()\n{error}' for error in errors
    )


ACQUIRE = "In function initDevice(): synDeviceAcquire(&handle, nullptr) failed with synapse error: 20\n"
REFUSED = (
    "requests.exceptions.HTTPError: {} Client Error: Forbidden for url: https://huggingface.co/a/b/resolve/main/c.json"
)
DIED = (
    "(EngineCore_DP0 pid=7) ERROR 11-26 10:00:00 [multiproc_executor.py:230] Worker proc VllmWorker-1 died "
    "unexpectedly, shutting down executor.\n"
    "(APIServer pid=1) ERROR 11-26 10:00:00 [core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly, "
    "shutting down client.\n"
)
LISTENS = "INFO:     Application startup complete."
ANSWERED = 'INFO:     10.0.0.9:4242 - "POST /v1/chat/completions HTTP/1.1" '
BUSY = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."
WHOLE = [
    # hccl_demo 44 and 46, optimum-habana 1611: HCL says more than the code of its caller.
    (
        hcl("hcl_device_control_factory.cpp::71(initDevice)", "false", "Invalid server type (4[OCP1]) requested.")
        + f"HCCL demo error: {ACQUIRE}Exiting HCCL demo with code: 1\n",
        "server-type",
    ),
    (
        hcl("credit_manager.cpp:31(allocNextCredit)", "previous != target", "No available intermediate buffer")
        + "HCCL demo error: In function hcclAllReduceWrapper(): hcclAllReduce(a) failed: A device is busy\n"
        "Exiting HCCL demo with code: 134\n",
        "hcl-check-failed",
    ),
    (
        hcl("factory.cpp::73(initDevice)", "g_ibv.init(deviceConfig) == hcclSuccess", "ibv initialization failed")
        + "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n",
        "no-verbs",
    ),
    (
        hcl("factory.cpp:9(initDevice)", "rc == 0", "open failed")
        + "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n",
        "hcl-check-failed",
    ),
    # What a worker says of itself says more than HCL's line of another one.
    (
        "RuntimeError: [Rank:1] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1 (0)MB\n"
        + hcl("coordinator.cpp:9(receive)", "rc > 0", "the other side has gone"),
        "out-of-device-memory",
    ),
    # vllm-fork 2134: an engine that a card's error ended, while clients waited.
    (
        'INFO:     10.109.20.86:55372 - "GET /metrics HTTP/1.1" 200 OK\n'
        "Synapse detected a device critical error that requires a restart. Killing process in 5 seconds (hl: 6) "
        "10:29:11 [No progress error]\n"
        "ERROR 11-12 10:29:35 [client.py:282] RuntimeError('Engine process (pid 514) died.')\n"
        "ERROR 11-12 10:29:35 [client.py:282] NoneType: None\n"
        "ERROR 11-12 10:29:35 [serving_chat.py:948] Traceback (most recent call last):\n"
        "ERROR 11-12 10:29:35 [serving_chat.py:948]     raise request_output\n"
        "ERROR 11-12 10:29:35 [serving_chat.py:948] vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not "
        "running. Inspect the stacktrace to find the original error: RuntimeError('Engine process (pid 514) died.').\n",
        "card-fatal-error",
    ),
    # vllm 17965.
    (
        "ERROR 05-16 03:38:10 [core.py:398] Traceback (most recent call last):\n"
        'ERROR 05-16 03:38:10 [core.py:398]   File "/v/shm_broadcast.py", line 479, in dequeue\n'
        "ERROR 05-16 03:38:10 [core.py:398] TimeoutError\n"
        "ERROR 05-16 03:38:10 [core.py:398] The above exception was the direct cause of the following exception:\n"
        "ERROR 05-16 03:38:10 [core.py:398] Traceback (most recent call last):\n"
        'ERROR 05-16 03:38:10 [core.py:398]   File "/v/multiproc_executor.py", line 195, in collective_rpc\n'
        "ERROR 05-16 03:38:10 [core.py:398] TimeoutError: RPC call to execute_model timed out.\n",
        "worker-timeout",
    ),
    # llm-d 191: each process names those that it was started by.
    (
        "(APIServer pid=32) (EngineCore_0 pid=296) (VllmWorker TP1 pid=304) ERROR 09-07 11:25:27 "
        "[multiproc_executor.py:596] NotImplementedError: Sparse Attention is not supported on HPU.\n"
        "(APIServer pid=32) (EngineCore_0 pid=296) ERROR 09-07 11:25:27 [core.py:700] RuntimeError: Worker failed with "
        "error 'Sparse', please check the stack trace above for the root cause\n",
        "model-not-for-card",
    ),
    # A status of HTTP is only what a hub's client was told.
    (direct(REFUSED.format(403), "huggingface_hub.errors.GatedRepoError: 403 Client Error."), "hub-gated"),
    (direct(REFUSED.format(401), "huggingface_hub.errors.GatedRepoError: 401 Client Error."), "hub-gated"),
    (direct(REFUSED.format(403)), "hub-forbidden"),
    # The kernel.
    ("[   72.9] habanalabs 0000:1a:00.0: Failed to initialize hl2. Device is NOT usable !\n", "card-not-initialised"),
    (
        "Nov 20 03:12:45 gaudi-01 kernel: Memory cgroup out of memory: Killed process 42 (python3) total-vm:9kB\n",
        "out-of-host-memory",
    ),
    (
        "Setting up habanalabs-dkms (1.22.2-32) ...\nModule build for kernel 6.8.0-85-generic was skipped since the\n"
        "kernel headers for this kernel do not seem to be installed.\n",
        "no_kernel_headers",
    ),
    # A process that was killed, or that crashed without a handler, writes nothing: only those that waited for it do.
    (
        "(EngineCore_DP0 pid=7) ERROR 11-26 10:00:00 [multiproc_executor.py:230] Worker proc VllmWorker-1 died "
        "unexpectedly, shutting down executor.\n"
        "(EngineCore_DP0 pid=7) Exception: WorkerProc initialization failed due to an exception in a background "
        "process. See stack trace for root cause.\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {}\n",
        "process-vanished",
    ),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV\n", "crashed"),
    (f"(Worker_TP1 pid=9) *** Received signal 11 (SIGSEGV) ***\n{DIED}", "crashed"),
    (f"Worker exit: signal: SIGSEGV (core dumped)\n{DIED}", "crashed"),
    ("vllm.service: Main process exited, code=dumped, status=11/SEGV\n", "crashed"),
    (
        "[ 1234.567890] python3[4242]: segfault at 0 ip 00007f0a1b2c sp 00007ffc error 4 in libSynapse.so[7f0a+1000]\n",
        "crashed",
    ),
    (
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {'EngineCore_DP0': 137}\n",
        "process-killed",
    ),
    # The last line of a process explains more than the line about its end.
    (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  nobody has seen this\n"
        "(EngineCore_DP0 pid=7) ERROR 11-26 10:00:00 [multiproc_executor.py:230] Worker proc VllmWorker-1 died "
        "unexpectedly, shutting down executor.\n",
        "unknown",
    ),
    # As a part of a log that only has the wrapper.
    (
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {}\n",
        "unknown",
    ),
    ("ERROR text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=0\n", "process-killed"),
    ("vllm-server exited with code 137\n", "process-killed"),
    ("/start.sh: line 7:    42 Killed                  vllm serve /model\n", "process-killed"),
    ("    Last State:  Terminated\n      Reason:    OOMKilled\n      Exit Code: 137\n", "memory-limit"),
    ('            "OOMKilled": false,\n            "ExitCode": 1\n', "no-failure"),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n", "memory-limit"),
    ("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n", "unknown"),
    # Public reports.
    (
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "(APIServer pid=1)   Value error, User-specified max_model_len (65536) is greater than the derived "
        "max_model_len (max_position_embeddings=40960 or model_max_length=None in model's config.json). To allow "
        "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1\n",
        "model-len-too-long",
    ),
    (
        "(Worker_TP0 pid=8) RuntimeError: 0 active drivers ([]). There should only be one.\n",
        "triton-kernel",
    ),
    ("NotImplementedError: No FP8 MoE backend supports the deployment configuration.\n", "experts-quantized"),
    ("ValueError: awq_marlin quantization is currently not supported in hpu.\n", "quantization-not-for-card"),
    (
        hcl("hcl_ibverbs.cpp:405(create_mr)", "ibmr", "ibv_reg_dmabuf_mr() failed: Cannot allocate memory")
        + "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n",
        "locked-memory",
    ),
    ("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.\nRuntimeError: it failed\n", "unknown"),
    ("OSError: [Errno 12] Cannot allocate memory\n", "host-memory-short"),
    (
        "accel0\nno interfaces were detected\naccel1\nno interfaces were detected\n",
        "no-interfaces",
    ),
    (
        "Events:\n  Type     Reason            Age   From               Message\n"
        "  Warning  FailedScheduling  2m    default-scheduler  0/3 nodes are available: 1 node(s) had untolerated "
        "taint {x: }, 2 Insufficient hugepages-2Mi. preemption: 0/3 nodes are available.\n",
        "kubernetes-short",
    ),
    # vllm-fork 484: Synapse's own log, of a report that has no line of PyTorch.
    (
        "[19:08:34.164986][PASS_MANAGER          ][error][tid:44F8A] Graph optimization failed pass: loadTpcKernels\n"
        "[19:08:34.165002][SYN_RECIPE    ][error][tid:44F8A] compileGraph: Can not compile graph\n",
        "graph-compiler",
    ),
    # vllm-fork 754 and vllm-gaudi 1549: code of other accelerators.
    (
        "ERROR 01-29 16:41:43 engine.py:381] Traceback (most recent call last):\n"
        'ERROR 01-29 16:41:43 engine.py:381]   File "/v/weight_utils.py", line 7, in initialize_single_dummy_weight\n'
        "ERROR 01-29 16:41:43 engine.py:381] RuntimeError: Device type HPU is not supported for torch.Generator() "
        "api.\n",
        "operation-missing",
    ),
    ("AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'\n", "operation-missing"),
    ("AssertionError: Torch not compiled with CUDA enabled\n", "operation-missing"),
    # The vendor's images of PyTorch hold no vLLM.
    ("/bin/bash: line 1: vllm: command not found\n", "no-plugin"),
    ("/opt/venv/bin/python: No module named vllm\n", "no-plugin"),
    ("ModuleNotFoundError: No module named 'vllm'\n", "no-plugin"),
    (
        "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: exec: "
        '"vllm": executable file not found in $PATH: unknown\n',
        "no-plugin",
    ),
    (
        "NotImplementedError: Could not run 'aten::_fft_r2c' with arguments from the 'HPU' backend. This could be "
        "because the operator doesn't exist for this backend.\n",
        "operation-missing",
    ),
    # vllm-fork 841, while it serves.
    (
        "INFO 02-26 23:33:20 engine.py:270] Added request chatcmpl-f8f0bd35667c40ed90aff588b2a39951.\n"
        "CRITICAL 02-26 23:33:21 launcher.py:99] MQLLMEngine is already dead, terminating server process\n"
        'INFO:     127.0.0.1:53148 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n'
        "ERROR 02-26 23:33:21 engine.py:136] ValueError('Attempted to assign 2160 + 2144 = 4304 multimodal tokens to 0 "
        "placeholders')\n"
        "ERROR 02-26 23:33:21 engine.py:136] Traceback (most recent call last):\n"
        'ERROR 02-26 23:33:21 engine.py:136]   File "/root/vllm-fork/vllm/utils.py", line 7, in merge\n'
        "ERROR 02-26 23:33:21 engine.py:136] ValueError: Attempted to assign 2160 + 2144 = 4304 multimodal tokens to 0 "
        "placeholders\n",
        "pictures-together",
    ),
    # Timeouts of the V0 engine.
    (
        "ERROR 09-03 07:50:00 async_llm_engine.py:655] Engine iteration timed out. This should never happen!\n"
        "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.\n",
        "worker-timeout",
    ),
    ("ERROR 02-19 17:47:49 client.py:300] TimeoutError: Server didn't reply within 10000 ms\n", "worker-timeout"),
    # vllm 39015, torchtune 1025 and FastVideo 575: the port of torch's rendezvous, in three wordings.
    (
        "(Worker_TP1 pid=9) RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer\n"
        "(Worker_TP0 pid=8) torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
        "rendezvous-port-taken",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:18071 (errno: 98 - Address already in use).\n",
        "rendezvous-port-taken",
    ),
    (
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
        "use).\n[E socket.cpp:500] [c10d] The server socket has failed to listen on any local network address.\n",
        "rendezvous-port-taken",
    ),
    # Time-LLM 158: another reason, of the same store.
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:98 (errno: 13 - Permission denied).\n",
        "port-forbidden",
    ),
    ("RuntimeError: TCPStore at MASTER_PORT 6000: Address already in use\n", "rendezvous-port-taken"),
    ("OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): in use\n", "port-taken"),
    # Megatron-LM 878, hopsworks 1557 and gpustack 5014, and Python's and PyTorch's own words.
    ("OSError: [Errno 28] No space left on device: '/psm_1b2c3d4e'\n", "shared-memory-full"),
    ("OSError: [Errno 28] No space left on device: 'a/tensor0' -> '/dev/shm/tmpeq5bn6yp'\n", "shared-memory-full"),
    (
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)\n",
        "shared-memory-full",
    ),
    ("RuntimeError: unable to write to file </torch_739_1_4>: No space left on device (28)\n", "shared-memory-full"),
    # A bus error has several causes. Lines of shared memory or of the kernel decide between them.
    (f"Fatal Python error: Bus error\n\n{DIED}", "bus-error"),
    ("/start.sh: line 7:    42 Bus error               (core dumped) vllm serve /model\n", "bus-error"),
    ("vllm-server exited with code 135\n", "bus-error"),
    ("RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -7}\n", "bus-error"),
    (f"OSError: [Errno 28] No space left on device: '/psm_1b2c3d4e'\nBus error\n{DIED}", "shared-memory-full"),
    (
        "[ 1234.5] Memory failure: 0x1234: Sending SIGBUS to python3:4242 due to hardware memory corruption\n"
        "Bus error (core dumped)\n",
        "memory-corrupted",
    ),
    (
        "RuntimeError: DataLoader worker (pid 729) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.\n",
        "shared-memory-full",
    ),
    (
        "[2026-03-25 05:44:29,435 W 39 39] (raylet) store_runner.cc:83: System memory request exceeds memory available "
        "in /dev/shm. The request is for 10200547328 bytes, and the amount available is 9663676416 bytes.\n",
        "shared-memory-full",
    ),
    ("OSError: [Errno 28] No space left on device: '/root/.cache/x'\n", "disk-full"),
    (f"{LISTENS}\nOSError: [Errno 28] No space left on device: '/psm_1b2c3d4e'\n{DIED}", "shared-memory-full"),
    # HCL of 1.21, and the driver's own words.
    (
        hcl("hcl_idevice.cpp:497(allocateQp)", "isNicUp(port)", "Nic(9) is DOWN, can't allocate connection"),
        "hcl-port-down",
    ),
    (
        hcl("hcl_device.cpp:9(checkPorts)", "up", "port(s) not UP: 8, 9")
        + "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n",
        "hcl-port-down",
    ),
    ("[10:29:11][HCL][error][tid:1] NIC 9 is down\nRuntimeError: a collective failed\n", "hcl-port-down"),
    ("ERROR: module 3: ports 8, 9 are not UP\nRuntimeError: a collective failed\n", "hcl-port-down"),
    *(
        (f"[  900.0] {at}: {said}\n[  901.0] {at}: Going to reset device\n", identifier)
        for at in ("habanalabs 0000:33:00.0", "habanalabs 0000:33:00.0 accel0", "accel accel0", "habanalabs hl0")
        for said, identifier in (
            ("Device heartbeat failed! PCI link is healthy", "card-without-heartbeat"),
            ("EQ heartbeat event was not received!", "card-without-heartbeat"),
            ("heartbeat lost", "card-without-heartbeat"),
            ("Device heartbeat failed! PCI link is broken", "pci-link-lost"),
            ("PCI link DOWN", "pci-link-lost"),
        )
    ),
    # optimum-habana 1684 and neural-compressor 2223, and the layout of a set of measurements.
    ("FileNotFoundError: Failed to load file ./hqt_output/measure_hooks_maxabs_6_8.npz\n", "calibration-not-measured"),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: '/q/inc_measure_output_hooks_maxabs_0_8.npz'\n",
        "calibration-not-measured",
    ),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: '/q/inc_measure_output_hooks_maxabs_0_8_mod_list.json'"
        "\n",
        "calibration-not-measured",
    ),
    (
        "Exception: Error - Layer 'lm_head' was called but was not quantized because no measures were supplied.\n",
        "calibration-not-measured",
    ),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x.npz'\n", "unknown"),
    # mmocr 90 and FireForm 184.
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n", "system-library-missing"),
    (
        "ImportError: libgthread-2.0.so.0: cannot open shared object file: No such file or directory\n",
        "system-library-missing",
    ),
    (
        "OSError: libcudart.so.12: cannot open shared object file: No such file or directory\n",
        "no-plugin",
    ),
    (
        "ERROR: Incompatible LKD version\nRuntimeError: synStatus=2 [Generic failure] Device acquire failed.\n",
        "other-release",
    ),
    # Of another device.
    ("[    0.7] brcm-pcie 1000110000.pcie: link down\n[    0.8] habanalabs: loading driver\n", "no-failure"),
    # Processes that do not find each other explain only where none of them failed.
    (
        "(Worker_TP1 pid=9) RuntimeError: Gloo connectFullMesh failed with [/gloo/gloo/transport/tcp/pair.cc:144] no "
        "error\n",
        "processes-not-connected",
    ),
    (
        "(Worker_TP1 pid=9) RuntimeError: Gloo connectFullMesh failed with [/gloo/gloo/transport/tcp/pair.cc:144] no "
        "error\n(Worker_TP0 pid=8) ValueError: nobody has seen this\n",
        "unknown",
    ),
    ("RuntimeError: can't start new thread\n", "process-limit"),
    ("OSError: [Errno 24] Too many open files: '/models/a.safetensors'\n", "process-limit"),
    ("PermissionError: [Errno 13] Permission denied: '/data/hub'\n", "path-forbidden"),
    ("RuntimeError: Device string must not be empty\n", "no-plugin"),
    ("RuntimeError: Cannot re-initialize HPU in forked subprocess.\n", "forked-late"),
    (
        "ValueError: Cannot provide a placement group of placement_group_specs=[{'HPU': 1.0}] within 1800 seconds.\n",
        "too-few-cards",
    ),
    # Kubernetes.
    (
        "Warning  UnexpectedAdmissionError  3s  kubelet  Allocate failed due to requested number of devices "
        "unavailable for habana.ai/gaudi. Requested: 8, Available: 0, which is unexpected\n",
        "kubernetes-short",
    ),
    (
        "Warning  FailedCreatePodSandBox  2m  kubelet  Failed to create pod sandbox: rpc error: code = Unknown desc = "
        'unable to get OCI runtime for sandbox "a5b1": no runtime for "habana" is configured\n',
        "runtime-missing",
    ),
    # An answer of an image registry is not blamed on a model hub.
    (
        'Failed to pull image "vault.habana.ai/x:1": rpc error: code = NotFound desc = failed to pull and unpack image '
        '"vault.habana.ai/x:1": failed to resolve reference "vault.habana.ai/x:1": vault.habana.ai/x:1: not found\n',
        "image-not-in-registry",
    ),
    (
        'Failed to pull image "ghcr.io/x": failed to authorize: failed to fetch anonymous token: unexpected status '
        "from GET request to https://ghcr.io/token: 403 Forbidden\n",
        "image-not-in-registry",
    ),
    # Measurements for FP8 are no weights.
    (
        "FileNotFoundError: [Errno 2] No such file or directory: '/models/quant/maxabs_quant_g3.json'\n",
        "calibration-not-measured",
    ),
    ("ValueError: LoRA is not supported on HPU\n", "option-not-for-gaudi"),
    ("RuntimeError: Distributed package doesn't have HCCL built in\n", "no-plugin"),
    (
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by "
        "/usr/lib/habanalabs/libSynapse.so)\n",
        "software-versions",
    ),
    (
        "ValueError: Loading /models/x requires you to execute the configuration file in that repo on your local "
        "machine. Make sure you have read the code there to avoid malicious use, then set the option "
        "`trust_remote_code=True` to remove this error.\n",
        "code-not-trusted",
    ),
    ("ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192).\n", "refused-configuration"),
    ("libfabric:1:efa:core:efa_mr_reg: Unable to register MR: Cannot allocate memory\n", "locked-memory"),
    # What systemd, the kubelet and their events say of an end.
    (
        "vllm-chat.service: A process of this unit has been killed by the OOM killer.\n"
        "vllm-chat.service: Main process exited, code=killed, status=9/KILL\n"
        "vllm-chat.service: Failed with result 'oom-kill'.\n",
        "memory-limit",
    ),
    (
        "systemd-oomd[900]: Killed /system.slice/docker-abc.scope due to memory pressure for /system.slice being "
        "65.00% > 60.00% for > 20s with reclaim activity\n",
        "memory-limit",
    ),
    (
        "Status:  Failed\nReason:  Evicted\nMessage: The node was low on resource: memory. Threshold quantity: 100Mi, "
        "available: 50Mi.\n",
        "memory-limit",
    ),
    (
        "Message: The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi.\n",
        "disk-full",
    ),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/huggingface/hub'\n", "disk-full"),
    (
        '  Warning  Unhealthy  2m (x120 over 22m)  kubelet  Startup probe failed: Get "http://10.233.1.5:8000/health": '
        "dial tcp 10.233.1.5:8000: connect: connection refused\n"
        "  Normal   Killing    2m   kubelet  Container vllm failed startup probe, will be restarted\n",
        "probe-failed",
    ),
    # A probe that fails while the weights load ends nothing yet.
    (
        '  Warning  Unhealthy  2m  kubelet  Readiness probe failed: Get "http://10.233.1.5:8000/health": dial tcp '
        "10.233.1.5:8000: connect: connection refused\n",
        "unknown",
    ),
    ("vllm-server exited with code 1\n", "unknown"),
    ("vllm-server exited with code 0\n", "no-failure"),
    ("vllm-server exited with code 143\n", "stopped-on-purpose"),
    ("[ 3600.1] INFO: task python3:4242 blocked for more than 120 seconds.\n", "unknown"),
    ("[   15.1] Loading of module with unavailable key is rejected\n", "module_not_signed"),
    ("There are not enough slots available in the system to satisfy the 8 slots that were requested\n", "unknown"),
    ("mpirun has detected an attempt to run as root.\n", "unknown"),
    ("RuntimeError: synStatus=3 [Out of host memory] synHostMalloc failed.\n", "host-memory-short"),
    # What the server was given, in the words of vLLM, transformers and jinja.
    (
        "ValueError: Unknown quantization method: hqq. Must be one of ['aqlm', 'awq', 'fp8', 'gptq', 'inc'].\n",
        "refused-configuration",
    ),
    (
        "ValueError: Quantization method specified in the model config (compressed-tensors) does not match the "
        "quantization method specified in the `quantization` argument (fp8).\n",
        "refused-configuration",
    ),
    ("(Worker_TP0 pid=17) AssertionError: 151655 is not divisible by 4\n", "not-divisible"),
    (
        "jinja2.exceptions.TemplateSyntaxError: unexpected '}'\n",
        "chat-template-missing",
    ),
    (
        "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template "
        "argument was passed!\n",
        "no-chat-template",
    ),
    (
        "ValueError: As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat "
        "template if the tokenizer does not define one.\n",
        "no-chat-template",
    ),
    (
        "ValueError: Cannot instantiate this tokenizer from a slow version. If it's based on sentencepiece, make sure "
        "you have sentencepiece installed.\n",
        "package-missing",
    ),
    (
        "ImportError: requires the protobuf library but it was not found in your environment. Checkout the "
        "instructions on the installation page of its repo\n",
        "package-missing",
    ),
    (
        "ImportError: This modeling file requires the following packages that were not found in your environment: "
        "einops. Run `pip install einops`\n",
        "package-missing",
    ),
    (
        "ImportError: Please install bitsandbytes>=0.46.1 via `pip install bitsandbytes>=0.46.1` to use bitsandbytes "
        "quantizer.\n",
        "package-missing",
    ),
    (
        "  Warning  FailedScheduling  2m  default-scheduler  0/2 nodes are available: pod has unbound immediate "
        "PersistentVolumeClaims.\n",
        "unknown",
    ),
    ("yaml: line 12: mapping values are not allowed in this context\n", "unknown"),
    (
        "(APIServer pid=1) PermissionError: [Errno 13] error while attempting to bind on address ('0.0.0.0', 80): "
        "permission denied\n",
        "port-forbidden",
    ),
    (
        "#14 [10/11] RUN python setup.py install\n#14 200.1 c++: fatal error: Killed signal terminated program "
        'cc1plus\n#14 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 1\n',
        "compiler-killed",
    ),
    # A run of hccl_demo that fails does not hang.
    (
        "./hccl_demo: error while loading shared libraries: libhccl.so: cannot open shared object file: No such file "
        "or directory\n",
        "vendor-libraries",
    ),
    ("Exception: Exception in main: Make sure HCCL demo is built: make\n", "hccl-demo-not-built"),
    ("HCCL demo runs in pure mode\nValueError: nobody has seen this\n", "unknown"),
    ("HCCL demo runs in pure mode\n", "hccl-hangs"),
    ("HCCL demo runs in pure mode\nWARNING: failed to set the affinity of a thread\n", "hccl-hangs"),
    (
        "mpirun: error while loading shared libraries: libopen-rte.so.40: cannot open shared object file: No such file "
        "or directory\n",
        "system-library-missing",
    ),
    # CRI-O, hl-smi, the IOMMU and dnf.
    (
        'Error: container create failed: time="2025" level=error msg="runc create failed: unable to start container '
        'process: exec: \\"vllm\\": executable file not found in $PATH"\n',
        "no-plugin",
    ),
    ("habanalabs driver is not loaded or no AIPs available, aborting...\n", "cards-not-offered"),
    ("hl-smi: driver not loaded\n", "cards-not-offered"),
    (
        "[   900.1] DMAR: [DMA Read NO_PASID] Request device [33:00.0] fault addr 0x7f0000000000 [fault reason 0x06] "
        "PTE Read access is not set\n",
        "unknown",
    ),
    # docker run says first that it has to pull an image.
    (
        "Unable to find image 'vault.habana.ai/x:1' locally\n1: Pulling from x\nStatus: Downloaded newer image for "
        "vault.habana.ai/x:1\nValueError: nobody has seen this\n",
        "unknown",
    ),
    ("Unable to find image 'x:1' locally\nStatus: Downloaded newer image for x:1\n", "no-failure"),
    (
        "Unable to find image 'x:1' locally\ndocker: Error response from daemon: pull access denied for x, repository "
        "does not exist\n",
        "image-not-in-registry",
    ),
    # Other things are bound, too.
    ("Error: failed to bind mount /sys/fs: permission denied\n", "unknown"),
    (
        "docker: Error response from daemon: driver failed programming external connectivity on endpoint x: Error "
        "starting userland proxy: listen tcp4 0.0.0.0:80: bind: permission denied.\n",
        "port-forbidden",
    ),
    # RuntimeError of a package's setup.py.
    ("RuntimeError: Unknown runtime environment\n", "unknown"),
]


@pytest.mark.parametrize(("text", "identifier"), WHOLE)
def test_the_line_that_says_most_is_the_cause(text: str, identifier: str) -> None:
    assert explained(text).id == identifier


# vllm 6823 and 44780, surya 543, Python, torch's elastic agent, bash, Docker Compose, and Ray's handler of signals.
CRASHES = [
    "!!!!!!! Segfault encountered !!!!!!!",
    "Fatal Python error: Segmentation fault",
    "*** SIGSEGV received at time=1764151200 on cpu 3 ***",
    "traceback : Signal 11 (SIGSEGV) received by PID 4242",
    "ERROR 07-26 14:50:35 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 214281 died, exit code: -11",
    "/start.sh: line 7:    42 Segmentation fault      (core dumped) vllm serve /model",
    "vllm-server exited with code 139",
]


@pytest.mark.parametrize("line", CRASHES)
@pytest.mark.parametrize("before", ["INFO 11-26 10:00:00 [x.py:1] starting", "INFO:     Application startup complete."])
def test_a_process_that_crashed_is_not_said_to_be_killed(line: str, before: str) -> None:
    native = '  File "<unknown>", line 0, in synLaunch\n'
    found = explained(f"{before}\n{line}\n{native}{DIED}")
    assert found.id == "crashed"
    assert "signal 9" not in f"{found.cause} {found.remedy}"


def test_a_crash_is_quoted_by_its_own_line_even_of_a_server_that_listens() -> None:
    found = explained(f"INFO:     Application startup complete.\n(Worker_TP1 pid=9) {CRASHES[0]}\n{DIED}")
    assert found.lines == (CRASHES[0],)


def test_of_a_crash_and_an_exception_the_first_one_counts() -> None:
    other = "(Worker_TP0 pid=8) ERROR 11-26 10:00:00 [x.py:1] ValueError: nobody has seen this"
    partner = "(Worker_TP0 pid=8) RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
    assert explained(f"{CRASHES[0]}\n{other}\n{DIED}").id == "crashed"
    assert explained(f"{partner}\n{CRASHES[0]}\n{DIED}").id == "crashed"
    assert "nobody has seen this" in explained(f"{other}\n{CRASHES[0]}\n{DIED}").cause


def test_a_process_that_vanished_is_said_to_be_killed_only_where_the_log_shows_it() -> None:
    for text, status in ((DIED, None), (DIED, 1)):
        found = explained(text, status=status)
        assert found.id == "process-vanished"
        assert "signal 9" not in f"{found.cause} {found.remedy}"
    assert explained(DIED, status=137).id == "process-killed"
    assert explained(DIED, status=139).id == "crashed"
    # Ray names it among what may have happened.
    raylet = "(raylet) Some common causes include: (3) the worker crashed unexpectedly due to SIGSEGV or another error."
    assert explained(f"{raylet}\n{DIED}").id == "process-vanished"


def test_a_bus_error_names_each_cause_in_an_order() -> None:
    found = explained("/start.sh: line 7:    42 Bus error               (core dumped) vllm serve /model\n")
    order = [found.remedy.index(word) for word in ("--shm-size", "verify_weights", "dmesg", "HugePages")]
    assert order == sorted(order)
    # A file of the weights is mapped while they load.
    loading = "Loading safetensors checkpoint shards:  50% Completed | 4/8 [00:00<00:00,  4.87it/s]\nBus error\n"
    remedy = explained(loading).remedy
    assert remedy.index("verify_weights") < remedy.index("--shm-size")


@pytest.mark.parametrize(
    ("text", "retry"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)\n", True),
        ("E: Failed to fetch https://vault.habana.ai/a/Packages  Connection timed out\n", True),
        (
            "#9 [5/11] RUN git clone https://github.com/a/b.git\n#9 5.0 fatal: unable to access "
            "'https://github.com/a/b.git/': Failed to connect to github.com port 443\n#9 ERROR: process "
            '"/bin/sh -c git clone" did not complete successfully: exit code: 128\n',
            True,
        ),
        ("modprobe: ERROR: could not insert 'habanalabs': Key was rejected by service\n", False),
        ("#9 [5/11] RUN pip install x\n#9 1.0 ERROR: No matching distribution found for x==9\n#9 ERROR: it\n", False),
    ],
)
def test_what_another_program_or_host_keeps_from_working_may_go_well_later(text: str, retry: bool) -> None:
    assert explained(text).retry is retry


@pytest.mark.parametrize("begin", [" Problem: ", " Problem 1: conflicting requests\n  - "])
def test_what_dnf_says_of_a_problem_is_told(begin: str) -> None:
    found = explained(
        f"Error: \n{begin}package habanalabs-firmware-tools-1.22.0-740.el9.x86_64 from gaudi requires habanalabs-thunk "
        "= 1.22.0, but none of the providers can be installed\n"
    )
    assert found.id == "dependency_unmet"
    assert "requires habanalabs-thunk = 1.22.0, but none of the providers can be installed." in found.cause
    assert "dnf" in found.remedy


def test_an_image_that_docker_does_not_find_is_missing_where_docker_refused() -> None:
    said = "Unable to find image 'vault.habana.ai/x:1' locally\n"
    assert explained(said, status=125).id == "image-missing"
    assert explained(said, status=1).id == "unknown"


@pytest.mark.parametrize("kind", ["awq_marlin", "mxfp4", "modelopt"])
def test_no_release_is_promised_for_a_kind_of_weights(kind: str) -> None:
    found = explained(f"ValueError: {kind} quantization is currently not supported in hpu.\n")
    assert not found.retry
    assert "model_config=FILE" in found.remedy
    # What is said of one kind names it.
    assert "(the KeyError) releases with plugin 0.21" in found.remedy


UBUNTU = {"kernel_newest": {"ubuntu24.04": "6.8", "rhel9.6": "5.14"}, "kernel_minimum": {"ubuntu22.04": "5.15"}}


def catalogue_of(known: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """What the catalogue has of releases, of which 1.22 is known."""
    return lambda release: known if release in ("1.22", "1.22.2") else {}


@pytest.mark.parametrize(
    "log",
    [
        "DKMS make.log for habanalabs-{version} for kernel {kernel} (x86_64)\n"
        "/var/lib/dkms/habanalabs/{version}/build/a.c:7:9: error: implicit declaration of function 'f'\n",
        "Error! Bad return status for module build on kernel: {kernel} (x86_64)\n"
        "Consult /var/lib/dkms/habanalabs/{version}/build/make.log for more information.\n",
    ],
    ids=["make", "apt"],
)
@pytest.mark.parametrize(
    ("kernel", "version", "release", "says"),
    [
        ("6.14.0-1-generic", "1.24.1-482", "1.22", "6.8, the newest that the release was tested with"),
        # Without a release, the version that the log names.
        ("6.14.0-1-generic", "1.22.2-32", "", "6.8, the newest that the release was tested with"),
        ("6.1.0-53-amd64", "1.22.2-32", "", ""),
        ("6.12.0-55.el9.x86_64", "1.22.2-32", "", "5.14, the newest that the release was tested with"),
        ("6.14.0-1-generic", "1.24.1-482", "", "docs/compatibility.md"),
    ],
)
def test_a_kernel_is_compared_with_those_of_the_release(
    log: str, kernel: str, version: str, release: str, says: str
) -> None:
    found = explained(log.format(kernel=kernel, version=version), release=release, software=catalogue_of(UBUNTU))
    assert found.id in ("kernel_too_new", "driver_does_not_build")
    assert says in found.remedy
    assert not (version.startswith("1.24") and not release and "the newest" in found.remedy)


def test_the_versions_that_do_not_fit_are_quoted() -> None:
    found = explained(
        "Reading package lists...\nSome packages could not be installed. This may mean that you have\n"
        "requested an impossible situation\nThe following packages have unmet dependencies:\n"
        " habanalabs-dkms : Depends: habanalabs-firmware (= 1.22.2-32) but 1.23.0-695 is to be installed\n"
        "E: Unable to correct problems, you have held broken packages.\n"
    )
    assert found.id == "dependency_unmet"
    assert found.lines == (
        "habanalabs-dkms : Depends: habanalabs-firmware (= 1.22.2-32) but 1.23.0-695 is to be installed",
    )
    alone = "The following packages have unmet dependencies:\n a : Depends: b but it is not going to be installed\n"
    assert explained(alone).lines == ("a : Depends: b but it is not going to be installed",)


NO_MEMORY = "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::234881024 (224)MB"


@pytest.mark.parametrize("indent", ["  ", ""])
@pytest.mark.parametrize(
    ("functions", "says"),
    [
        # vllm-fork 184; worker and model loader of the forks and of vllm-gaudi.
        (("init_device", "load_model", "to"), "The weights do not fit on the cards."),
        (("load_model", "load_weights", "weight_loader"), "The weights do not fit on the cards."),
        (("determine_available_memory", "profile_run", "forward"), "The profiling run"),
        (("_initialize_kv_caches", "determine_num_available_blocks", "forward"), "The profiling run"),
        (("initialize_from_config", "compile_or_warm_up_model", "warmup_model"), "beside the KV cache"),
    ],
)
def test_what_fills_the_cards_is_told_by_the_traceback(functions: tuple[str, ...], says: str, indent: str) -> None:
    at = "(Worker_TP0 pid=8) ERROR 11-26 10:00:00 [core.py:700] "
    frames = [
        f'{indent}File "/vllm/worker.py", line 7, in {name}\n{at}{indent * 2}self.{name}_next()' for name in functions
    ]
    lines = [f"{at}{line}" for line in ("Traceback (most recent call last):", *frames, NO_MEMORY)]
    found = explained("\n".join(lines))
    assert found.id == "out-of-device-memory"
    assert says in found.remedy


def test_what_fills_the_cards_is_told_by_how_far_the_start_came() -> None:
    shards = "Loading safetensors checkpoint shards:  50% Completed | 4/8 [00:00<00:00,  4.87it/s]"
    took = "INFO 11-26 10:00:00 [hpu_model_runner.py:9] Loading model weights took 61.1 GiB of device memory"
    assert "The weights do not fit" in explained(f"{shards}\n{NO_MEMORY}").remedy
    assert "The profiling run" in explained(f"{shards}\n{took}\n{NO_MEMORY}").remedy
    assert "beside the KV cache" in explained(NO_MEMORY).remedy


def test_a_traceback_without_indentation_ends_with_its_exception() -> None:
    text = (
        '[rank0]: Traceback (most recent call last):\n[rank0]: File "/vllm/worker.py", line 2904, in warmup_model\n'
        "[rank0]: self.warmup_graphs(\n[rank0]: raise NotImplementedError\n[rank0]: NotImplementedError\n"
    )
    assert explained(text).lines[-1] == "NotImplementedError"


def test_a_traceback_after_a_bar_is_of_the_rank_that_it_names() -> None:
    text = (
        "Processed prompts:   0%|          | 0/65 [00:00<?, ?it/s][rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/vllm/worker.py", line 9, in measure\n[rank0]:     assert length > 0\n'
        "[rank0]: AssertionError\nStep 2/4 done\ncp: cannot stat 'inc_tmp/m/g3/*': No such file or directory\n"
    )
    assert explained(text).lines == (
        'File "/vllm/worker.py", line 9, in measure',
        "assert length > 0",
        "AssertionError",
    )


def test_a_process_is_the_last_one_that_a_line_names() -> None:
    text = (
        "(APIServer pid=32) (EngineCore_0 pid=296) (VllmWorker TP1 pid=304) ERROR 09-07 11:25:27 "
        "[multiproc_executor.py:596] ValueError: nobody has seen this before [repeated 3x across cluster]\n"
    )
    assert explained(text).lines == ("ValueError: nobody has seen this before",)


def test_a_wait_in_vain_says_less_than_what_is_made_of_it() -> None:
    found = explained(direct("TimeoutError", "TimeoutError: nobody answered within 5 s"))
    assert found.lines[-1] == "TimeoutError: nobody answered within 5 s"


def test_an_exception_is_quoted_with_its_place_though_its_line_alone_comes_first() -> None:
    found = explained(REPORTS["genaiexamples-1119"]["input"])
    assert found.lines == (
        'File "/usr/lib/python3.10/multiprocessing/process.py", line 314, in _bootstrap',
        "self.run()",
        "AttributeError: 'NoneType' object has no attribute 'device'",
    )


def test_an_error_that_only_reports_another_process_is_not_quoted() -> None:
    text = (
        "ERROR 11-12 10:29:35 [client.py:282] OSError('nobody has seen this before')\n"
        "ERROR 11-12 10:29:36 [client.py:282] RuntimeError('Engine process (pid 514) died.')\n"
        "ERROR 11-12 10:29:36 [client.py:282] NoneType: None\n"
    )
    assert explained(text).lines == ("ERROR 11-12 10:29:35 [client.py:282] OSError('nobody has seen this before')",)


def test_a_table_of_cards_is_no_program_to_wait_for() -> None:
    table, server = explained(REPORTS["tgi-3139-hl-smi"]["input"]), explained("INFO 11-26 10:00:00 [x.py:1] starting")
    assert (table.id, server.id) == ("no-failure", "no-failure")
    assert table.remedy != server.remedy


def test_a_limit_of_memory_is_told_from_a_host_that_is_full() -> None:
    killed = "[ 9.000000] {}out of memory: Killed process 42 (python3) total-vm:9kB"
    of_host, of_limit = (explained(killed.format(what)) for what in ("", "Memory cgroup "))
    assert (of_host.id, of_limit.id) == ("out-of-host-memory", "out-of-host-memory")
    assert of_host.remedy != of_limit.remedy


def test_a_later_step_of_a_calibration_does_not_hide_what_failed_before() -> None:
    measuring = "[rank0]: ValueError: this model has a layer of no kind that can be measured"
    copying = "cp: cannot stat 'inc_tmp/m/g2/*': No such file or directory"
    assert explained(copying).id == "calibration-not-measured"
    assert "no kind that can be measured" in " ".join(explained(f"{measuring}\nStep 2/4 done\n{copying}").lines)


BUILD = """#8 [ 3/12] RUN pip install vllm
#8 1.234 Looking in indexes: https://pypi.example.com/simple
#8 2.500 ERROR: No matching distribution found for vllm==9.9
#8 ERROR: process "/bin/sh -c pip install vllm" did not complete successfully: exit code: 1
"""
OTHER_LOGS = [
    (
        "[  540.942980] python3.12: Corrupted page table at address 798d48680000\nBad pagetable: 000f [#1]\n",
        "page-tables-corrupted",
        "of python3.12",
    ),
    (
        "Direct firmware load for habanalabs/gaudi2/gaudi2-boot-fit.itb failed with error -2\n",
        "firmware-missing",
        "gaudi2-boot-fit.itb",
    ),
    (BUILD, "no-wheel", "vllm==9.9"),
    (BUILD.replace("ERROR: No matching distribution found for vllm==9.9", "No space left on device"), "disk-full", ""),
    ("#8 [ 3/12] RUN make\n#8 1.2 make: *** [all] Error 2\n", "not-compiled", "[all] Error 2"),
    ("#8 [ 3/12] RUN make\n#8 1.2 compiling a.c\n", "no-failure", "RUN make"),
    (
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (apt)\n",
        "packages_locked",
        "77 (apt)",
    ),
    (
        "Reading package lists...\nE: Version '1.24.1-482' for 'habanalabs-dkms' was not found\n",
        "package_version_nowhere",
        "habanalabs-dkms",
    ),
    (
        "DKMS make.log for habanalabs-1.24.1 for kernel 6.8.0-1-generic (x86_64)\n/bin/sh: 1: gcc: not found\n",
        "no_compiler",
        "gcc",
    ),
    (
        "modprobe: ERROR: could not insert 'habanalabs': Key was rejected by service\n",
        "module_not_signed",
        "Secure Boot",
    ),
    (
        "[   12.345678] habanalabs_ib: Unknown symbol ib_uverbs_get_ucontext_file (err -2)\n",
        "symbols-missing",
        "ib_uverbs",
    ),
    ("[  900.000001] Out of memory: Killed process 4242 (python3) total-vm:1kB\n", "out-of-host-memory", "Killed"),
    (
        "[   99.000001] habanalabs 0000:33:00.0: CPU boot: Failed to boot device CPU\n",
        "driver-errors",
        "boot device CPU",
    ),
    (
        "python3 run_hccl_demo.py --nranks 8\nHCCL demo error: In function main(): hcclAllReduce(a) failed: "
        "hcclInternalError\nExiting HCCL demo with code: 1\n",
        "hccl-collective-failed",
        "hcclInternalError",
    ),
    (
        "hcl_topology.cpp:120(checkSwitch): The condition [ found ] failed. No such switch: 3\n"
        "terminate called after throwing an instance of 'hcl::VerifyException'\n",
        "hcl-check-failed",
        "No such switch: 3",
    ),
    ("docker: Bind for 0.0.0.0:8000 failed: port is already allocated.\n", "port-taken", "0.0.0.0:8000"),
    ("bash: line 1: hl-smi: command not found\n", "unknown", "hl-smi"),
    ("Segmentation fault (core dumped)\n", "crashed", "Segmentation"),
    ("cat: /data/x: Permission denied\n", "unknown", "/data/x"),
    ("E: Sub-process of an unknown kind\n", "unknown", "unknown kind"),
    # A make.log of a newer DKMS, and parts without its first line.
    (
        "DKMS (dkms-3.2.1) make.log for habanalabs/1.24.1-482 for kernel 6.13.0-1-generic (x86_64)\n"
        "hl.c:12:18: error: expected ',' or ';' before 'DMA_BUF'\n",
        "kernel_too_new",
        "6.13.0-1-generic",
    ),
    (
        "make[1]: Entering directory '/var/lib/dkms/habanalabs/1.24.1-482/build'\n/bin/sh: 1: gcc: not found\n",
        "no_compiler",
        "gcc",
    ),
    ("generate_flags.sh: unexpected arguments in struct bus_type::match: ''\n", "headers_layout_misread", "match"),
    (
        "/var/lib/dkms/habanalabs/1.24.1-482/build/drivers/a.c:7:9: error: implicit declaration of function 'f'\n",
        "kernel_too_new",
        "a.c:7",
    ),
    # netconsole, in its extended form.
    (
        "4,1001,540942980,-;python3.12: Corrupted page table at address 798d48680000\n",
        "page-tables-corrupted",
        "of python3.12.",
    ),
    (
        "hl_qual - device with busID: 0000:b3:00.0 result: FAILED\nhl_qual - device with busID: 0000:b4:00.0 result: "
        "PASSED\n##### hl qual report ####\nFAILED\n",
        "fabric_failed",
        "card 0000:b3:00.0.",
    ),
    (
        "    Found existing installation: torch 2.11.0a0+git009b5f6\n"
        "Successfully installed torch-2.11.0+cpu torchvision-0.26.0+cpu\n",
        "pytorch_not_habanas",
        "torchvision-0.26.0+cpu",
    ),
    ("Failed requests:                         3         \n=====\n", "unknown", "Failed requests:  "),
    (
        "(APIServer pid=1) INFO 11-26 10:00:00 [utils.py:233] non-default args: {'speculative_config': {'method': "
        "'ngram'}}\n(APIServer pid=1) IndexError: index 8 is out of bounds for dimension 0 with size 8\n",
        "speculation",
        "eagle",
    ),
    (
        "(APIServer pid=1) IndexError: index 8 is out of bounds for dimension 0 with size 8\n",
        "unknown",
        "IndexError",
    ),
    (
        "(APIServer pid=1) ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight "
        "quantization block_n = 128.\n",
        "experts-not-divisible",
        "enable_expert_parallel",
    ),
    ("(HCCL_RANK=3 x) ended with exit code 256\nHCCL demo runs in pure mode\n", "hccl-rank-ended", "Rank 3"),
]


@pytest.mark.parametrize(("text", "identifier", "word"), OTHER_LOGS)
def test_logs_of_other_programs(text: str, identifier: str, word: str) -> None:
    found = explained(text)
    assert found.id == identifier
    assert word in " ".join((found.cause, found.remedy, *found.lines))
    assert found.cause.endswith(".") or identifier == "no-failure"


def test_what_to_do_is_apart_from_what_a_repository_answered() -> None:
    found = explained("Err:1 https://x noble InRelease\n  403  Forbidden [IP: 10.0.0.9 443]\n")
    assert (found.id, found.cause.endswith("443].")) == ("repository_down", True)
    assert "check its address" in found.remedy


RECORDED = [
    ("serving/recorded/fail__0.26.0_gaudi2_tp4__gpt-oss-120b_view_size.txt", "model-not-for-card", "view size"),
    (
        "serving/recorded/fail__0.26.0_gaudi2_dp2tp4__gpt-oss-120b_input_2d.txt",
        "model-not-for-card",
        "Input must be 2D",
    ),
    ("serving/recorded/fail__0.26.0_gaudi2_dp4tp2__qwen3-30b_device_memory.txt", "out-of-device-memory", "46661632"),
    ("serving/recorded/fail__main_gaudi2_tp1_lazy__qwen3.8-27b_neither_storage.txt", "lazy-mode", "Neither storage"),
    ("serving/recorded/server_ibv_init_1.24.0.txt", "no-verbs", "ibv initialization failed"),
    ("serving/recorded/start__0.26.0_gaudi2_tp8__qwen3-235b.txt", "no-failure", "warm-up took 656 s"),
    ("driver/recorded/apt_install_1.24.1_debian12.txt", "driver_does_not_build", "6.1.0-53-amd64"),
    ("driver/recorded/apt_install_qual_1.24.1_debian12.txt", "no-failure", ""),
    ("driver/recorded/dkms_build_1.24.0_kernel_6.17.txt", "kernel_too_new", "6.17.0-22-generic"),
    ("driver/recorded/dkms_build_1.24.1_debian12.txt", "no-failure", ""),
    ("driver/recorded/dpkg_configure_1.24.0.txt", "dkms_left_over", "dkms remove habanalabs/1.24.0-1007"),
    ("driver/recorded/kernel_log_boot_fit_missing_6.8.txt", "firmware-missing", "gaudi2-boot-fit.itb"),
    ("driver/recorded/kernel_log_load_1.24.1.txt", "no-failure", ""),
    ("driver/recorded/kernel_log_unknown_symbol_1.24.0.txt", "symbols-missing", "uverbs_idr_class"),
    ("driver/recorded/zero_byte_modules_1.24.1.txt", "module_file_damaged", "habanalabs_cn"),
    ("doctor/recorded/kernel_log_1.24.1_gaudi2.txt", "page-tables-corrupted", "python3.12"),
    ("apt/recorded/redirected_1.24.1.txt", "repository_redirects", "s3.amazonaws.com"),
    ("benchmark/recorded/bench_serve_0.26.0.txt", "no-failure", "Output token throughput (tok/s) 251.78"),
    ("fabric/recorded/hl_qual/memory_no_plugin_1.24.1.txt", "no-failure", "took no test"),
    ("image/recorded/pip_resolver_complaint_1.24.1.txt", "no-failure", ""),
    ("image/recorded/docker_pull_timeout_29.1.3.txt", "registry-unreachable", "vault.habana.ai"),
]


@pytest.mark.parametrize(("path", "identifier", "word"), RECORDED)
def test_a_recorded_log_is_explained(path: str, identifier: str, word: str) -> None:
    found = log_file.explain_file(log_file.read((TESTS / "unit" / path).read_bytes()))
    assert found.id == identifier
    assert word in " ".join((found.cause, found.remedy, *found.lines))


CTRL_C = [
    "^CTraceback (most recent call last):",
    '  File "/usr/lib/python3.12/asyncio/runners.py", line 118, in run',
    "    return self._loop.run_until_complete(task)",
    "asyncio.exceptions.CancelledError",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "/usr/bin/vllm", line 10, in <module>',
    "    sys.exit(main())",
    "KeyboardInterrupt",
]


@pytest.mark.parametrize(
    "lines",
    [
        CTRL_C,
        [line.removeprefix("^C") for line in CTRL_C],
        [LISTENS, f"{ANSWERED}200 OK", "INFO:     Shutting down", "INFO:     Application shutdown complete."],
        [LISTENS, "KeyboardInterrupt: terminated", DIED],
        ["(APIServer pid=1) INFO 11-26 10:00:00 [launcher.py:80] Shutting down FastAPI HTTP server.", DIED],
        ["INFO 11-26 10:00:00 [core.py:80] Received signal SIGTERM, shutting down", DIED],
        ["[2026-01-01 10:00:00] Caught SIGINT", DIED],
    ],
)
@pytest.mark.parametrize("status", [None, 0, 130, 143])
def test_what_was_stopped_on_purpose_is_no_fault(lines: list[str], status: int | None) -> None:
    found = explained("\n".join(["INFO 11-26 10:00:00 [x.py:1] starting", *lines]), status=status)
    assert (found.id, found.retry) == ("stopped-on-purpose", True)
    assert any(word in found.lines[0] for word in ("^C", "KeyboardInterrupt", "hutting down", "SIG"))


@pytest.mark.parametrize(
    "before", [BUSY, "ERROR 11-26 10:00:00 [core.py:1] ValueError: nobody has seen this", DIED, CRASHES[0]]
)
def test_what_failed_before_it_was_stopped_is_the_cause(before: str) -> None:
    lines = "\n".join([before, "INFO:     Shutting down", *CTRL_C])
    assert explained(lines).id != "stopped-on-purpose"
    assert explained(lines).id == explained(before).id


def test_a_status_without_a_reason_is_no_success() -> None:
    assert explained("INFO 11-26 10:00:00 [x.py:1] starting").id == "no-failure"
    assert explained("INFO 11-26 10:00:00 [x.py:1] starting", status=1).id == "unknown"
    assert explained("INFO 11-26 10:00:00 [x.py:1] starting", status=137).id == "process-killed"
    assert explained("INFO 11-26 10:00:00 [x.py:1] starting", status=143).id == "container-killed"
    known = explained("RuntimeError: nobody has seen this", status=137)
    assert "nobody has seen this" in " ".join(known.lines)


def test_a_model_is_known_from_the_line_that_names_it() -> None:
    begins = (
        "INFO 11-26 10:00:00 [core.py:7] Initializing a V1 LLM engine (v0.26.0) with config: model='Qwen/Qwen3.6-27B'"
    )
    failed = "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
    assert "gated delta" in explained(f"{begins}, tokenizer='x'\n{failed}", release="1.24.1").remedy
    assert "gated delta" not in explained(failed, release="1.24.1").remedy


# GenAIComps 1038, optimum-habana 1611 and chatglm with optimum-habana 1478: what people paste beside their log.
FAILED_ACQUIRE = "RuntimeError: synStatus=8 [Device not found] Device acquire failed."
IMAGE = "docker run vault.habana.ai/gaudi-docker/1.19.0/ubuntu22.04/habanalabs/pytorch-installer-2.5.1"


@pytest.mark.parametrize(
    ("before", "identifier"),
    [
        (["driver_ver: 1.16.2-f195ec4", IMAGE], "other-release"),
        (
            ["| Driver Version:                                     1.19.0-ee698fb          |", IMAGE],
            "card-not-acquired",
        ),
        (["HPU driver version: 1.18.0-6f47ddd", "INFO 01-27 [runtime.py:32]     build: 1.23.0.695"], "other-release"),
        (
            [
                "but habana-frameworks v1.17.0.495 was found, this could lead to undefined behavior!",
                "but the driver version is v1.18.0, this could lead to undefined behavior!",
            ],
            "other-release",
        ),
        # Of two nodes or images nobody knows which one failed.
        (["Driver Version: 1.16.2-f1", "Driver Version: 1.19.0-f1", IMAGE], "card-not-acquired"),
        ([IMAGE], "card-not-acquired"),
    ],
)
def test_releases_that_a_log_names_decide(before: list[str], identifier: str) -> None:
    assert explained("\n".join([*before, FAILED_ACQUIRE])).id == identifier


def test_what_kubernetes_lacks_is_named() -> None:
    line = "0/2 nodes are available: 2 Insufficient habana.ai/gaudi."
    assert "Insufficient habana.ai/gaudi." in explained(line).cause


def test_nobody_is_said_to_start_a_server_again_that_nobody_supervises() -> None:
    for status in (137, 143):
        said = explained("INFO 11-26 10:00:00 [x.py:1] starting", status=status)
        assert "again by itself" not in f"{said.cause} {said.remedy}"


# As Python prints it, from 3.11 on.
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/v/site-packages/anyio/_backends/_asyncio.py", line 772, in __aexit__
  |     raise BaseExceptionGroup(
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/v/site-packages/vllm/b.py", line 3, in b
    |     c()
    | {}
    +------------------------------------
"""


def test_a_group_of_exceptions_is_read_like_its_first_one() -> None:
    assert explained(GROUP.format("RuntimeError: synStatus=20 [Device already acquired]")).id == "card-busy"
    assert explained(GROUP.format("ValueError: nobody has seen this")).lines == (
        'File "/v/site-packages/vllm/b.py", line 3, in b',
        "c()",
        "ValueError: nobody has seen this",
    )


@pytest.mark.parametrize(
    ("data", "identifier"),
    [
        (b"", "log_is_empty"),
        (b" \n\n\t", "log_is_empty"),
        (b"\x7fELF\x00\x00\x01", "log_is_no_text"),
        (bytes(range(256)) * 40, "log_is_no_text"),
        (b"\x1f\x8b\x08\x00", "log_compressed"),
        (b"x" * (log_file.LARGEST + 1), "log_too_large"),
        (b"x\n" * (log_file.MOST_LINES + 1), "log_too_long"),
        (b"x\r" * (log_file.MOST_LINES + 1), "log_too_long"),
        (b'{"log":"%s"}' % (b"x\\r" * (log_file.MOST_LINES + 1)), "log_too_long"),
    ],
)
def test_what_is_no_log_is_refused(data: bytes, identifier: str) -> None:
    with pytest.raises(Refusal) as refusal:
        log_file.read(data)
    assert refusal.value.id == identifier


def test_encodings_of_other_systems_are_read() -> None:
    line = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert log_file.explain_file(log_file.read(line.encode(encoding))).id == "card-busy"
    # A few bytes of another encoding do not make a log unreadable.
    assert log_file.explain_file(log_file.read(line.encode() + b"\n\xe4\xf6\xfc")).id == "card-busy"


@given(st.text())
def test_nothing_in_a_log_controls_a_terminal(text: str) -> None:
    hostile = f"{text}\x1b[2J\x1b]0;owned\x07\nValueError: {text}\x9b31m\u202e"
    try:
        lines = log_file.read(hostile.encode("utf-8", "surrogatepass"))
    except Refusal as refusal:
        assert refusal.id == "log_is_no_text"
        return
    found = log_file.explain_file(lines)
    assert all(line.isprintable() for line in log_file.page(found))
    plain = log_file.document(found)
    assert all(str(plain[key]).isprintable() for key in ("id", "cause", "remedy"))
    assert all(line.isprintable() for line in found.lines)


@pytest.mark.parametrize(
    "line",
    [
        "E: Failed to fetch https://reader:hunter2@mirror.example/x/a.deb  404  Not Found",
        "requests.exceptions.ProxyError: Max retries exceeded with proxy http://alice:hunter2@proxy.example:3128",
        "ValueError: HF_TOKEN=hunter2 is of another hub",
        # Where a sentence says what to do it may quote the log as well.
        "#1 [1/2] RUN pip\n#1 0.3 ERROR: No version. See https://reader:hunter2@idx/simple\nfailed to solve: pip",
        # Cut in an account, whose end is what shows it.
        f"RuntimeError: {'x' * 250} https://reader:{'hunter2' * 50}@mirror.example/x",
        f"#1 [1/2] RUN {'a' * 150} https://reader:{'hunter2' * 50}@idx/simple\n#1 ERROR: no\nfailed to solve: pip",
        # A key that was cut.
        "it broke: Error\n -----BEGIN OPENSSH PRIVATE KEY-----\n hunter2hunter2hunter2\n hunter2hunter2==",
    ],
)
def test_no_secret_of_a_log_is_in_what_people_give_to_others(line: str) -> None:
    cause = log_file.explain_file(log_file.read(f"{line}\n".encode()))
    assert cause.lines
    assert "hunter2" not in json.dumps(log_file.document(cause)) + "".join(log_file.page(cause))


@pytest.mark.parametrize("status", [None, 1])
def test_nothing_of_a_request_is_quoted(status: int | None) -> None:
    asked = [
        "INFO 11-26 10:00:00 [logger.py:1] Received request a: prompt: 'my diary', params: SamplingParams(n=1)",
        'INFO:     10.0.0.9:4242 - "POST /v1/my-diary HTTP/1.1" 200 OK',
    ]
    for last in ("", "the end"):
        said = json.dumps(log_file.document(explained("\n".join([*asked, last]), status=status)))
        assert "diary" not in said


# What other programs print.
WORDS = [
    "Out of memory: Killed process 1 (vllm)",
    "vllm: Corrupted page table at address 7f00",
    "habanalabs hl0: error, failed",
    "HCCL_RANK=0 Exiting HCCL demo with code: 3",
    "failed to solve: pip",
    "update-initramfs: No space left on device",
    "prompt bucket for (1, 2, 3) was not prepared",
]


@pytest.mark.parametrize("words", WORDS)
def test_words_of_a_prompt_are_no_lines_of_another_program(words: str) -> None:
    asked = f"INFO 11-26 10:00:00 [logger.py:1] Received request a: prompt: '{words}, my diary', params: X(n=1)"
    cause = explained(f"INFO:     Application startup complete.\n{asked}\nthe end")
    assert cause.id == "no-failure"
    assert "diary" not in json.dumps(log_file.document(cause))


# What people paste into a prompt: a traceback, lines of a server's log, and what apt printed.
PASTED = [
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.10/site-packages/vllm/x.py", line 1, in f',
    BUSY,
    f"(EngineCore_DP0 pid=7) ERROR 11-26 09:00:00 [core.py:700] {BUSY}",
    "INFO 11-26 09:00:00 [x.py:1] starting",
    "docker: Cannot connect to the Docker daemon",
    "E: Unable to locate package foo",
]


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("Received request chatcmpl-1: prompt: '{}", "{}', params: SamplingParams(n=1), prompt_token_ids: None"),
        ("Received request chatcmpl-1: prompt: {}", "{}, params: SamplingParams(n=1), lora_request: None."),
        ("Request chatcmpl-1 details: prompt: '{}", "{}', prompt_token_ids: [1, 2], prompt_embeds shape: None."),
        ("Generated response chatcmpl-1: output: '{}", "{}', output_token_ids: [1], finish_reason: stop"),
    ],
)
@pytest.mark.parametrize("pasted", [PASTED, PASTED[2:], PASTED[3:]], ids=["traceback", "exception", "log"])
def test_a_prompt_of_several_lines_is_no_cause(begins: str, ends: str, pasted: list[str]) -> None:
    at = "INFO 11-26 10:00:00 [logger.py:43] "
    first, *inner, last = ["Explain my diary:", *pasted, "Thanks."]
    asked = [f"{at}{begins.format(first)}", *inner, ends.format(last)]
    found = explained("\n".join(["INFO:     Application startup complete.", *asked, f"{at}Added request."]))
    assert found.id == "no-failure"
    assert "diary" not in json.dumps(log_file.document(found))
    # The server wrote the lines after that.
    after = explained("\n".join(["INFO:     Application startup complete.", *asked, CRASHES[0], DIED]))
    assert after.id == "crashed"


@pytest.mark.parametrize(
    "asked", ["DEBUG 11-26 10:00:00 [x.py:1] POST body:", "INFO 11-26 10:00:00 [x.py:1] messages=["]
)
def test_a_body_of_several_lines_is_no_cause(asked: str) -> None:
    lines = [LISTENS, asked, "{", ' "content": "my diary', BUSY, *PASTED[-2:], '"}]', f"{ANSWERED}200 OK"]
    found = explained("\n".join(lines))
    assert found.id == "no-failure"
    assert explained("\n".join([*lines, CRASHES[0], DIED])).id == "crashed"


def test_a_prompt_without_an_end_hides_no_more_than_it_can_have() -> None:
    asked = "INFO 11-26 10:00:00 [logger.py:43] Received request chatcmpl-1: prompt: 'my diary"
    answered = f'{asked}\nINFO:     10.0.0.9:4242 - "POST /v1 HTTP/1.1" 200 OK\n{CRASHES[0]}\n{DIED}'
    assert explained(answered).id == "crashed"
    lines = "\n".join("INFO 11-26 10:00:00 [x.py:1] goes on" for _ in range(2_000))
    assert explained(f"{asked}\n{lines}\n{CRASHES[0]}\n{DIED}").id == "crashed"


@pytest.mark.parametrize("words", WORDS)
def test_words_of_a_message_are_no_lines_of_another_program(words: str) -> None:
    """Nothing in this part of a log shows that the server listens."""
    cause = explained(f'DEBUG 11-26 10:00:00 [x.py:1] "messages": [{{"content": "{words}"}}]\nthe end')
    assert cause.id == "no-failure"
    assert words not in json.dumps(log_file.document(cause))


@pytest.mark.parametrize("prefix", ["", "(EngineCore_DP0 pid=7) ERROR 11-26 10:00:00 [core.py:700] "])
@pytest.mark.parametrize("words", [*WORDS, "#8 [ 3/12] RUN pip", "nodes are available: 2 Insufficient my/gpu"])
def test_words_in_an_exception_of_an_engine_are_no_lines_of_another_program(words: str, prefix: str) -> None:
    lines = [
        "INFO:     Application startup complete.",
        *(prefix + line for line in ("ValueError: bad", f"{words}, diary")),
    ]
    cause = explained("\n".join(lines), status=1)
    assert cause.id == "unknown"
    assert "diary" not in json.dumps(log_file.document(cause))


def test_nothing_of_a_request_is_quoted_from_the_end_of_a_log() -> None:
    log = 'INFO:     10.0.0.9:4242 - "POST /v1 HTTP/1.1" 400 Bad Request\nValueError: "messages": [{"my": "diary"}]'
    assert "diary" not in json.dumps(log_file.document(explained(log, status=1)))


@pytest.mark.parametrize(
    "first", ["INFO:     Application startup complete.", 'INFO:     10.0.0.9:4242 - "POST /v1 HTTP/1.1" 400']
)
@pytest.mark.parametrize("text", ["ValueError: my diary", *(f"{words}, my diary" for words in WORDS)])
@pytest.mark.parametrize("status", [None, 1])
def test_an_error_of_one_request_is_neither_quoted_nor_a_cause(first: str, text: str, status: int | None) -> None:
    prefix = "(APIServer pid=1) ERROR 11-26 10:00:00 [serving_chat.py:7] "
    found = explained(
        "\n".join([first, *(f"{prefix}{each}" for each in ("Error in preprocessing", text))]), status=status
    )
    assert found.id == ("unknown" if status else "no-failure")
    assert "diary" not in json.dumps(log_file.document(found))


ASKED_BADLY = [
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/site-packages/vllm/entrypoints/chat_utils.py", line 9, in apply_template',
    "    render()",
    "jinja2.exceptions.TemplateError: Conversation roles must alternate",
]
FATAL = [
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 7, in step',
    "    run()",
    "RuntimeError: nobody has seen this",
]
FAILS = "EngineCore encountered a fatal error."
SERVES, CORE = "ERROR 11-26 10:00:00 [serving_chat.py:200] ", "ERROR 11-26 10:00:00 [core.py:700] "
PREPARING = f"{SERVES}Error in preprocessing prompt inputs"


@pytest.mark.parametrize(
    "lines",
    [
        [LISTENS, *ASKED_BADLY, f"{ANSWERED}400 Bad Request", *FATAL],
        [LISTENS, PREPARING, *ASKED_BADLY, f"{ANSWERED}400 Bad Request", FAILS, *FATAL],
        [LISTENS, f"{ANSWERED}400 Bad Request", PREPARING, *ASKED_BADLY, f"{ANSWERED}200 OK", FAILS, *FATAL],
        [LISTENS, PREPARING, *ASKED_BADLY, f"{CORE}{FAILS}", *FATAL],
        [LISTENS, "ERROR:    Exception in ASGI application", *ASKED_BADLY, FAILS, *FATAL],
        # Of a part of a log nobody knows that the server listens.
        [*(f"{SERVES}{line}" for line in ASKED_BADLY), f"{CORE}{FAILS}", *FATAL],
        [PREPARING, *ASKED_BADLY, f"{CORE}{FAILS}", *FATAL],
        [f"{CORE}{line}" for line in (FAILS, *FATAL)] + [f"{ANSWERED}400 Bad Request"],
        [LISTENS, *FATAL, f"{CORE}vllm.v1.engine.exceptions.EngineDeadError: See stack trace", f"{ANSWERED}400 Bad"],
    ],
)
def test_an_error_of_a_client_does_not_hide_what_ended_the_engine(lines: list[str]) -> None:
    found = explained("\n".join(lines), status=1)
    assert "core.py" in found.lines[0]
    assert found.lines[-1].startswith("RuntimeError: ")


def test_what_crashes_below_an_error_of_a_client_is_read() -> None:
    assert explained(f"{LISTENS}\n{PREPARING}\n{CRASHES[0]}\n{DIED}").id == "crashed"


@pytest.mark.parametrize(
    ("first", "unit"), [("Reading package lists...", "initrd"), ("hl_qual report\ntest result summary", " ")]
)
def test_a_log_of_long_lines_has_an_end(first: str, unit: str) -> None:
    """Each of these lines took seconds."""
    assert explained("\n".join([first, *[f"x{unit * 1900}" for _ in range(2000)]])).id


def test_what_follows_a_private_key_is_read() -> None:
    busy = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."
    assert explained(f"-----BEGIN PRIVATE KEY-----\nMIIE\n{busy}").id == "card-busy"


@pytest.mark.parametrize("form", [*BEFORE, *KEPT])
def test_nothing_of_a_request_is_quoted_whatever_stands_before_it(form: str) -> None:
    asked = 'INFO:     10.0.0.9:4242 - "POST /v1/my-diary HTTP/1.1" 500 Internal Server Error'
    assert "diary" not in json.dumps(log_file.document(explained(put(form, asked), status=1)))


def test_the_page_says_what_to_do_and_where_more_stands() -> None:
    busy = log_file.page(explained("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."))
    assert busy[0].startswith("[card-busy] ")
    assert any(line.startswith("What to do: ") for line in busy)
    assert busy[-1] == "More: docs/faults.md#card-busy"
    # Not every cause that stays does so for certain, as of a bus error.
    lasting = log_file.page(explained("Bus error (core dumped)\n"))
    assert "Trying again without a change: it is likely to fail in the same way until that is done." in lasting
    left_over = "Error! DKMS tree already contains: habanalabs-1.24.0-1007"
    assert log_file.page(explained(left_over))[-1] == "More: docs/refusals.md"


# Facts without which a line means another fault of the list.
FACTS = {
    "other-release": Facts(driver="1.24.1-482", image="1.22.2-32"),
    "card-not-passed": Facts(cards=(0, 1), visible=(0, 1), passed=(0,)),
    "verbs-not-passed": Facts(modules=frozenset(("habanalabs_ib",)), infiniband=False),
    "verbs-failed": Facts(modules=frozenset(("habanalabs_ib",)), infiniband=True),
    **dict.fromkeys(
        ("benchmark-imports", "benchmark-client", "benchmark-no-answer"), Facts(command=("bench_client.py",))
    ),
    **{
        known.id: Facts(command=("run_hccl_demo.py",))
        for known in FAULTS
        if known.id.startswith("hccl-") and known.asked
    },
    "speculation": Facts(command=("--speculative-config", '{"method": "ngram"}')),
    "picture-too-large": Facts(command=("--limit-mm-per-prompt", '{"image": 1}'), served=True),
}


def test_the_sentence_of_a_line_is_whole_without_the_line() -> None:
    assert not [known.id for known in FAULTS if known.signs and known.sentence.endswith(":")]


def explained_in_a_build(line: str) -> Any:
    return explained(f"#8 [ 3/12] RUN apt-get install\n#8 1.2 {line}\n#8 ERROR: exit code: 1\n")


@pytest.mark.parametrize("known", [each for each in FAULTS if each.example], ids=lambda known: known.id)
def test_the_example_of_a_fault_is_explained_by_it(known: Any) -> None:
    assert re.search(known.signs or known.hints, known.example)
    if known.severity == "error":
        assert explain(known.example.splitlines(), FACTS.get(known.id, Facts())).id == known.id
        # Lines of apt on a node are of its packages.
        alone = explained if not known.example.startswith("E: ") else explained_in_a_build
        assert known.id in FACTS or alone(known.example).id == known.id


@pytest.mark.parametrize("known", [each for each in FAULTS if each.example], ids=lambda known: known.id)
def test_a_remedy_holds_for_a_container_that_this_project_did_not_start(known: Any) -> None:
    for remedy in (known.remedy, *known.remedies.values()):
        assert not re.search("(?i)run the playbook|run site.yml", remedy) or "of this project" in remedy


def test_long_numbers_before_the_lines_of_a_server_are_compared_quickly() -> None:
    """One number of 90 digits as five of 20 took minutes on each other line of digits."""
    text = f"{'1' * 90}x INFO 01-01 start\n" * 5 + f"{'1' * 100}\n" * 2
    assert log_file.read(text.encode())[:5] == ["INFO 01-01 start"] * 5


STARTED = "serving/recorded/start__0.26.0_gaudi2_tp8__qwen3-235b.txt"
HEALTHY = [
    STARTED,
    "serving/recorded/start__0.26.0_gaudi2_tp1__qwen3.6-35b-a3b_compile_mode.txt",
    "serving/recorded/warm_up__1.18_manual_002.txt",
]
SHOWN_BY_A_LINE = [each for each in FAULTS if each.example and each.severity == "error" and each.id not in FACTS]
# The kernel's lines have no level. A failed condition of HCL and an engine that is gone are failures at any.
AT_ANY_LEVEL = re.compile(r"\bhabanalabs \d|\baccel accel\d|The condition \[ |Engine core initialization failed")
# Its line has a name of what a request holds, which is read in a traceback only.
IN_A_TRACEBACK = "pipeline-parallel"


@pytest.mark.parametrize("path", HEALTHY)
def test_a_recorded_start_without_a_failure_has_no_cause(path: str) -> None:
    assert explained((TESTS / "unit" / path).read_text(encoding="utf-8")).id == "no-failure"


# How Python's logging, its warnings and vLLM's print a line that is no error.
NO_ERROR = [
    "(APIServer pid=7) INFO 09-10 17:58:02 [envs.py:1] {}",
    "WARNING 09-10 17:58:02 [envs.py:1] {}",
    "WARNING:vllm:{}",
    "WARNING: {}",
    "/opt/vllm/envs.py:3: UserWarning: {}",
]


def in_a_start(known: Any, form: str, *after: str) -> str:
    """The identifier for a log in which the lines of a fault's example are no errors."""
    begin = (TESTS / "unit" / STARTED).read_text(encoding="utf-8").splitlines()[:24]
    lines = [form.format(line) for line in known.example.splitlines()]
    return explained("\n".join([*begin, *lines, *after])).id


@pytest.mark.parametrize("form", NO_ERROR)
def test_a_warning_of_a_server_that_started_is_no_cause(form: str) -> None:
    warnings = [known for known in SHOWN_BY_A_LINE if not AT_ANY_LEVEL.search(known.example)]
    found = {known.id: in_a_start(known, form, LISTENS) for known in warnings}
    assert {known: id for known, id in found.items() if id != "no-failure"} == {}


@pytest.mark.parametrize("after", [BUSY, CRASHES[0]])
def test_a_warning_of_a_server_that_failed_later_hides_no_cause(after: str) -> None:
    warning = NO_ERROR[1].format("HF_HUB_OFFLINE=1 is set")
    assert explained(f"{warning}\n{LISTENS}\n{after}\n{DIED}").id == explained(f"{LISTENS}\n{after}\n{DIED}").id
    assert explained(f"{warning}\n{LISTENS}", status=1).id == "hub-offline"


def test_a_warning_of_a_start_that_failed_may_be_the_cause() -> None:
    found = {known.id: in_a_start(known, NO_ERROR[0]) for known in SHOWN_BY_A_LINE if known.id != IN_A_TRACEBACK}
    assert {known: id for known, id in found.items() if id != known} == {}


_AT = "11-29 12:00:01"
_FAILED_REQUEST = f"(APIServer pid=1) ERROR {_AT} [serving_chat.py:200] "
_STATISTICS = f"(APIServer pid=1) INFO {_AT} [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s"
_UNHANDLED = "ERROR:    Exception in ASGI application"


@pytest.mark.parametrize(
    "lines",
    [
        [f"{_FAILED_REQUEST}Error in preprocessing prompt inputs", f"{_FAILED_REQUEST}ValueError: {{}}"],
        [_UNHANDLED, "Traceback (most recent call last):", '  File "/x.py", line 1, in f', "ValueError: {}"],
        [_STATISTICS, f"(APIServer pid=1) WARNING {_AT} [serving_chat.py:3] tool error failed {{}}"],
        [_STATISTICS, "{}: RuntimeError: out of memory HABANA"],
    ],
)
@pytest.mark.parametrize("status", [None, 1, 137])
def test_the_end_of_a_log_quotes_no_request_without_an_access_log(lines: list[str], status: int | None) -> None:
    text = "\n".join(lines).format("what a client asked")
    shown = "\n".join(log_file.page(log_file.explain_file(log_file.read(text.encode()), status=status)))
    assert "what a client asked" not in shown
    assert "out-of-device-memory" not in shown
