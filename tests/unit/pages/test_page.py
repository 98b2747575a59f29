"""The page: everything of a plan is on it, in 100 columns, and nothing on it can break the terminal."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.cards.text import WIDTH
from ansible.module_utils.gaudi.pages.page import describe_plan, page
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all

from action_plugins import serving_plan
from plugin_utils import catalogue_files

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGIES = ROOT / "docs" / "examples" / "topologies"


def topology(name: str) -> dict[str, Any]:
    return serving_plan.read_topology(str(TOPOLOGIES / f"{name}.yml"))


@functools.cache
def release_file(name: str) -> dict[str, Any]:
    """A release of the catalogue, which takes longer to read than to plan with."""
    return catalogue_files.load_checked("release", catalogue_files.resolve("releases", "release", name))


@functools.cache
def model_file(name: str) -> dict[str, Any]:
    """A model of the catalogue."""
    return catalogue_files.load_checked("model", catalogue_files.resolve("models", "model", name))


@functools.cache
def cards_file() -> dict[str, Any]:
    """The card types of the catalogue."""
    return catalogue_files.load_checked("cards", catalogue_files.CATALOG / "cards.yml")


def plans(release: str, requests: list[dict[str, Any]], node: dict[str, Any]) -> list[dict[str, Any]]:
    asked = [name for request in requests for name in [request.get("model"), *request.get("share_card_with", [])]]
    models = {name: model_file(name) for name in asked if name in catalogue_files.names("models")}
    catalogue = Catalogue.from_mappings(release_file(release), models, cards_file())
    made: list[dict[str, Any]] = plan_all(requests, catalogue, node, weights_root="/data/models")
    return made


def wrong(text: str, plan: dict[str, Any]) -> list[str]:
    """The lines of a page that are too long or end in blanks, and the variables of a plan that it lacks."""
    lines = text.splitlines()
    # What is copied from the page is in one piece, however long. Ansible shows text with blanks at the end of a line as
    # one quoted line.
    found = [line for line in lines if (len(line) > WIDTH and " " in line.strip()) or line != line.rstrip()]
    return found + [each for each in plan["environment"] if f"  {each}={plan['environment'][each]}\n" not in text]


NODES = ("hl-225-two-sockets", "hl-288e-mixed-slots", "hl-288-without-smt")


@pytest.mark.parametrize("turn", range(len(NODES)))
def test_every_model_can_be_planned_and_shown(turn: int) -> None:
    """Each model on one of the nodes."""
    here = topology(NODES[turn])
    third = {**here, "cards": [{**card, "name": "HL-325"} for card in here["cards"]]}
    offenders: dict[str, Any] = {}
    for name in catalogue_files.names("models")[turn :: len(NODES)]:
        entry = model_file(name)
        node = here if "gaudi2" in entry.get("validated", {}).get("generations", ["gaudi2"]) else third
        for release in entry["releases"]:
            (plan,) = plans(release, [{"instance": "x", "model": name}], node)
            if found := plan.get("refused") or wrong(page([plan], node), plan):
                offenders[f"{name} on {release}"] = found
    assert offenders == {}


def test_the_command_on_the_page_is_the_command() -> None:
    request = {"model": "qwen2.5-vl-7b-instruct", "extra_args": ["--chat-template", "/t/with blank; $(x).jinja"]}
    node = topology("hl-225-two-sockets")
    (plan,) = plans("1.22", [request], node)
    text = describe_plan(plan).partition("Command line\n")[2].partition("\n\n")[0]
    assert shlex.split(text.replace("\\\n", " ")) == [*plan["cpu_binding"], *plan["arguments"]]
    assert all(line.endswith(" \\") for line in text.splitlines()[:-1])


def test_cards_are_marked_with_who_gets_them() -> None:
    node = topology("hl-225-two-sockets")
    text = page(
        plans(
            "1.22",
            [{"instance": "one", "model": "qwen3-8b"}, {"instance": "two", "model": "qwq-32b", "port": 30002}],
            node,
        ),
        node,
    )
    assert text.count("for one") == text.count("for two") == 2


def test_weights_that_are_only_a_path_have_no_memory_to_show() -> None:
    node = topology("hl-225-two-sockets")
    text = page(plans("1.22", [{"weights": "/data/models/x"}], node), node)
    assert "/data/models/x" in text
    assert "Memory of each card" not in text


def test_cards_that_are_reserved_are_marked_with_who_holds_them() -> None:
    node = topology("hl-225-two-sockets")
    text = page(plans("1.22", [{"model": "qwen3-8b"}], node), node, {"7": "stopped-one", "0": "other"})
    assert text.count("for stopped-one") == 1
    # What would get a card is more to the point than who has it: the plan was made knowing.
    assert "for other" not in text


def test_a_refusal_is_a_section_of_its_own() -> None:
    node = topology("hl-225-two-sockets")
    text = page(plans("1.22", [{"model": "qwen3-8b", "tensor_parallel_size": 16}, {"model": "qwen3-8b"}], node), node)
    assert "request 1: refused" in text
    assert "qwen3-8b: http://127.0.0.1:30001" in text


def test_several_requests_are_listed_before_they_are_explained() -> None:
    node = topology("hl-225-two-sockets")
    requests: list[dict[str, Any]] = [
        {"instance": "one", "model": "qwen3-8b", "port": 30009},
        {"model": "qwq-32b"},
        {"model": "qwen3-8b", "modules": [2, 3]},
    ]
    text = page([*plans("1.22", requests, node), {"instance": None, "refused": "No."}], node)
    overview = text.partition("The requests\n============\n\n")[2].partition("\n\n")[0]
    assert overview.splitlines() == [
        "  one                  modules 0, 1, http://127.0.0.1:30009",
        "  request 2, qwq-32b   modules 4, 5, http://127.0.0.1:30001",
        "  request 3, qwen3-8b  modules 2, 3, http://127.0.0.1:30001",
        "  request 4            refused",
    ]
    assert "request 4: refused" in text


def test_a_refused_request_goes_by_the_name_it_was_given() -> None:
    node = topology("hl-225-two-sockets")
    requests: list[dict[str, Any]] = [{"model": "qwen3-8b"}, {"model": "qwen3-8b", "tensor_parallel_size": 16}]
    text = page(plans("1.22", requests, node), node, names=["qwen3-8b", "qwen3-8b"])
    assert "  request 2, qwen3-8b  refused" in text
    assert "request 2, qwen3-8b: refused" in text


def test_a_card_may_answer_several_questions() -> None:
    node = topology("hl-225-two-sockets")
    text = page(plans("1.22", [{"model": "qwen3-8b"}, {"model": "qwq-32b"}, {"model": "qwen3-8b"}], node), node)
    assert text.count("for qwen3-8b or qwq-32b ") == 2


def test_nothing_asked_for_shows_the_node_and_how_to_ask() -> None:
    node = topology("hl-225-two-sockets")
    text = page([], node)
    assert "NUMA node 0" in text
    assert "Nothing was asked for." in text
    assert page([], None).startswith("Nothing was asked for.")


def test_notes_of_the_catalogue_stand_with_the_plan() -> None:
    node = topology("hl-225-two-sockets")
    notes = {"qwen2.5-vl-7b-instruct": ["Large pictures need memory."], "qwen3-8b": ["Never shown."]}
    text = page(plans("1.22", [{"model": "qwen2.5-vl-7b-instruct"}], node), node, notes=notes)
    assert "Notes\n  * Large pictures need memory.\n" in text
    assert "Never shown" not in text


def test_what_must_be_there_is_said() -> None:
    node = topology("hl-288e-mixed-slots")
    text = page(plans("deepseek-r1", [{"model": "deepseek-r1-0528"}], node), node)
    there = text.partition("What must be there\n")[2].partition("\n\n")[0]
    for words in ("DeepSeek-R1-0528-G2, 688.6 GB", "converted (fp8_block)", "24 files", "host NICs"):
        assert words in there


def test_what_is_pinned_stands_with_its_plan() -> None:
    node = topology("hl-225-two-sockets")
    both = plans("1.22", [{"model": "qwen3-8b"}, {"model": "qwen3-14b"}], node)
    text = page(both, node, pins=[["weights pinned by commit only"], []])
    assert text.count("What is pinned\n  * weights pinned by commit only\n") == 1


def test_an_ipv6_address_is_one_in_its_url() -> None:
    node = topology("hl-225-two-sockets")
    assert "http://[::1]:30001" in page(plans("1.22", [{"model": "qwen3-8b", "host": "::1"}], node), node)


def test_a_page_without_a_node_is_only_refusals() -> None:
    text = page([{"instance": "x", "refused": "No.\x1b[31m"}], None)
    assert text.startswith("x: refused\n==========\n\n  No.")
    assert page([{"instance": "x", "refused": "No.", "refused_id": "not_so"}], None).endswith("  No. [not_so]")
    assert "\x1b" not in text


def test_long_lists_of_shapes_are_cut_short() -> None:
    node = topology("hl-288e-mixed-slots")
    text = page(plans("1.21", [{"model": "qwq-32b-long-context"}], node), node)
    assert "128 256 ... 23936  (187 values)" in text
    assert len(text.splitlines()) < 230


def test_values_are_explained_by_what_went_in() -> None:
    node = topology("hl-225-two-sockets")
    text = page(plans("1.22", [{"model": "qwen3-8b"}], node), node)
    assert "VLLM_DECODE_BLOCK_BUCKET_MAX=1536 <- input_max=4096, output_max=2048, decode_bs_max=32," in " ".join(
        text.split()
    )
    assert "(value " not in text
