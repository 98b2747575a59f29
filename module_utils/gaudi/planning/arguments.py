"""Further arguments of a request: what they may say, and what they replace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from ..base.absent import absent
from ..base.checks import mapping, meant, shown, switch
from ..base.refusal import Refusal
from ..base.values import without_accounts
from ..catalogue.surface import ServerSurface, normal
from ..catalogue.typed import TypedOption
from ..request.options import READERS, speculation
from ..rules.draft import Draft

# Options of a request that decide more than one argument: set here, they would contradict the buckets or the cards.
OWNED = {
    "--model": "weights or model",
    "--host": "host",
    "--port": "port",
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    # An instance is as many cards as its tensor parallel size, and one engine; a second copy is a second instance.
    "--pipeline-parallel-size": "tensor_parallel_size",
    "-pp": "tensor_parallel_size",
    "--data-parallel-size": "tensor_parallel_size (data_parallel_size from release 1.23 on)",
    "-dp": "tensor_parallel_size (data_parallel_size from release 1.23 on)",
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--max-num-prefill-seqs": "max_num_prefill_seqs",
    "--max-seq-len-to-capture": "max_seq_len_to_capture",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--block-size": "block_size",
    "--dtype": "dtype",
    "--quantization": "dtype or quantization_config",
    "-q": "dtype or quantization_config",
    "--spec-method": "speculative_config",
    "--spec-model": "speculative_config",
    "--spec-tokens": "speculative_config",
}

# They divide the cards of one node as well.
TENSOR_PARALLEL_INSTEAD = ("--pipeline-parallel-size", "--data-parallel-size")

# Arguments that cannot be chosen, with the reason: they select another engine than that of these cards, a process that
# is not a server, or a server that answers at another place or in another way than the other programs expect. The
# supervisor, the checks after a start and the guard ask over HTTP on the plan's port and paths.
_TLS = (
    "the server speaks plain HTTP: keep it on 127.0.0.1, and put a gateway before it that ends TLS with your "
    "certificate (docs/keys.md shows one)"
)
FIXED = {
    "--device": "hpu is the only device of these images",
    "--headless": "an instance is one server",
    "--api-server-count": "an instance is one server",
    "-asc": "an instance is one server",
    "--models": "the option share_card_with says which models share a server",
    "--config": "a file of arguments could say anything that is checked here: give them one by one",
    "--middleware": "it is code before every route, which could let requests in without a key",
    "--grpc": "the server is asked over HTTP, where it asks for keys; a gRPC server asks nobody",
    "--uds": "the server is asked on its port, not on a socket file",
    "--fd": "the server is asked on its port, not on a socket that somebody hands over",
    "--ssl-keyfile": _TLS,
    "--ssl-certfile": _TLS,
    "--ssl-ca-certs": _TLS,
    "--ssl-cert-reqs": _TLS,
    "--ssl-ciphers": _TLS,
    "--enable-ssl-refresh": _TLS,
}

# Options that take no value, by how their names begin. A few take a word (true or false) as well.
_FLAG = re.compile(
    r"--(no|enable|disable|use|skip|return|guided-decoding-disable)-.*"
    r"|--(allow-credentials|calculate-kv-scales|enforce-eager|fully-sharded-loras|multi-step-stream-outputs"
    r"|ray-workers-use-nsight|speculative-disable-mqa-scorer|split-qkv|trust-remote-code"
    r"|engine-use-ray|worker-use-ray)"
)
_WITH_WORD = (
    "--disable-logprobs-during-spec-decoding",
    "--enable-chunked-prefill",
    "--multi-step-stream-outputs",
    "--use-padding-aware-scheduling",
)
# Options whose value is a whole number, or any number.
_WHOLE = re.compile(
    r"--(seed|lora-extra-vocab-size|long-prefill-token-threshold|max-(cpu-loras|log-len|logprobs|loras|lora-rank)"
    r"|max-(long-partial-prefills|num-partial-prefills|parallel-loading-workers|prompt-adapters|prompt-adapter-token)"
    r"|num-(gpu-blocks-override|lookahead-slots|speculative-tokens)|prefill-chunk-size|tokenizer-pool-size)"
)
_NUMBER = re.compile(r"--(cpu-offload-gb|rope-theta|scheduler-delay-factor|swap-space)")

# Arguments that are an option of a request and nothing else: given as arguments, they are read as that option.
OPTIONS = {
    "--served-model-name": "served_model_name",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--num-scheduler-steps": "scheduler_steps",
    "--trust-remote-code": "trust_remote_code",
    "--enforce-eager": "enforce_eager",
}

# A key on a command line can be read by every process of the node.
SECRETS = ("--api-key", "--hf-token", "--ssl-keyfile-password")
# A key of JSON that holds a secret, such as s3_secret_access_key of --model-loader-extra-config.
SECRET_KEY = re.compile(r"api_?key|secret|passw(or)?d|credential", re.IGNORECASE)

_SHORT = re.compile(r"-[A-Za-z][A-Za-z-]*")


def is_option(token: str) -> bool:
    """Whether a token of a command line is an option rather than a value."""
    return token.startswith("--") or bool(_SHORT.fullmatch(token.partition("=")[0]))


def value_in(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option of a command line, the last one as the server reads it; None where it is not there."""
    found = None
    for token, following in zip(arguments, [*arguments[1:], ""]):
        _, equals, value = token.partition("=")
        if normal(token) == option:
            found = value if equals else following
    return found


