#!/bin/sh
# A boot, as far as the role can see one: no module is loaded, nothing holds one, the boot id is new.
set -eu
rm -f /etc/gaudi-simulator/in-use
python3 - <<'PYTHON'
import json
from pathlib import Path

document = Path("/etc/gaudi-simulator/node.json")
node = json.loads(document.read_text())
node["driver"].update(modules=[], loaded=False)
document.write_text(json.dumps(node))
PYTHON
systemctl restart gaudi-simulator
cat /proc/sys/kernel/random/uuid >/run/boot_id
