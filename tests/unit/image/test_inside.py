"""What is in an image: the program that looks is run here on stand-ins for distributions and for vLLM."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.image import inside

from filter_plugins.image_recipes import image_instances, image_versions
from tests.unit.image.made import document, entry

ROOT = Path(__file__).resolve().parents[3]
FORK = ROOT / "simulator" / "repositories" / "vllm-fork"
SERVER = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
IMAGE = "gaudi-serving/vllm:1.22-abc"


def look(
    arguments: dict[str, list[str]], *search: Path, path: str = "/nowhere", pytorch: bool = False
) -> inside.ImageFindings:
    """Run the program as the image's Python would."""
    environment = {"PYTHONPATH": os.pathsep.join(map(str, search)), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", inside.PROGRAM],
        input=inside.question(arguments, pytorch=pytorch),
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return inside.answer(IMAGE, done.stdout)


def check(
    image: str, found: inside.ImageFindings, needs: dict[str, list[str]], built: Any = (), cpuinfo: str = ""
) -> None:
    """Refuse where the image cannot serve one of the instances."""
    refused = inside.refusals(image, found, needs, built, cpuinfo)
    if refused:
        raise inside.together(refused)


def distribution(folder: Path, name: str, version: str) -> None:
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_packages_are_found_by_their_normal_names(tmp_path: Path) -> None:
    distribution(tmp_path, "Habana_Torch.Plugin", "1.22.2.32")
    assert look({}, tmp_path, FORK).packages["habana-torch-plugin"] == "1.22.2.32"


@pytest.mark.parametrize(
    ("plugin", "version", "why"),
    [
        ("", "2.11.0a0+git009b5f6", ""),
        ("import sys\nprint('text of a library')\n", "2.11.0a0+git009b5f6", ""),
        ("raise AssertionError('neither HPU fork nor CPU upstream.')\n", "2.12.1+cu130", "AssertionError: neither HPU"),
        ("import os\nos.abort()\n", "2.12.1+cu130", "status -6"),
    ],
)
def test_pytorch_is_imported_with_the_vendors_plugin(tmp_path: Path, plugin: str, version: str, why: str) -> None:
    distribution(tmp_path, "torch", version)
    for name, content in {
        "torch/__init__.py": f"__version__ = {version!r}\n",
        "habana_frameworks/__init__.py": "",
        "habana_frameworks/torch/__init__.py": plugin,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = look({}, tmp_path, FORK, pytorch=True)
    assert found.torch == version
    assert found.torch_import.startswith(why)
    assert bool(found.torch_import) is bool(why)
    assert (look({}, tmp_path, FORK).torch, look({}, FORK, pytorch=True).torch) == ("", "")


DPKG = """#!/bin/sh
printf 'bash\t5.1\tamd64\tinstalled\n'
printf 'gone\t1\tamd64\tconfig-files\n'
printf 'adduser\t3.1\tall\tinstalled\n'
"""


def test_packages_of_the_system_are_those_that_are_installed(tmp_path: Path) -> None:
    (tmp_path / "dpkg-query").write_text(DPKG)
    (tmp_path / "dpkg-query").chmod(0o755)
    found = look({}, FORK, path=f"{tmp_path}:/bin:/usr/bin")
    assert (found.kind, found.system) == ("deb", (("adduser", "3.1", "all"), ("bash", "5.1", "amd64")))
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "rpm").write_text(DPKG)
    (tmp_path / "rpm").chmod(0o755)
    assert look({}, FORK, path=f"{tmp_path}:/bin:/usr/bin").kind == "rpm"


def test_checkouts_are_found_by_looking_and_name_no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "opt" / "vllm-fork"
    made.mkdir(parents=True)
    (tmp_path / "opt" / "other").mkdir()
    for words in (
        ["init", "--quiet"],
        ["remote", "add", "origin", "https://me:hidden@git.example.com/vllm-fork"],
        ["-c", "user.name=M", "-c", "user.email=m@example.com", "commit", "--quiet", "--allow-empty", "-m", "1"],
    ):
        subprocess.run(["git", "-C", str(made), *words], check=True)
    monkeypatch.setattr(inside, "_PLACES", (str(tmp_path / "opt"), "/nowhere"))
    (checkout,) = look({}, FORK, path=os.environ["PATH"]).checkouts
    assert (checkout.directory, checkout.origin) == (str(made), "https://git.example.com/vllm-fork")
    assert len(checkout.commit) == 40


def test_parts_are_programs_and_packages(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "numactl").write_text("#!/bin/sh\n")
    (programs / "numactl").chmod(0o755)
    for name in ("librosa", "soundfile"):
        distribution(tmp_path, name, "1")
    assert look({}, tmp_path, FORK, path=str(programs)).parts == ("numactl", "audio")
    assert look({}, FORK).parts == ()


def test_pillow_simd_is_told_by_its_version_and_by_pillow_being_gone(tmp_path: Path) -> None:
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text('__version__ = "11.3.0.post0"\n')
    assert look({}, tmp_path, FORK).parts == ("pillow_simd",)
    (tmp_path / "PIL" / "__init__.py").write_text('__version__ = "11.3.0.post0.dev1"\n')
    assert look({}, tmp_path, FORK).parts == ()
    (tmp_path / "PIL" / "__init__.py").write_text('__version__ = "11.3.0.post0"\n')
    distribution(tmp_path, "pillow", "11.3.0")
    assert look({}, tmp_path, FORK).parts == ()


def test_the_servers_own_parser_reads_the_whole_vector() -> None:
    good = [*SERVER, "--host", "127.0.0.1", "--port", "30001", "--max_model_len", "4096"]
    found = look(
        {"good": good, "bad": [*SERVER, "--port", "30001", "--no-such-option"], "word": [*SERVER, "--port", "x"]}, FORK
    )
    assert set(found.rejected) == {"bad", "word"}
    assert "--no-such-option" in found.rejected["bad"]
    assert "invalid int value: 'x'" in found.rejected["word"]


def test_the_parser_is_found_where_later_servers_have_it(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "entrypoints/__init__.py": "",
        "entrypoints/openai/__init__.py": "",
        "entrypoints/launchers/__init__.py": "",
        "entrypoints/launchers/cli_args.py": "from argparse import ArgumentParser\n\n\n"
        "def make_arg_parser():\n    parser = ArgumentParser()\n    parser.add_argument('--port')\n    return parser\n",
    }
    for name, content in files.items():
        (tmp_path / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "vllm" / name).write_text(content)
    found = look({"good": [*SERVER, "--port", "1"], "bad": [*SERVER, "--host", "x"]}, tmp_path)
    assert (found.vllm, set(found.rejected)) == (None, {"bad"})


def test_a_server_is_not_imported_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "vllm.py").write_text("raise ImportError('slow')\n")
    assert look({}, tmp_path).vllm is None