def options_in_arguments(request: Mapping[str, object], further: Mapping[str, str]) -> dict[str, object]:
    """A request in which each of the ``extra_args`` that has an option of its own became that option.

    ``further`` has those of the release beside OPTIONS. Raises Refusal when the option is given as well, with another
    value.
    """
    result = dict(request)
    tokens = request.get("extra_args")
    if not isinstance(tokens, (list, tuple)) or not all(isinstance(token, str) for token in tokens):
        return result
    rest: list[str] = []
    queue = list(tokens)
    while queue:
        token = queue.pop(0)
        name = token.partition("=")[0]
        option, on = _option_of(normal(name), {**OPTIONS, **further})
        if option is None:
            rest.append(token)
            continue
        found: object = on if READERS[option] is switch else _value(token, option, queue)
        _check_said(name, option, found, result.get(option))
        result[option] = found
    result["extra_args"] = rest
    return result


def _option_of(name: str, known: Mapping[str, str]) -> tuple[str | None, bool]:
    """The option that an argument stands for, and whether it turns a switch on; only switches have a --no- form."""
    if name in known:
        return known[name], True
    option = known.get(f"--{name[5:]}") if name.startswith("--no-") else None
    return (option if option is not None and READERS[option] is switch else None), False


def _value(token: str, option: str, queue: list[str]) -> object:
    """What stands behind the equals sign of an argument or follows it in ``queue``; a mapping is written as JSON."""
    name, _, value = token.partition("=")
    if not value and not queue:
        raise Refusal(
            "argument_without_value",
            f"extra_args ends with {name}, which needs a value. Use the option {option}.",
        )
    value = value or queue.pop(0)
    if READERS[option] not in (mapping, speculation):
        return value
    try:
        return json.loads(value)
    except ValueError:
        # The reader of the option says what it takes.
        return value


def _check_said(name: str, option: str, found: object, said: object) -> None:
    """Refuse an argument whose option is given as well: with another value, or in other words."""
    if READERS[option] is switch and isinstance(said, str) and said.lower() in ("true", "yes"):
        raise Refusal(
            "argument_repeats_option",
            f"extra_args has {name}, and {option} is {shown(said)}: both say the same. Keep the option, and take "
            f"{name} out of extra_args.",
        )
    if said is not None and str(said) != str(found):
        raise Refusal(
            "argument_contradicts_option",
            f"extra_args has {name} {shown(found)}, but {option} is {shown(said)}. Keep one.",
        )


