"""Write and read APEL's summary and normalised summary messages (facts on formats, 4.4 and 4.5).

The header `APEL-summary-job-message: v0.3` means a *normalised* summary; `APEL-normalised-summary-message` exists only
as v0.4. Durations are whole seconds, rounded once, half up, from exact sums. A group without runs has 0 in all sums and
no ends: it replaces a group that no longer exists.

Write and read APEL's sync messages, version 0.1: the number of runs that the site must deliver for a month and submit
host. The service compares the number with what it has for the same Site, SubmitHost, and month (facts on formats, 4.6),
so the submit host is exactly that of the records and summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from formats.apel import job, totals, values
from formats.apel.fold import NORMALISED_UNITS, Fold, Group, GroupKey, SyncCount, SyncFold, SyncKey, normalised_seconds
from formats.apel.text import CONTENT_TYPE, NULL, SEPARATOR, TextMessage, TextRecord, body, records_of, whole
from formats.base import Format, Rendered
from formats.columns import TOTAL_DIMENSIONS
from formats.job import Benchmark
from formats.origin import BENCHMARK, GRID, MONTH, SECONDS, Origins, origin
from formats.rules import NORMALISED_03, NORMALISED_04, SUMMARY_02, SUMMARY_04, SUMMARY_NUMBERS, SYNC_01, of_version
from formats.score import preferred_score, read_score, read_scores, score_fields
from formats.text import duration_seconds
from formats.totals import TotalsKind
from formats.view import View

DEFAULT_SUMMARY_VERSION: Final = SUMMARY_02.version
DEFAULT_NORMALISED_VERSION: Final = NORMALISED_04.version


class SummaryFormat:
    """Renders groups as summaries (`apel-summary`) or, with `normalised`, as normalised ones."""

    content_type = f"{CONTENT_TYPE}; charset=us-ascii"
    separator_bytes = len(SEPARATOR)

    def __init__(self, view: View, *, normalised: bool = False) -> None:
        """Raises `ValueError` for an unknown version."""
        if normalised:
            self.type = of_version((NORMALISED_03, NORMALISED_04), view.version or DEFAULT_NORMALISED_VERSION)
        else:
            self.type = of_version((SUMMARY_02, SUMMARY_04), view.version or DEFAULT_SUMMARY_VERSION)
        self.name = self.type.name
        self.normalised = normalised
        self._description = values.text("InfrastructureDescription", view.summary_description, [])
        self._message = TextMessage(self.type.kind, self.type.version)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the header line."""
        return self._message.overhead_bytes

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records."""
        return self._message.of(bodies)

    def record(self, group: Group) -> Rendered:
        """Render one group; raises `CannotRenderError` for sums that do not fit the server's columns."""
        key = group.spelling
        fields: list[tuple[str, str | int]] = [
            ("Site", key.site),
            ("Month", _number("Month", key.month)),
            ("Year", _number("Year", key.year)),
            ("GlobalUserName", key.user),
            ("VO", key.vo),
            ("VOGroup", key.vo_group),
            ("VORole", key.vo_role),
            ("SubmitHost", key.submit_host),
            ("Infrastructure" if self.normalised else "InfrastructureType", key.infrastructure),
        ]
        if self._description:
            fields.append(("InfrastructureDescription", self._description))
        if not self.normalised:
            fields += score_fields(self.type, Benchmark(key.benchmark, key.score_milli / 1000))
        fields += [("NodeCount", key.nodes), ("Processors", key.processors)]
        if group.earliest is not None and group.latest is not None:
            fields += [("EarliestEndTime", group.earliest), ("LatestEndTime", group.latest)]
        fields += [
            ("WallDuration", _number("WallDuration", duration_seconds(group.wall_ms))),
            ("CpuDuration", _number("CpuDuration", duration_seconds(group.cpu_ms))),
        ]
        if self.normalised:
            fields += [
                ("NormalisedWallDuration", self._normalised("NormalisedWallDuration", group.normalised_wall, key)),
                ("NormalisedCpuDuration", self._normalised("NormalisedCpuDuration", group.normalised_cpu, key)),
            ]
        fields.append(("NumberOfJobs", _number("NumberOfJobs", group.jobs)))
        return Rendered(body(fields), group.notes)

    def _normalised(self, field: str, units: int, key: GroupKey) -> str:
        seconds = _number(field, normalised_seconds(units))
        return f"{{{key.benchmark}: {seconds}}}" if field in self.type.scores else str(seconds)


