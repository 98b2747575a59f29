"""The directory that a server starts in has nothing of an earlier container: Python would import it."""

from __future__ import annotations

from pathlib import Path

from tests.integration.vllm_service.node import SupervisedNode


def profiling(node: SupervisedNode) -> Path:
    """Have the server start in a directory of the node, as the option profile does."""
    folder = node.root / "state/profiles/tiny"
    node.plan["container"]["mounts"].append({"source": str(folder), "target": str(folder), "read_only": False})
    node.plan["container"]["working_directory"] = str(folder)
    node.write_plan()
    node.scenario(lines=["INFO hello"], exit=1)
    return folder


def test_a_start_finds_no_module_of_an_earlier_container(node: SupervisedNode) -> None:
    folder = profiling(node)
    folder.mkdir(parents=True)
    (folder / "gaudi_guard.py").write_text("what an earlier server left")
    _, output = node.run()
    assert "Starting container vllm-tiny" in output
    assert list(folder.iterdir()) == []
    (aside,) = (path for path in folder.parent.iterdir() if path != folder)
    assert (aside / "gaudi_guard.py").read_text() == "what an earlier server left"
    assert f"is in {aside}" in output


def test_an_empty_directory_stays_and_a_missing_one_is_made(node: SupervisedNode) -> None:
    folder = profiling(node)
    for _ in range(2):
        node.run()
        assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
        assert folder.stat().st_mode & 0o777 == 0o750


def test_a_link_in_its_place_is_not_followed(node: SupervisedNode) -> None:
    folder = profiling(node)
    elsewhere = node.root / "elsewhere"
    elsewhere.mkdir()
    folder.parent.mkdir(parents=True)
    folder.symlink_to(elsewhere)
    node.run()
    assert folder.is_dir() and not folder.is_symlink()
    assert elsewhere.is_dir()


def test_no_server_starts_where_the_directory_cannot_be_emptied(node: SupervisedNode) -> None:
    folder = profiling(node)
    folder.parent.write_text("a file")
    _, output = node.run()
    assert "Starting container" not in output
    assert f"{folder}, in which the server is to start, cannot be prepared" in output
