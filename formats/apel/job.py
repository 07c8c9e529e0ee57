"""Write and read APEL's individual job messages, versions 0.3 and 0.4 (facts on formats, 4.3).

Version 0.3 is the default, and every server accepts it; 0.4 has the benchmark as `{HEPscore23: 14.2}`. There is one
record for each run; the service keeps the last one that it receives for a Site, LocalJobId, and EndTime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from formats.apel import totals, values
from formats.apel.text import CONTENT_TYPE, SEPARATOR, TextMessage, TextRecord, lines, records_of, whole
from formats.base import Format, FragmentCache, Note, Rendered
from formats.benchmark import milli_of, require_benchmark
from formats.columns import RecordColumns, Value, local_key
from formats.fit import shown
from formats.hosts import infrastructure_description, infrastructure_of, machine_name
from formats.identity import run_record_id
from formats.job import Benchmark, Infrastructure, Job
from formats.names import apel_fqan_parts
from formats.origin import (
    BENCHMARK,
    CPU_ALL,
    DESCRIPTION,
    GRID,
    MACHINE,
    SUBMIT_HOST,
    USER_NAME,
    VO_NAME,
    WALL,
    Origins,
    origin,
)
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import JOB_03, JOB_04, JOB_NUMBERS, SYNC_01, of_version
from formats.score import read_score, score_fields
from formats.view import View

DEFAULT_VERSION: Final = JOB_03.version


class ApelJobFormat:
    """Renders runs as APEL job records for one view."""

    name = JOB_03.name
    content_type = f"{CONTENT_TYPE}; charset=us-ascii"
    separator_bytes = len(SEPARATOR)

    def __init__(self, view: View) -> None:
        """Raises `ValueError` for an unknown version."""
        self._view = view
        self.type = of_version((JOB_03, JOB_04), view.version or DEFAULT_VERSION)
        self._message = TextMessage(self.type.kind, self.type.version)
        self._places = FragmentCache(self._place)
        self._users = FragmentCache(self._user)
        self._kinds = FragmentCache(self._kind)
        self._scores = FragmentCache(self._score)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the header line."""
        return self._message.overhead_bytes

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records."""
        return self._message.of(bodies)

    def record(self, job: Job, created: int) -> Rendered:  # noqa: ARG002 - this format has no createTime
        """Render one run.

        Raises `CannotRenderError` for a run that has not ended or lacks a value that APEL requires: site, id, wall and
        CPU time, start and end in this order, benchmark.
        """
        notes: list[Note] = []
        values.finished(job)
        place_key = (job.site, job.endpoint_url, job.endpoint_type, job.cluster, job.queue)
        place = self._places.of(place_key, job, notes)
        local_id = self._local_id(job, notes)
        who = self._users.of((job.local_user, job.user_dn, job.vo, job.fqans), job, notes)
        wall_s = values.seconds("WallDuration", job.wall_ms, job.system)
        cpu_s = values.seconds("CpuDuration", values.cpu_ms(job), job.system)
        processors, nodes = values.processors(job, notes), values.node_count(job, notes)
        start = values.needed(JOB_NUMBERS["StartTime"], job.start)
        end = values.needed(JOB_NUMBERS["EndTime"], job.end)
        if end < start:
            raise CannotRenderError(RuleCode.END_BEFORE_START, "EndTime", start=start, end=end)
        kind = self._kinds.of((job.middleware, job.lrms, job.system, infrastructure_of(job)), job, notes)
        real = values.number(JOB_NUMBERS["MemoryReal"], job.memory_rss_kib, notes)
        virtual = values.number(JOB_NUMBERS["MemoryVirtual"], job.memory_virtual_kib, notes)
        memory = lines((("MemoryReal", real), ("MemoryVirtual", virtual)))
        score = self._scores.of(job.benchmarks, job, notes)
        record = (
            f"{place}LocalJobId: {local_id}\n{who}WallDuration: {wall_s}\nCpuDuration: {cpu_s}\n"
            f"Processors: {processors}\nNodeCount: {nodes}\nStartTime: {start}\nEndTime: {end}\n{kind}{memory}{score}"
        )
        return Rendered(record.encode("ascii"), tuple(notes))

    def _place(self, job: Job, notes: list[Note]) -> str:
        return lines(
            (
                ("Site", values.required("Site", job.site or self._view.site, notes)),
                ("SubmitHost", values.submit_host(job, self._view, notes)),
                ("MachineName", values.text("MachineName", machine_name(job, self._view), notes)),
                ("Queue", values.text("Queue", job.queue, notes)),
            )
        )

    def _user(self, job: Job, notes: list[Note]) -> str:
        local_user = values.text("LocalUserId", job.local_user, notes)
        name = values.user_name(job, self._view, notes)
        vo, group, role = values.vo_fields(job, self._view, notes)
        return lines(
            (("LocalUserId", local_user), ("GlobalUserName", name), ("VO", vo), ("VOGroup", group), ("VORole", role))
        )

    def _kind(self, job: Job, notes: list[Note]) -> str:
        description = infrastructure_description(job, self._view)
        return lines(
            (
                ("InfrastructureDescription", values.text("InfrastructureDescription", description, notes)),
                ("InfrastructureType", infrastructure_of(job)),
            )
        )

    def _score(self, job: Job, notes: list[Note]) -> str:
        return lines(score_fields(self.type, require_benchmark(job, self._view, notes)))

    def _local_id(self, job: Job, notes: list[Note]) -> str:
        """LocalJobId, part of APEL's key. If it is missing, the global id, which is unique, is used, as in a CAR."""
        if job.local_id:
            local_id = values.text("LocalJobId", self._view.local_id_prefix + job.local_id, notes)
            if local_id:
                return local_id
        stand_in = job.global_id or job.record_id
        rule = "missing: the global job id is sent (part of APEL's key)"
        notes.append(Note("LocalJobId", rule, shown(job.local_id or ""), shown(stand_in)))
        return values.required("LocalJobId", stand_in, notes)


