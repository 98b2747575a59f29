"""Stand-ins for Python packages that are on no public index, or that a test wants small. Each says what it is."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence

from simulator.settings import SIMULATOR

# A stand-in for PyTorch, and for what it takes of the vendor.
PYTORCH = SIMULATOR / "images" / "pytorch"
# No clock: the same wheel has the same bytes.
_DATE = (2020, 1, 1, 0, 0, 0)
SUMMARY = "Simulated: not an Intel Gaudi product"


def wheel(
    name: str, version: str, modules: Mapping[str, str] | None = None, requires: Sequence[str] = ()
) -> tuple[str, bytes]:
    """A wheel of pure Python (PEP 427) with these modules: its file name and its bytes."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {SUMMARY}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {
        **(modules or {}),
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: gaudi-serving-simulator\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{path},sha256={_hash(content)},{len(content.encode())}" for path, content in files.items()]
    files[record] = "\n".join([*lines, f"{record},,"]) + "\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, _DATE), content)
    return f"{stem}-py3-none-any.whl", packed.getvalue()


def _hash(content: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()


def vendor(version: str) -> dict[str, bytes]:
    """What the vendor's image of a version has and no index: stand-ins for its PyTorch packages, by their files.

    The plugin's brings what computes on simulated cards, PyTorch itself included; a server's real PyTorch for CPUs lies
    before it on the path.
    """
    modules = {
        str(path.relative_to(PYTORCH)): path.read_text(encoding="utf-8") for path in sorted(PYTORCH.rglob("*.py"))
    }
    return dict((wheel("habana-torch-plugin", version, modules), wheel("habana-torch-dataloader", version)))
