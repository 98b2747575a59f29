"""The module object of this project: every program that a module runs prints untranslated messages."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The C library ignores LANGUAGE where the locale is C (gettext(3)).
UNTRANSLATED = {"LC_ALL": "C"}


class NodeModule(AnsibleModule):
    """AnsibleModule whose run_command() sets the locale C, as output is parsed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.run_command_environ_update = dict(UNTRANSLATED)