def read_job(record: TextRecord) -> Job:
    """The run of a job record, with the values that the record has; values that cannot be read are omitted.

    If another publisher sent an FQAN, the server takes VO, group, and role from it; it is kept unchanged. Such a record
    has no record id, so one is made from APEL's key.
    """
    get = record.get
    site, local_id = get("Site") or "", get("LocalJobId")
    end = whole(get("EndTime"))
    wall_s, cpu_s = whole(get("WallDuration")), whole(get("CpuDuration"))
    infrastructure = (get("InfrastructureType") or "").lower()
    grid_or_local: Infrastructure | None = (
        "grid" if infrastructure == "grid" else "local" if infrastructure == "local" else None
    )
    score = read_score(get("ServiceLevel"), get("ServiceLevelType"))
    return Job(
        record_id=run_record_id("apel", site, local_id or "", end),
        system="apel",
        status="completed",
        local_id=local_id,
        user_dn=get("GlobalUserName"),
        local_user=get("LocalUserId"),
        vo=get("VO"),
        fqans=_fqans(record),
        cluster=get("MachineName"),
        queue=get("Queue"),
        endpoint_url=get("SubmitHost"),
        nodes=whole(get("NodeCount")) or None,
        cores=whole(get("Processors")) or None,
        infrastructure=grid_or_local,
        start=whole(get("StartTime")),
        end=end,
        wall_ms=None if wall_s is None else wall_s * 1000,
        cpu_ms=None if cpu_s is None else cpu_s * 1000,
        memory_rss_kib=whole(get("MemoryReal")),
        memory_virtual_kib=whole(get("MemoryVirtual")),
        benchmarks=() if score is None else (Benchmark(*score),),
    )


def _fqans(record: TextRecord) -> tuple[str, ...]:
    fqan, group, role = record.get("FQAN"), record.get("VOGroup"), record.get("VORole")
    if fqan:
        return (fqan,)
    if not group or not group.startswith("/"):
        return ()
    return (f"{group}/{role.lstrip('/')}" if role else group,)


