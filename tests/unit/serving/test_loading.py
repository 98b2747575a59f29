"""How long a server may be silent while its weights load."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.serving.loading import Loading

GB = 10**9


@pytest.mark.parametrize(
    ("size", "rate", "minutes"),
    [
        # MiniMax-M2.7: its owner saw 30 to 35 minutes of silence, with weights on NVMe.
        (230 * GB, 3.4 * GB, 30 + 1 + 38),
        # A disk of 50 MB/s, and one that cannot be measured.
        (230 * GB, 0.05 * GB, 30 + 77 + 38),
        (230 * GB, 0, 30 + 19 + 38),
        (16 * GB, 0, 30 + 1 + 3),
        (0, 0, 30),
    ],
)
def test_silence_follows_the_size_of_the_weights_and_their_disk(size: int, rate: float, minutes: int) -> None:
    assert int(Loading(size, int(rate)).silence(1800) / 60) == minutes


def test_a_server_that_prints_its_shards_is_given_the_time_of_one() -> None:
    loading = Loading(236 * GB, 2 * GB)
    whole = loading.silence(1800)
    assert loading.silence(1800, (0, 118)) == loading.silence(1800, (118, 118)) == whole
    assert loading.silence(1800, (7, 118)) == 1800 + 1 + 20


def test_large_weights_are_told_with_the_rate_of_their_disk() -> None:
    said = Loading(230 * GB, 34 * GB // 10).sentence(1800)
    assert said == (
        "The weights have 230.0 GB, and their disk gives 3.4 GB a second: while they load, about 1 h 09 min without a "
        "line are no fault."
    )
    assert "disk" not in Loading(230 * GB).sentence(1800)
    assert Loading(GB).sentence(1800) == ""


def test_the_state_holds_what_was_measured() -> None:
    loading = Loading(230 * GB, 3 * GB)
    assert Loading.from_state({"loading": loading.document()}) == loading
    assert Loading.from_state({}).silence(1800) == 1800
