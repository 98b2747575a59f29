"""The list of faults: everything that is known to go wrong with a node or an instance, and what to do about it.

All sentences about faults are in the modules that are joined here, one for each subject. Preflight, doctor, supervisor,
calibration and the checks of cards use them, and docs/faults.md is generated from them (python -m
tests.unit.faults.page). A new fault is an entry there; if a line of a log shows it (``signs``), nothing else is needed.
The list is Python, because only Python files reach a node with a module. Errors in a request or an inventory are
refusals; docs/refusals.md lists them.
"""

from __future__ import annotations

from . import (
    benchmark,
    build,
    calibration,
    cards,
    configuration,
    container,
    hccl,
    host,
    hub,
    instances,
    server,
    serving,
)

# The order matters: of the entries that a line matches, the first one is the reason.
FAULTS = (
    *cards.FAULTS,
    *host.FAULTS,
    *server.FAULTS,
    *hub.FAULTS,
    *calibration.FAULTS,
    *configuration.FAULTS,
    *container.FAULTS,
    *benchmark.FAULTS,
    *hccl.FAULTS,
    *instances.FAULTS,
    *build.FAULTS,
    *serving.FAULTS,
)
