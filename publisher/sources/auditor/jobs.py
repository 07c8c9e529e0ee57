"""A record of AUDITOR as a run, by what the configuration says of its components and meta entries. Pure.

AUDITOR has no runs, only ids: after a month was archived, an id may return with another start (a batch system counts
its jobs from 1 again). So the start, which AUDITOR never changes, is a part of the record id of the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from formats.auditor.record import OWN_KEY, OWN_VALUE
from formats.benchmark import canonical_name
from formats.identity import run_record_id
from formats.job import Benchmark, Host, Job, Status
from publisher.config.auditor_source import SIZE_UNITS_BYTES, TIME_UNITS_US, AuditorSourceSettings
from publisher.sources.auditor.record import SECOND_US, CollectedRecord, MeasuredComponent
from publisher.sources.base import FUTURE_S, Line
from publisher.sources.fields import LineError

_LARGEST: Final = 10**15
"""Milliseconds or KiB: larger values are mistakes."""
_MOST_CORES: Final = 10_000_000
_SHORT_MS: Final = 100_000
"""So much CPU time is always believed: that of a short run is not exact."""
_GLOBAL_JOB_ID: Final = re.compile(r"(?P<schedd>[^#]+)#(?P<job>\d+\.\d+)#\d+", re.ASCII)
_STATUSES: Final[Mapping[str, Status]] = {
    "succeeded": "completed", "completed": "completed", "failed": "failed", "cancelled": "cancelled",
}  # fmt: skip


def is_selected(record: CollectedRecord, settings: AuditorSourceSettings) -> bool:
    """Whether the source has to read a record, by its id and `meta`."""
    if not record.record_id.startswith(settings.record_prefix):
        return False
    return all(value in record.meta.get(key, ()) for key, value in settings.where.items())


class RunReader:
    """Makes runs of the records of one source. `now`: epoch seconds."""

    def __init__(self, settings: AuditorSourceSettings, cluster: str | None, now: int) -> None:
        self._settings = settings
        self._cluster = cluster
        self._now = now
        self._keys = {fact: settings.meta_key(fact) for fact in type(settings.meta).model_fields}
        self._known_meta = {key for key in self._keys.values() if key is not None}
        self._rules = {quantity: settings.rules(quantity) for quantity in type(settings.components).model_fields}

    def outcome(self, record: CollectedRecord) -> Job | Line:
        """The run of a record, or why it is none. Raises `LineError`."""
        if not is_selected(record, self._settings):
            return Line.IGNORED
        if record.stop_us is None or OWN_VALUE in record.meta.get(OWN_KEY, ()):
            return Line.SKIPPED
        wall_ms = self._wall_ms(record, record.stop_us)
        start, end = record.start_us // SECOND_US, record.stop_us // SECOND_US
        cores, scored = self._cores(record, end, wall_ms)
        cpu_ms = self._converted(record, "cpu", end, TIME_UNITS_US, "s", 1_000)
        if cpu_ms is not None and cpu_ms > _SHORT_MS + self._settings.most_cpu * wall_ms * (cores or 1):
            raise LineError(
                f"the CPU time is {cpu_ms // 1000} s, and {cores or 1} cores ran for {wall_ms // 1000} s: is its unit "
                "wrong? See `components.cpu` of the source; `most_cpu`, if it is right"
            )
        fact = {name: self._one(record, key) for name, key in self._keys.items()}
        local_id, global_id, cluster = self._ids(record.record_id)
        hosts = self._all(record, "host")
        return Job(
            record_id=run_record_id("auditor", self._cluster or "", record.record_id, start),
            system="auditor",
            status=_STATUSES.get((fact["status"] or "").lower(), "completed"),
            end_reason=fact["status"],
            user_dn=fact["dn"],
            vo=fact["vo"],
            fqans=tuple(dict.fromkeys(fqan for fqan in self._all(record, "fqans") if fqan.startswith("/"))),
            cluster=self._cluster or cluster,
            queue=fact["queue"],
            endpoint_url=fact["submit_host"],
            nodes=self._count(record, "nodes", end),
            cores=cores,
            gpus=self._count(record, "gpus", end),
            benchmarks=_benchmarks(scored),
            hosts=tuple([Host(name) for name in hosts]),
            local_user=fact["user"],
            local_group=fact["group"],
            project=fact["project"],
            account=fact["account"],
            global_id=global_id,
            local_id=local_id,
            name=fact["name"],
            start=start,
            end=end,
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            memory_rss_kib=self._converted(record, "memory", end, SIZE_UNITS_BYTES, "B", 1_024),
            extras=self._extras(record),
        )

    def _wall_ms(self, record: CollectedRecord, stop_us: int) -> int:
        wall_us = stop_us - record.start_us
        if wall_us < 0:
            raise LineError("stop_time is before start_time; the collector wrote no time of the end")
        if stop_us > (self._now + FUTURE_S) * SECOND_US:
            raise LineError("stop_time is more than a day in the future: a clock is wrong")
        if record.runtime_s is not None and record.runtime_s != wall_us // SECOND_US:
            raise LineError(
                f"runtime is {record.runtime_s} s, but stop_time - start_time is {wall_us // SECOND_US} s: AUDITOR "
                "itself writes both, so the row was altered"
            )
        return wall_us // 1_000

    def _component(
        self, record: CollectedRecord, quantity: str, end: int
    ) -> tuple[MeasuredComponent, str | None] | None:
        """The component that has a quantity, and its unit; None: the record has none."""
        for rule in self._rules[quantity]:
            component = record.components.get(rule.name)
            if component is not None and rule.applies(end):
                return component, rule.unit
        return None

    def _count(self, record: CollectedRecord, quantity: str, end: int) -> int | None:
        component = self._component(record, quantity, end)
        if component is None:
            return None
        if component[0].amount > _MOST_CORES:
            raise LineError(f"the component for {quantity} has {component[0].amount}: at most {_MOST_CORES} are read")
        return component[0].amount or None

    def _cores(self, record: CollectedRecord, end: int, wall_ms: int) -> tuple[int | None, MeasuredComponent | None]:
        """The number of cores, None if unknown, and the component that has the scores."""
        component = self._component(record, "cores", end)
        if component is None or component[1] is None:
            return self._count(record, "cores", end), component[0] if component else None
        core_us = component[0].amount * TIME_UNITS_US[component[1]]
        cores = -(-core_us // (wall_ms * 1_000)) if wall_ms else 0
        if cores > _MOST_CORES:
            raise LineError(f"the component for cores gives {cores}: at most {_MOST_CORES} are read")
        return cores or None, component[0]

    def _converted(
        self, record: CollectedRecord, quantity: str, end: int, units: Mapping[str, int], usual: str, per: int
    ) -> int | None:
        """A quantity, rounded to the nearest: in `units`, so many of which are one of ours; `usual`: the unit if a rule
        has none."""
        component = self._component(record, quantity, end)
        if component is None:
            return None
        value = (component[0].amount * units[component[1] or usual] + per // 2) // per
        if value > _LARGEST:
            raise LineError(f"the component for {quantity} is larger than possible: {component[0].amount}")
        return value

    def _ids(self, record_id: str) -> tuple[str, str | None, str | None]:
        """Local id, global id, and schedd of a record id."""
        rest = record_id[len(self._settings.record_prefix) :].removeprefix("-") or record_id
        if self._settings.kind.job_id == "global job id" and (match := _GLOBAL_JOB_ID.fullmatch(rest)):
            return match["job"], rest, match["schedd"]
        return rest, record_id, None

    def _all(self, record: CollectedRecord, fact: str) -> tuple[str, ...]:
        key = self._keys[fact]
        return () if key is None else record.meta.get(key, ())

    def _one(self, record: CollectedRecord, key: str | None) -> str | None:
        """The value of an entry; of several the first."""
        return None if key is None else next(iter(record.meta.get(key, ())), None)

    def _extras(self, record: CollectedRecord) -> dict[str, int | float | str]:
        extras: dict[str, int | float | str] = {"record_id": record.record_id}
        extras |= {
            f"meta.{key}": ", ".join(values) for key, values in record.meta.items() if key not in self._known_meta
        }
        extras |= {f"component.{name}": each.amount for name, each in record.components.items()}
        return extras


def _benchmarks(scored: MeasuredComponent | None) -> tuple[Benchmark, ...]:
    """The scores per core, each once. A collector that found no score writes 0."""
    benchmarks: dict[str, Benchmark] = {}
    for name, value in scored.scores if scored is not None else ():
        if value > 0:
            spelled = canonical_name(name) or name
            benchmarks.setdefault(spelled, Benchmark(spelled, value))
    return tuple(benchmarks.values())
