"""A release's surface: the arguments and variables its server knows. Nothing else is ever passed on."""

from __future__ import annotations

import functools
import re

from ..base.absent import absent
from ..base.checks import shown
from ..base.refusal import Refusal
from ..base.values import without_accounts
from .entries import ReleaseEntry
from .typed import TypedOption

# Variable names reserved for the server and the cards; an unknown name with such a prefix is a mistake.
CHECKED = re.compile(r"(VLLM_|PT_HPU|HABANA_|HLS_|INC_|QUANT_CONFIG|EXPERIMENTAL_WEIGHT|RAY_)")

# Variables that would change which programs or libraries run in the container. With the last two, vllm serve has a
# server in Rust answer in the place of Python's, which the guard is part of (vllm/entrypoints/cli/serve.py, 00a5fdd20).
DENIED = (
    *("LD_PRELOAD", "LD_AUDIT", "PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "BASH_ENV", "ENV", "IFS"),
    *("VLLM_USE_RUST_FRONTEND", "VLLM_RUST_FRONTEND_PATH"),
)
SECRET = re.compile(r"(API_KEY|TOKEN$|_TOKEN_|SECRET|PASSWORD|PASSWD|CREDENTIAL|_HEADERS$)")


def normal(option: str) -> str:
    """``--distributed_executor_backend`` and ``--distributed-executor-backend`` are one option to vLLM's parser."""
    name = option.split("=", 1)[0]
    return name.replace("_", "-") if name.startswith("--") else name


@functools.lru_cache(maxsize=32)
def _normal(options: frozenset[str]) -> frozenset[str]:
    """Every plan looks at the surface of its release several times."""
    return frozenset(map(normal, options))


class ServerSurface:
    """What one release's server knows."""

    def __init__(self, release: ReleaseEntry) -> None:
        self._release = release.name
        self._options = _normal(release.arguments)
        self._variables = release.variables
        self._typed = release.typed_arguments

    def knows(self, option: str) -> bool:
        """Whether the server's parser has an option (or its --no- form)."""
        name = normal(option)
        return name in self._options or (name.startswith("--no-") and f"--{name[5:]}" in self._options)

    def typed(self, option: str) -> TypedOption | None:
        """What an option takes, by any spelling of its long name; None where the release file does not say."""
        name = normal(option)
        negative = self._typed.get(f"--{name[5:]}") if name.startswith("--no-") else None
        return self._typed.get(name) or negative

    def reads(self, variable: str) -> bool:
        """Whether a variable has an effect; names without a reserved prefix belong to other libraries and count."""
        return variable in self._variables or not CHECKED.match(variable)

    def check_variable(self, variable: str, value: str) -> None:
        """Refuse variables that change what runs, that ask for a missing feature, or that hold a secret."""
        if variable in DENIED:
            raise Refusal(
                "variable_denied",
                f"extra_environment sets {variable}, which changes what runs in the container. Leave it to your image.",
            )
        sentence = absent(variable, value)
        if sentence is not None:
            raise Refusal("not_offered", f"extra_environment sets {variable}. {sentence}")
        if SECRET.search(variable):
            raise Refusal(
                "secret_in_environment",
                f"extra_environment sets {variable}: secrets never go through the environment, where docker inspect "
                f"shows them. Give it to the service role as a file.",
            )
        # A proxy may be named without a scheme.
        if without_accounts(value) != value or (variable.lower().endswith("_proxy") and "@" in value):
            raise Refusal(
                "account_in_environment",
                f"extra_environment sets {variable} to an address that has an account, and docker inspect shows "
                f"environments. Name an address without one, such as that of a proxy that adds it.",
            )

    def check_option(self, option: str) -> None:
        """Refuse an option the release does not know."""
        if not self.knows(option):
            raise Refusal(
                "unknown_to_release",
                f"extra_args has {shown(option)}, which release {self._release} does not know: its server would not "
                f"start. Remove it.",
            )

    @property
    def release(self) -> str:
        """The release's name, for messages."""
        return self._release
