"""Why no module runs as root: the cause is named, from recorded messages of sudo, su, doas, the shell and Ansible."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.preflight import access

PREMATURE = "Task failed: Premature end of stream waiting for become success.\n>>> Standard Error\n"
TTY = "sudo: sorry, you must have a tty to run sudo"


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        pytest.param(f"{PREMATURE}{TTY}", "root_needs_tty", marks=pytest.mark.report("N01")),
        pytest.param(TTY, "root_needs_tty", marks=pytest.mark.report("N01")),
        ("doas: a tty is required", "root_needs_tty"),
        ("su: must be run from a terminal", "root_needs_tty"),
        ("Task failed: Missing sudo password", "root_password_missing"),
        ("sudo: a password is required", "root_password_missing"),
        ("sudo: a terminal is required to read the password; either use the -S option", "root_password_missing"),
        ("Timeout (12s) waiting for privilege escalation prompt: ", "root_password_missing"),
        ("doas: Authorization required", "root_password_missing"),
        ("Task failed: Incorrect sudo password", "root_password_wrong"),
        ("su: Authentication failure", "root_password_wrong"),
        ("sudo: 3 incorrect password attempts", "root_password_wrong"),
        ("op is not in the sudoers file.  This incident will be reported.", "root_not_allowed"),
        ("Sorry, user op is not allowed to execute '/bin/sh -c id' as root on gaudi-01.", "root_not_allowed"),
        ("doas: Operation not permitted", "root_not_allowed"),
        ("/bin/sh: 1: sudo: not found", "root_program_missing"),
        ("bash: line 1: sudo: command not found", "root_program_missing"),
        (
            'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.',
            "root_program_powerless",
        ),
        ("sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set", "root_program_powerless"),
        (
            "sudo: effective uid is not 0, is /usr/bin/sudo on a file system with the 'nosuid' option",
            "root_program_powerless",
        ),
        ("sudo: Account or password is expired, reset your password and try again", "root_account_expired"),
        ("sudo: parse error in /etc/sudoers near line 3", "sudoers_damaged"),
        ("id -u printed 1000", "no_root"),
    ],
)
def test_a_node_without_root_names_the_cause(printed: str, cause: str) -> None:
    refusal = access.refusal(printed, shell_has_root=False)
    assert refusal.id == cause
    assert "\n" not in str(refusal)
    assert "Premature" not in str(refusal)


@pytest.mark.report("N01")
def test_sudo_that_needs_a_terminal_is_not_blamed_on_python() -> None:
    """A shell command has a terminal with ssh, and gets root where modules do not."""
    for words in (TTY, "sudo: Entschuldigung, Sie müssen ein TTY haben, um sudo auszuführen"):
        refusal = access.refusal(PREMATURE + words, shell_has_root=True)
        assert refusal.id == "root_needs_tty"
        for part in ("requiretty", "pipelining", "ANSIBLE_PIPELINING=false"):
            assert part in str(refusal)
    assert access.refusal("/bin/sh: 1: /usr/bin/python3: not found", shell_has_root=True).id == "no_python"
