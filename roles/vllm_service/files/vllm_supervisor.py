#!/usr/bin/env python3
"""Run one vLLM instance for systemd: the main process of vllm-<instance>.service (Type=notify).

Active means serving: READY=1 is sent when GET /health and GET /v1/models answer with the served model
name, never because of a line in a log. The container is run in the foreground through the docker
command line; a container of the same plan that is already running (this program was killed or handed
over, the engine restarted with live-restore) is attached to again, which costs no warm-up.

Every end has a reason in words a person can act on: in the journal, in the unit's status text and in
/var/lib/gaudi-serving/instances/<instance>/state.json. Exit status: 0 stopped as asked; 75 failed, worth
another try (systemd restarts, this program paces); 78 configuration, trying again cannot help; 69 tried
often enough. The unit's RestartPreventExitStatus= names the last two.

Python 3.9, its standard library, and the library gaudi beside this program: it runs on whatever the node ships.
"""

from __future__ import annotations

import sys

try:
    from gaudi_supervisor.command_line import main
except ImportError as missing:
    sys.exit(f"{missing}: what lies beside {__file__} is missing or damaged. Run the playbook, which installs it.")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
