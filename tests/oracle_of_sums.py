"""The oracle of sums: the sums of the source's own accounting are those of the bodies that a service keeps.

`tests.oracle` is that of counts. For every format, by month, VO, and user: jobs, wall time times cores, and CPU time,
in whole numbers of the last unit that the format has: seconds, rounded once for a record and once for a group;
normalised seconds; for utilization seconds times slots in each report, and milliseconds of CPU time. Bodies are read
here as XML and text, not with the program.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

import msgspec

from formats.job import Benchmark, Job

_NOBODY: Final = frozenset({"", "None"})


class Key(NamedTuple):
    """The owner of a sum, and its month of ends (UTC); empty: unknown. A utilization report has only its start."""

    month: str
    vo: str
    user: str


class Sum(NamedTuple):
    """Jobs, wall time times cores, and CPU time of all cores, in the unit of the format."""

    jobs: int = 0
    wall: int = 0
    cpu: int = 0

    def plus(self, other: Sum) -> Sum:
        """The sum of both."""
        return Sum(self.jobs + other.jobs, self.wall + other.wall, self.cpu + other.cpu)


class CountedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run as the source's own accounting has it: epoch seconds and milliseconds.

    `ran`: from when until when it ran, where that is not all the time from its start to its end. `score`: type and
    thousandths of its benchmark; `rest`: what else distinguishes its group at a receiver.
    """

    end: int
    ran: tuple[int, int]
    vo: str = ""
    user: str = ""
    cores: int = 1
    wall_ms: int
    cpu_user_ms: int = 0
    cpu_system_ms: int = 0
    cpu_ms: int
    score: tuple[str, int] = ("", 0)
    rest: Hashable = None

    @property
    def key(self) -> Key:
        """Its owner and month."""
        return Key(month_of(self.end), self.vo, self.user)


def run_of(job: Job, configured: Sequence[Benchmark] = ()) -> CountedRun:
    """A run that a source in memory gives. `configured`: its benchmark where the source has none."""
    assert job.start is not None
    assert job.end is not None
    assert job.wall_ms is not None
    assert job.cpu_ms is not None
    score = [(each.type, round(each.value * 1000)) for each in (*job.benchmarks, *configured)[:1]]
    return CountedRun(
        end=job.end, ran=(job.start, job.end), vo=job.vo or "", user=job.user_dn or "",
        cores=job.cores or job.slots or 1, wall_ms=job.wall_ms, cpu_ms=job.cpu_ms, cpu_user_ms=job.cpu_user_ms or 0,
        cpu_system_ms=job.cpu_system_ms or 0, score=score[0] if score else ("", 0),
        rest=(job.endpoint_url, job.endpoint_type, job.fqans[:1], job.nodes, job.cluster, job.infrastructure),
    )  # fmt: skip


_ARC: Final = """
SELECT EndTime, Users.Name, WLCGVOs.Name, CPUCount, UsedWalltime, UsedCPUUserTime, UsedCPUKernelTime,
       Interface, URL, NodeCount,
       (SELECT InfoValue FROM JobExtraInfo AS e WHERE e.RecordID = AAR.RecordID AND InfoKey = 'benchmark'),
       (SELECT AttrValue FROM AuthTokenAttributes AS a WHERE a.RecordID = AAR.RecordID AND AttrKey = 'mainfqan'),
       (SELECT EventTime FROM JobEvents AS b WHERE b.RecordID = AAR.RecordID AND EventKey = 'LRMSSTART'),
       (SELECT EventTime FROM JobEvents AS b WHERE b.RecordID = AAR.RecordID AND EventKey = 'LRMSEND')
FROM AAR JOIN Status ON Status.ID = StatusID JOIN Endpoints ON Endpoints.ID = EndpointID
         JOIN Users ON Users.ID = UserID JOIN WLCGVOs ON WLCGVOs.ID = VOID
WHERE Status.Name IN ({})
"""
GRID: Final = ("completed", "failed")
"""What grid services are sent; reports are of all that ran."""
RAN: Final = (*GRID, "aborted")