_TEXTS: Final = {
    "Site": "site", "SubmitHost": "submit_host", "MachineName": "machine", "Queue": "queue",
    "LocalUserId": "local_user", "GlobalUserName": "user", "VO": "vo", "VOGroup": "vo_group", "VORole": "vo_role",
    "InfrastructureType": "infrastructure", "InfrastructureDescription": "description",
}  # fmt: skip
_COUNTS: Final = {"Processors": "processors", "NodeCount": "nodes"}
_NUMBERS: Final = {"MemoryReal": "memory_kib", "MemoryVirtual": "memory_virtual_kib", "StartTime": "start"}


def job_columns(record: TextRecord) -> RecordColumns:
    """A job record as the APEL server stores it: an FQAN overrides VO, group, and role; a missing count is 0."""
    get = record.get
    columns: dict[str, Value] = {name: get(field) or "" for field, name in _TEXTS.items()}
    if fqan := get("FQAN"):
        columns["vo"], columns["vo_group"], columns["vo_role"] = apel_fqan_parts(fqan)
    columns |= {name: whole(get(field)) or 0 for field, name in _COUNTS.items()}
    for field, name in _NUMBERS.items():
        number = whole(get(field))
        columns[name] = "" if number is None else number
    score = read_score(get("ServiceLevel"), get("ServiceLevelType"))
    if score is not None and (milli := milli_of(str(score[1]))) is not None:
        columns["benchmark"], columns["score_milli"] = score[0], milli
    end, local_id = whole(get("EndTime")), get("LocalJobId") or ""
    wall_s, cpu_s = whole(get("WallDuration")), whole(get("CpuDuration"))
    return RecordColumns(
        "",
        end,
        None if wall_s is None else wall_s * 1000,
        None if cpu_s is None else cpu_s * 1000,
        columns,
        local_key(get("Site") or "", local_id, end),
        local_id,
    )


def _message_columns(message: bytes) -> list[RecordColumns]:
    return list(map(job_columns, records_of(message)))


ORIGINS: Final[Origins] = {
    "Site": origin(how="the name of the site in the configuration"),
    "SubmitHost": SUBMIT_HOST,
    "MachineName": MACHINE,
    "Queue": origin("queue"),
    "LocalJobId": origin(
        "local_id", "global_id", how="the local id, else the global id", settings=("local_id_prefix",)
    ),
    "LocalUserId": origin("local_user"),
    "GlobalUserName": USER_NAME,
    "VO": msgspec.structs.replace(VO_NAME, settings=("vo_spelling",)),
    "VOGroup": origin("fqans", how="of the primary one", settings=("vo_spelling",)),
    "VORole": origin("fqans", how="of the primary one", settings=("vo_spelling",)),
    "WallDuration": WALL,
    "CpuDuration": CPU_ALL,
    "Processors": origin("cores", "slots", how="cores, else slots, else 0, APEL's word for unknown"),
    "NodeCount": origin("nodes", how="else 0, APEL's word for unknown"),
    "StartTime": origin("start"),
    "EndTime": origin("end"),
    "InfrastructureDescription": DESCRIPTION,
    "InfrastructureType": GRID,
    "MemoryReal": origin("memory_rss_kib"),
    "MemoryVirtual": origin("memory_virtual_kib"),
    "ServiceLevelType": BENCHMARK,
    "ServiceLevel": BENCHMARK,
}


FORMAT: Final = Format(
    name=ApelJobFormat.name,
    title="APEL individual jobs",
    shape="record",
    make=ApelJobFormat,
    service="APEL",
    key="local id",
    record_key=values.job_key,
    dimensions=totals.dimensions_of_run,
    key_settings=values.KEY_SETTINGS,
    content_type=CONTENT_TYPE,
    versions=(JOB_03.version, JOB_04.version),
    columns=_message_columns,
    is_readable=True,
    needs_benchmark=True,
    sync=SYNC_01.name,
    has_ascii_names=True,
    origins=ORIGINS,
)
