"""DQS: one record a run, every line of the act_file for reports, samples of the stat_file."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.job import Job
from formats.utilization.measure import Ran
from publisher.config.schema import SourceSettings as Settings
from publisher.errors import ConfigError
from publisher.messages.entries import entries_of, rans_of
from publisher.sources.base import Line, Unreadable, UnreadableLine
from publisher.sources.dqs import MOST_JOBS, DqsParser, DqsSource, act_lines, parse_line, without_slaves
from publisher.sources.dqs_stat import QueueSample, StatError, parse_sample, read_samples
from publisher.sources.gridengine.jobs import RUSAGE
from tests.publisher.sources.log_reading import Seen, compare, fuzz, mutated, parse_all, read_on


def source(path: Path) -> DqsSource:
    return DqsSource("dqs", Settings(type="dqs", path=path, cluster="scri"))


def runs_of(seen: Seen) -> list[Job]:
    return [job for job in seen.jobs.values() if not job.slave]


@pytest.fixture
def lines(fixtures: Path) -> list[bytes]:
    return (fixtures / "dqs" / "act_file").read_bytes().splitlines()


def test_golden(fixtures: Path, rewrite_golden: bool) -> None:
    seen = read_on(source(fixtures / "dqs" / "act_file"), Seen())
    assert seen.unreadable == []
    compare(fixtures / "dqs" / "act_file.jobs.json", list(seen.jobs.values()), rewrite=rewrite_golden)


def test_every_line_of_a_run_is_there_for_reports(fixtures: Path, lines: list[bytes]) -> None:
    seen = read_on(source(fixtures / "dqs"), Seen())
    assert len(seen.jobs) == len(lines) - 1  # job 7 never started
    six, *slaves = sorted((job for job in seen.jobs.values() if job.local_id == "6"), key=lambda job: job.slave)
    assert [job.slave for job in slaves] == [True, True]
    assert (six.slots, six.nodes, six.cpu_ms, six.wall_ms, six.status) == (3, 2, 61_000, 30_000, "completed")
    assert [(line.master, line.host, line.user_s) for line in act_lines(six)] == [
        (1, "alpha", 25),
        (0, "beta", 20),
        (0, "beta", 10),
    ]


def test_every_measure_of_a_slave_counts(lines: list[bytes]) -> None:
    """The counts of getrusage as sums, memory as the largest, the wall clock as the master's."""
    six = [line.split(b":") for line in lines if b"DQS.6" in line]
    for number, fields in enumerate(six, 1):
        fields[13:] = [b"%d" % (number * 100 + place) for place in range(18)]
    (run,) = runs_of(parse_all(DqsParser("c"), [b":".join(fields) for fields in six])[0])
    (master,) = (number for number, fields in enumerate(six, 1) if fields[2] == b"1")
    expected = {name: 100 + 200 + 300 + 3 * place for place, name in enumerate(RUSAGE)}
    expected |= {"ru_wallclock": master * 100, "ru_maxrss": 303}
    assert {name: run.extras[name] for name in RUSAGE} == expected
    assert run.cpu_ms == (expected["ru_utime"] + expected["ru_stime"]) * 1000


def test_the_lines_of_a_run_come_in_any_order(lines: list[bytes]) -> None:
    six = [line for line in lines if b"DQS.6" in line]
    for order in permutations(six):
        (job,) = runs_of(parse_all(DqsParser("c"), order)[0])
        assert (job.cpu_ms, job.slots, len(act_lines(job))) == (61_000, 3, 3)


Tally = tuple[tuple[str, ...], tuple[str, ...], Ran]


def tally_of(line: bytes) -> Tally:
    """A line as a report of DQS counts it."""
    act = parse_line(line.decode())
    return (act.queue,), (act.host,), Ran(act.start, act.end, 1000 * act.user_s, 1000 * act.system_s, 1)


def act(number: int, begin: int, host: int, master: int, used: int) -> bytes:
    head = b"q%d:h%d:%d:aix:chem:ada:job:DQS.%d:%d:5:%d:%d:0:" % (
        host % 2, host, master, number, number, begin, begin + 50 + used,
    )  # fmt: skip
    return head + b"1:%d:%d:" % (used, host) + b"0:" * 14 + b"0"