def arc_runs(database: Path, statuses: Sequence[str] = GRID) -> list[CountedRun]:
    """The jobs of these statuses in an ARC database, each with one benchmark: read by SQL alone."""
    query = _ARC.format(", ".join("?" * len(statuses)))
    with closing(sqlite3.connect(database)) as connection:
        return [_arc_run(*row) for row in connection.execute(query, statuses)]


def _arc_run(
    end: int, user: str, vo: str, cores: int, wall: int, in_user: int, in_kernel: int, interface: str, url: str,
    nodes: int, benchmark: str, fqan: str | None, began: str | None, ended: str | None,
) -> CountedRun:  # fmt: skip
    kind, _, value = benchmark.partition(":")
    ran = (end - wall, end) if began is None or ended is None else (_instant(began), _instant(ended))
    return CountedRun(
        end=end, ran=ran, vo=vo, user=user, cores=cores, wall_ms=wall * 1000,
        cpu_ms=(in_user + in_kernel) * 1000, cpu_user_ms=in_user * 1000, cpu_system_ms=in_kernel * 1000,
        score=(kind, round(float(value) * 1000)), rest=(interface, url, nodes, fqan),
    )  # fmt: skip


def _instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp())


def month_of(end: int) -> str:
    """The month in which an instant lies (UTC), as in a `Key`."""
    return datetime.fromtimestamp(end, UTC).strftime("%Y-%m")


def _seconds(amount_ms: int) -> int:
    return (amount_ms + 500) // 1000


# --- what the source's accounting adds up to


def _of_records(runs: Iterable[CountedRun]) -> dict[Key, Sum]:
    """Each record has whole seconds."""
    return _added((run.key, Sum(1, _seconds(run.wall_ms) * run.cores, _seconds(run.cpu_ms))) for run in runs)


def _of_usage_records(runs: Iterable[CountedRun]) -> dict[Key, Sum]:
    """A usage record has the CPU time of the user and of the system, where they are known, each in whole seconds."""
    return _added(
        (
            run.key,
            Sum(
                1,
                _seconds(run.wall_ms) * run.cores,
                _seconds(run.cpu_user_ms) + _seconds(run.cpu_system_ms)
                if run.cpu_user_ms or run.cpu_system_ms
                else _seconds(run.cpu_ms),
            ),
        )
        for run in runs
    )


def _of_groups(
    runs: Iterable[CountedRun], score: Callable[[CountedRun], Hashable], weight: Callable[[CountedRun], int]
) -> dict[Key, Sum]:
    """Each group has whole seconds. `score`: what of it is in the key of a group; `weight`: in thousandths."""
    groups: defaultdict[Any, list[CountedRun]] = defaultdict(list)
    for run in runs:
        groups[run.key, run.cores, score(run), run.rest].append(run)
    return _added(
        (
            key,
            Sum(
                len(members),
                _seconds_of_thousandths(sum(run.wall_ms * weight(run) for run in members)) * cores,
                _seconds_of_thousandths(sum(run.cpu_ms * weight(run) for run in members)),
            ),
        )
        for (key, cores, _, _), members in groups.items()
    )


def _seconds_of_thousandths(amount: int) -> int:
    return (amount + 500_000) // 1_000_000


def _added(parts: Iterable[tuple[Key, Sum]]) -> dict[Key, Sum]:
    total: defaultdict[Key, Sum] = defaultdict(Sum)
    for key, part in parts:
        total[key] = total[key].plus(part)
    return dict(total)


# --- what the bodies add up to


class CountedBody(NamedTuple):
    """A record, group, or report of a message: its key at the receiver, its owner, and its sum."""

    identity: Hashable
    key: Key
    sum: Sum


