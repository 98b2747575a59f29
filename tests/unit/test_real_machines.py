"""docs/real-machines.md: each fact that owners saw has a row, which names what exists."""

from __future__ import annotations

import re

from ansible.module_utils.gaudi.faults.known import FAULTS

from tests.unit.preflight.test_contracts import ROOT

PAGE = (ROOT / "docs/real-machines.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split(" | ")] for line in PAGE.splitlines() if re.match(r"\| \d", line)]
FACTS = 38


def test_every_fact_has_one_row_that_says_what_is_done() -> None:
    assert [int(row[0].strip("| ")) for row in ROWS] == list(range(1, FACTS + 1))
    assert {row[2] for row in ROWS} <= {"does", "checks", "mentions", "not yet"}
    assert [row[0] for row in ROWS if len(row) != 4 or len(row[3]) < 20] == []


def test_options_faults_files_and_headings_that_rows_name_exist() -> None:
    """A role's option, a fault, a refusal, a file of the repository, or a heading of another page."""
    known = {fault.id for fault in FAULTS} | set(re.findall(r"^\| `([\w-]+)`", refusals(), re.MULTILINE))
    options = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("roles/*/defaults/main.yml")))
    for row in ROWS:
        for word in re.findall(r"`([^`]+)`", row[3]):
            if re.fullmatch(r"(?:gaudi|host_tuning|vllm_service|fabric_check)_\w+(?:: \w+)?", word):
                assert f"\n{word.partition(':')[0]}:" in options, word
            elif re.fullmatch(r"(?:catalog|playbooks)/[\w./]+", word):
                assert (ROOT / word).exists(), word
            elif re.fullmatch(r"[a-z]+(?:[_-][a-z]+)+", word) and not (ROOT / "roles" / word).is_dir():
                assert word in known, word
        for page, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", row[3]):
            text = (ROOT / "docs" / page).read_text(encoding="utf-8")
            headings = {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in text.splitlines()
                        if line.startswith("#")}  # fmt: skip
            assert not anchor or anchor in headings, f"{page}#{anchor}"


def refusals() -> str:
    return (ROOT / "docs/refusals.md").read_text(encoding="utf-8")