@st.composite
def act_files(draw: st.DrawFn) -> list[bytes]:
    """Runs of jobs, some of them several of one job, each with up to three slaves or without its master's line."""
    written: list[bytes] = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        for run in range(draw(st.integers(1, 2))):
            begin = 100 + 1000 * run
            if draw(st.integers(0, 9)):
                written.append(act(number, begin, 0, 1, draw(st.integers(0, 9))))
            hosts = range(draw(st.integers(0, 3)))
            written += [act(number, begin + host, host + 1, 0, draw(st.integers(0, 9))) for host in hosts]
    return draw(st.permutations(written + draw(st.lists(st.sampled_from(written), max_size=2)) if written else written))


@given(written=act_files(), most=st.integers(1, 4), cut=st.integers(0, 40))
def test_any_order_of_the_lines_gives_the_same_tallies(written: list[bytes], most: int, cut: int) -> None:
    """However few jobs are remembered, in two reads and again: each line counts once, and each master's line is a
    record."""
    seen = Seen()
    for part in (written[:cut], written[cut:], written):
        parser = DqsParser("c", most_jobs=most)
        parser.resume(seen.cursor.get("parser"))
        seen.add(list(parse_all(parser, part)[0].jobs.values()))
        seen.cursor = {"parser": json.loads(json.dumps(parser.state()))}
    entries = [entry for job in seen.jobs.values() for entry in entries_of(job)]
    tallies = Counter((entry.facts["queue"], entry.facts["host"], entry.ran) for entry in entries)
    assert tallies == Counter(map(tally_of, set(written)))
    assert sum((Counter(rans_of(job)) for job in seen.jobs.values()), Counter()) == Counter(
        ran for _, _, ran in tallies.elements()
    )
    assert len(runs_of(seen)) == sum(parse_line(line.decode()).master for line in set(written))


def test_a_slave_that_comes_too_late_for_the_record_counts_in_reports_and_is_reported(lines: list[bytes]) -> None:
    six = [line for line in lines if b"DQS.6" in line]
    master, late = six[1], six[2]
    parser = DqsParser("c")
    parser.parse(master)
    for number in range(MOST_JOBS):
        parser.parse(master.replace(b"DQS.6", b"DQS.1%d" % number))
    reported = parser.parse(late)
    assert isinstance(reported, Job)
    assert (reported.slave, reported.local_id, reported.slots, reported.cpu_ms, reported.status) == (
        True,
        "6",
        1,
        11_000,
        "failed",
    )
    assert parser.waiting() is not None
    again = DqsParser("c").parse(late)
    assert again == reported


def test_more_slaves_than_a_record_takes_are_reported(lines: list[bytes]) -> None:
    six = [line for line in lines if b"DQS.6" in line]
    seen, refused = parse_all(DqsParser("c", most_slaves=1), six)
    assert refused == [2]
    assert len(seen.jobs) == 3
    assert [job.slots for job in runs_of(seen)] == [2]


def test_what_a_run_has_without_its_slaves_is_what_its_masters_line_gives(lines: list[bytes]) -> None:
    six = [line for line in lines if b"DQS.6" in line]
    (run,) = runs_of(parse_all(DqsParser("c"), six)[0])
    (alone,) = runs_of(parse_all(DqsParser("c"), [line for line in six if b":alpha:1:" in line])[0])
    known = msgspec.structs.replace(run, vo="atlas")
    assert without_slaves(known) == msgspec.structs.replace(alone, vo="atlas", extras=run.extras)


def test_in_two_reads(fixtures: Path, lines: list[bytes], tmp_path: Path) -> None:
    whole = read_on(source(fixtures / "dqs" / "act_file"), Seen())
    for cut in range(len(lines)):
        file = tmp_path / f"{cut}" / "act_file"
        file.parent.mkdir()
        file.write_bytes(b"".join(line + b"\n" for line in lines[:cut]))
        seen = read_on(source(file), Seen())
        file.rename(file.with_name("act_file.1"))
        file.write_bytes(b"".join(line + b"\n" for line in lines[cut:]))
        assert read_on(source(file), seen).jobs == whole.jobs


def test_a_second_run_is_a_run_of_its_own(lines: list[bytes]) -> None:
    six = [line for line in lines if b"DQS.6" in line]
    later = [line.replace(b":10000000", b":10000005").replace(b":1000000500:", b":1000000501:") for line in six]
    later = [line.replace(b":1000000501:", b":1000000001:").replace(b":1000000100:", b":1000000600:") for line in later]
    seen, refused = parse_all(DqsParser("c"), [*six, *later])
    assert refused == []
    assert [len(act_lines(job)) for job in runs_of(seen)] == [3, 3]