def test_a_server_that_cannot_be_imported_is_said(tmp_path: Path) -> None:
    (tmp_path / "vllm.py").write_text("raise ImportError('libhabana.so: cannot open')\n")
    found = look({"one": SERVER}, tmp_path)
    with pytest.raises(Refusal, match=r"cannot import vLLM .ImportError: libhabana.so: cannot open") as caught:
        check(IMAGE, found, {})
    assert caught.value.id == "image_without_server"


def test_only_an_instance_that_needs_a_missing_part_is_refused() -> None:
    found = look({}, FORK)
    check(IMAGE, found, {"text": [], "pictures": ["pillow_simd"]})
    with pytest.raises(Refusal, match=r"sound: .* lacks audio .the libraries that read sound.") as caught:
        check(IMAGE, found, {"text": [], "sound": ["audio"]})
    assert caught.value.id == "image_lacks_part"
    assert set(inside.refusals(IMAGE, found, {"text": [], "sound": ["audio"], "more": []})) == {"sound"}


def test_what_an_image_cannot_do_for_anybody_is_said_once_for_all() -> None:
    found = dataclasses.replace(look({}, FORK), vllm="ImportError: no")
    refused = inside.refusals(IMAGE, found, {"text": [], "sound": ["audio"]})
    assert set(refused) == {"text", "sound"}
    (line,) = str(inside.together(refused)).splitlines()
    assert line.startswith(f"text, sound: {IMAGE} cannot import vLLM")


def test_an_image_that_was_built_with_a_part_has_it() -> None:
    """A ready one may do without Pillow-SIMD; a build that lost it gave another image than its name says."""
    found = look({}, FORK)
    needs = {"text": ["numactl"], "pictures": ["pillow_simd"]}
    with pytest.raises(Refusal, match=r"^pictures: .* was built with pillow_simd .*, and lacks it. Correct") as caught:
        check(IMAGE, found, {**needs, "text": []}, built=["pillow_simd"])
    assert caught.value.id == "image_lacks_part"
    with pytest.raises(Refusal, match=r"^text: .* lacks numactl .*serving_image_ref"):
        check(IMAGE, found, needs, built=["audio"])


def test_pillow_simd_needs_avx2_whoever_made_the_image(tmp_path: Path) -> None:
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text('__version__ = "11.3.0.post0"\n')
    found = look({}, tmp_path, FORK)
    check(IMAGE, found, {"text": []}, cpuinfo="flags\t\t: fpu avx avx2\n")
    with pytest.raises(Refusal, match="this node's processors lack") as caught:
        check(IMAGE, found, {"text": []}, cpuinfo="flags\t\t: fpu avx\n")
    assert caught.value.id == "image_needs_avx2"
    # A build host serves nobody.
    check(IMAGE, found, {}, cpuinfo="flags\t\t: fpu avx\n")
    check(IMAGE, look({}, FORK), {"text": []}, cpuinfo="flags\t\t: fpu avx\n")