def join_arguments(draft: Draft, extra: Sequence[str], surface: ServerSurface) -> None:
    """Check ``extra_args`` and let it override earlier arguments; its tokens are appended as they stand."""
    if extra and not is_option(extra[0]):
        if absent(extra[0]) is not None:
            raise Refusal("not_offered", f"extra_args begins with {shown(extra[0])}. {absent(extra[0])}")
        raise Refusal(
            "not_an_option",
            f"extra_args begins with {shown(extra[0])}, which is no option. Begin with one such as --seed.",
        )
    replaced = set()
    for token, values in _grouped(extra):
        name = normal(token)
        _refuse_secrets(name, token, values)
        sentence = absent(name, values[0] if values else None)
        if sentence is not None and name not in TENSOR_PARALLEL_INSTEAD:
            raise Refusal("not_offered", f"extra_args has {shown(name)}. {sentence}")
        if name in OWNED:
            raise Refusal(
                "argument_bypasses_option",
                f"extra_args has {name}, which other values depend on. Use the option {OWNED[name]}.",
            )
        if name in FIXED:
            raise Refusal("argument_fixed", f"extra_args has {name}, but {FIXED[name]}. Leave it out.")
        surface.check_option(token)
        _check_values(name, values, surface.typed(token))
        replaced.add(name)
    draft.arguments[:] = [entry for entry in draft.arguments if normal(entry[0]) not in replaced]
    for name in sorted(replaced):
        draft.note(f"arguments.{name}", None, "extra-args", "the request", {"extra_args": list(extra)})


def _refuse_secrets(name: str, token: str, values: Sequence[str]) -> None:
    """Refuse an option that holds a secret, or an address with an account."""
    if name in SECRETS:
        raise Refusal(
            "secret_in_arguments",
            f"extra_args has {name}: every process of the node can read it there. Give the key to the service role.",
        )
    if any(without_accounts(value) != value for value in values):
        raise Refusal(
            "account_in_argument",
            f"extra_args has {name} with an address that has an account: every process of the node can read it "
            f"there. Name an address without one, such as that of a proxy that adds it.",
        )
    if any(SECRET_KEY.search(key) for key in _keys(token, values)):
        raise Refusal(
            "secret_in_arguments",
            f"extra_args has {name} with a key that names a secret: every process of the node can read it there. "
            f"Leave it to your image, or to a file of its own.",
        )


def _keys(token: str, values: Sequence[str]) -> Iterator[str]:
    """Yield the keys of JSON values, and those that an option names behind a dot."""
    yield from token.partition("=")[0].split(".")[1:]
    waiting = [_json(value) for value in values]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield from part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _json(text: str) -> object:
    """Return what a text means as JSON; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _grouped(extra: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Options with the values that follow them, or stand behind their equals sign."""
    groups: list[tuple[str, list[str]]] = []
    for token in extra:
        if is_option(token):
            _, equals, value = token.partition("=")
            groups.append((token, [value] if equals else []))
        else:
            groups[-1][1].append(token)
    return groups


def _check_values(name: str, values: Sequence[str], typed: TypedOption | None) -> None:
    """Refuse what the server's parser would end with: a value too many, too few, or of another type.

    typed is what the release file says of the option; without it the name tells.
    """
    flag = _FLAG.fullmatch(name) is not None if typed is None else typed.type == "flag"
    if flag:
        if values and (typed is not None or name not in _WITH_WORD):
            raise Refusal(
                "argument_takes_no_value",
                f"extra_args has {name} with the value {shown(values[0])}, but it takes none. Remove it.",
            )
        return
    if not values:
        raise Refusal("argument_without_value", f"extra_args has {name} without a value. Write it after the option.")
    needed = _wrong_by_name(name, values[0]) if typed is None else typed.wrong(values[0])
    if needed is not None:
        raise Refusal("wrong_argument_value", f"extra_args has {name} {shown(values[0])}, but it takes {needed}.")


