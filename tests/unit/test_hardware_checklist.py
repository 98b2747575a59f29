"""docs/hardware-checklist.md: what an owner types in the first hour exists, with its variables and tags."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.unit.preflight.test_contracts import ROOT

PAGE = (ROOT / "docs/hardware-checklist.md").read_text(encoding="utf-8")
# Whole texts in backticks and lines of blocks, without the page's own sentences.
TYPED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
COMMANDS = [
    command
    for text in TYPED
    for command in text.split("; ")
    if re.match(r"(?:play )?(?:playbooks/\w+|site)\.yml", command)
]
SPECS = [
    yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml"))
]
OPTIONS = {
    name: about
    for spec in SPECS
    for entry in spec["argument_specs"].values()
    for name, about in (entry.get("options") or {}).items()
}
ROLES = "|".join(path.name for path in sorted((ROOT / "roles").iterdir()))


def test_commands_are_found() -> None:
    assert "play playbooks/tune_host.yml -e host_tuning_reboot=if_needed" in COMMANDS
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_a_playbook_and_variables_that_it_reads(command: str) -> None:
    name, _, rest = command.removeprefix("play ").partition(" ")
    playbook = (ROOT / name).read_text(encoding="utf-8")
    tags = playbook.partition("# Tags: ")[2].partition(".\n")[0].split(", ")
    assert [tag for tag in re.findall(r"--tags (\w+)", rest) if tag not in tags] == []
    given = re.findall(r"-e (\w+)=(\S+)", rest) + re.findall(r"-e '\{\"(\w+)\": (.+?)\}'", rest)
    for variable, value in given:
        assert takes(variable, value) or re.search(rf"\b{variable}\b", playbook), variable
    # Nothing else is typed behind a playbook, but what Ansible knows.
    left = re.sub(r"-e (?:\w+=\S+|'\{[^']*\}')|--tags \w+|--check|--diff", "", rest)
    assert left.strip() == ""


@pytest.mark.parametrize(
    ("option", "value"),
    [found.groups() for found in map(re.compile(rf"((?:{ROLES})_\w+)(?:: (\S+))?").fullmatch, TYPED) if found],
)
def test_an_option_exists_and_takes_the_value(option: str, value: str | None) -> None:
    assert takes(option, value), option


def takes(option: str, value: str | None) -> bool:
    """Whether a role has an option that takes a value; None for any."""
    about = OPTIONS.get(option)
    if about is None or value is None:
        return about is not None
    choices = about.get("choices") or (["true", "false"] if about.get("type") == "bool" else [value])
    return value in choices


def test_passthrough_is_set_before_the_driver_is_loaded() -> None:
    """A driver of 1.24 or newer writes into others' memory where an IOMMU translates."""
    (step,) = [line for line in PAGE.splitlines() if "play playbooks/driver.yml" in line]
    assert (
        0
        <= step.find("play playbooks/tune_host.yml -e host_tuning_reboot=if_needed")
        < step.find("play playbooks/driver.yml")
    )
