"""Convert checkpoints to the FP8 of Gaudi2, bit for bit and restartable. Python 3.9 and its standard library.

block is what fp8_convert.py does, dynamic what fp8_dynamic.py does; both use the modules of this folder, and the
library gaudi. On a node that lies beside this package, in a checkout in module_utils.
"""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[4] / "module_utils"
if not (Path(__file__).parents[1] / "gaudi").exists():
    sys.path.append(str(CHECKOUT))
