"""What packages take, by what an index says of them."""

from __future__ import annotations

from ansible.module_utils.gaudi.driver import room
from ansible.module_utils.gaudi.driver.room import Size

# Fields as in Debian's own index; the last stanza is of an installed package, as apt-cache show has it as well.
INDEX = """Package: habanalabs-graph
Version: 1.22.2-32
Installed-Size: 3
Depends: habanalabs-thunk
Size: 1000
Description: of several lines
 Size: 7

Package: linux-headers-6.8.0-45-generic
Version: 6.8.0-45.45
Installed-Size: 2
Size: 500

Package: linux-headers-6.8.0-45-generic
Version: 6.8.0-45.46
Installed-Size: 4
Size: 600

Package: habanalabs-graph
Status: install ok installed
Version: 1.21.3-57
Installed-Size: 9
"""
SIZES = room.parse(INDEX)
NEW, OLD, HEADERS = "habanalabs-graph=1.22.2-32", "habanalabs-graph=1.21.3-57", "linux-headers-6.8.0-45-generic"
KEEP = "/var/lib/gaudi-serving/driver_before"


def test_sizes_are_bytes_and_what_is_unpacked_is_kibibytes() -> None:
    assert SIZES[NEW] == Size(1000, 3 * 1024)
    assert OLD not in SIZES, "what is installed has no file"


def test_of_a_package_without_a_version_the_largest_counts() -> None:
    assert room.of(SIZES, HEADERS) == Size(600, 4 * 1024)
    assert room.of(SIZES, "linux-modules-extra-6.8.0-45-generic") == Size()


def test_what_comes_and_what_is_kept_is_added_up() -> None:
    sizes = {**SIZES, OLD: Size(900, 2048)}
    assert room.space_demands(sizes, [HEADERS, NEW], [OLD], [], KEEP) == [
        ("the driver's packages", "/var/cache/apt/archives", 1600),
        ("what they unpack to", "/usr", 7 * 1024),
        ("the packages that they replace", KEEP, 900),
    ]


def test_files_that_are_there_take_nothing_more() -> None:
    sizes = {**SIZES, OLD: Size(900, 2048)}
    assert room.space_demands(sizes, [HEADERS, NEW], [OLD], [HEADERS, NEW, OLD], KEEP) == [
        ("what they unpack to", "/usr", 7 * 1024)
    ]


def test_an_index_without_sizes_asks_for_nothing() -> None:
    assert room.space_demands({}, [NEW], [OLD], [], KEEP) == []
