"""Why a conversion is refused: an id for programs beside the sentence for people, through every process."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from gaudi.base.refusal import Refusal
from gaudi_fp8.refusals import WrongResult, explain_os_error
from gaudi_fp8.workers import serve_tasks

from tests.integration.fp8 import checkpoints
from tests.integration.fp8_dynamic import test_fp8_dynamic as bfloat16

FILES = Path(__file__).parents[3] / "roles" / "fp8_weights" / "files"


def result_of(program: str, tmp_path: Path, *arguments: object) -> dict[str, str]:
    """What a program that is refused leaves to the job that runs it; its sentence is on standard error as well."""
    left = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, str(FILES / program), *map(str, arguments)],
        env={**os.environ, "GAUDI_JOB_RESULT": str(left)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    result: dict[str, str] = json.loads(left.read_text())
    assert done.stderr.endswith(f": {result['refused']}\n")
    return result


def test_a_job_is_told_the_id_of_what_the_program_refuses(tmp_path: Path) -> None:
    assert result_of("fp8_convert.py", tmp_path, tmp_path / "in", tmp_path / "out")["refused_id"] == "not_a_folder"


@pytest.mark.parametrize("number", [0x7FC0, 0x7F80], ids=["no number", "infinity"])
def test_a_job_is_told_the_id_of_what_a_worker_refuses(tmp_path: Path, number: int) -> None:
    source = bfloat16.write(tmp_path / "in")
    shard = next(source.glob("*.safetensors"))
    header, _ = checkpoints.read(shard)
    begin = next(entry["data_offsets"][0] for name, entry in header.items() if name.endswith("proj.weight"))
    raw = bytearray(shard.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little") + begin
    raw[start : start + 2] = number.to_bytes(2, "little")
    shard.write_bytes(raw)
    result = result_of("fp8_dynamic.py", tmp_path, source, tmp_path / "out")
    assert (result["refused_id"], "infinity" in result["refused"]) == ("not_finite", True)


def test_a_worker_tells_the_id_of_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_task: dict[str, object]) -> dict[str, object]:
        raise OSError(errno.EROFS, "Read-only file system", "/data/out")

    monkeypatch.setattr("sys.stdin", io.StringIO('{"name": "a", "convert": true}\n'))
    assert serve_tasks(work, explain_os_error) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["refused_id"] == "read_only"
    assert "/data/out is on a read-only file system" in said["error"]


def test_what_is_found_wrong_keeps_its_sentence_and_gets_an_id(tmp_path: Path) -> None:
    source, target = checkpoints.write(tmp_path / "in"), tmp_path / "out"
    command = [sys.executable, str(FILES / "fp8_convert.py"), str(source), str(target)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    shard = sorted(target.glob("*.safetensors"))[0]
    content = bytearray(shard.read_bytes())
    content[-700] ^= 1
    shard.write_bytes(content)
    result = result_of("fp8_convert.py", tmp_path, source, target, "--verify")
    assert result["refused_id"] == "found_wrong"
    assert result["refused"].startswith(f"{shard.name}: tensor ")


def test_a_name_that_stands_twice_in_a_header_is_said_and_not_taken_for_bad_json(tmp_path: Path) -> None:
    entry = b'{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}'
    raw = b'{"a":%s,"a":%s}' % (entry, entry)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"xxxx")
    result = result_of("fp8_convert.py", tmp_path, tmp_path / "in", tmp_path / "out")
    assert result["refused_id"] == "header_name_twice"
    assert "the name 'a' stands twice in the header" in result["refused"]
    assert "not JSON" not in result["refused"]


def test_a_refusal_goes_from_process_to_process() -> None:
    there = pickle.loads(pickle.dumps(WrongResult("wrong_header", "It is wrong.")))  # noqa: S301 - our own bytes
    assert isinstance(there, Refusal)
    assert (type(there), there.id, str(there)) == (WrongResult, "wrong_header", "It is wrong.")