def test_a_slave_waits_for_its_master_however_many_jobs_come_meanwhile(lines: list[bytes]) -> None:
    """Its line is written when it ends, which may be days before its master does."""
    slave = next(line for line in lines if b":beta:0:" in line)
    master = next(line for line in lines if b"DQS.6" in line and b":1:" in line.partition(b"DQS")[0])
    parser = DqsParser("c")
    parser.parse(slave)
    for number in range(4 * MOST_JOBS):
        assert isinstance(parser.parse(master.replace(b"DQS.6", b"DQS.1%d" % number)), Job)
    reported = "slave lines (1) of jobs (1) without a master's line so far: in reports, but in no record"
    assert parser.waiting() == reported
    again = DqsParser("c")
    again.resume(parser.state())
    run = again.parse(master)
    assert isinstance(run, Job)
    assert [line.master for line in act_lines(run)] == [1, 0]
    assert again.waiting() is None
    assert len(again.state()) == MOST_JOBS


def test_slaves_without_master_are_given_up_aloud(lines: list[bytes]) -> None:
    slave = next(line for line in lines if b":beta:0:" in line)
    parser = DqsParser("c")
    outcomes = [parser.parse(slave.replace(b"DQS.6", b"DQS.%d" % n)) for n in range(MOST_JOBS + 1)]
    assert isinstance(outcomes[-1], list)
    assert any(isinstance(each, UnreadableLine) and "had no master" in each.reason for each in outcomes[-1])
    assert all(isinstance(each, Job) and each.slave for each in outcomes[:-1])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a:b:c", "31 fields"),
        (b"q:h:2:c:g:o:n:d:" + b"1:" * 22 + b"1", "field 3"),
        (b"q:h:1:c:g:o:n:d:1:1:5:4:" + b"1:" * 18 + b"1", "ends before it starts"),
        (b"q:h:1:c:g:o:n:d:1:1:5:-4:" + b"1:" * 18 + b"1", "field 12"),
    ],
)
def test_what_is_not_a_line(line: bytes, reason: str) -> None:
    parser = DqsParser("c")
    outcome = parser.parse(line)
    if outcome is Line.IGNORED:  # it does not end as a record does: a later line may be its rest
        (outcome,) = parser.release()
    assert isinstance(outcome, UnreadableLine)
    assert reason in outcome.reason


def test_no_path() -> None:
    with pytest.raises(ConfigError, match="needs the path of DQS' act_file"):
        DqsSource("dqs", Settings(type="dqs"))


def test_fuzz(lines: list[bytes]) -> None:
    assert fuzz(DqsParser("c"), lines, 20_000) > 500


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fuzz_long(lines: list[bytes]) -> None:
    assert fuzz(DqsParser("c"), lines, 1_000_000) > 25_000


def test_fuzz_of_samples(fixtures: Path) -> None:
    assert _samples_fuzzed(fixtures, 10_000) > 200


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fuzz_of_samples_long(fixtures: Path) -> None:
    assert _samples_fuzzed(fixtures, 1_000_000) > 20_000


def _samples_fuzzed(fixtures: Path, rounds: int) -> int:
    """Samples that came out of mutated lines of a stat_file."""
    found = 0
    for raw in mutated((fixtures / "dqs" / "stat_file").read_bytes().splitlines(), rounds):
        with contextlib.suppress(StatError):
            found += parse_sample(raw).active >= 0
    return found


def test_samples_of_queues(fixtures: Path, tmp_path: Path) -> None:
    first, second, third = read_samples(fixtures / "dqs" / "stat_file")
    assert first == QueueSample(1000000600, "alpha", "fast.q", 1, 4, 2, ("aix", "memory=64"), frozenset("er"))
    assert isinstance(second, QueueSample)
    assert (second.active, second.complexes) == (0, ())
    assert isinstance(third, QueueSample)
    assert "a" in third.states
    file = tmp_path / "stat_file"
    file.write_bytes(b"1:h:q:1:2:3::e\nx\n1:h:q:1:2:1::E\n\n5:h:q:0:1:1::\n")
    outcomes = list(read_samples(file))
    assert [type(each) for each in outcomes] == [Unreadable, Unreadable, Unreadable, QueueSample]
    assert [each.line for each in outcomes if isinstance(each, Unreadable)] == [1, 2, 3]