def check_planned(draft: Draft, surface: ServerSurface) -> None:
    """Refuse options of a request whose argument the server's parser, or its platform, would end with."""
    for name, *values in draft.arguments:
        typed = surface.typed(name)
        needed = typed.wrong(values[0]) if typed is not None and values else None
        if needed is not None:
            raise Refusal(
                "wrong_option_value",
                f"{name[2:].replace('-', '_')} is {shown(values[0])}, but {name} of release {surface.release} takes "
                f"{needed}. Correct it.",
            )


# Parsers are chosen by name; a file of the site's own can bring more of them.
PARSERS = {"--tool-call-parser": "--tool-parser-plugin", "--reasoning-parser": "--reasoning-parser-plugin"}


def check_parsers(draft: Draft, extra: Sequence[str], surface: ServerSurface) -> None:
    """Refuse the name of a parser that the server does not have: it would not start."""
    words = [*(word for entry in draft.arguments for word in entry), *extra]
    for name, plugin in PARSERS.items():
        asked, typed = value_in(words, name), surface.typed(name)
        if asked is None or typed is None or not typed.choices or asked in typed.choices:
            continue
        if value_in(words, plugin) is None:
            advice = meant(asked, typed.choices, otherwise=f"It has {', '.join(typed.choices)}.")
            raise Refusal(
                "unknown_parser",
                f"{name[2:].replace('-', '_')} is {shown(asked)}, which the server of release {surface.release} does "
                f"not have: it would not start. {advice}",
            )


def _wrong_by_name(name: str, value: str) -> str | None:
    """What an option's name requires, if the value does not fit; None if it fits, or if that is unknown."""
    if name in ("--limit-mm-per-prompt", "--mm-processor-kwargs"):
        return None if _is_mapping(value) else 'JSON such as {"image":5}, or pairs such as image=5,video=2'
    for pattern, word, read in ((_WHOLE, "a whole number", int), (_NUMBER, "a number", float)):
        if pattern.fullmatch(name):
            try:
                read(value)
            except ValueError:
                return word
    return None


def _is_mapping(value: str) -> bool:
    """Whether the parsers of the forks take it: JSON of a mapping, or whole numbers by name (optional_type there)."""
    try:
        if value.startswith("{"):
            return isinstance(json.loads(value), dict)
        return all(name and int(count) >= 0 for name, count in (pair.split("=") for pair in value.split(",")))
    except ValueError:
        return False


def check_environment(draft: Draft, surface: ServerSurface) -> None:
    """A plan with a value its release does not know is our own mistake: say which file to repair."""
    unknown = [name for name in draft.environment if not surface.reads(name)]
    options = [option for option, *_ in draft.arguments if not surface.knows(option)]
    if unknown or options:
        raise Refusal(
            "unknown_to_release",
            f"The plan sets {', '.join(unknown + options)}, which release {surface.release} does not know. Leave the "
            f"option out that asks for it, or complete catalog/releases/{surface.release}.yml.",
        )


def media_limits(words: Sequence[str]) -> dict[str, int]:
    """How many pictures, films and sounds a prompt may have, by a server's command line; empty where it says none.

    The last word counts, as JSON or as "image=2,video=1"; of one that is neither nothing is known.
    """
    said = ""
    for word, after in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if normal(name) == "--limit-mm-per-prompt":
            said = value if equals else after
    try:
        read = json.loads(said) if said.startswith("{") else dict(pair.split("=") for pair in said.split(",") if said)
        return {kind: int(read[kind]) for kind in ("audio", "image", "video") if int(read.get(kind, 0)) > 0}
    except (ValueError, TypeError):
        return {}
