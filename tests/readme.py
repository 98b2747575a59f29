"""Run the commands of README.md in order, as a reader would; leave no trace.

    python tests/readme.py          those of README.md
    python tests/readme.py pages    make demo, and those of the pages of docs/ for each task, each command once

Blocks marked ``sh`` are commands; everything else is text or a transcript. What the pages do on a site of the reader's
is done on the demo's node. What the machine looked like before (containers, volumes, networks, processes of ours) is
compared with what it looks like after ``make demo-clean``. The demo runs in a scope named after this checkout, so that
another checkout's demo can stay up on the same engine, and scenarios of this one: what belongs to another scope is no
trace of this demo.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCOPE = f"readme-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"
# Which scope has a container, volume or network, or that all have it: simulator/settings.py.
LABEL = "gaudi-serving.simulator"
SHARED = "image"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> str:
    """All command blocks as one script."""
    return "".join(BLOCK.findall(text))


# The pages of docs/, a task each, in the order in which one comes to them. What installs, upgrades and takes a
# node back is run by scenarios.
PAGES = ("install", "serve", "change", "diagnose", "measure", "batch", "upgrade", "remove")
# What the demo has in the place of a reader's names.
NAMES = {
    "inventories/mysite": "inventories/simulated",
    "instance=chat": "instance=simulated-tiny",
    "gaudi-01": "simulated-gaudi-1",
    "remove=Qwen3-8B": "remove=Simulated-Tiny-Qwen2",
    "input=questions.jsonl": "input=docs/examples/questions.jsonl",
    "output=answers.jsonl": "output=.cache/answers.jsonl",
    "log=FILE": "log=tests/unit/serving/recorded/fail__0.26.0_gaudi2_dp4tp2__qwen3-30b_device_memory.txt",
    "output=cause.json": "output=.cache/cause.json",
    "doctor_output=": "doctor_output=.cache/",
    "doctor_bundle=": "doctor_bundle=.cache/",
    "record_output=": "record_output=.cache/",
}


def once(script: str) -> str:
    """The script without lines that stand in it before: what two pages show is run once."""
    seen = dict.fromkeys(line.partition("  #")[0].rstrip() for line in script.splitlines())
    return "".join(f"{line}\n" for line in seen)


def on_the_demo(script: str) -> str:
    """The commands of a page, for the demo's node."""
    for name, ours in NAMES.items():
        script = script.replace(name, ours)
    return script


def could_be_ours(what: str, scope: str) -> bool:
    """Tell whether the demo could have made something with this scope as its label, empty without one.

    A container that all scopes share is at work for one moment, for whichever of them began.
    """
    return scope in (SCOPE, "") or (scope == SHARED and what != "containers")


# What site.yml says at its end of the cards and links: the verdict, and the page to look at.
ACCEPTED = re.compile(r"cards and links: accepted at \S+, page on the node: /var/lib/gaudi-serving/acceptance\.html")


def unsaid(readme: str, demo: str) -> list[str]:
    """Who does not show the verdict on cards and links with its page: the README's transcript, or the demo's log."""
    return [name for name, text in (("README.md", readme), ("the demo", demo)) if not ACCEPTED.search(text)]


# make demo begins with this command. site.yml follows, which the README types. Both together are a second make demo,
# without the minutes of its change that cannot serve.
SECOND = ".venv/bin/python -m simulator up --describe gaudi2-oam8-bare --buildable --packages\n"
RECAP = re.compile(r"simulated-gaudi-1 : ok=\d+ changed=(\d+) unreachable=0 failed=0 ")


def demo_twice(readme: str) -> str:
    """The README's commands, with the beginning of a second make demo after the first."""
    first = "make demo\n"
    before, found, after = commands(readme).partition(first)
    if not found or "site.yml\n" not in after:
        raise ValueError("README.md has no make demo with site.yml after it")
    return before + first + SECOND + after


def built_again(log: str) -> list[str]:
    """What the run of site.yml after a demo changed, by its log; nothing where it found image and all else."""
    changed = RECAP.search(log)
    if changed is None:
        return ["site.yml did not end well after the demo"]
    building = "[simulated-gaudi-1: image." in log[: changed.end()]
    said = ["site.yml changed something after the demo"] if int(changed[1]) else []
    return said + (["site.yml built the image again after the demo"] if building else [])


def processes() -> list[str]:
    """Processes of the demo: it gives its scope to all of them, in their environment or among their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Some end meanwhile, some are another user's.
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if SCOPE in arguments or f"GAUDI_SIMULATOR_SCOPE={SCOPE}".encode() in (process / "environ").read_bytes():
                found.append(arguments)
    return sorted(found)


def traces() -> dict[str, list[str]]:
    """What a demo could leave behind on the engine and among the processes."""
    scope = f'\t{{{{.Label "{LABEL}"}}}}'
    asked = {
        "containers": ["docker", "ps", "--all", "--format", "{{.Names}}" + scope],
        "volumes": ["docker", "volume", "ls", "--format", "{{.Name}}" + scope],
        "networks": ["docker", "network", "ls", "--format", "{{.Name}}" + scope],
    }
    found = {}
    for what, command in asked.items():
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows = [line.partition("\t") for line in done.stdout.splitlines()]
        found[what] = sorted(name for name, _, label in rows if could_be_ours(what, label))
    return {**found, "processes": processes()}


def of_pages() -> str:
    """The commands of all pages, after a demo."""
    pages = [(ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in PAGES]
    return once("make demo\n. .venv/bin/activate\n" + on_the_demo("".join(map(commands, pages))))


def main(*, pages: bool) -> int:
    """Do as README or pages say; 1 with what the demo did not show, or left behind."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    script = of_pages() if pages else demo_twice(text)
    os.environ["GAUDI_SIMULATOR_SCOPE"] = SCOPE
    # Of what is typed; the demo has logs of its own.
    typed = ROOT / ".cache" / "readme.log"
    typed.unlink(missing_ok=True)
    os.environ["ANSIBLE_LOG_PATH"] = str(typed)
    # A reader types the commands into a shell that no make has started.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        os.environ.pop(name, None)
    before = traces()
    print(script, flush=True)
    subprocess.run(["bash", "-euxo", "pipefail", "-c", script], cwd=ROOT, check=True)
    log = ROOT / ".cache/simulator/scopes" / SCOPE / "site.log"
    wrong = [
        f"{name} does not show the verdict on cards and links with its page"
        for name in unsaid(text, log.read_text(encoding="utf-8"))
    ]
    if not pages:
        wrong += built_again(typed.read_text(encoding="utf-8"))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    # The engine goes on when it was there before: another scope, or the machine's own.
    subprocess.run(["make", "demo-clean"], cwd=ROOT, check=True)
    try:
        after = traces()
    except subprocess.CalledProcessError:
        # No engine answers any more: it was the demo's own, and nothing of it can be left.
        return int(bool(wrong))
    left = {
        what: sorted(set(after[what]) - set(before[what])) for what in before if set(after[what]) - set(before[what])
    }
    for what, names in left.items():
        print(f"make demo-clean left {what}: {', '.join(names)}", file=sys.stderr)
    return int(bool(left or wrong))


if __name__ == "__main__":
    sys.exit(main(pages="pages" in sys.argv[1:]))
