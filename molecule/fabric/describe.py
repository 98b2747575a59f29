"""Print the document of a node description with changes: describe.py NAME CHANGES (a JSON mapping)."""

import json
import sys

import yaml

from simulator.standins import description

said = yaml.safe_load((description.DESCRIPTIONS / f"{sys.argv[1]}.yml").read_text(encoding="utf-8"))
print(description.render(description.expand({**said, **json.loads(sys.argv[2])}, sys.argv[1])), end="")
