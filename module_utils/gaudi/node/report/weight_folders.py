"""The part ``weight_folders`` of a node's report: how the folders of its weights root are, and what the root is on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ...base.refusal import Refusal
from .. import weight_folders

# There while the role weights_supply has the node give a folder.
GIVING = Path("/run/gaudi-serving-give")


def read(module: AnsibleModule) -> dict[str, Any]:
    """Return what weights/reported_folders.py checks. Reads no content of weights, so large ones take no longer.

    Raises Refusal without the option weights_root.
    """
    if not module.params["weights_root"]:
        raise Refusal("missing_key", "The option weights_root is missing. Add it.")
    root = Path(module.params["weights_root"])
    mounts = weight_folders.MOUNTINFO.read_text(encoding="utf-8", errors="replace")
    fstype, source = weight_folders.mounted(mounts, str(root))
    return {
        "folders": weight_folders.look(root, module.params["weight_folders"]),
        "damaged_plans": [file.parent.name for file in weight_folders.damaged_plans(weight_folders.PLANS)],
        "storage": {"fstype": fstype, "source": source},
        "giving": GIVING.exists(),
        "rsync": module.get_bin_path("rsync") is not None,
    }
