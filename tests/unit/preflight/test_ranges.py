"""The ranges of the roles' numbers, what an API key is, and names that begin nearly as ours do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.preflight import keys
from ansible.module_utils.gaudi.preflight import options as rules
from ansible.parsing.dataloader import DataLoader

from action_plugins import role_options as action
from plugin_utils import role_options
from tests.unit.preflight.test_contracts import ROLES, specified

KEY = "abcdefgh01234567"


def ranges(role: Path) -> dict[str, list[float]]:
    file = role / "meta/ranges.yml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}


def test_every_number_has_a_range_that_holds_its_default() -> None:
    offenders = []
    for role in ROLES:
        numbers = {name: option for name, option in specified(role).items() if option["type"] in ("int", "float")}
        offenders += [f"{name} has no range, or is no number" for name in numbers.keys() ^ ranges(role).keys()]
        for name, (lowest, highest) in ranges(role).items():
            default = numbers.get(name, {}).get("default", lowest)
            if not lowest < highest or not lowest <= default <= highest:
                offenders.append(f"{name}: {lowest} to {highest}, default {default}")
    assert not offenders


def judged(**site: Any) -> list[str]:
    return [problem.message for problem in action.judged(role_options.HostOptions(DataLoader(), site))[0]]


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("weights_supply_port", 99999, "a whole number from 1 to 65535"),
        ("weights_supply_port", "0", "a whole number from 1 to 65535"),
        ("vllm_service_attempts", -3, "a whole number from 1 to 100"),
        ("host_tuning_max_memory_share", 101, "a whole number from 1 to 100"),
        ("preflight_image_gib", -0.5, "a number from 0 to 10000"),
        ("preflight_image_gib", float("nan"), "a number from 0 to 10000"),
    ],
)
def test_a_number_out_of_its_range_is_refused(name: str, value: object, form: str) -> None:
    assert judged(**{name: value}) == [f"{name} is {value!r}, but must be {form}."]


@pytest.mark.parametrize("value", [1, "65535", 8730.0])
def test_a_number_in_its_range_is_right(value: object) -> None:
    assert judged(weights_supply_port=value) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([KEY, 12345678901234567890], "[1] is a number"),
        ([""], "[0] is empty"),
        ([KEY + "\n"], "[0] is a text with blanks or line breaks"),
        (["abcdefgh 01234567"], "[0] is a text with blanks or line breaks"),
        (["short"], "[0] is a text of 5 characters"),
        (["schlüsselschlüssel"], "[0] is a text with other characters than ASCII"),
        ([[KEY]], "[0] is no text"),
        ({"a": KEY}, ".a must be a list of keys ("),
        ({"a": [KEY], "b": ["short"]}, ".b[0] is a text of 5 characters"),
        ([f"sha256:{KEY}"], "[0]: A digest of a key is sha256: and 64 hexadecimal digits"),
        (KEY, " must be a list of keys ("),
        (5, " must be a list"),
    ],
)
def test_an_api_key_that_is_none_is_refused_and_not_shown(value: object, said: str) -> None:
    (sentence,) = judged(vllm_service_api_keys=value)
    assert sentence.startswith(f"vllm_service_api_keys{said}")
    assert KEY[:8] not in sentence
    assert "1234567890" not in sentence


@pytest.mark.parametrize(
    "value", [[], {}, [KEY], [KEY, KEY[::-1]], {"chat": [KEY]}, [f"sha256:{'0' * 64} alice until 2027-01-31"]]
)
def test_api_keys_that_are_right(value: object) -> None:
    assert judged(vllm_service_api_keys=value) == []
    assert keys.faults("vllm_service_question", ["x"]) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("vllm_service_api_key", "vllm_service_api_keys"),
        ("vlm_service_api_keys", "vllm_service_api_keys"),
        ("vllmservice_api_keys", "vllm_service_api_keys"),
        ("host_tunning_reboot", "host_tuning_reboot"),
        ("guadi_release", "gaudi_release"),
        ("model_weight_reserve", "model_weights_reserve"),
    ],
)
def test_a_mistyped_name_is_refused(name: str, meant: str) -> None:
    (sentence,) = judged(**{name: "x"})
    assert sentence == f"There is no variable {name}, so nothing reads it. Did you mean {meant}? Correct the name."


@pytest.mark.parametrize("name", ["host_tunning_colour", "vlm_service_colour"])
def test_a_mistyped_role_is_said(name: str) -> None:
    problems, findings, _ = action.judged(role_options.HostOptions(DataLoader(), {name: 1}))
    assert problems == []
    assert findings == [
        f"{name} is set, but there is no such variable. Is the name right? If it is yours, no role reads it."
    ]


@pytest.mark.parametrize(
    "name",
    ["audit_release", "my_gaudi_release", "_vlm_service_x", "serve_options", "weights_root", "service_port", "pages"],
)
def test_names_of_others_are_left_alone(name: str) -> None:
    problems, findings, _ = action.judged(role_options.HostOptions(DataLoader(), {name: 1}))
    assert (problems, findings) == ([], [])


def test_a_range_is_part_of_the_form() -> None:
    option = {"type": "int", "default": 1, "range": [1, 3]}
    assert rules.form(option) == "a whole number from 1 to 3"
    assert rules.faults("x", option, 3) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"caht": [KEY]}, "Did you mean chat? If that is to ask for no keys, say so: chat: []."),
        ({"caht": [KEY], "chat": []}, None),
        ({"chat": [KEY]}, None),
        ([KEY], None),
    ],
)
def test_a_mistyped_instance_does_not_leave_it_open(value: object, said: str | None) -> None:
    sentences = judged(vllm_service_api_keys=value, gaudi_serving_instances=[{"instance": "chat", "model": "m"}])
    assert [sentence.endswith(said) for sentence in sentences if said] == [True] * len(sentences)
    assert len(sentences) == (said is not None)
    assert not any(KEY in sentence for sentence in sentences)
