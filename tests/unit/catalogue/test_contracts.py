"""Catalogue, playbooks and the table in the documentation belong together; none may be ahead of the others."""

from __future__ import annotations

import re

import pytest

from plugin_utils import releases
from tests.unit.catalogue.documentation import PLAYBOOKS, ROOT, cards, models, playbook_name, table, table_in

MODELS = models()
NAMES = sorted(MODELS)

# The models of the manuals, and the cards the manuals' own commands and lists give them. A further model needs no
# line here.
CARDS = {
    "bge-large-zh-v1.5": 1,
    "bge-m3": 1,
    "bge-reranker-large": 1,
    "bge-reranker-v2-m3": 1,
    "deepseek-r1-0528": 8,
    "deepseek-r1-671b": 8,
    "deepseek-r1-distill-llama-70b": 4,
    "deepseek-r1-distill-llama-8b": 1,
    "deepseek-r1-distill-qwen-32b": 2,
    "gte-modernbert-base": 1,
    "gte-reranker-modernbert-base": 1,
    "llama-2-70b": 8,
    "llama-2-70b-chat": 8,
    "llama-2-7b": 1,
    "llama-2-7b-chat": 1,
    "mistral-7b-instruct-v0.3": 1,
    "mixtral-8x7b-instruct-v0.1": 2,
    "qwen2-72b-instruct": 4,
    "qwen2-audio-7b-instruct": 1,
    "qwen2-vl-7b-instruct": 1,
    "qwen2.5-7b-instruct": 1,
    "qwen2.5-omni-7b": 1,
    "qwen2.5-vl-7b-instruct": 1,
    "qwen3-8b": 2,
    "qwen3-coder-480b-a35b-instruct-fp8": 8,
    "qwen3-vl-30b-a3b-instruct": 1,
    "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic": 1,
    "qwq-32b": 2,
    "qwq-32b-long-context": 8,
}


# All of them have this text: tests/lint.sh lints one of them.
PLAYBOOK = """---
- name: Serve {}
  ansible.builtin.import_playbook: serve.yml
  vars:
    serve_model: {}
"""
RELEASE = """\
    # The catalogue entry is for this release, whatever the inventory says.
    gaudi_release: {}
"""


def test_every_model_of_the_manuals_is_there() -> None:
    assert sorted(set(CARDS) - set(NAMES)) == []


