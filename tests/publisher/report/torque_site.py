"""A small cluster of TORQUE, for calculation by hand: four jobs on two nodes in the first days of March.

job owner nodes from until what it shows 1 ada n1 2 03-01 18:00 03-02 06:00 crosses midnight 2 ada n1 4 03-02 12:00
03-02 18:00 the whole node; 4 GiB 3 bob n1 1 n2 2 03-02 18:00 03-03 06:00 on two nodes, crosses midnight; started twice
4 bob n2 1 03-03 12:00 (still runs)
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from publisher.api import Publisher
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.publisher.cli.program import BASE

NODES = """
[[nodes]]
name = "n1"
cores = 4
memory_gib = 16
[[nodes]]
name = "n2"
cores = 2
type = "small"
"""
HOUR = 3600


def at(day: int, hour: int = 0) -> int:
    """Epoch seconds of an hour of a day of March 2026, UTC."""
    return int(datetime(2026, 3, day, hour, tzinfo=UTC).timestamp())


NOW = at(3, 18)
_JOBS = (
    (1, "ada", "physics", "n1/0-1", at(1, 18), at(2, 6), 60, "1024kb"),
    (2, "ada", "physics", "n1/0-3", at(2, 12), at(2, 18), 120, "4194304kb"),
    (3, "bob", "chem", "n1/0+n2/0-1", at(2, 18), at(3, 6), 2 * HOUR, "2048kb"),
    (4, "bob", "chem", "n2/0", at(3, 12), None, 30, ""),
)


def _lines() -> list[tuple[int, str]]:
    lines = []
    for job, owner, group, hosts, start, end, waited, memory in _JOBS:
        submit = start - waited
        common = (
            f"user={owner} group={group} jobname=job{job} queue=batch ctime={submit} qtime={submit} "
            f"etime={submit + 10} start={start} exec_host={hosts} Resource_List.nodes=1"
        )
        lines.append((submit, f"Q;{job}.srv;queue=batch"))
        if job == 3:
            lines.append((start - 60, f"S;{job}.srv;{common.replace(f'start={start}', f'start={start - 60}')}"))
        lines.append((start, f"S;{job}.srv;{common}"))
        if end is not None:
            used = (
                f"end={end} Exit_status=0 resources_used.cput=01:00:00 resources_used.mem={memory} "
                f"resources_used.vmem={memory} resources_used.walltime=00:20:00"
            )
            lines.append((end, f"E;{job}.srv;{common} {used}"))
    return sorted(lines)


def torque_site(folder: Path, more: str = "", nodes: str = NODES) -> Publisher:
    """The cluster, collected."""
    logs = folder / "accounting"
    logs.mkdir(parents=True)
    days: dict[str, list[str]] = {}
    for instant, text in _lines():
        stamp = datetime.fromtimestamp(instant, UTC)
        days.setdefault(f"{stamp:%Y%m%d}", []).append(f"{stamp:%m/%d/%Y %H:%M:%S};{text}\n")
    for name, lines in days.items():
        (logs / name).write_text("".join(lines))
    config = folder / "publisher.toml"
    config.write_text(BASE + f'\n[sources.torque]\ntype = "torque"\npath = "{logs}"\n{nodes}{more}')
    publisher = Publisher.from_file(config)
    collected = publisher.collect()
    assert collected is not None
    return publisher


def view(publisher: Publisher, name: str, **asked: object) -> Report:
    """A view of the cluster at `NOW`; by default from 1 to 4 March."""
    given: dict[str, object] = {"start": at(1), "stop": at(4), "period": "day", **asked}
    request = ReportRequest(**given)  # type: ignore[arg-type]
    return make(name, ReportContext(publisher.store, publisher.config, NOW), request)


def table(report: Report, *names: str) -> list[tuple[object, ...]]:
    """These columns of a report."""
    places = [[column.name for column in report.columns].index(name) for name in names]
    return [tuple(row[place] for place in places) for row in report.rows]
