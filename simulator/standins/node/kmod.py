#!/usr/bin/python3
"""Stand in for lsmod and modinfo: the real tool's answer, and the described driver's modules.

A container cannot load modules, and /proc/modules is the kernel's. Which tool it is, is its name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

NODE_DOCUMENT = Path("/etc/gaudi-simulator/node.json")
MODULES_FILE = Path("/proc/modules")
# Name, size in bytes, users: as lsmod showed them with 1.23.0. habanalabs_compat came with 1.21.
MODULES = [
    ("habanalabs_ib", 98304, "0"),
    ("habanalabs_en", 69632, "0"),
    ("habanalabs_cn", 864256, "1 habanalabs_en"),
    ("habanalabs", 2248704, "0"),
    ("habanalabs_compat", 16384, "1 habanalabs"),
]


def modules(node: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return the modules of the described driver; none when it is not loaded."""
    if not node["driver"]["loaded"]:
        return []
    release = tuple(int(part) for part in node["driver"]["version"].split("-")[0].split("."))
    return [entry for entry in MODULES if release >= (1, 21, 0) or entry[0] != "habanalabs_compat"]


def lsmod(node: dict[str, Any], real: str) -> str:
    """Return the real listing, which may be empty, with the simulated modules under its header."""
    header, _, rest = (real or "Module                  Size  Used by\n").partition("\n")
    return "\n".join([header, *(f"{name:<19} {size:8d}  {used}" for name, size, used in modules(node)), rest])


def modinfo(node: dict[str, Any], arguments: list[str]) -> str | None:
    """Return what modinfo says of a simulated module, None where the question is not about one."""
    fields = {"-F", "--field"}
    field = arguments[1] if len(arguments) > 1 and arguments[0] in fields else None
    if not arguments or arguments[-1] not in {name for name, _, _ in modules(node)}:
        return None
    facts: dict[str, str] = {
        "description": "Simulated: there is no such module on this machine",
        "version": node["driver"]["version"],
    }
    if field is not None:
        return facts.get(field, "")
    return "\n".join(f"{key + ':':<16}{value}" for key, value in facts.items())


def main() -> None:
    """Answer as the tool this program is called as."""
    called, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    real = f"/usr/local/lib/gaudi-simulator/kmod/{called}"
    node = json.loads(NODE_DOCUMENT.read_text(encoding="utf-8")) if NODE_DOCUMENT.exists() else None
    if node is not None and called == "lsmod" and not arguments:
        # A kernel built without modules has no /proc/modules, and the real lsmod fails on it.
        listing = (
            subprocess.run([real], check=True, capture_output=True, text=True).stdout if MODULES_FILE.exists() else ""
        )
        print(lsmod(node, listing), end="")
    elif node is not None and called == "modinfo" and (answer := modinfo(node, arguments)) is not None:
        print(answer)
    else:
        os.execv(real, [called, *arguments])


if __name__ == "__main__":
    main()
