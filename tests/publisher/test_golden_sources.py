"""Golden files of every format and version, from the fixtures of every source.

The jobs are those that each source reads from its fixtures (their own golden files). If a source has no benchmark, the
configuration would have one, so such jobs get one. After the message comes what was altered, and what is held and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from formats.base import Note
from formats.benchmark import has_usable_benchmark
from formats.calendar import period_of
from formats.job import Benchmark, Job
from formats.registry import FORMATS, record_format, report_format, totals_format
from formats.rule_codes import CannotRenderError
from formats.utilization.measure import Bins, Tally
from formats.utilization.report import UtilizationReport
from formats.view import View
from publisher.messages.entries import entries_of, rans_of
from tests.generators.arc_database import load
from tests.publisher.sources.arc.arc_reading import Read
from tests.publisher.sources.arc.arc_reading import source as arc_source
from tests.publisher.sources.log_reading import golden_jobs

SCORE = (Benchmark("HEPscore23", 14.2),)
CREATED = 1_800_000_000
MOST = 12
READ = {
    "dqs": "dqs/act_file.jobs.json",
    "gridengine-colon": "gridengine/accounting-8.1.9.jobs.json",
    "gridengine-jsonl": "gridengine/accounting.jsonl.jobs.json",
    "htcondor": "htcondor/history.jobs.json",
    "lsf": "lsf/expected.json",
    "pbs": "pbs/expected.json",
    "slurm": "slurm/sacct.psv.jobs.json",
    "torque": "torque/expected.json",
}
VERSIONS = {
    "ogf-ur": ("",), "emi-car": ("",), "apel-job": ("0.3", "0.4"), "apel-summary": ("0.2", "0.4"),
    "apel-normalised-summary": ("0.3", "0.4"), "apel-sync": ("",), "utilization": ("json", "csv"),
    "auditor-record": ("",), "waldur-usage": ("",), "xdmod-slurm": ("",),
}  # fmt: skip
FORMS = [(name, version) for name, versions in VERSIONS.items() for version in versions]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> dict[str, list[Job]]:
    """The first finished runs of each source, each with a benchmark."""
    database = load(fixtures / "arc" / "accounting.sql", tmp_path_factory.mktemp("arc") / "accounting.db")
    found = {"arc": Read(arc_source(database)).given}
    found |= {name: golden_jobs(fixtures / file) for name, file in READ.items()}
    return {
        name: [
            job if has_usable_benchmark(job) else msgspec.structs.replace(job, benchmarks=SCORE + job.benchmarks)
            for job in read
            if job.finished and job.end
        ][:MOST]
        for name, read in found.items()
    }


def made(name: str, version: str, jobs: Sequence[Job]) -> Iterator[str]:
    """The message, then notes, then what is held."""
    view = View(site="EXAMPLE-SITE", version=version)
    reported: list[str] = []

    def noted(job: str, notes: tuple[Note, ...]) -> None:
        reported.extend(f"# {job}: {note.field}: {note.rule}: {note.before} -> {note.after}\n" for note in notes)

    def held(job: Job, error: CannotRenderError) -> None:
        reported.append(f"# held: {job.record_id}: {error}\n")

    if name == "utilization":
        yield _report(view, jobs)
        return
    jobs = [job for job in jobs if job.has_record]
    bodies: list[bytes] = []
    if FORMATS[name].totals is not None:
        totals = totals_format(name, view)
        fold = FORMATS[name].required_totals.fold(view)
        for job in jobs:
            try:
                fold.add(job)
            except CannotRenderError as error:
                held(job, error)
        for group in fold.groups():
            rendered = totals.record(group)
            bodies.append(rendered.body)
            noted(group.key.text, rendered.notes)
        message = totals.message(bodies)
    else:
        records = record_format(name, view)
        for job in jobs:
            try:
                rendered = records.record(job, CREATED)
            except CannotRenderError as error:
                held(job, error)
                continue
            bodies.append(rendered.body)
            noted(job.record_id, rendered.notes)
        message = records.message(bodies)
    yield message.decode("ascii" if FORMATS[name].service in {"SGAS", "APEL"} else "utf-8").replace("><", ">\n<")
    yield from reported


def _report(view: View, jobs: Sequence[Job]) -> str:
    """A report of the day in which the first job ended."""
    day = period_of("day", min(job.end or 0 for job in jobs))
    tally = Tally(Bins(day.start, day.stop, 6 * 3600))
    for job in jobs:
        for entry in entries_of(job):
            tally.add(entry.ran)
    report = UtilizationReport(
        site=view.site, start=day.start, stop=day.stop, bin_s=6 * 3600, measure="queue", bins=tally.measured()
    )
    return report_format("utilization", view).message(report).decode("utf-8")


@pytest.mark.parametrize(("name", "version"), FORMS)
@pytest.mark.parametrize("source", ["arc", *READ])
def test_golden_of_a_source(
    source: str, name: str, version: str, jobs: dict[str, list[Job]], fixtures: Path, *, rewrite_golden: bool
) -> None:
    path = fixtures / "golden" / "sources" / source / f"{name}{'-' * bool(version)}{version}.txt"
    text = "".join(made(name, version, jobs[source]))
    if rewrite_golden:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_every_format_is_among_them() -> None:
    assert set(VERSIONS) == set(FORMATS)


def test_when_entries_ran_is_the_same_with_and_without_what_they_are_selected_by(jobs: dict[str, list[Job]]) -> None:
    for job in (job for found in jobs.values() for job in found):
        assert rans_of(job) == [entry.ran for entry in entries_of(job)]