def bodies(format_name: str, payload: bytes) -> Iterator[CountedBody]:
    """What is in a message."""
    return _READERS[format_name](payload)


def _xml(payload: bytes) -> Iterator[CountedBody]:
    """Usage records and compute records: of several CPU times the total, else their sum."""
    for record in ET.fromstring(payload):
        texts: defaultdict[str, list[str]] = defaultdict(list)
        cpu: dict[str, int] = {}
        space = record.tag.rpartition("}")[0]
        for element in record.iter():
            name = element.tag.rpartition("}")[2]
            if element.tag.startswith(space) or name == "Name":  # file transfers have ends as well
                texts[name].append(element.text or "")
            if name == "CpuDuration":
                cpu[_attribute(element, "usageType") or "all"] = _duration(element.text)
        identity = next(element for element in record.iter() if element.tag.endswith("}RecordIdentity"))
        assert len(texts["WallDuration"]) <= 1 >= len(texts["EndTime"])
        wall, end = ("".join(texts[name]) for name in ("WallDuration", "EndTime"))  # GFD.98 insists on neither
        cores = int(next(iter(texts["Processors"]), "1"))
        vo, user = (
            next(iter(texts[name]), "") for name in (("Name" if "Name" in texts else "Group"), "GlobalUserName")
        )
        yield CountedBody(
            _attribute(identity, "recordId"),
            Key(end[:7], vo, user),
            Sum(1, _duration(wall or "PT0S") * cores, cpu["all"] if "all" in cpu else sum(cpu.values())),
        )


