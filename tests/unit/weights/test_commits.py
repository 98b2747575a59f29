"""Commits that a site accepts (model_weights_commits), and what is shown before it does."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.weights import pin_file

OF_COMMIT: dict[str, Any] = {
    "name": "x",
    "repositories": {"huggingface": {"repository": "o/weights", "revision": "a" * 40}},
    "measurements": {"repositories": {"huggingface": {"repository": "o/measured"}}},
}


def test_a_site_names_the_commit_of_a_repository_that_the_entry_names_none_of() -> None:
    made = pin_file.with_commits(OF_COMMIT, pin_file.commits({"o/measured": "b" * 40, "o/other": "c" * 40}))
    assert made["measurements"]["repositories"]["huggingface"]["revision"] == "b" * 40
    assert made["repositories"] == OF_COMMIT["repositories"]
    assert "revision" not in OF_COMMIT["measurements"]["repositories"]["huggingface"]
    assert pin_file.pinned_by(made["measurements"]["repositories"]["huggingface"]) == pin_file.BY_COMMIT
    assert pin_file.with_commits({"name": "y", "repositories": {}}, {}) == {"name": "y", "repositories": {}}


def test_a_commit_that_the_entry_contradicts_is_refused() -> None:
    with pytest.raises(Refusal, match=r"o/weights, but catalog/models has aaaa") as refused:
        pin_file.with_commits(OF_COMMIT, {"o/weights": "b" * 40})
    assert refused.value.id == "pins_disagree"


def test_what_would_be_trusted_is_listed_with_the_line_that_accepts_it() -> None:
    found = {
        "measurements": {
            "repository": "o/measured",
            "revision": "b" * 40,
            "files": {"a.npz": "1" * 64},
            "sizes": {"a.npz": 12, "b\x1b[2J.safetensors": 30},
        }
    }
    lines = pin_file.listing(found).splitlines()
    assert lines[0] == f"measurements: o/measured at {'b' * 40}, 2 files, 42 bytes"
    assert lines[1].split() == ["12", "bytes", "1" * 64, "a.npz"]
    assert "\x1b" not in lines[2]
    assert lines[3] == f"model_weights_commits: {{o/measured: {'b' * 40}}}"
