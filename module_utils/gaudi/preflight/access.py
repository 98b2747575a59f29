"""Why no module runs as root on a node, from what sudo, su, doas, the shell or Ansible printed."""

from __future__ import annotations

import re

from ..base.printable import printable
from ..base.refusal import Refusal

# Ansible's words around those of the program.
_FRAME = re.compile(r"Task failed: |Premature end of stream waiting for become success\.?|>>> Standard Error")
# Messages of sudo (plugins/sudoers, src/exec.c), doas, su (util-linux), and of Ansible's become plugins.
_TTY = re.compile(r"must have a tty|a tty is required|must be run from a terminal|no tty present")
_WRONG = re.compile(r"Incorrect \w+ password|Sorry, try again|incorrect password attempts?|Authentication failure")
_MISSING = re.compile(
    r"Missing \w+ password|password is required|Authori[sz]ation required|read the password|"
    r"waiting for (privilege escalation|become) prompt"
)
_FORBIDDEN = re.compile(
    r"not in the sudoers file|is not allowed to (execute|run)|may not run sudo|doas: Operation not permitted"
)
_ABSENT = re.compile(
    r"\b(sudo|su|doas|dzdo|pbrun): (command )?not found|No such file or directory: .*\b(sudo|su|doas)\b"
)
_POWERLESS = re.compile(r"no new privileges|nosuid|setuid bit|effective uid is not 0|must be setuid")
_EXPIRED = re.compile(
    r"account validation failure|(password|account) (is|has) expired|PAM account management error", re.I
)
_DAMAGED = re.compile(r"(syntax|parse) error|no valid sudoers sources|unable to open .*sudoers")


def refusal(printed: str, *, shell_has_root: bool) -> Refusal:
    """Return why modules do not run as root. ``shell_has_root``: whether a shell command got root, with a terminal."""
    words = " ".join(_FRAME.sub(" ", printable(" ".join(printed.split()))).split())
    # A translated message: sudo complained, and a shell command, which has a terminal with ssh, became root.
    if _TTY.search(words) or (shell_has_root and re.match(r"(sudo|doas|su): ", words)):
        return Refusal(
            "root_needs_tty",
            f"sudo works only from a terminal on this node ({words}): requiretty is set in sudoers, and modules are "
            "sent without one (pipelining). Add 'Defaults:USER !requiretty' to a file below /etc/sudoers.d, or run "
            "with ANSIBLE_PIPELINING=false.",
        )
    if shell_has_root:
        return Refusal(
            "no_python",
            f"The user of this connection may become root, but no module runs there as root ({words}). Modules need "
            "Python 3.9 or newer: repair or install it, or name another one with ansible_python_interpreter.",
        )
    return _refused(words)


def _refused(words: str) -> Refusal:
    """Return why nothing runs as root."""
    if _WRONG.search(words):
        return Refusal(
            "root_password_wrong",
            f"The password for becoming root was not accepted ({words}). Give the right one with --ask-become-pass.",
        )
    if _MISSING.search(words):
        return Refusal(
            "root_password_missing",
            f"The user of this connection may not become root without a password ({words}), but packages and units "
            "need root. Run with --ask-become-pass, or allow it to this user in sudoers (NOPASSWD).",
        )
    if _FORBIDDEN.search(words):
        return Refusal(
            "root_not_allowed",
            f"The user of this connection may not become root ({words}), but packages and units need root. Allow it in "
            "a file below /etc/sudoers.d, or connect as another user (ansible_user).",
        )
    if _ABSENT.search(words):
        return Refusal(
            "root_program_missing",
            f"The program for becoming root is not on the node ({words}). Install sudo, connect as root, or name "
            "another program with ansible_become_method.",
        )
    if _POWERLESS.search(words):
        return Refusal(
            "root_program_powerless",
            f"sudo cannot make anybody root on this node ({words}). Give it the owner root and the setuid bit, on a "
            "file system without nosuid; in a container, allow new privileges.",
        )
    if _EXPIRED.search(words):
        return Refusal(
            "root_account_expired", f"The account or its password has expired ({words}). Renew it, then run again."
        )
    if _DAMAGED.search(words):
        return Refusal(
            "sudoers_damaged", f"sudo cannot read sudoers ({words}). Repair the file with visudo, then run again."
        )
    return Refusal(
        "no_root",
        f"The user of this connection may not become root ({words}), but packages and units need root. Let the user "
        "become root with sudo; if sudo asks for a password, run with --ask-become-pass.",
    )
