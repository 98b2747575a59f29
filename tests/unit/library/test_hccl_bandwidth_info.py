"""hccl_bandwidth_info: the module reads a log as the check does, from a text or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.fabric.output import parse_output

from tests.unit.fabric.test_output import RECORDED, SAMPLES
from tests.unit.host.modules import run_main


def read(check: bool = False, **given: Any) -> dict[str, Any]:
    return run_main("library.hccl_bandwidth_info", {"ranks": 8, **given}, check=check)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("check", [False, True])
def test_every_recorded_format_is_read_from_a_text_and_from_a_file(name: str, check: bool) -> None:
    ranks = 4 if "2022" in name else 16 if "two_nodes" in name else 8
    whole = read(check, text=SAMPLES[name], ranks=ranks)
    assert not whole["changed"]
    assert whole["figures"] == parse_output(SAMPLES[name], ranks=ranks, status=0).as_dict()["figures"] != []
    assert whole["failure"] is None
    assert read(check, path=str(RECORDED / name), ranks=ranks)["figures"] == whole["figures"]


def test_why_figures_do_not_count_is_a_result() -> None:
    good = SAMPLES["reconstructed_all_reduce.txt"]
    said = read(text=f"{good}\nCollective operation has failed on correctness.\n")
    assert (said["failure"]["id"], said["figures"][0]["nw_gb_s"]) == ("hccl-wrong-result", 258.209121)
    assert read(text=good, ranks=4)["failure"]["id"] == "hccl-inconsistent"
    assert read(text=good, status=3)["failure"]["id"] == "hccl-ended"
    fell_back = f"Error loading OFI wrapper\n{good}"
    assert read(text=fell_back)["failure"] is None
    assert read(text=fell_back, host_nics=True)["failure"]["id"] == "hccl-no-wrapper"


def test_a_file_that_cannot_be_read_and_options_that_say_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path, words in (("none", "is not there"), ("binary", "it is no text"), ("", "it is a directory")):
        said = read(path=str(tmp_path / path))
        assert said["refused_id"] == "no_output_of_hccl_demo"
        assert words in said["msg"]
    assert "ranks" in read(text="x", ranks=1)["msg"]
    assert read()["failed"]
    assert read(text="x", path="/x")["failed"]