def test_refused_arguments_name_the_instance() -> None:
    found = look({"chat": [*SERVER, "--no-such-option"]}, FORK)
    with pytest.raises(
        Refusal, match=r"chat: the server in .* does not take the planned arguments: .*--no-such-option"
    ):
        check(IMAGE, found, {"chat": []})


def test_all_instances_that_an_image_cannot_serve_are_named_at_once() -> None:
    found = look({"chat": [*SERVER, "--no-such-option"], "old": [*SERVER, "--older"]}, FORK)
    needs = {"chat": ["audio"], "text": [], "sound": ["numactl", "audio"], "bound": ["numactl"]}
    with pytest.raises(Refusal) as caught:
        check(IMAGE, found, needs)
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["chat", "chat", "old", "sound", "bound"]
    assert "--no-such-option" in lines[0]
    assert "--older" in lines[2]
    assert "lacks audio (" in lines[1]
    assert "lacks numactl (numactl, which binds the server to the processors of its cards) and audio (" in lines[3]
    assert caught.value.id == "image_refuses_arguments"


def test_versions_are_the_releases(tmp_path: Path) -> None:
    versions = image_versions(document())
    assert versions["habana-torch-plugin"] == "1.22.2.32"
    assert set(versions) == {*inside.VENDOR, "neural-compressor-pt"}
    assert image_versions(document("1.16"))["habana-quantization-toolkit"] == ""
    for name in versions:
        distribution(tmp_path, name, "1.22.2.32")
    assert inside.wrong_versions(IMAGE, look({}, tmp_path, FORK), versions) == []
    other = inside.expected(entry("1.21").image["tag"], "neural-compressor-pt")
    said = inside.wrong_versions(IMAGE, look({}, tmp_path, FORK), other)
    assert f"{IMAGE} holds habana-torch-plugin 1.22.2.32, but the release is of 1.21.3.57." in said
    assert len(said) == 4
    assert len(inside.wrong_versions(IMAGE, look({}, FORK), versions)) == 5


@pytest.mark.parametrize("printed", ["", "Traceback", "gaudi-image {", 'gaudi-image {"packages": []}'])
def test_an_image_that_says_something_else_is_no_serving_image(printed: str) -> None:
    with pytest.raises(Refusal, match="could not be looked into") as caught:
        inside.answer(IMAGE, printed)
    assert caught.value.id == "image_silent"


def test_only_plans_that_say_what_they_need_are_held_against_an_image() -> None:
    plan = {"instance": "one", "image": IMAGE, "requires": {"image": ["numactl"]}, "arguments": SERVER}
    assert image_instances([plan], IMAGE) == {"one": {"parts": ["numactl"], "arguments": SERVER}}
    assert image_instances([plan], "other:1") == {}
    assert image_instances([{**plan, "requires": {}}, {"instance": "two", "refused": "no"}], IMAGE) == {}


def test_the_server_of_several_models_is_not_asked() -> None:
    other = ["python3", "-m", "vllm.entrypoints.openai.mm_api_server", "--models", "x"]
    assert json.loads(inside.question({"one": other, "two": [*SERVER, "--x"]}))["arguments"] == {"two": ["--x"]}


def test_what_an_image_says_does_nothing_to_a_terminal() -> None:
    rejected = {"one": "a\nb\x1b]0;x\x07"}
    said: dict[str, Any] = {
        "packages": {"vllm": "1\x1b[31m"},
        "programs": [],
        "pillow": "\x07",
        "vllm": None,
        "rejected": rejected,
        "python": "3.10.12\x07",
        "os": ["debian", "12"],
        "system": {"kind": "deb", "packages": [["bash", "5\x07", "amd64"]]},
        "checkouts": [],
    }
    found = inside.answer(IMAGE, "noise\ngaudi-image " + json.dumps(said))
    assert found.packages == {"vllm": "1"}
    assert (found.pillow, found.vllm, found.rejected) == ("?", None, {"one": "a b"})
    assert found.python == "3.10.12?"
    assert found.system == (("bash", "5?", "amd64"),)
    said["system"]["packages"] = [["bash", "5"]]
    with pytest.raises(Refusal, match="could not be looked into"):
        inside.answer(IMAGE, "gaudi-image " + json.dumps(said))
    with pytest.raises(Refusal) as caught:
        inside.answer(IMAGE, "\x1b[2Jgone")
    assert "\x1b" not in str(caught.value)
