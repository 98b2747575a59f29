"""The command line of the supervisor."""

from __future__ import annotations

import argparse
import sys

from gaudi.base.values import INSTANCE
from gaudi.serving.failure import EngineGone, Failure

from .closing import Closing
from .instance import Supervisor
from .locks import Held
from .settings import Paths, Settings
from .stopping import EXIT_CONFIGURATION, EXIT_STOPPED
from .systemd import say


def clean(instance: str, settings: Settings, paths: Paths) -> int:
    """Stop and remove the container of an instance whose unit is down."""
    supervisor = Supervisor(instance, settings, paths)
    try:
        locks = supervisor.take_locks()
    except Held as held:
        say(f"{supervisor.taken(held)}.", 3)
        return EXIT_CONFIGURATION
    except OSError as failed:
        # Its unit is down, and a full or read-only file system is no reason to let the container run.
        say(f"{supervisor.directory} cannot be locked ({failed.strerror}).", 4)
        locks = None
    try:
        supervisor.state.read_earlier(supervisor.directory / "state.json")
        found = supervisor.container.look()
        if found is None:
            print(f"There is no container of {instance}.")
        else:
            print(supervisor.container.remove(found))
        # Its server listens at ports without keys until it is gone.
        Closing(instance, None).end()
        return EXIT_STOPPED
    except EngineGone as gone:
        print(
            f"The container engine does not answer ({gone}), so the container vllm-{instance} may still be running. "
            "Start the engine (systemctl start docker), then run this again.",
            file=sys.stderr,
        )
        return 1
    except Failure as failed:
        print(failed, file=sys.stderr)
        return 1
    finally:
        if locks is not None:
            locks.close()


def instance_name(text: str) -> str:
    """Accept an instance name, or say what one looks like."""
    if not INSTANCE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an instance name (a-z, 0-9 and -, at most 48 characters)")
    return text


def main(arguments: list[str], paths: Paths | None = None) -> int:
    """Read the command line and do what it says; returns the exit status."""
    parser = argparse.ArgumentParser(description="Run one vLLM instance for systemd.")
    parser.add_argument("action", choices=["run", "clean"], help="run the instance, or remove its stray container")
    parser.add_argument("instance", type=instance_name)
    default = Settings()
    for name, text in (
        ("first-pause", "seconds before the second try; doubled before each further one"),
        ("stall", "seconds without any new output before a start is given up"),
        ("longest-start", "seconds that a start may take; 0: worked out from the plan and earlier starts"),
        ("stop-grace", "seconds for requests in flight when stopping"),
        ("engine-wait", "seconds to wait for a container engine that is gone"),
        ("unhealthy", "seconds a serving instance may not answer"),
    ):
        value = getattr(default, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=float, default=value, metavar="SECONDS", help=f"{text} ({value:g})")
    parser.add_argument("--attempts", type=int, default=default.attempts, help=f"tries in a row ({default.attempts})")
    of_change = default.attempts_of_change
    said = f"tries of a changed plan before the last one that served comes back ({of_change})"
    parser.add_argument("--attempts-of-change", type=int, default=of_change, help=said)
    gib = default.recipes_gib
    said = f"GiB of compiled recipes that no plan uses; beyond that the oldest go ({gib})"
    parser.add_argument("--recipes-gib", type=int, default=gib, metavar="GIB", help=said)
    said = "drop caches before a start where compacted memory has too few free pieces for the driver"
    parser.add_argument("--drop-caches", action="store_true", help=said)
    given = parser.parse_args(arguments)
    chosen = {name: value for name, value in vars(given).items() if name not in ("action", "instance")}
    settings = Settings(**chosen)
    if given.action == "clean":
        return clean(given.instance, settings, paths or Paths())
    return Supervisor(given.instance, settings, paths or Paths()).run()
