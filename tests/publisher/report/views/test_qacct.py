"""Totals compared with the output of the real `qacct` for the same accounting file, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.publisher.cli.program import BASE

SINCE, UNTIL = 1_793_491_200, 1_796_083_200
"""November 2026."""
COLUMNS = ("wall_of_tasks_s", "cpu_user_s", "cpu_system_s", "cpu_s", "memory_gb_s", "io_gb", "io_wait_s")
"""Ours, in the order of qacct's WALLCLOCK UTIME STIME CPU MEMORY IO IOW."""
KEYS = {"qacct-o.txt": "user", "qacct-P.txt": "project", "qacct-D.txt": "department", "qacct-pe.txt": "pe"}


def said_by_qacct(path: Path) -> Iterator[tuple[str, dict[str, tuple[float, ...]]]]:
    """The tables of an output of qacct: heading and rows by name; the total has the name of nothing."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if not line.startswith("==="):
            continue
        rows: dict[str, tuple[float, ...]] = {}
        for row in lines[place + 1 :]:
            words = row.split()
            try:
                figures = tuple(map(float, words[-7:]))
            except ValueError:
                break
            if len(figures) < 7:
                break
            rows[" ".join(words[:-7])] = figures
        yield lines[place - 1].split()[0], rows


def totals(publisher: Publisher, by: tuple[str, ...], **filters: str) -> dict[str, tuple[float, ...]]:
    request = ReportRequest(start=SINCE, stop=UNTIL, by=by, filters=filters)
    found = make("totals", ReportContext(publisher.store, publisher.config, UNTIL), request)
    names = [column.name for column in found.columns]
    places = [names.index(name) for name in COLUMNS]
    return {str(row[0]) if by else "": tuple(float(str(row[place])) for place in places) for row in found.rows}


def collected(folder: Path, accounting: Path) -> Publisher:
    config = folder / "publisher.toml"
    config.write_text(BASE + f'\n[sources.ge]\ntype = "gridengine"\npath = "{accounting}"\n')
    publisher = Publisher.from_file(config)
    publisher.collect()
    return publisher


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Iterator[tuple[Publisher, Path]]:
    folder = fixtures / "gridengine" / "real"
    with collected(tmp_path_factory.mktemp("ours"), folder / "accounting") as publisher:
        yield publisher, folder


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[tuple[Publisher, Path]]:
    folder = shared / "samples" / "gridengine"
    with collected(tmp_path_factory.mktemp("another"), folder / "accounting") as publisher:
        yield publisher, folder


def assert_agreement(found: dict[str, tuple[float, ...]], said: dict[str, tuple[float, ...]]) -> None:
    """Equal but for rounding: a record keeps milliseconds, qacct sums microseconds. What never ran has no total."""
    reported = {"" if name == "NONE" else name: figures for name, figures in said.items() if any(figures)}
    assert {name for name, figures in found.items() if any(figures)} == reported.keys()
    for name, figures in reported.items():
        assert found[name][0] == figures[0]
        assert found[name] == pytest.approx(figures, abs=0.015)


@pytest.mark.parametrize("site", ["ours", "another"])
@pytest.mark.parametrize("file", KEYS)
def test_by_one_key(site: str, file: str, request: pytest.FixtureRequest) -> None:
    publisher, folder = request.getfixturevalue(site)
    ((_, said),) = said_by_qacct(folder / file)
    assert_agreement(totals(publisher, (KEYS[file],)), said)


@pytest.mark.parametrize("site", ["ours", "another"])
def test_in_all(site: str, request: pytest.FixtureRequest) -> None:
    publisher, folder = request.getfixturevalue(site)
    (_, said), *rest = said_by_qacct(folder / "qacct.txt")
    assert_agreement(totals(publisher, ()), said)
    for heading, by_slots in rest:
        assert heading == "SLOTS"
        assert_agreement(totals(publisher, ("slots",)), by_slots)


def test_by_host_slaves_count_under_their_master(ours: tuple[Publisher, Path]) -> None:
    """qacct has the two slaves of the tight job that ran on `gehost` there: 6 s and 1.655 s of CPU time."""
    publisher, folder = ours
    ((_, said),) = said_by_qacct(folder / "qacct-h.txt")
    found = totals(publisher, ("host",))
    assert found.keys() == said.keys() == {"gehost", "genode"}
    assert [sum(column) for column in zip(*found.values(), strict=True)] == pytest.approx(
        [sum(column) for column in zip(*said.values(), strict=True)], abs=0.015
    )
    slaves = [said["gehost"][place] - found["gehost"][place] for place in (0, COLUMNS.index("cpu_s"))]
    assert slaves == [6, pytest.approx(0.911 + 0.747, abs=0.01)]


@pytest.mark.parametrize("file", ["qacct-o.txt", "qacct-h.txt"])
def test_without_what_was_deleted_by_force(tmp_path: Path, fixtures: Path, file: str) -> None:
    """qacct adds nothing for it; here its wall time is that in which it had its slots."""
    folder = fixtures / "gridengine" / "real" / "forced"
    ((_, said),) = said_by_qacct(folder / file)
    key = "user" if file == "qacct-o.txt" else "host"
    with collected(tmp_path, folder / "accounting") as publisher:
        assert_agreement(totals(publisher, (key,), status="[!l]*"), said)
        assert totals(publisher, ())[""][0] == 3 + 31


def test_of_one_account(ours: tuple[Publisher, Path]) -> None:
    publisher, folder = ours
    ((_, said),) = said_by_qacct(folder / "qacct-A.txt")
    (account,) = said
    assert_agreement(totals(publisher, ("account",), account=account), said)


def test_by_account(another: tuple[Publisher, Path]) -> None:
    publisher, folder = another
    ((_, said),) = said_by_qacct(folder / "qacct-A.txt")
    assert_agreement(totals(publisher, ("account",)), said)


def test_by_advance_reservation(ours: tuple[Publisher, Path]) -> None:
    """qacct has 0 for what ran in none."""
    publisher, folder = ours
    ((heading, said),) = said_by_qacct(folder / "qacct-ar.txt")
    assert (heading, said.keys()) == ("AR", {"0", "1"})
    assert_agreement(totals(publisher, ("reservation",)), {"" if ar == "0" else ar: row for ar, row in said.items()})
    assert_agreement(totals(publisher, ("reservation",), reservation="1"), {"1": said["1"]})
    assert totals(publisher, ("reservation",), reservation="2") == {}


def test_every_record_of_qacct_j_is_a_run_that_is_reported_in_full(ours: tuple[Publisher, Path]) -> None:
    publisher, folder = ours
    records = (folder / "qacct-j.txt").read_text().split("=" * 62)[1:]
    reported = [
        dict(line.split(None, 1) for line in record.splitlines() if len(line.split()) > 1) for record in records
    ]
    alone = [record for record in reported if record.get("jobnumber", "").strip() == "26"]
    (record,) = alone
    request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": "26"})
    found = make("job", ReportContext(publisher.store, publisher.config, UNTIL), request)
    facts = {row[1]: row[2] for row in found.rows}
    assert facts["queue"] == record["qname"].strip()
    assert facts["local_user"] == record["owner"].strip()
    assert facts["name"] == record["jobname"].strip()
    assert facts["slots"] == record["slots"].strip()
    assert facts["extras.ru_wallclock"] == record["ru_wallclock"].strip().rstrip("s")
    assert facts["exit_code"] == record["exit_status"].split()[0]


@pytest.mark.parametrize(("tasks", "expected"), [(None, {"1", "2", "3"}), ("2", {"2"}), ("1-3:2", {"1", "3"})])
def test_tasks_of_an_array_are_those_of_qacct(
    ours: tuple[Publisher, Path], tasks: str | None, expected: set[str]
) -> None:
    """`qacct -j 23` and `qacct -j 23 -t 1-3:2`."""
    publisher, folder = ours
    records = (folder / "qacct-j.txt").read_text().split("=" * 62)[1:]
    reported = [
        dict(line.split(None, 1) for line in record.splitlines() if len(line.split()) > 1) for record in records
    ]
    of_array = {record["taskid"].strip() for record in reported if record.get("jobnumber", "").strip() == "23"}
    assert of_array == {"1", "2", "3"}
    filters = {"job": "23"} | ({} if tasks is None else {"task": tasks})
    request = ReportRequest(start=SINCE, stop=UNTIL, filters=filters)
    found = make("job", ReportContext(publisher.store, publisher.config, UNTIL), request)
    assert {str(row[2]) for row in found.rows if row[1] == "array_task"} == expected


def test_a_job_is_found_by_the_id_that_services_know(every_source: Publisher) -> None:
    """This is the batch system's id after the prefix of the source; both find it, and the prefix only jobs of its
    source."""

    def sources(name: str) -> set[str]:
        request = ReportRequest(start=SINCE, stop=UNTIL, filters={"job": name})
        found = make("job", ReportContext(every_source.store, every_source.config, UNTIL), request)
        return {str(row[2]) for row in found.rows if row[1] == "source"}

    assert sources("ge-17") == {"ge"}
    assert {"ge"} < sources("17") or sources("17") == {"ge"}
    assert sources("ge-1?") == {"ge"}
    assert sources("ge-no") == set()
    for name in ("ge-17", "17", "ge-no"):
        assert {known.run.source for known in every_source.job(name)} == sources(name)
    (record_id,) = {known.run.record_id for known in every_source.job("ge-17")}
    assert [known.run.record_id for known in every_source.job(record_id)] == [record_id]


def test_io_wait_of_slaves(tmp_path: Path) -> None:
    """Slave 2 and master 1: `qacct` prints 3.000."""
    line = "q:h:g:o:n:1:sge:0:{0}:{0}:{1}:0:0:100:" + "0:" * 17 + "NONE:d:mpi:2:0:1.5:0:0:NONE:{2}:{3}:0.0:0:0\n"
    lines = [line.format(SINCE + 10, SINCE + 110, iow, task) for iow, task in (("2.000", "1.h"), ("1.000", "NONE"))]
    (tmp_path / "accounting").write_text("".join(lines))
    with collected(tmp_path, tmp_path / "accounting") as publisher:
        (figures,) = totals(publisher, ()).values()
    assert figures[COLUMNS.index("io_wait_s")] == 3.0