def _attribute(element: ET.Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _duration(text: str | None) -> int:
    assert text is not None
    assert text.startswith("PT")
    assert text.endswith("S")
    return int(text[2:-1])


def _text(payload: bytes) -> Iterator[dict[str, str]]:
    head, _, rest = payload.decode().partition("\n")
    assert head.startswith("APEL-")
    for record in rest.split("%%"):
        if record.strip():
            yield dict(line.split(": ", 1) for line in record.strip().splitlines())


def _job_records(payload: bytes) -> Iterator[CountedBody]:
    for record in _text(payload):
        end, cores = int(record["EndTime"]), int(record.get("Processors", 0)) or 1
        yield CountedBody(
            (record["SubmitHost"], record["MachineName"], record["LocalJobId"], end),
            Key(month_of(end), name_in(record, "VO"), name_in(record, "GlobalUserName")),
            Sum(1, int(record["WallDuration"]) * cores, int(record["CpuDuration"])),
        )


def _summaries(wall: str, cpu: str, payload: bytes) -> Iterator[CountedBody]:
    amounts = {
        "EarliestEndTime", "LatestEndTime", "WallDuration", "CpuDuration", "NormalisedWallDuration",
        "NormalisedCpuDuration", "NumberOfJobs",
    }  # fmt: skip
    for record in _text(payload):
        scores = [record[name].partition(":")[0] for name in (wall, cpu) if record[name].startswith("{")]
        identity = {name: text for name, text in record.items() if name not in amounts}
        cores = int(record["Processors"]) or 1
        yield CountedBody(
            (tuple(sorted(identity.items())), *scores),
            Key(
                f"{int(record['Year']):04}-{int(record['Month']):02}",
                name_in(record, "VO"),
                name_in(record, "GlobalUserName"),
            ),
            Sum(int(record["NumberOfJobs"]), _amount(record[wall]) * cores, _amount(record[cpu])),
        )


def _amount(text: str) -> int:
    return int(text.strip("{}").rpartition(":")[2])


def name_in(record: Mapping[str, str], field: str) -> str:
    """A name of a record or row of APEL's; empty where it has none."""
    found = record.get(field, "")
    return "" if found in _NOBODY else found


def _normalised_summaries(payload: bytes) -> Iterator[CountedBody]:
    return _summaries("NormalisedWallDuration", "NormalisedCpuDuration", payload)


def _plain_summaries(payload: bytes) -> Iterator[CountedBody]:
    return _summaries("WallDuration", "CpuDuration", payload)


def _reports(payload: bytes) -> Iterator[CountedBody]:
    """The sums of one report: seconds times slots and milliseconds of CPU time of all its bins. Its jobs are those of
    each bin."""
    report = json.loads(payload)
    wall, cpu = Fraction(0), Fraction(0)
    for each in report["bins"]:
        wall += round(Fraction(each["slots"]) * report["bin_s"])
        cpu += (Fraction(each["cpu_user"]) + Fraction(each["cpu_system"])) * report["bin_s"] * 1000
    jobs = sum(each["jobs"] for each in report["bins"])
    yield CountedBody((report["start"], report["stop"]), Key(report["start"], "", ""), Sum(jobs, int(wall), round(cpu)))


def reported(runs: Collection[CountedRun], start: int, stop: int, bin_s: int) -> Sum:
    """What a utilization report of an interval says of these runs. Their CPU time is known in parts."""
    jobs, wall, cpu = 0, 0, Fraction(0)
    for run in runs:
        began, ended = run.ran
        first, last = max(began, start), min(ended, stop) - 1
        if first > last:
            continue
        jobs += (last - start) // bin_s - (first - start) // bin_s + 1
        wall += (last + 1 - first) * run.cores
        cpu += Fraction((run.cpu_user_ms + run.cpu_system_ms) * (last + 1 - first), ended - began)
    return Sum(jobs, wall, round(cpu))


_READERS: Final[Mapping[str, Callable[[bytes], Iterator[CountedBody]]]] = {
    "ogf-ur": _xml,
    "emi-car": _xml,
    "apel-job": _job_records,
    "apel-summary": _plain_summaries,
    "apel-normalised-summary": _normalised_summaries,
    "utilization": _reports,
}
_EXPECTED: Final[Mapping[str, Callable[[Iterable[CountedRun]], dict[Key, Sum]]]] = {
    "ogf-ur": _of_usage_records,
    "emi-car": _of_records,
    "apel-job": _of_records,
    "apel-summary": lambda runs: _of_groups(runs, lambda run: run.score, lambda _: 1000),
    "apel-normalised-summary": lambda runs: _of_groups(runs, lambda run: run.score[0], lambda run: run.score[1]),
}
FORMATS: Final = frozenset(_READERS)
"""Those whose sums are known here: all that have sums."""


def kept(format_name: str, payloads: Iterable[bytes], *, keeps_first: bool = False) -> list[CountedBody]:
    """What a service keeps of these messages: of two with one identity the first, or the last."""
    held: dict[Hashable, CountedBody] = {}
    for payload in payloads:
        for body in bodies(format_name, payload):
            if not (keeps_first and body.identity in held):
                held[body.identity] = body
    return list(held.values())


def assert_sums_conserved(format_name: str, runs: Iterable[CountedRun], there: Iterable[CountedBody]) -> None:
    """What a service keeps adds up to what the source's accounting says of the runs that it has."""
    found = {key: total for key, total in _added((body.key, body.sum) for body in there).items() if total != Sum()}
    expected = _EXPECTED[format_name](runs)
    differing = {
        key: (expected.get(key), found.get(key))
        for key in sorted(expected.keys() | found.keys())
        if expected.get(key) != found.get(key)
    }
    assert not differing, f"{format_name}: the sums differ (source, service): {list(differing.items())[:3]}"


def assert_reports_conserved(runs: Collection[CountedRun], there: Iterable[CountedBody], bin_s: int) -> None:
    """The same of the utilization reports that a service keeps, for the interval of each."""
    for body in there:
        assert isinstance(body.identity, tuple)
        start, stop = map(_instant, body.identity)
        expected = reported(runs, start, stop, bin_s)
        assert body.sum == expected, f"utilization from {body.key.month}: (source, service): {expected}, {body.sum}"
