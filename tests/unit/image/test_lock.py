"""What a build got from an index, by checksum, and a later build that is held to it; with pip itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.image import lock
from ansible.module_utils.gaudi.image.dockerfile import dockerfile
from ansible.module_utils.gaudi.image.dockerfile import lock as lock_file
from ansible.module_utils.gaudi.image.output import failure

from tests.unit.image.made import made

ROOT = Path(__file__).resolve().parents[3]
CONTEXT = ROOT / "roles/serving_image/files/gaudi_image/context"
DIGEST = "0123456789abcdef" * 4


def entry(name: str, version: str = "1.0", *, direct: bool = False, **archive: Any) -> dict[str, Any]:
    archive = archive or {"hashes": {"sha256": DIGEST}}
    said = {"download_info": {"archive_info": archive}, "is_direct": direct}
    return {**said, "metadata": {"name": name, "version": version}}


def test_what_came_from_an_index_has_a_line() -> None:
    report = {
        "install": [
            entry("Ray_Core", "2.9"),
            entry("older", hash=f"sha256={DIGEST}"),
            entry("odd", hash="md5=1"),
            entry("vllm", direct=True),
        ]
    }
    assert lock.installed(report) == {
        "ray-core": f"ray-core==2.9 --hash=sha256:{DIGEST}",
        "older": f"older==1.0 --hash=sha256:{DIGEST}",
        "odd": "# odd==1.0: no SHA-256",
    }


def test_the_last_version_counts_and_what_was_uninstalled_goes() -> None:
    before = f"numpy==1 --hash=sha256:{DIGEST}\npillow==11 --hash=sha256:{DIGEST}\n# odd==1.0: no SHA-256\n"
    lines = {"numpy": f"numpy==2 --hash=sha256:{DIGEST}", "pillow-simd": f"pillow-simd==9 --hash=sha256:{DIGEST}"}
    assert lock.added(before, lines, ["pillow"]).splitlines() == [
        f"numpy==2 --hash=sha256:{DIGEST}",
        "# odd==1.0: no SHA-256",
        f"pillow-simd==9 --hash=sha256:{DIGEST}",
    ]


def test_a_lock_is_part_of_the_name_and_its_order_and_notes_are_not() -> None:
    one, two = (f"{name}==1.0 --hash=sha256:{DIGEST}" for name in ("a", "b"))
    locked = made(lock=f"{one}\n{two}\n")
    assert locked.tag not in (made().tag, made(lock=one).tag)
    assert locked.tag == made(lock=f"# made of 1.22-x\n{two}\n\n{one}").tag
    assert made(lock="").tag == made().tag
    assert lock_file(locked) == f"{one}\n{two}\n"
    assert "steps.sh locked" in dockerfile(locked)
    assert "steps.sh locked" not in dockerfile(made())


@pytest.mark.parametrize(
    "line", ["ray", "ray==1", "ray==1 --hash=sha256:12", f"ray>=1 --hash=sha256:{DIGEST}", "--index-url=https://evil"]
)
def test_a_line_without_a_checksum_is_refused(line: str) -> None:
    with pytest.raises(Refusal) as caught:
        made(lock=line)
    assert caught.value.id == "wrong_lock"
    assert line[:40] in str(caught.value)


def test_another_file_than_the_locks_is_said() -> None:
    said = failure("the packages of the lock", ["#9 1.0 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE ..."])
    assert said.id == "not-as-locked"
    assert "serving_image_lock" in str(said)
