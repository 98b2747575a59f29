#!/usr/bin/python3
"""Stand in for lsmod, modinfo and modprobe: the real tool's answer, and the described driver's modules.

A container cannot load modules, and /proc/modules is the kernel's. Which tool it is, is its name. Modules of the driver
are loaded and unloaded in the node's document; the cards come and go with the module habanalabs. Where
``/etc/gaudi-simulator/secure-boot`` lies, the kernel refuses them as it does modules whose key nobody enrolled; where
``/etc/gaudi-simulator/in-use`` lies, none goes. A module whose file has no content is "Invalid argument", to modprobe
and to modinfo, as it was recorded.
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
SECURE_BOOT = Path("/etc/gaudi-simulator/secure-boot")
IN_USE = Path("/etc/gaudi-simulator/in-use")
DKMS = Path("/var/lib/gaudi-simulator/dkms.json")
KERNEL = Path("/proc/sys/kernel/osrelease")
LIBRARY = Path("/lib/modules")
# Name, size in bytes, users: as lsmod showed them with 1.23.0. habanalabs_compat came with 1.21.
MODULES = [
    ("habanalabs_ib", 98304, "0"),
    ("habanalabs_en", 69632, "0"),
    ("habanalabs_cn", 864256, "1 habanalabs_en"),
    ("habanalabs", 2248704, "0"),
    ("habanalabs_compat", 16384, "1 habanalabs"),
]
# Before 1.21 (catalog/driver.yml). Since then it is the order above.
OLD_ORDER = ["habanalabs", "habanalabs_cn", "habanalabs_ib", "habanalabs_en"]


def modules(node: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return the modules of the described driver that are loaded: all with it, unless modprobe said otherwise."""
    names = node["driver"].get("modules", of_release(node["driver"]["version"]) if node["driver"]["loaded"] else [])
    return [entry for entry in MODULES if entry[0] in names]


def of_release(version: str) -> list[str]:
    """Return the modules that a driver consists of, in the order in which they can be unloaded; it changed at 1.21."""
    release = tuple(int(part) for part in version.split("-")[0].split("."))
    return [name for name, *_ in MODULES] if release >= (1, 21, 0) else OLD_ORDER


def built() -> str | None:
    """Return the version of the driver that DKMS has installed for the running kernel; None where there is none."""
    registered = json.loads(DKMS.read_text(encoding="utf-8")) if DKMS.exists() else {}
    kernel = KERNEL.read_text(encoding="ascii").strip()
    return next((module.partition("/")[2] for module, kernels in registered.items() if kernel in kernels), None)


def file_of(name: str) -> Path:
    """Return the file that DKMS installs of a module for the running kernel."""
    return LIBRARY / KERNEL.read_text(encoding="ascii").strip() / "updates" / "dkms" / f"{name}.ko"


def is_empty(name: str) -> bool:
    """Whether the file of a module of the driver has no content."""
    if name not in {each for each, *_ in MODULES}:
        return False
    file = file_of(name)
    return file.exists() and not file.stat().st_size


def load(node: dict[str, Any], name: str) -> str:
    """Load a module into the document; returns why not, or nothing."""
    version, there = built(), [entry[0] for entry in modules(node)]
    if name in there:
        return ""
    if version is None or name not in of_release(version):
        kernel = KERNEL.read_text(encoding="ascii").strip()
        return f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{kernel}"
    if is_empty(name):
        return f"modprobe: ERROR: could not insert '{name}': Invalid argument"
    if SECURE_BOOT.exists():
        return f"modprobe: ERROR: could not insert '{name}': Key was rejected by service"
    below = of_release(version)[of_release(version).index(name) + 1 :]
    if not set(below) <= set(there):
        return f"modprobe: ERROR: could not insert '{name}': Unknown symbol in module, or unknown parameter (see dmesg)"
    node["driver"]["modules"] = [*there, name]
    if name == "habanalabs":
        # What it says of itself is the release and a hash, which nobody knows of this one.
        said = f"{version.partition('-')[0]}-{node['driver']['version'].partition('-')[2]}"
        node["driver"].update(loaded=True, version=said, nic_version=said)
    return ""


def unload(node: dict[str, Any], name: str) -> str:
    """Unload a module from the document; returns why not, or nothing."""
    there = [entry[0] for entry in modules(node)]
    if name not in there:
        return f"modprobe: FATAL: Module {name} is not currently loaded."
    if IN_USE.exists() or name != next(each for each in of_release(node["driver"]["version"]) if each in there):
        return f"modprobe: FATAL: Module {name} is in use."
    there.remove(name)
    node["driver"].update(modules=there, loaded="habanalabs" in there)
    return ""


def modprobe(node: dict[str, Any], arguments: list[str]) -> int:
    """Load or unload a module of the driver, and have the cards follow."""
    before = node["driver"]["loaded"]
    said = unload(node, arguments[1]) if arguments[0] == "--remove" else load(node, arguments[0])
    if said:
        print(said, file=sys.stderr)
        return 1
    NODE_DOCUMENT.write_text(json.dumps(node, indent=1) + "\n", encoding="utf-8")
    if node["driver"]["loaded"] != before:
        subprocess.run(["systemctl", "restart", "gaudi-simulator.service"], check=True)
    return 0


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


def main() -> int:
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
    elif called == "modinfo" and (name := next((word for word in arguments[-1:] if is_empty(word)), "")):
        print(f"filename:       {file_of(name)}")
        print(f"modinfo: ERROR: could not get modinfo from '{name}': Invalid argument", file=sys.stderr)
        return 1
    elif node is not None and called == "modinfo" and (answer := modinfo(node, arguments)) is not None:
        print(answer)
    elif node is not None and called == "modprobe" and arguments and arguments[-1] in {name for name, *_ in MODULES}:
        return modprobe(node, arguments)
    else:
        os.execv(real, [called, *arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main())
