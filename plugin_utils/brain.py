"""Let plugins on the controller import what modules import: ``ansible.module_utils.gaudi``.

Ansible puts the project's module_utils on the path of modules only. An action or a filter says first::

    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from plugin_utils import brain

    brain.on_path()
"""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

from plugin_utils import controller

ROOT = Path(__file__).resolve().parent.parent


def on_path(*, nodes: bool = True) -> None:
    """Make ``ansible.module_utils.gaudi`` the package of this checkout; a second call changes nothing.

    Ends the program on a controller that is not supported, before anything that it lacks is imported, and on one that
    takes what nodes report as variables. nodes: whether the caller may run where nodes are asked.
    """
    controller.check()
    controller.take_no_statistics_of_nodes()
    if nodes:
        controller.refuse_facts_as_variables()
    folder = str(ROOT / "module_utils")
    if folder not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(folder)
