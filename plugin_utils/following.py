"""Follow work on a node by asking it repeatedly; a broken connection becomes a sentence."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.printable import printable

BAR = 24
# ssh's own status where the connection ends; a program that it runs has its own.
CONNECTION_LOST = 255


class Following(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """The action for work that belongs to the node, and continues whether or not anybody watches."""

    def look(
        self, module: str, arguments: dict[str, Any], variables: dict[str, Any], what: str, again: str
    ) -> dict[str, Any]:
        """Call a module; unanswered() tells whether the node gave an answer, and msg why it gave none.

        ``what`` is followed, ``again`` how to go on. A node that is out of reach is no failure: Ansible would begin the
        rescue of a block, or its end, while the work goes on.
        """
        host = str(variables.get("inventory_hostname", "the node"))
        try:
            looked: dict[str, Any] = self._execute_module(
                module_name=module, module_args=arguments, task_vars=variables
            )
        except AnsibleConnectionFailure as failure:
            return {"unreachable": True, "msg": cut(host, what, str(failure), again)}
        # Ansible sets this key where the output was not a module's answer; a module itself never returns it.
        if looked.get("failed") and "module_stdout" in looked:
            said = str(looked.get("module_stderr") or looked["module_stdout"] or f"status {looked.get('rc')}")
            lost = looked.get("rc") == CONNECTION_LOST
            return {"unreachable" if lost else "failed": True, "msg": cut(host, what, said, again)}
        return looked


def unanswered(looked: dict[str, Any]) -> bool:
    """Whether a node gave no answer that can be followed."""
    return bool(looked.get("failed") or looked.get("unreachable"))


def cut(host: str, what: str, said: str, again: str) -> str:
    """Say that a node gave no answer; of what was ``said`` instead the last line."""
    seen = (said.strip().splitlines() or ["nothing was said"])[-1].strip().rstrip(".")
    seen = printable(seen)
    return f"{host} gave no answer while {what} was followed ({seen}). The work is the node's own and goes on. {again}"


def bar(done: object, total: object) -> str:
    """A bar of fixed width with a space behind it, or nothing while there are no figures."""
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return ""
    # A node may report any number.
    full = int(max(0, min(BAR, BAR * done / total)))
    return f"[{'#' * full}{'.' * (BAR - full)}] "