def test_every_model_has_its_playbook(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            path = PLAYBOOKS / playbook_name(name)
            assert path.is_file(), f"playbooks/{playbook_name(name)} is missing"
            # Only a release the inventory's default could not stand in for is written down, and then the entry's best.
            served = MODELS[name]["releases"]
            release = "" if "1.22" in served else RELEASE.format(served[0] if served[0].islower() else f'"{served[0]}"')
            assert path.read_text(encoding="utf-8") == PLAYBOOK.format(MODELS[name]["title"], name) + release


def test_every_playbook_has_its_model() -> None:
    named = {playbook_name(name) for name in NAMES}
    assert {path.name for path in PLAYBOOKS.glob("serve_*.yml")} == named


def test_the_table_in_the_documentation_is_the_catalogue() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert table_in(text) == table(MODELS), (
        "docs/models.md: replace its table; python -m tests.unit.catalogue.documentation"
    )


def test_card_counts_are_those_of_the_manuals(subtests: pytest.Subtests) -> None:
    for name, number in sorted(CARDS.items()):
        with subtests.test(name=name):
            assert cards(MODELS[name]) == number


def test_cards_divide_the_heads(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            shape, number = MODELS[name].get("architecture"), cards(MODELS[name])
            if shape is None:
                assert "architecture, parameters" in " ".join(MODELS[name]["sources"])
                continue
            assert shape["num_attention_heads"] % number == 0
            shared = shape["num_key_value_heads"]
            # vLLM's own V1 engine copies a key-value head to several cards.
            assert number <= shared or ("1.22" not in MODELS[name]["releases"] and number % shared == 0)


def test_every_model_says_where_its_values_come_from(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            named = " ".join(source.partition(":")[0] for source in MODELS[name]["sources"])
            for key in ("options", "architecture", "weights_bytes"):
                assert key in named, (
                    f'catalog/models/{name}.yml: sources lacks a line such as "{key}: where it comes from"'
                )


def test_models_of_the_manuals_name_the_manual_and_the_published_configuration(subtests: pytest.Subtests) -> None:
    for name in sorted(CARDS):
        with subtests.test(name=name):
            sources = " ".join(MODELS[name]["sources"])
            assert re.search(r"options: (manual v1\.\d\d|scripts/docs)", sources)
            assert "architecture: config.json of" in sources


def classes(release: str, key: str) -> set[str]:
    """What a release has classes of its own for, from its file."""
    content = releases.read(release)
    return {str(name) for names in content[key].values() for name in names}


def test_code_beside_the_weights_runs_where_nothing_else_serves_them(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            entry = MODELS[name]
            said = [source for source in entry["sources"] if source.startswith("trust_remote_code:")]
            assert len(said) == 1, f'catalog/models/{name}.yml: sources lacks one line "trust_remote_code: ..."'
            kind = entry.get("architecture", {}).get("model_type")
            known = kind is not None and all(kind in classes(release, "model_types") for release in entry["releases"])
            if entry["trust_remote_code"]:
                assert "config.json has auto_map" in said[0]
                assert not known
            elif known:
                for architecture in re.findall(r"trust_remote_code: (\w+) and ", said[0]):
                    for release in entry["releases"]:
                        assert architecture in classes(release, "architectures")
            else:
                # Neither a class nor whether there is code is known.
                assert any(note.startswith("trust_remote_code is false:") for note in entry["notes"])


def test_models_of_the_manuals_name_their_class(subtests: pytest.Subtests) -> None:
    for name in sorted(CARDS):
        with subtests.test(name=name):
            (said,) = (source for source in MODELS[name]["sources"] if source.startswith("trust_remote_code:"))
            kind = MODELS[name]["architecture"]["model_type"]
            assert re.match(
                rf"trust_remote_code: (\w+ and {kind} are classes of its releases' own|config.json|not known)", said
            )


def test_every_instance_name_a_playbook_makes_is_one(subtests: pytest.Subtests) -> None:
    for name in NAMES:
        with subtests.test(name=name):
            instance = re.sub(r"[^a-z0-9]+", "-", name)
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?", instance)


# The manuals' own commands, read again and typed here again: what a start takes beside the cards.
SHORT = {"dtype": "bfloat16", "input_range": [800, 4096], "output_range": [800, 2048]}
DEEPSEEK = {"dtype": "fp8", "max_num_seqs": 128, "max_model_len": 16384, "host": "127.0.0.1", "port": 8688}
PICTURES = {"dtype": "bfloat16", "host": "127.0.0.1", "port": 8000}
FROM_1_16 = {"dtype": "bfloat16", "block_size": 128}
COMMANDS = {
    # Manual v1.22 and v1.21, 2.2: -b 128 -i 800,1024 -o 400,512.
    "qwen2-72b-instruct": {
        "dtype": "bfloat16",
        "max_num_seqs": 128,
        "input_range": [800, 1024],
        "output_range": [400, 512],
    },
    # Manual v1.21, 2.2: -b 24 -i 4,38912 -o 4,2048 -l 40960 -t 40960 -r 8,24000.
    "qwq-32b-long-context": {
        "dtype": "bfloat16",
        "max_num_seqs": 24,
        "input_range": [4, 38912],
        "output_range": [4, 2048],
        "max_model_len": 40960,
        "max_num_batched_tokens": 40960,
        "partial_warmup": {"max_num_seqs": 8, "max_seq_len": 24000},
    },
    # Manual v1.22, 3.1.2: -q -u 127.0.0.1 -p 8688 -b 128 -l 16384; 3.3.2: -q alone, which is the same.
    "deepseek-r1-0528": DEEPSEEK,
    "deepseek-r1-671b": DEEPSEEK,
    "qwen3-coder-480b-a35b-instruct-fp8": DEEPSEEK,
    # Manual v1.22, 3.2.2 and 3.3.2: -i 800,4096 -o 800,2048, -b 128 for the largest and 32 for the others.
    "deepseek-r1-distill-llama-70b": {**SHORT, "max_num_seqs": 128},
    "deepseek-r1-distill-qwen-32b": {**SHORT, "max_num_seqs": 32},
    "deepseek-r1-distill-llama-8b": {**SHORT, "max_num_seqs": 32},
    "qwen2.5-7b-instruct": {**SHORT, "max_num_seqs": 32},
    "qwq-32b": {**SHORT, "max_num_seqs": 32},
    "qwen3-8b": {**SHORT, "max_num_seqs": 32},
    # Manual v1.22, 3.4.1 and 3.4.3; the dynamic FP8 form has no --dtype.
    "qwen2-vl-7b-instruct": PICTURES,
    "qwen2.5-vl-7b-instruct": PICTURES,
    "qwen2.5-omni-7b": PICTURES,
    "qwen2-audio-7b-instruct": PICTURES,
    "qwen3-vl-30b-a3b-instruct": PICTURES,
    "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic": {"host": "127.0.0.1", "port": 8000},
    # Manual v1.16: BF16, and its tip on blocks.
    "llama-2-7b": FROM_1_16,
    "llama-2-7b-chat": FROM_1_16,
    "llama-2-70b": FROM_1_16,
    "llama-2-70b-chat": FROM_1_16,
    "mistral-7b-instruct-v0.3": FROM_1_16,
    "mixtral-8x7b-instruct-v0.1": FROM_1_16,
}
# What the catalogue adds where a manual leaves it to the model or to a later document; each entry says why.
ADDED = {"tensor_parallel_size", "graph_reserved_mem", "extra_environment"}
# Models the v1.21 manual, or the document of that branch, starts with -l 8192 -t 8192.
ON_1_21 = [name for name in COMMANDS if "1.21" in MODELS[name]["releases"] and name != "qwq-32b-long-context"]


def test_options_are_those_of_the_manuals_own_commands(subtests: pytest.Subtests) -> None:
    for name in sorted(COMMANDS):
        with subtests.test(name=name):
            defaults = MODELS[name]["defaults"]
            added = ADDED | ({"max_model_len"} if "limit_mm_per_prompt" in MODELS[name] else set())
            assert {option: value for option, value in defaults.items() if option not in added} == COMMANDS[name]


def test_release_1_21_has_the_lengths_of_its_own_manual(subtests: pytest.Subtests) -> None:
    for name in ON_1_21:
        with subtests.test(name=name):
            assert MODELS[name]["release_defaults"] == {"1.21": {"max_model_len": 8192, "max_num_batched_tokens": 8192}}


# Manual v1.22, 3.4.1: --limit-mm-per-prompt, and 3.4.4: the server's own time-outs in seconds.
LIMITS = {
    "qwen2-vl-7b-instruct": {"image": 5, "video": 5},
    "qwen2.5-vl-7b-instruct": {"image": 5, "video": 5},
    "qwen2.5-omni-7b": {"audio": 5, "image": 5, "video": 5},
    "qwen2-audio-7b-instruct": {"audio": 5},
    "qwen3-vl-30b-a3b-instruct": {"image": 5, "video": 5},
    "qwen3-vl-30b-a3b-instruct-fp8-g2-dynamic": {"image": 5, "video": 5},
}
TIMEOUTS = {"image": "5", "video": "30", "audio": "10"}


def test_multimodal_models_carry_what_the_document_says(subtests: pytest.Subtests) -> None:
    for name in sorted(LIMITS):
        with subtests.test(name=name):
            entry = MODELS[name]
            assert entry["limit_mm_per_prompt"] == LIMITS[name]
            pixels = {"max_pixels": 1003520, **({"min_pixels": 3136} if name.startswith("qwen3-vl") else {})}
            assert entry["mm_processor_kwargs"] == pixels
            assert entry["defaults"]["graph_reserved_mem"] == 0.5
            for kind in LIMITS[name]:
                assert entry["defaults"]["extra_environment"][f"VLLM_{kind.upper()}_FETCH_TIMEOUT"] == TIMEOUTS[kind]
            notes = " ".join(entry["notes"])
            assert "FETCH_TIMEOUT" in notes
            assert ("gpu_memory_utilization" in notes) == ("image" in LIMITS[name])
            assert ("vllm[audio]" in notes) == ("audio" in LIMITS[name])


def test_every_multimodal_model_of_the_manuals_is_held() -> None:
    assert {name for name in CARDS if "limit_mm_per_prompt" in MODELS[name]} == set(LIMITS)


def test_chat_models_of_the_manuals_have_a_question_with_a_known_answer() -> None:
    """A base model goes on with a text, another has no answer in words, and a simulated one answers noise."""
    checked = {name for name, entry in MODELS.items() if "check" in entry}
    # Nobody has asked a model for audio what it knows of capitals.
    chat = {name for name in CARDS if MODELS[name].get("task", "generate") == "generate"} - {"qwen2-audio-7b-instruct"}
    assert checked >= chat
    assert not {name for name in checked if "task" in MODELS[name] or name.startswith("simulated")}


def test_a_coder_model_has_no_reasoning_parser() -> None:
    assert "reasoning_parser" not in MODELS["qwen3-coder-480b-a35b-instruct-fp8"]
    assert MODELS["deepseek-r1-0528"]["reasoning_parser"] == "deepseek_r1"