def _number(field: str, value: int) -> int:
    return values.needed(SUMMARY_NUMBERS[field], value)


def read_group(record: TextRecord) -> Group:
    """The group of a summary or normalised summary of any version; what is missing or unreadable is `None` or 0."""
    get = record.get
    score = read_score(get("ServiceLevel"), get("ServiceLevelType"))
    benchmark, level = score or (NULL, 0.0)
    wall, wall_type = _read_normalised(get("NormalisedWallDuration"))
    cpu, cpu_type = _read_normalised(get("NormalisedCpuDuration"))
    spelling = GroupKey(
        site=get("Site") or NULL,
        year=whole(get("Year")) or 0,
        month=whole(get("Month")) or 0,
        user=get("GlobalUserName") or NULL,
        vo=get("VO") or NULL,
        vo_group=get("VOGroup") or NULL,
        vo_role=get("VORole") or NULL,
        submit_host=get("SubmitHost") or NULL,
        infrastructure=get("InfrastructureType") or get("Infrastructure") or NULL,
        benchmark=wall_type or cpu_type or benchmark,
        score_milli=round(level * 1000) if abs(level) < 1e12 else 0,
        nodes=whole(get("NodeCount")) or 0,
        processors=whole(get("Processors")) or 0,
    )
    earliest, latest = get("EarliestEndTime"), get("LatestEndTime")
    return Group(
        key=spelling.folded(),
        spelling=spelling,
        jobs=whole(get("NumberOfJobs")) or 0,
        wall_ms=(whole(get("WallDuration")) or 0) * 1000,
        cpu_ms=(whole(get("CpuDuration")) or 0) * 1000,
        earliest=None if earliest is None else (whole(earliest) or 0),
        latest=None if latest is None else (whole(latest) or 0),
        normalised_wall=wall * NORMALISED_UNITS,
        normalised_cpu=cpu * NORMALISED_UNITS,
    )


def _read_normalised(text: str | None) -> tuple[int, str | None]:
    """Seconds and benchmark of a normalised duration of either version."""
    if text is None or not text.startswith("{"):
        return (whole(text) or 0), None
    try:
        preferred = preferred_score(read_scores(text))
        return (0, None) if preferred is None else (int(preferred[1]), preferred[0])
    except (ValueError, OverflowError):
        return 0, None


class SyncFormat:
    """Renders sync counts."""

    name = SYNC_01.name
    content_type = f"{CONTENT_TYPE}; charset=us-ascii"
    separator_bytes = len(SEPARATOR)
    type = SYNC_01

    def __init__(self, view: View) -> None:
        """There is one version; `view.version` is that of the records or summaries of the same target."""
        self._view = view
        self._message = TextMessage(SYNC_01.kind, SYNC_01.version)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the header line."""
        return self._message.overhead_bytes

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these counts."""
        return self._message.of(bodies)

    def record(self, count: SyncCount) -> Rendered:
        """Render one count; raises `CannotRenderError` for a number that does not fit the server's column."""
        key = count.spelling
        return Rendered(
            body(
                (
                    ("Site", key.site),
                    ("SubmitHost", key.submit_host),
                    ("NumberOfJobs", values.needed(SUMMARY_NUMBERS["NumberOfJobs"], count.jobs)),
                    ("Month", values.needed(SUMMARY_NUMBERS["Month"], key.month)),
                    ("Year", values.needed(SUMMARY_NUMBERS["Year"], key.year)),
                )
            )
        )


def read_count(record: TextRecord) -> SyncCount:
    """The count of a sync record; what is missing or unreadable is `None` or 0."""
    get = record.get
    spelling = SyncKey(
        get("Site") or NULL, (whole(get("Year")) or 0), (whole(get("Month")) or 0), get("SubmitHost") or NULL
    )
    return SyncCount(spelling.folded(), spelling, (whole(get("NumberOfJobs")) or 0))


