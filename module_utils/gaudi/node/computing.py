"""Run the compute check over cards of a node: the program of roles/fabric_check in a container with these cards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..base import paths
from ..base.values import BORROWER
from ..fabric import compute
from ..fabric.output import KILLED
from . import containers, links, reservations

STATE, PLANS = Path(paths.STATE), Path(paths.INSTANCES)


def perform(
    module: AnsibleModule,
    image: str,
    program: str,
    planned: compute.ComputePlan,
    cards: Sequence[Mapping[str, Any]],
    now: str,
) -> compute.ComputeExit:
    """Check the numbers of the planned cards in an image, with the cards reserved. cards: those of the topology.

    now: ISO 8601, the date of the reservation. Raises Refusal if the reservations cannot be read.
    """
    chosen = [card for card in cards if card["module_id"] in planned.modules]
    indexes = ",".join(str(card["index"]) for card in sorted(chosen, key=lambda card: int(card["module_id"])))
    asked = json.dumps(compute.request(planned))
    # The collective libraries choose an interface of the node by themselves where none is named.
    loopback = [word for name in ("GLOO", "HCCL") for word in ("--env", f"{name}_SOCKET_IFNAME=lo")]
    given = [
        *links.ISOLATION,
        *links.MEASURES,
        *loopback,
        "--env",
        f"HABANA_VISIBLE_DEVICES={indexes}",
        "--interactive",
    ]
    arguments = [*given, "--entrypoint", "python3", image, "-", asked]
    limit = module.params["compute_limit"] or compute.limit_seconds(planned)
    with reservations.borrowed(STATE, PLANS, BORROWER, chosen, now):
        ended = containers.run_once(module, links.CONTAINER, arguments, limit, program)
    interrupted = ended.no_memory or ended.status == KILLED
    # A container that has ended well has printed warnings of libraries on stderr, and no reason.
    return compute.ComputeExit(ended.text, ended.status, limit, interrupted)
