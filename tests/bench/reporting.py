"""Rows: utilization reports, from the store and from an archive, compared with the manual's algorithm on the same
jobs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from formats.calendar import Month
from formats.utilization.measure import Bins, Ran, measured
from publisher.api import Publisher
from publisher.job_ids import JobIds
from publisher.report.archive import ArchiveRuns
from publisher.report.archive_export import write_month
from publisher.report.cache import ReportCache
from publisher.report.column_tally import Ints
from publisher.report.frame import NUMBERS, UNKNOWN, WORDS, Coding, Frame
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, StoreRuns
from publisher.report.views import make
from tests.bench.inputs import FIRST, MONTH_S, SEED, kept
from tests.bench.measure import COMMAND, Bench
from tests.bench.rows import Sizes, row
from tests.bench.site import HEAD, make_site, prepare
from tests.formats.utilization.dqs_walk import walk

BINS = 1_000
_FRAME = 100_000
_START, _STOP = FIRST, FIRST + MONTH_S


def archive_of(bench: Bench) -> Path:
    """An archive of one month: jobs of minutes to days on 500 hosts, of 200 users."""
    return kept(bench, "archive", lambda path: _write_archive(path, bench.size))


def _write_archive(path: Path, size: int) -> None:
    codings = {name: Coding(lambda raw: (str(raw),)) for name in WORDS}
    for name, coding in codings.items():
        for number in range(200):
            _ = coding.code[() if name in {"placed", "host"} else f"{name}{number}"]

    class _Codings:
        def __init__(self) -> None:
            self.codings = codings

    write_month(_invented(size), _Codings(), Month(2026, 10), path)  # type: ignore[arg-type]


def _invented(size: int) -> Iterator[Frame]:
    random = np.random.default_rng(SEED)
    for begin in range(0, size, _FRAME):
        rows = min(_FRAME, size - begin)
        stop = np.sort(random.integers(_START, _STOP, rows))
        length = random.lognormal(8.5, 1.5, rows).astype(np.int64)
        slots = random.choice(np.array([1, 1, 1, 8, 32], np.int64), rows)
        user_ms = (length * slots * random.random(rows) * 1000).astype(np.int64)
        numbers: dict[str, Ints] = {name: np.zeros(rows, np.int64) for name in NUMBERS}
        numbers |= {
            "start": stop - length, "stop": stop, "end": stop, "slots": slots, "user_ms": user_ms,
            "system_ms": user_ms // 20, "submit": stop - length - 60, "eligible": np.full(rows, UNKNOWN),
        }  # fmt: skip
        codes = {
            name: np.zeros(rows, np.int64) if name in {"placed", "host"} else random.integers(0, 200, rows)
            for name in WORDS
        }
        job = [JobIds(str(begin + place)) for place in range(rows)]
        yield Frame(rows, numbers, codes, {"job": job, "events": [None] * rows, "core_numbers": [()] * rows})


def _walked(runs: StoreRuns | ArchiveRuns, bench: Bench, start: int, stop: int) -> None:
    """The manual's algorithm over the jobs, which lie in memory already; the numbers must be those of the report."""
    columns = ("start", "stop", "user_ms", "system_ms", "slots")
    jobs = [
        Ran(*facts)
        for frame in runs.frames(start, None, frozenset(columns), running_until=None)
        for facts in zip(*(frame.numbers[name].tolist() for name in columns), strict=True)
    ]
    bins = Bins.by_number(start, stop, BINS)
    with bench.timed(len(jobs)):
        found = measured(bins, iter(walk(jobs, bins)))
    (bench.inputs / f"walked-{type(runs).__name__}-{bench.size}.json").write_text(
        json.dumps([one.queue for one in found])
    )


def walk_store(bench: Bench) -> None:
    """The manual's algorithm over the jobs of the store."""
    config = _site(bench)
    with Publisher.from_file(config) as publisher:
        _walked(StoreRuns(publisher.store, publisher.config), bench, _START, _STOP)


def walk_archive(bench: Bench) -> None:
    """The manual's algorithm over the jobs of the archive."""
    _walked(ArchiveRuns(archive_of(bench)), bench, _START, _STOP)


