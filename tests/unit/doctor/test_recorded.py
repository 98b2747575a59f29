"""What is in a record: starts until a server listens, metrics without what clients choose, names of files."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base import owned_paths, paths
from ansible.module_utils.gaudi.doctor import archive, recorded
from ansible.module_utils.gaudi.serving import load
from hypothesis import given
from hypothesis import strategies as st

PROMPT = "How do I hide a body?"
BEGUN = "gaudi-serving: Starting container vllm-chat on modules 0, 1."
RECORDED = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "listens",
    [
        "(APIServer pid=1) INFO:     Started server process [1]",
        "INFO:     Application startup complete.",
        'INFO:     10.0.0.1:555 - "POST /v1/completions HTTP/1.1" 200 OK',
        f"INFO 09-10 17:57:55 [logger.py:41] Received request cmpl-1: prompt: '{PROMPT}'",
        "gaudi-serving: Serving qwen3-8b at http://127.0.0.1:8000.",
        "gaudi-serving: Attached to the running container vllm-chat of the same plan.",
        BEGUN,
    ],
)
def test_nothing_is_recorded_once_a_server_listens(listens: str) -> None:
    lines = ["of before", f"prompt: {PROMPT}", BEGUN, "INFO loading", listens, f"prompt: {PROMPT}", BEGUN, PROMPT]
    assert list(recorded.before_readiness(lines)) == [BEGUN, "INFO loading"]


def test_a_start_that_never_listened_is_recorded_to_its_end() -> None:
    assert list(recorded.before_readiness([BEGUN, "a", "b"])) == [BEGUN, "a", "b"]
    assert list(recorded.before_readiness(["a", "b"])) == []


@pytest.mark.parametrize(
    "listens", ["INFO: Application startup complete.", "gaudi-serving: Serving x on http://127.0.0.1:1"]
)
def test_no_line_of_a_request_begins_a_start(listens: str) -> None:
    assert list(recorded.before_readiness([listens, BEGUN, PROMPT])) == []


def test_a_recorded_start_is_whole_up_to_where_it_listens() -> None:
    text = (RECORDED / "serving/recorded/start__0.26.0_gaudi2_tp8__qwen3-235b.txt").read_bytes().decode()
    lines = re.split(r"[\r\n]", text)
    found = list(recorded.before_readiness([BEGUN, *lines]))
    assert len(found) > 100
    assert lines[len(found) - 1 :][0].strip() == "" or "Started server process" in "".join(lines[len(found) - 1 :])


@pytest.mark.parametrize("name", ["reason", "last_reason"])
@pytest.mark.parametrize("part", ["message", "exception"])
def test_a_state_is_recorded_without_what_it_quotes(name: str, part: str) -> None:
    state = {"phase": "failed", "status": PROMPT, name: {"kind": "server-ended", part: PROMPT}}
    found = recorded.without_quotes(json.dumps(state))
    assert PROMPT not in found
    assert json.loads(found)[name]["kind"] == "server-ended"


def test_metrics_have_no_label_that_a_client_chooses() -> None:
    text = (
        "# HELP vllm:num_requests_running Number\n"
        f'vllm:num_requests_running{{engine="0",model_name="{PROMPT}"}} 2.0\n'
        f'vllm:num_requests_waiting{{engine="0",model_name="{PROMPT}"}} 0.0\n'
        f'vllm:e2e_seconds_bucket{{le="+Inf",model_name="a}}b {PROMPT}"}} 7.0\n'
        f'vllm:x{{le="{PROMPT}"}} 1\n{PROMPT} 1\n'
    )
    shown = recorded.without_labels(text)
    assert PROMPT not in shown
    assert 'vllm:num_requests_running{engine="0"} 2.0\n' in shown
    found = load.read(shown)
    assert found is not None
    assert found.running == 2


@given(st.lists(st.text(max_size=300), max_size=30))
def test_names_of_files_lead_nowhere_and_are_unique(names: list[str]) -> None:
    found = recorded.file_names(names)
    assert all(re.fullmatch(r"[A-Za-z0-9=+,][A-Za-z0-9._,=+-]{0,130}\.txt", name) for name in found)
    assert len({name.lower() for name in found}) == len(names)


def test_texts_of_a_node_are_printable_and_bounded() -> None:
    assert recorded.texts_of(["x"]) == {}
    found = recorded.texts_of({"a": "\x1b[2Jb\x07\nc", "b": 7, 8: "x"})
    assert found == {"a": "b?\nc"}
    found = recorded.texts_of({str(number): "word " * (1 << 20) for number in range(50)})
    assert sum(map(len, found.values())) < recorded.MOST_OF_NODE + recorded.MOST_OF_TEXT
    assert len(recorded.texts_of({str(number): "x" for number in range(5000)})) <= recorded.MOST_TEXTS


def test_every_file_of_ours_is_known_and_holds_no_key() -> None:
    ours = [file for file in recorded.FILES if file.startswith(paths.ROOTS)]
    known = [owned.path for owned in owned_paths.TABLE]
    assert [file for file in ours if not any(fnmatch.fnmatch(file, path) for path in known)] == []
    assert not [file for file in ours if file.endswith(("environment", "keys.json", "probe", "config.json", ".token"))]


def test_an_archive_names_no_node_and_says_what_it_is() -> None:
    table = (RECORDED / "cards/recorded/1.22.1/hl-smi.txt").read_text()
    records = {
        name: {"texts": {"hl-smi": table, f"start of {name}": f"on {name}\x1b[2J"}, "names": {"serial": ["AM50016138"]}}
        for name in ("blade7", "blade8")
    }
    made = archive.make(records, "blade8 : ok=3\nHF_TOKEN=hf_secretsecretsecretsecret\n", "2026-11-27")
    assert made.name == "record_1.22.1_HL-225_2026-11-27"
    whole = json.dumps(made.files)
    assert "blade" not in whole
    assert "secretsecret" not in whole
    assert "\\u001b" not in whole
    assert made.files["record/host-2/hl-smi.txt"].strip() == table.strip()
    assert made.files["record/host-2/start_of_host-2.txt"] == "on host-2"
    assert made.files["record/run.txt"].startswith("host-2 : ok=3\n")
    described = json.loads(made.files["record/record.json"])
    assert described["hosts"]["host-1"]["cards"] == 8
    assert described["hosts"]["host-1"]["texts"]["start_of_host-1.txt"] == "start of host-1"
    assert "secret" in made.files["record/REMOVED.txt"]
    assert archive.make(records, "", "2026-11-27") == archive.make(records, "", "2026-11-27")


@pytest.mark.parametrize(
    "record",
    [
        *(
            None,
            7,
            "x",
            {},
            {"texts": 1, "names": 2},
            {"texts": {"../../x": "y", "\ue0009999\ue001": "\ue0009999\ue001"}},
        ),
        {"texts": {"a": " " * 5000}},
    ],
)
def test_a_node_may_report_anything(record: object) -> None:
    made = archive.make({"n1": record}, "", "2026-11-27")
    assert made.name == "record_unknown_unknown_2026-11-27"
    assert all(re.fullmatch(r"record/[\w.-]+(/[\w.-]+)?", name) for name in made.files)


def test_nothing_of_a_node_is_recorded_that_names_more_than_is_removed() -> None:
    names = {"host": [f"qhost{number}" for number in range(10_000)]}
    made = archive.make({"n1": {"texts": {"start of qhost9999": "on qhost9999"}, "names": names}}, "", "2026-11-27")
    assert "qhost" not in json.dumps(made.files)
    assert made.files["record/host-1/text_1.txt"].startswith("(left out")


def test_a_node_leaves_no_text_of_others_out() -> None:
    many = "".join(f"/home/u{number}x/\n" for number in range(1999))
    records = {"n1": {"texts": {"a": many}}, "n2": {"texts": {"a": "/home/carol /home/dave"}}}
    made = archive.make(records, "", "2026-11-27")
    assert made.files["record/host-2/a.txt"].startswith("/home/user-")
