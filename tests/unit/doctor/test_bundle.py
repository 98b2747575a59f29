"""What goes into a support bundle: files that are named, and no secret in any of them."""

from __future__ import annotations

import fnmatch
import json

import pytest
from ansible.module_utils.gaudi.base import paths
from ansible.module_utils.gaudi.doctor.bundle import FILES, MASKED, OF_PLAN, OF_STATE, masked_text

HIDDEN = "hf_SECRETsecret123"


def test_every_file_of_ours_in_it_is_one_that_is_known_and_none_holds_keys() -> None:
    ours = [file for file in FILES if file.startswith(paths.ROOTS)]
    ours += [f"{paths.INSTANCES}/x/{name}" for name in OF_PLAN]
    ours += [f"{paths.INSTANCE_STATES}/x/{name}" for name in OF_STATE]
    known = [owned.path for owned in paths.TABLE]
    assert [file for file in ours if not any(fnmatch.fnmatch(file, path) for path in known)] == []
    names = {file.rpartition("/")[2] for file in ours}
    assert not names & {"environment", "keys.json", "probe", "config.json", "git", "pip", "apt"}
    assert not any(name.endswith(".token") for name in names)


@pytest.mark.parametrize(
    "document",
    [
        {"environment": {"HF_TOKEN": HIDDEN}},
        {"environment": [{"name": "HF_TOKEN", "value": HIDDEN}]},
        {"extra": {"api_key": HIDDEN, "AWS_SECRET_ACCESS_KEY": HIDDEN, "password": [HIDDEN]}},
        {"key": HIDDEN, "keys": [HIDDEN], "Authorization": f"Bearer {HIDDEN}"},
        {"https_proxy": f"http://me:{HIDDEN}@proxy.example:3128"},
        {"command": [f"--hf-token={HIDDEN}", f"MY_API_KEY={HIDDEN}"]},
        {"command": ["--hf-token", HIDDEN, "--x"]},
        {"HTTPS_PROXY": f"me:{HIDDEN}@proxy.example:3128"},
        {"said": f"with --api-key {HIDDEN}"},
        {"said": f"HTTP_PROXY=me:{HIDDEN}@proxy:3128"},
        {"said": f'got {{"token": "{HIDDEN}"}}'},
    ],
)
def test_a_secret_in_a_document_is_taken_out(document: object) -> None:
    text = masked_text(json.dumps(document))
    assert HIDDEN not in text
    assert MASKED in text


@pytest.mark.parametrize(
    "line",
    [
        f"HF_TOKEN={HIDDEN}",
        f"vllm serve x --api-key {HIDDEN}",
        f"https_proxy=me:{HIDDEN}@proxy.example:3128",
        f'HTTPS_PROXY="me:{HIDDEN}@proxy.example:3128"',
        f"password: {HIDDEN}",
        f"https://me:{HIDDEN}@hub.example/x",
        f"x api-key={HIDDEN} y",
        f"Authorization: Bearer {HIDDEN}",
    ],
)
def test_a_secret_in_a_line_is_taken_out(line: str) -> None:
    assert HIDDEN not in masked_text(f"one\n{line}\nthree\n")


def test_what_is_no_secret_stays() -> None:
    document = {
        "max_num_batched_tokens": 2048,
        "environment": {"VLLM_MAX_TOKENS": "2048"},
        "flags": ["--max-num-batched-tokens=2048"],
        "keyboard": "de",
        "plan": "abc",
        "cards": [{"module_id": 0, "serial": "AM01"}],
        "command": ["--max-model-len", "4096"],
        "address": "http://127.0.0.1:8000/v1",
        "nothing": None,
        "http_proxy": "http://proxy.example:3128",
        "words": ["--max-num-batched-tokens", "4096", "--trust-remote-code"],
    }
    assert json.loads(masked_text(json.dumps(document))) == document
    assert masked_text("MemTotal: 1 kB\n") == "MemTotal: 1 kB\n"


def test_what_would_rule_a_terminal_does_not_pass() -> None:
    assert "\x1b" not in masked_text("a\x1b[2Jb\n")
