"""Samples of the stat_file compared with the utilization of the runs, and the facts of single jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.errors import SourceFormatError, SourceMissingError, UsageError
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.publisher.cli.program import BASE, Inside
from tests.publisher.report.torque_site import table

START = 1_000_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Iterator[Publisher]:
    config = tmp_path_factory.mktemp("load") / "publisher.toml"
    dqs = fixtures / "dqs"
    config.write_text(
        BASE + f'\n[sources.dqs]\ntype = "dqs"\npath = "{dqs / "act_file"}"\nstat_file = "{dqs / "stat_file"}"\n'
    )
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        yield publisher


def asked(publisher: Publisher, name: str, **given: object) -> Report:
    request = ReportRequest(**{"start": START, "stop": START + 1800, **given})  # type: ignore[arg-type]
    return make(name, ReportContext(publisher.store, publisher.config, START + 10**6), request)


def test_active_and_all_queues_load_and_utilization(site: Publisher) -> None:
    """At 600 s: 2 of 4 queues on alpha (load 1) and 0 of 2 on beta (load 0); at 1200 s: 4 of 4 on alpha (load 3).

    The runs of the act_file ran for 170 s of the first 600: A 8, B 3, C 24, D 7, E 31 and so on; the plot has both.
    """
    found = asked(site, "load", bins=3)
    assert table(found, "looks", "active", "queues", "load") == [
        (0, None, None, None),
        (1, 2.0, 6.0, 0.5),
        (1, 4.0, 4.0, 3.0),
    ]
    assert [series.label for series in found.plots[0].series] == [
        "active queues",
        "all queues",
        "queue utilization of the jobs",
    ]
    busy = asked(site, "utilization", bins=3)
    assert table(found, "queue_utilization") == table(busy, "queue")


def test_cells_of_dqs_add_up(fixtures: Path, tmp_path: Path) -> None:
    """Two cells with a file each look at different instants: a mean of all looks would be half of the site. The second
    has one look, at one of the hosts of the first."""
    stat_file = fixtures / "dqs" / "stat_file"
    other = tmp_path / "other"
    (line, *_) = [line for line in stat_file.read_text().splitlines() if "alpha" in line]
    other.write_text(f"{line}\n")
    sources = "".join(
        f'\n[sources.{name}]\ntype = "dqs"\npath = "{fixtures / "dqs" / "act_file"}"\nstat_file = "{file}"\n'
        for name, file in (("one", stat_file), ("two", other))
    )
    columns = ("looks", "active", "queues", "hosts", "load")
    config = tmp_path / "publisher.toml"
    config.write_text(BASE + sources, encoding="utf-8")
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        (first,) = table(asked(publisher, "load", bins=1, stat_file=stat_file), *columns)
        (second,) = table(asked(publisher, "load", bins=1, stat_file=other), *columns)
        (both,) = table(asked(publisher, "load", bins=1), *columns)
        by_host = dict(table(asked(publisher, "load", bins=1, by=("host",)), "host", "active"))
        hosts = dict(table(asked(publisher, "load", bins=1, by=("host",), stat_file=stat_file), "host", "active"))
    assert both[:4] == tuple(map(sum, zip(first[:4], second[:4], strict=True)))
    assert both[4] == pytest.approx((first[3] * first[4] + second[3] * second[4]) / both[3])
    assert by_host == {**hosts, "alpha": hosts["alpha"] + second[1]}


def test_by_host_and_queue_they_add_up(site: Publisher) -> None:
    """In one bin of both looks: 3 of 4 queues of alpha were active on average, 0 of 1 of beta, which was seen once."""
    (all_,) = table(asked(site, "load", bins=1), "looks", "active", "queues", "hosts", "load")
    assert all_ == (2, 3.0, 5.0, 1.5, 1.75)
    for key, names in (("host", ("alpha", "beta")), ("queue", ("fast.q", "slow.q"))):
        found = asked(site, "load", bins=1, by=(key,))
        rows = table(found, key, "looks", "active", "queues", "share", "hosts", "load")
        assert rows == [(names[0], 2, 3.0, 4.0, 0.75, 1.0, 2.0), (names[1], 1, 0.0, 1.0, 0.0, 0.5, 0.0)]
        assert found.facts["by"] == [key]
        assert found.plots[0].stacked
        assert [series.label for series in found.plots[0].series] == list(names)


def test_by_state(site: Publisher) -> None:
    """The letters of the manual: alpha `er`, then `aer`; beta `d`. A queue of three states counts under each."""
    found = asked(site, "load", bins=3, by=("state",))
    assert table(found, "start", "state", "active", "queues", "hosts") == [
        (START + 600, "disabled", 0.0, 2.0, 1.0),
        (START + 600, "enabled", 2.0, 4.0, 1.0),
        (START + 600, "running", 2.0, 4.0, 1.0),
        (START + 1200, "alarm", 4.0, 4.0, 1.0),
        (START + 1200, "enabled", 4.0, 4.0, 1.0),
        (START + 1200, "running", 4.0, 4.0, 1.0),
    ]
    assert any("do not add up" in note for note in found.notes)
    assert not found.plots[0].stacked
    assert {series.label: series.values for series in found.plots[0].series}["alarm"] == (None, 0.0, 4.0)
    by_complex = table(asked(site, "load", bins=1, by=("complex",)), "complex", "queues")
    assert by_complex == [("", 1.0), ("aix", 4.0), ("memory=64", 4.0)]
    with pytest.raises(UsageError, match="load cannot be grouped by 'user'"):
        asked(site, "load", by=("user",))


def test_samples_are_selected(site: Publisher) -> None:
    assert table(asked(site, "load", bins=3, filters={"queue": "slow*"}), "queues")[1] == (2.0,)
    assert table(asked(site, "load", bins=3, filters={"complex": "aix"}), "queues")[1] == (4.0,)
    none = asked(site, "load", bins=3, filters={"host": "none", "complex": "*"}).nothing
    assert (
        none
        == "none of the 3 samples in the interval matches; existing values: host alpha, beta; complex aix, memory=64"
    )
    late = asked(site, "load", bins=3, start=START + 9_000, stop=START + 9_900).nothing
    assert late == ("no sample is in the interval; there are samples from 2001-09-09T01:56:40Z to 2001-09-09T02:06:40Z")
    with pytest.raises(UsageError, match="samples cannot be selected by 'user'"):
        asked(site, "load", filters={"user": "ada"})


def test_without_a_stat_file(site: Publisher, tmp_path: Path) -> None:
    config = site.config.model_copy(update={"sources": {}})
    with pytest.raises(UsageError, match="no source has a stat_file"):
        make("load", ReportContext(site.store, config, START), ReportRequest(start=START, stop=START + 60))
    lines = tmp_path / "stat_file"
    lines.write_text(f"{START + 5}:a:q:2:1:1::r\nno sample\n")
    found = asked(site, "load", bins=1, stat_file=lines)
    assert table(found, "looks", "active") == [(1, 1.0)]
    assert found.notes[0] == "Lines of the stat_file that are not samples: 1."


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("dqs/act_file", "this looks like a DQS act_file, and no line of it is a sample"),
        ("slurm/sacct.psv", "this looks like output of Slurm's sacct"),
        ("dqs/README.md", "this is not a stat_file of DQS, and no line of it is a sample"),
    ],
)
def test_a_file_that_is_not_a_stat_file(site: Publisher, fixtures: Path, file: str, said: str) -> None:
    with pytest.raises(SourceFormatError, match=f"{file}: {said}") as reported:
        asked(site, "load", bins=1, stat_file=fixtures / file)
    assert "eight fields between colons" in reported.value.hint
    done = Inside(site.config.file.parent)("report", "load", "--stat-file", fixtures / file)
    assert (done.code, done.out, said in done.err) == (1, "", True)


def test_a_stat_file_without_samples(site: Publisher, tmp_path: Path) -> None:
    (tmp_path / "stat_file").touch()
    assert asked(site, "load", bins=1, stat_file=tmp_path / "stat_file").nothing == (
        f"no samples in {tmp_path / 'stat_file'}"
    )
    with pytest.raises(SourceMissingError, match="nowhere"):
        asked(site, "load", bins=1, stat_file=tmp_path / "nowhere")


def test_a_job_in_full(site: Publisher) -> None:
    rows = asked(site, "job", filters={"job": "6"}).rows
    runs = [{row[1]: row[2] for row in rows if row[0] == name} for name in dict.fromkeys(row[0] for row in rows)]
    assert [(run["source"], run["name"], run["slots"], "slave" in run) for run in runs] == [
        ("dqs", "job6", "3", False),
        ("dqs", "job6", "1", True),
        ("dqs", "job6", "1", True),
    ]
    by_name = asked(site, "job", filters={"job": "job[12]"})
    assert len({row[0] for row in by_name.rows}) == by_name.facts["runs"]
    assert asked(site, "job", filters={"job": "none"}).nothing is not None
    with pytest.raises(UsageError, match="--job is missing"):
        asked(site, "job")
    with pytest.raises(UsageError, match="a job is selected with --job, --task, and --user only"):
        asked(site, "job", filters={"job": "6", "queue": "x"})


def test_a_job_of_an_owner(site: Publisher) -> None:
    (owner,) = {row[2] for row in asked(site, "job", filters={"job": "6"}).rows if row[1] == "local_user"}
    assert asked(site, "job", filters={"job": "6", "user": str(owner)}).rows
    other = asked(site, "job", filters={"job": "6", "user": "x"})
    assert not other.rows
    interval = "2001-09-09 01:46:40 until 2001-09-09 02:16:40, UTC"
    assert (other.nothing or "").startswith(
        f"no job of user 'x' has the id '6', and no job in the interval, {interval}, has"
    )
    assert not asked(site, "job", filters={"job": "job[12]", "user": "x"}).rows


def test_no_other_view_exists(site: Publisher) -> None:
    with pytest.raises(UsageError, match="known: utilization, totals"):
        asked(site, "colour")
