"""A pytest plugin of tests/mutants.py: record which test runs which line, or run chosen tests alone.

It is loaded by itself, from a folder of its own, so that it works in any checkout. GAUDI_COVERING names the folder that
gets the records, GAUDI_CHOSEN the file with the tests to run; without them it does nothing.

Coverage.py gives each line the context it ran in. A line that runs once for many tests has a context of its own, and
the record says who uses it: the first call of a cached function, the set-up of a fixture of a wider scope, the import
of a file of tests. A program that a test starts has the test's context.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

FOLDER = "GAUDI_COVERING"
CHOSEN = "GAUDI_CHOSEN"
# The context of programs: tests/mutants.py writes it into their configuration of coverage.py.
CONTEXT = "GAUDI_COVERED_BY"
START = "COVERAGE_PROCESS_START"


class Recorder:
    """Measures one process of pytest; each worker of xdist has its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = ""
        # Who uses what ran in a context that is no test: names of tests, or of other such contexts.
        self.users: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        # Modules that a playbook runs here take this Python, whose coverage.py measures them.
        os.environ.setdefault("ANSIBLE_PYTHON_INTERPRETER", sys.executable)
        self._cache_by_context()
        self._hand_to_programs()
        if outer := coverage.Coverage.current():  # A test of this plugin is itself measured.
            outer.stop()
        self.coverage = coverage.Coverage(config_file=str(folder / "tests.ini"))
        self.coverage.start()
        self.process = os.getpid()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Measure a process that a test forks as a program."""
        if self.process == os.getppid():
            self.coverage.stop()
            coverage.process_startup(force=True)

    @contextlib.contextmanager
    def within(self, context: str) -> Iterator[None]:
        """Have what runs meanwhile belong to a context."""
        before = self.context
        self._switch(context)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, context: str) -> None:
        # Not before: a worker of xdist is no program that is measured.
        os.environ[START] = str(self.folder / "programs.ini")
        self.context = os.environ[CONTEXT] = context
        self.coverage.switch_context(context)

    def _cache_by_context(self) -> None:
        """Have cached functions of the checkout compute in contexts of their own."""
        root = f"{Path.cwd()}/"
        plain = functools.lru_cache

        def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
            if not callable(maxsize):
                return lambda function: cached(function, maxsize, typed)
            return cached(maxsize, 128, typed)

        def cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
            code = getattr(function, "__code__", None)
            if code is None or not code.co_filename.startswith(root):
                return plain(maxsize, typed)(function)
            context = f"cached {code.co_filename.removeprefix(root)} {function.__qualname__}"

            @functools.wraps(function)
            def compute(*arguments: Any, **options: Any) -> Any:
                with self.within(context):
                    return function(*arguments, **options)

            kept = plain(maxsize, typed)(compute)

            @functools.wraps(function)
            def ask(*arguments: Any, **options: Any) -> Any:
                self.users[context].add(self.context)
                return kept(*arguments, **options)

            for name in ("cache_clear", "cache_info", "cache_parameters"):
                setattr(ask, name, getattr(kept, name))
            return ask

        def cache(function: Callable[..., Any]) -> Any:
            return cached(function, None, False)

        functools.lru_cache = lru_cache
        functools.cache = cache

    def _hand_to_programs(self) -> None:
        """Have programs measured whose environment a test makes from nothing."""
        plain = subprocess.Popen.__init__

        @functools.wraps(plain)
        def start(popen: Any, *arguments: Any, **options: Any) -> None:
            if options.get("env") is not None:
                ours = {name: os.environ[name] for name in (START, CONTEXT) if name in os.environ}
                options["env"] = {**options["env"], **ours}
            plain(popen, *arguments, **options)

        subprocess.Popen.__init__ = start  # type: ignore[method-assign, assignment]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Have the import of a file of tests belong to the file."""
        with self.within(_file(collector.nodeid)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Have a fixture that tests share belong to the fixture."""
        if fixturedef.scope == "function":
            return (yield)
        self.users[_fixture(fixturedef)].add(self.context)
        with self.within(_fixture(fixturedef)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        """Have all else that a test runs belong to the test."""
        self.users[_file(item.nodeid)].add(item.nodeid)
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            for definition in definitions:
                if definition.scope != "function":
                    self.users[_fixture(definition)].add(item.nodeid)
        with self.within(item.nodeid):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record how long each test takes, and whether it fails."""
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_unconfigure(self) -> None:
        """Write the records of this process."""
        self.coverage.stop()
        self.coverage.save()
        record = {
            "users": {context: sorted(users) for context, users in self.users.items()},
            "seconds": dict(self.seconds),
            "failed": sorted(self.failed),
        }
        (self.folder / f"record-{os.getpid()}.json").write_text(json.dumps(record), encoding="utf-8")


class Chooser:
    """Runs the chosen tests alone, and writes beside their list which one runs, and the first that fails."""

    def __init__(self, chosen: Path) -> None:
        self.running, self.first = chosen.with_suffix(".running"), chosen.with_suffix(".failed")
        self.tests = set(chosen.read_text(encoding="utf-8").splitlines())

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the others out. A case whose name has changed with the product is any new case of its function."""
        gone = {test.partition("[")[0] for test in self.tests - {item.nodeid for item in items}}
        chosen = [item for item in items if item.nodeid in self.tests or item.nodeid.partition("[")[0] in gone]
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write which test runs; the time of the file is when it began."""
        self.running.write_text(nodeid, encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write which test fails."""
        self._failed(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write which file cannot be imported."""
        self._failed(report)

    def _failed(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self.first.exists():
            self.first.write_text(report.nodeid, encoding="utf-8")


def _file(nodeid: str) -> str:
    return f"file {nodeid.partition('::')[0]}"


def _fixture(definition: Any) -> str:
    return f"fixture {definition.baseid} {definition.argname}"


def pytest_configure(config: pytest.Config) -> None:
    """Register what was asked for."""
    for plugin in (RECORDER, CHOOSER):
        if plugin is not None:
            config.pluginmanager.register(plugin)


# Pytest imports a copy of this file as its plugin. Tests of the tool import this file itself, and record nothing.
PLUGIN = __name__ == "gaudi_covering"
if PLUGIN:
    os.environ.pop("PYTHONPATH", None)
    sys.dont_write_bytecode = True
# The recorder begins before pytest imports conftest.py, and with it the product.
RECORDER = Recorder(Path(os.environ[FOLDER])) if PLUGIN and FOLDER in os.environ else None
CHOOSER = Chooser(Path(os.environ[CHOSEN])) if PLUGIN and CHOSEN in os.environ else None
