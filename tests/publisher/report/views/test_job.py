"""Jobs by a pattern of what they are called: only that is read of each run, and what is found is what is there."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

from publisher.api import Publisher
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from publisher.status.jobs import fact_rows
from publisher.store import queries

SINCE, UNTIL = 0, 1_796_083_200


def test_jobs_found_by_a_pattern_are_those_that_reading_every_run_finds(every_source: Publisher) -> None:
    """The search looks at no more than what jobs are called, and at each run in the order of their ends."""
    prefixes = every_source.config.local_id_prefixes
    with every_source.store.read() as connection:
        runs = [run for run, _ in queries.runs_in(connection, SINCE, UNTIL, None, 10_000)[0]]
    for pattern in ("*1*", "ge-*", "*job*", "?", "*", "[a-m]*", "nothing*"):
        request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": pattern})
        found = make("job", ReportContext(every_source.store, every_source.config, UNTIL), request)
        expected = []
        for run in runs:
            local_id = run.job.local_id
            behind = prefixes[run.source] + local_id if local_id else None
            others = (run.job.array_id, run.job.extras.get("dqs_job_name"))
            words = [word for word in (local_id, behind, run.job.name, run.job.global_id, *others) if word]
            if any(fnmatchcase(word, pattern) for word in words):
                expected.append(run.record_id)
        assert [row[0] for row in found.rows if row[1] == "source"] == expected
        assert bool(expected) == (pattern != "nothing*")


@pytest.mark.parametrize(
    ("name", "system", "local_ids"),
    [
        ("3", "gridengine", {"3.1", "3.3", "3.5"}),
        ("ge-3", "gridengine", {"3.1", "3.3", "3.5"}),
        ("3.3", "gridengine", {"3.3"}),
        ("107", "torque", {"107[1]", "107[2]"}),
        ("107.batch", "torque", {"107[1]", "107[2]"}),
        ("107.batch.example.org", "torque", {"107[1]", "107[2]"}),
        ("107[].batch", "torque", {"107[1]", "107[2]"}),
        ("107[1].batch", "torque", {"107[1]"}),
        ("107[1]", "torque", {"107[1]"}),
        ("99", "torque", {"99-3"}),
        ("101.batch", "torque", {"101"}),
        ("101.other", "torque", set()),
        ("115", "slurm", {"115", "116", "117"}),
        ("115_2", "slurm", {"117"}),
        ("DQS.1", "dqs", {"1"}),
    ],
)
def test_tasks_of_an_array_are_found_by_its_id(
    every_source: Publisher, name: str, system: str, local_ids: set[str]
) -> None:
    """In the view of one job, in reports of all views, in `jobs`, and in an archive."""
    context = ReportContext(every_source.store, every_source.config, UNTIL)
    request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": name})
    known = [one.run for one in every_source.job(name) if one.run.job.system == system]
    assert {run.job.local_id for run in known} == local_ids
    found = make("job", context, request)
    of_job = {row[0] for row in found.rows}
    assert {run.record_id for run in known} <= of_job
    jobs = [one.run for one in every_source.job(name) if one.run.job.finished]
    all_totals = make("totals", context, request)
    assert (all_totals.rows[0][0] if all_totals.rows else 0) == len(jobs)
    only = {"job": name, "task": "3-5:2"}
    some = make("job", context, msgspec.structs.replace(request, filters=only))
    tasks = {run.record_id for run in jobs if run.job.array_task in {3, 5}}
    assert {row[0] for row in some.rows} == tasks


def test_its_facts_are_those_of_the_other_views_of_a_job(every_source: Publisher) -> None:
    request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": "DQS.1"})
    found = make("job", ReportContext(every_source.store, every_source.config, UNTIL), request)
    (known,) = every_source.job("DQS.1")
    assert found.rows == (
        (known.run.record_id, "source", "dqs"),
        *((known.run.record_id, name, ", ".join(lines)) for name, lines in fact_rows(known.run.job)),
    )


@pytest.mark.parametrize("name", ["\udcff\udcfe", "*\udcff"])
def test_bytes_that_are_not_unicode_are_the_id_of_no_job(every_source: Publisher, archive: Path, name: str) -> None:
    for read in (None, archive):
        request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": name}, archive=read)
        assert make("job", ReportContext(every_source.store, every_source.config, UNTIL), request).nothing


def test_the_sql_of_the_view(every_source: Publisher, archive: Path) -> None:
    """A job of the store is looked up by its id without SQL over columns."""
    context = ReportContext(every_source.store, every_source.config, UNTIL)
    request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": "1*"})
    assert make("job", context, request).sql.rstrip().endswith('SELECT run_id FROM matching ORDER BY "end", run_id;')
    of_archive = msgspec.structs.replace(request, archive=archive)
    assert "LIMIT 1000;" in make("job", context, of_archive).sql
    by_id = msgspec.structs.replace(request, filters={"job": "3.3"})
    assert make("job", context, by_id).sql.startswith("-- The jobs of an id are looked up")


@pytest.fixture(scope="module")
def archive(every_source: Publisher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "archive"
    every_source.archive(folder)
    return folder


@pytest.mark.parametrize("name", ["3", "ge-3.3", "107[1].batch", "115_2", "DQS.1", "*1*", "sleep*", "nothing"])
def test_an_archive_has_the_same_runs(every_source: Publisher, archive: Path, name: str) -> None:
    """With what it has of them, also where the store has none of them any more, and at any time."""
    late = {"start": UNTIL, "stop": UNTIL + 1} if name[0].isdigit() else {}
    request = msgspec.structs.replace(ReportRequest(start=SINCE, stop=UNTIL, filters={"job": name}), **late)
    stored = make("job", ReportContext(every_source.store, every_source.config, UNTIL), request)
    from_archive = msgspec.structs.replace(request, archive=archive)
    found = make("job", ReportContext(None, every_source.config, UNTIL), from_archive)
    assert found.facts == stored.facts
    for field in ("source", "queue", "end", "wall_ms", "name"):
        assert sorted(values(found, field)) == sorted(values(stored, field))
    assert bool(found.nothing) == (name == "nothing")
    assert any("no record ids" in note for note in found.notes)


def test_an_archive_tells_unknown_amounts_from_zero(every_source: Publisher, archive: Path) -> None:
    request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": "DQS.1"}, archive=archive)
    found = make("job", ReportContext(None, every_source.config, UNTIL), request)
    facts = {str(row[1]): row[2] for row in found.rows}
    assert facts["cpu_ms"] == "0"
    assert not facts.keys() & {"virtual_kib", "stage_in_bytes", "io_ugb", "eligible", "incomplete"}
    assert facts["complex"] == "aix, memory=64"


def values(found: Report, field: str) -> list[str]:
    return [str(row[2]) for row in found.rows if row[1] == field]