_TOTALS: Final = TotalsKind(
    kind="summary",
    fold=Fold,
    from_json=Group.from_json,
    sync_count=totals.sync_count,
    persons=totals.PERSONS,
    usage=totals.usage,
    read=lambda message: list(map(read_group, records_of(message))),
    columns=totals.columns,
    dimensions=TOTAL_DIMENSIONS,
)


_LEAST_SPELLING: Final = "; of several spellings that the service treats as equal, the first in sort order"
_GROUP: Final[Origins] = {
    "InfrastructureDescription": origin(how="as configured; omitted if it is not", settings=("summary_description",)),
    "Month": MONTH,
    "Year": MONTH,
    "NodeCount": job.ORIGINS["NodeCount"],
    "Processors": job.ORIGINS["Processors"],
    "EarliestEndTime": origin("end", how="the earliest of its jobs"),
    "LatestEndTime": origin("end", how="the latest of its jobs"),
    "WallDuration": origin("wall_ms", how=f"the sum of its jobs, exact; then {SECONDS}"),
    "CpuDuration": origin("cpu_ms", "cpu_user_ms", "cpu_system_ms", how=f"the sum of its jobs, exact; then {SECONDS}"),
    "NumberOfJobs": origin(how="the number of its jobs"),
    **{
        name: msgspec.structs.replace(job.ORIGINS[name], how=job.ORIGINS[name].how + _LEAST_SPELLING)
        for name in ("Site", "SubmitHost", "GlobalUserName", "VO", "VOGroup", "VORole")
    },
}
_TIMES_SCORE: Final = "the sum over its jobs of duration times score (of Si2k a 250th), exact; then whole seconds"
_ORIGINS: Final[Origins] = {
    **_GROUP,
    "InfrastructureType": GRID,
    "ServiceLevelType": BENCHMARK,
    "ServiceLevel": BENCHMARK,
}
_NORMALISED_ORIGINS: Final[Origins] = {
    **_GROUP,
    "Infrastructure": GRID,
    "NormalisedWallDuration": origin("wall_ms", "benchmarks", how=_TIMES_SCORE, settings=("benchmark_type",)),
    "NormalisedCpuDuration": origin("cpu_ms", "benchmarks", how=_TIMES_SCORE, settings=("benchmark_type",)),
}


SUMMARY: Final = Format(
    name=SUMMARY_02.name,
    title="APEL summaries",
    shape="totals",
    dimensions=totals.dimensions_of_run,
    make=SummaryFormat,
    service="APEL",
    key="group",
    content_type=CONTENT_TYPE,
    versions=(SUMMARY_02.version, SUMMARY_04.version),
    is_readable=True,
    needs_benchmark=True,
    sync=SYNC_01.name,
    totals=_TOTALS,
    origins=_ORIGINS,
)
NORMALISED_SUMMARY: Final = Format(
    name=NORMALISED_03.name,
    title="APEL normalised summaries",
    shape="totals",
    dimensions=totals.dimensions_of_run,
    make=partial(SummaryFormat, normalised=True),
    service="APEL",
    key="group",
    content_type=CONTENT_TYPE,
    versions=(NORMALISED_03.version, NORMALISED_04.version),
    is_readable=True,
    needs_benchmark=True,
    sync=SYNC_01.name,
    totals=msgspec.structs.replace(_TOTALS, fold=partial(Fold, normalised=True)),
    origins=_NORMALISED_ORIGINS,
)
SYNC: Final = Format(
    name=SYNC_01.name,
    title="APEL sync counts",
    shape="sync",
    make=SyncFormat,
    service="APEL",
    key="group",
    content_type=CONTENT_TYPE,
    versions=(SYNC_01.version,),
    is_readable=True,
    totals=TotalsKind(
        kind="sync",
        fold=SyncFold,
        from_json=SyncCount.from_json,
        read=lambda message: list(map(read_count, records_of(message))),
        columns=totals.sync_columns,
        dimensions=totals.SYNC_DIMENSIONS,
    ),
)
