"""Call a release's benchmark client, once for each concurrency: runs in the serving image, on whatever Python is there.

    bench_client.py FOLDER

FOLDER/asked.json says which client, and its arguments; FOLDER/token, where it is there, holds the token that the
instance is asked with. It is put into the environment here, where only this process sees it: what a container was given
in its environment, docker inspect shows. Each result is one line, RESULT and a JSON object of the client's figures.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

# Words that are one token in common vocabularies.
WORDS = "time year people way day man thing woman life child world school state family student group country problem"
MARK = "RESULT "


def write_prompts(asked: dict[str, Any]) -> None:
    """Write conversations of random words, for clients that draw no prompts of their own."""
    draw = random.Random(asked["seed"])  # noqa: S311 - no secret
    count = max(step["requests"] for step in asked["steps"])
    words = WORDS.split()
    prompts = [" ".join(draw.choice(words) for _ in range(asked["input_tokens"])) for _ in range(count)]
    conversations = [{"conversations": [{"value": prompt}, {"value": "yes indeed"}]} for prompt in prompts]
    Path(asked["prompts"]).write_text(json.dumps(conversations), encoding="utf-8")


def call(program: str, arguments: list[str]) -> None:
    """Run the client: a command, or a script of the checkout. Ends as it ends where it fails."""
    command = [sys.executable, program] if program.endswith(".py") else [program]
    # One stream: its bars and its words come in their order.
    status = subprocess.run([*command, *arguments], stderr=subprocess.STDOUT, check=False).returncode
    if status:
        sys.exit(status)


def figures(folder: str) -> dict[str, float]:
    """The numbers of the one result; what was asked and answered stays where it is."""
    (written,) = Path(folder).glob("*.json")
    result = json.loads(written.read_text(encoding="utf-8"))
    return {name: value for name, value in result.items() if isinstance(value, (int, float))}


def main(folder: str) -> None:
    """Measure one concurrency after the other."""
    asked = json.loads(Path(folder, "asked.json").read_text(encoding="utf-8"))
    token = Path(folder, "token")
    if token.exists():
        os.environ["OPENAI_API_KEY"] = token.read_text(encoding="utf-8").strip()
    for step in asked["steps"]:
        Path(step["results"]).mkdir(parents=True)
    if asked["prompts"]:
        write_prompts(asked)
    for number, step in enumerate(asked["steps"]):
        # Another seed for each: a prefix cache would know the prompts.
        call(asked["program"], [*step["arguments"], "--seed", str(asked["seed"] + number)])
        print("\n" + MARK + json.dumps(figures(step["results"])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
