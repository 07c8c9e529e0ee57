"""What all tests share: fixtures, which tests run, how hard hypothesis tries, and where a skip is a failure.

- `long` (exhaustive), `bench` (measuring), and `real` (with real programs) tests are left out unless `-m` names them;
  `RUN_LONG=1` adds the long.
- Tests with many examples, kills, or cases have a short form (`tests.extent`); `RUN_WHOLE=1` asks for all of it.
- `RUN_LONG=1` also gives hypothesis its profile `long`; otherwise the same examples are tried in every run.
- `USAGE_PUBLISHER_NO_SKIPS=1`, which `.ci/run` sets, turns a skipped test into a failed one, with its reason. Only
  missing reference material may be a reason there, because it is not ours to install.
- Tests marked `@pytest.mark.extra("reports")`, and those with a PostgreSQL server, are left out where the extra is not
  installed.
- `--rewrite-golden` writes expected files anew instead of comparing with them.
- A test that writes outside the folder for temporary files fails, and so does one that a process of its did
  (`tests.temporary_files`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from publisher.errors import EXTRAS
from tests import temporary_files
from tests.extent import RUN_LONG, is_every_case_run, short_or_whole, some

ROOT = Path(__file__).parent.parent
REFERENCE_MISSING = "the reference material (../shared) is not beside this checkout"
NO_SKIPS = os.environ.get("USAGE_PUBLISHER_NO_SKIPS", "") not in {"", "0"}
MISSING_EXTRAS = {extra for library, extra in EXTRAS.items() if importlib.util.find_spec(library) is None}

# A busy machine makes examples slow without making them wrong.
_PATIENT = (hypothesis.HealthCheck.too_slow,)
hypothesis.settings.register_profile(
    "quick",
    max_examples=short_or_whole(20, 100),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=_PATIENT,
)
hypothesis.settings.register_profile(
    "long", max_examples=10_000, print_blob=True, database=None, deadline=None, suppress_health_check=_PATIENT
)
hypothesis.settings.load_profile("long" if RUN_LONG else "quick")


_OF_PLUGINS = (ROOT / ".hypothesis", ROOT / ".benchmarks")
"""Where plugins of pytest keep what they learn."""
temporary_files.in_memory()
_report = pytest.StashKey[Path]()
_watched = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Watch where this process writes while a test is at work, and where the processes of the tests do."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        folder = Path(tempfile.mkdtemp(prefix="publisher-tests-"))
        config.add_cleanup(lambda: shutil.rmtree(folder))
        os.environ["HOME"] = str(folder)  # where libraries keep what they cache
        config.stash[_report] = report = folder / "outside"
        report.touch()
        config.stash[_watched] = at_work = []
        written = [tempfile.gettempdir(), os.environ.get("PICTURES"), config.getoption("--rewrite-golden") and ROOT]
        given = config.getoption("--basetemp")
        allowed = [str(Path(place).absolute()) for place in [*written, given, *_OF_PLUGINS] if place]
        temporary_files.watch(report, *allowed, is_test_at_work=lambda: bool(at_work))
        path = [str(temporary_files.watcher_for_processes(folder, report, *allowed)), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """See `tests.temporary_files`."""
    at_work = item.config.stash[_watched]
    at_work.append(item.nodeid)
    try:
        return (yield)
    finally:
        at_work.pop()


@pytest.fixture(autouse=True)
def _nothing_outside(pytestconfig: pytest.Config) -> Iterator[None]:
    report = pytestconfig.stash[_report]
    before = report.stat().st_size
    yield
    assert not report.read_text(encoding="utf-8")[before:], "a test touches a path outside its temporary folder"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our one option."""
    parser.addoption("--rewrite-golden", action="store_true", help="write expected files anew instead of comparing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that were not requested. They are not skipped: a skip would hide among those that matter."""
    asked = str(config.option.markexpr)
    left_out = {marker for marker in ("long", "bench", "real") if marker not in asked}
    if RUN_LONG:
        left_out.discard("long")
    asked_for = [
        item
        for item in items
        if not (any(item.get_closest_marker(marker) for marker in left_out) or _needed_extras(item) & MISSING_EXTRAS)
    ]
    every_case = is_every_case_run(named=config.args_source is not pytest.Config.ArgsSource.TESTPATHS)
    kept = {id(item) for item in (asked_for if every_case else _some_cases(asked_for))}
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]


def _some_cases(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """A fifth of the cases of each test that writes files: those that only calculate are quick. Random histories are
    few already. The kinds that a suite of promises is run for are cases of its tests."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        names = {*getattr(item, "fixturenames", ())}
        writes = names & {"tmp_path", "tmp_path_factory"} and "seed" not in names
        writes = writes and item.get_closest_marker("every_case") is None
        tests.setdefault(_function(item) if writes else item.nodeid, []).append(item)
    for test, cases in tests.items():
        yield from some(test, cases)


def _function(item: pytest.Item) -> str:
    """Where the test is written, which of an inherited one is another class than that which runs it."""
    function = getattr(item, "function", None)
    return item.nodeid if function is None else f"{function.__module__}.{function.__qualname__}"


def _needed_extras(item: pytest.Item) -> set[str]:
    """The extras that its markers name, and that of the database driver, if it uses the tests' server."""
    named = {name for marker in item.iter_markers("extra") for name in marker.args}
    return named | {"postgresql"} if "postgresql" in getattr(item, "fixturenames", ()) else named


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not NO_SKIPS or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    from publisher.testing import NOT_APPLICABLE  # takes a second, and most runs of pytest skip nothing

    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if REFERENCE_MISSING not in reason and NOT_APPLICABLE not in reason:
        report.outcome = "failed"
        report.longrepr = f"skipped where no test may skip (USAGE_PUBLISHER_NO_SKIPS): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See `USAGE_PUBLISHER_NO_SKIPS` above."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself while it is imported."""
    report = yield
    _forbid_skip(report)
    return report


@pytest.fixture(scope="session")
def rewrite_golden(pytestconfig: pytest.Config) -> bool:
    """Whether expected files are to be written anew."""
    return bool(pytestconfig.getoption("--rewrite-golden"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The project's own fixtures."""
    return ROOT / "fixtures"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Official schemas and samples in a folder next to the checkout; without it, a test that compares with them is
    skipped."""
    path = ROOT.parent / "shared"
    if not (path / "schemas").is_dir():
        pytest.skip(REFERENCE_MISSING)
    return path
