"""Recorded outputs as another terminal, another tool or a cut-off copy would have them: read alike, or not read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.apt import faults
from ansible.module_utils.gaudi.cards import hl_smi, network_ifs
from ansible.module_utils.gaudi.doctor import findings, log_file
from ansible.module_utils.gaudi.driver import build_log, dkms, kernels, troubles
from ansible.module_utils.gaudi.fabric.burn_in import parse_hl_qual
from ansible.module_utils.gaudi.fabric.output import parse_output
from ansible.module_utils.gaudi.image import pytorch
from ansible.module_utils.gaudi.serving.progress import Progress
from hypothesis import given
from hypothesis import strategies as st

UNIT = Path(__file__).resolve().parent.parent
# Lines beside the output of a tool in a copied terminal, or in one file with it.
BESIDE = ("", "root@host:~# hl-smi", "+ date", "Fri Nov 27 10:00:00 UTC 2026", "Last login: Fri Nov 27 from console")


def explained(text: str) -> object:
    found = log_file.explain_file(log_file.read(text.encode()))
    return found.id, found.cause, found.remedy, found.retry


def benchmarked(text: str) -> object:
    return parse_output(text, ranks=16 if "205.8" in text else 8, status=0)


def progressed(text: str) -> object:
    progress = Progress()
    for line in text.splitlines():
        progress.hear(line)
    return progress.text()


def kernel_log(text: str) -> object:
    lines = [line.strip() for line in text.splitlines()]
    return findings.of_kernel_log([line for line in lines if "NOT usable" in line], lines)


# What reads recordings, by a pattern of their places. ``explained`` reads whatever people have.
READERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("cards/recorded/1.*/hl-smi.txt", hl_smi.parse_table),
    ("cards/recorded/1.*/hl-smi_-L_-i.txt", hl_smi.parse_list),
    ("cards/recorded/1.*/hl-smi_topo_-c_-N.txt", hl_smi.parse_topo),
    ("cards/recorded/1.*/hl-smi_-n_link.txt", hl_smi.parse_links),
    ("cards/recorded/*/hl-smi_-n_ports*.txt", hl_smi.parse_ports),
    ("cards/recorded/1.2*/manage_network_ifs_--status.txt", network_ifs.parse_status),
    ("fabric/recorded/all_reduce*.txt", benchmarked),
    ("fabric/recorded/hl_qual/*.txt", lambda text: parse_hl_qual(text, 0)),
    ("driver/recorded/lsmod*.txt", kernels.loaded),
    ("driver/recorded/*.txt", lambda text: (troubles.recognised(text), build_log.cause(text, "6.8.0-1-generic"))),
    ("driver/recorded/zero_byte*.txt", dkms.parse),
    ("driver/recorded/kernel_log*.txt", kernel_log),
    ("apt/recorded/*.txt", faults.parse),
    ("image/recorded/pip*.txt", lambda text: pytorch.replaced_in(text.splitlines())),
    ("serving/recorded/start__*.txt", progressed),
    ("*/recorded/**/*_1.24*.txt", explained),
    ("serving/recorded/*__*.txt", explained),
)
# Readers of all that a program printed: a line of anything else is refused, or counts.
ALONE = (hl_smi.parse_topo, kernels.loaded)
CASES = [(path, read) for place, read in READERS for path in sorted(UNIT.glob(place)) if path.stat().st_size < 65536]
DAMAGE = ("", "N/A", "-1", "9" * 30, "ERR!", "\t", "\r", "\n", "\u00e9", "1e9", "0x")
LINES = st.sampled_from(BESIDE)


@pytest.mark.parametrize("read", [read for _, read in READERS])
def test_there_is_a_recording_for_each_reader(read: Callable[[str], object]) -> None:
    assert [path for path, reader in CASES if reader is read]


@given(st.sampled_from(CASES), st.lists(LINES, max_size=3), st.lists(LINES, max_size=3), st.integers(0, 3))
def test_a_copy_of_a_terminal_is_read_like_the_recording(
    case: tuple[Path, Callable[[str], object]], before: list[str], after: list[str], blanks: int
) -> None:
    path, read = case
    text = path.read_bytes().decode()
    # Carriage returns within a line draw a bar over itself.
    lines = [f"{line.removesuffix(chr(13))}{' ' * blanks}" for line in text.split("\n")]
    copied = lines if read in ALONE else [*before, *lines, *after]
    assert str(read("\n".join(copied))) == str(read(text))


@given(st.sampled_from(CASES), st.data())
def test_a_damaged_copy_is_read_or_refused(case: tuple[Path, Callable[[str], object]], data: st.DataObject) -> None:
    path, read = case
    text = path.read_bytes().decode()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 200)))
        put = data.draw(st.sampled_from([*DAMAGE, text[:80]]))
        text = text[:start] + put + text[end:]
    # A refusal is one, too.
    with contextlib.suppress(ValueError):
        read(text)