def _site(bench: Bench) -> Path:
    """A site that has collected, kept between runs."""

    def make(folder: Path) -> None:
        made = Bench(bench.inputs, bench.folder / "made", bench.size)
        made.folder.mkdir()
        make_site(made, "")
        prepare(made, "collect")
        (made.folder / "accounting.db").unlink()
        shutil.move(made.folder, folder)

    return kept(bench, "collected", make) / "publisher.toml"


def _same(bench: Bench, kind: str, report: Path) -> None:
    walked = bench.inputs / f"walked-{kind}-{bench.size}.json"
    found = [one["queue"] for one in json.loads(report.read_text())["bins"]]
    if walked.exists() and json.loads(walked.read_text()) != found:
        raise RuntimeError("the report and the manual's walk give different numbers")


@row(
    "report 1000 bins, from the store",
    Sizes(5_000, 100_000, 1_000_000),
    beside=("the manual's walk, jobs in memory", walk_store),
    unit="jobs",
)
def report_store(bench: Bench) -> None:
    """Queue and CPU utilization of a month of ARC jobs, as a command: start-up and reading included."""
    config = _site(bench)
    for _ in range(3):
        bench.command(
            bench.size, "--config", config, "report", "utilization", "--since", f"@{_START}", "--until",
            f"@{_STOP}", "--bins", str(BINS), "--format", "json", "--output", "report.json",
        )  # fmt: skip
    _same(bench, "StoreRuns", bench.folder / "report.json")


@row(
    "report 1000 bins, from Parquet",
    Sizes(100_000, 1_000_000, 10_000_000),
    beside=("the manual's walk, jobs in memory", walk_archive),
    unit="jobs",
)
def report_archive(bench: Bench) -> None:
    """The same from an archive."""
    archive = archive_of(bench)
    config = bench.folder / "publisher.toml"
    config.write_text(HEAD, encoding="utf-8")
    for _ in range(3):
        bench.process(
            bench.size, *COMMAND, "--config", config, "report", "utilization", "--archive", archive.absolute(),
            "--since", f"@{_START}", "--until", f"@{_STOP}", "--bins", str(BINS),
            "--format", "json", "--output", "report.json",
        )  # fmt: skip
    _same(bench, "ArchiveRuns", bench.folder / "report.json")


_VIEWS: list[tuple[str, dict[str, Any]]] = [
    ("utilization", {"bin_s": 43_200}),
    ("utilization", {"bin_s": 43_200, "by": ("queue",)}),
    ("totals", {"by": ("user", "queue")}),
    ("occupation", {"period": "day"}),
    ("waiting", {"by": ("queue",)}),
]


def _views(publisher: Publisher, bench: Bench, kept: ReportCache | None) -> None:
    for view, given in _VIEWS:
        request = ReportRequest(start=_START, stop=_STOP, **given)
        context = ReportContext(publisher.store, publisher.config, _STOP, None if kept is None else kept.runs)
        with bench.timed(bench.size):
            make(view, context, request)


def views_from_store(bench: Bench) -> None:
    """The same views, each reading the store."""
    with Publisher.from_file(_site(bench), read_only=True) as publisher:
        _views(publisher, bench, None)


@row(
    "views of the page, runs kept in memory",
    Sizes(5_000, 100_000, 1_000_000),
    beside=("the same, read from the store", views_from_store),
    unit="jobs",
)
def views_kept(bench: Bench) -> None:
    """Five views of all runs, one after the other; they were read into memory before, as `serve` does at its start."""
    with Publisher.from_file(_site(bench), read_only=True) as publisher:
        kept = ReportCache(publisher.store, publisher.config, print, lambda: _STOP)
        kept.prepare()
        kept.wait()
        _views(publisher, bench, kept)


@row(
    "preparing the page",
    Sizes(5_000, 100_000, 1_000_000),
    beside=("the manual's walk, jobs in memory", walk_store),
    unit="jobs",
)
def preparing(bench: Bench) -> None:
    """What `serve` does at its start, during the first answers: read all runs into memory."""
    with Publisher.from_file(_site(bench), read_only=True) as publisher:
        kept = ReportCache(publisher.store, publisher.config, print, lambda: _STOP)
        with bench.timed(bench.size):
            kept.prepare()
            kept.wait()
