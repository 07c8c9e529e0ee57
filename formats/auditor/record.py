"""Write records of AUDITOR, as JSON (facts on AUDITOR: Record).

AUDITOR has no times but start and end, and its run time is their difference. So `start_from` decides what is right
there if the wall time of a run is another one: the run time, or the start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from formats import fit
from formats.auditor.read import read_columns
from formats.auditor.rules import inspected
from formats.base import Format, Note, Rendered
from formats.benchmark import LARGEST_SCORE, canonical_name, usable_score
from formats.fit import shown, unreported
from formats.hosts import submit_host_of
from formats.job import Job
from formats.names import dn_for, vo_of, vo_read_by_apel
from formats.origin import RECORD_ID, SUBMIT_HOST, USER_NAME, Origins, origin
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import INT64, NumberRule, TextRule, compared
from formats.text import FIRST_INSTANT, LAST_INSTANT, date_time, duration_seconds
from formats.view import StartFrom, View

NAME: Final = "auditor-record"

Amount = Literal["cores", "nodes", "gpus", "cpu-s", "cpu-ms", "wall-s", "memory-kib", "energy-j"]
"""What the amount of a component is."""
ENERGY: Final = "energy-j"

Ids = Literal["run", "auditor"]
"""Record ids: of the run, or as AUDITOR's collectors make them, which need a prefix."""


class Component(msgspec.Struct, frozen=True):
    """A component of each record. `scores`: their names in AUDITOR, each with the benchmark whose score it is."""

    name: str
    amount: Amount
    scores: tuple[tuple[str, str], ...] = ()


APEL_COMPONENTS: Final = (
    Component("Cores", "cores", (("hepscore23", "HEPscore23"),)),
    Component("TotalCPU", "cpu-s"),
    Component("NNodes", "nodes"),
)
"""What AUDITOR's APEL plugin reads. A record without one of them stops its whole report."""


class AuditorOptions(msgspec.Struct, frozen=True):
    """The settings that only this format has."""

    components: tuple[Component, ...] = APEL_COMPONENTS
    start_from: StartFrom = "wall"
    record_id: Ids = "run"


OWN_KEY: Final = "publisher"
OWN_VALUE: Final = "usage-publisher"
"""The entry of `meta` by which our source `auditor` leaves out what we wrote: it would publish a job a second time."""
_SOURCE: Final = "AUDITOR's texts, 256 graphemes"
_ID: Final = TextRule("record_id", 255, _SOURCE, "hold")
_SITE: Final = TextRule("meta/site_id", 256, _SOURCE, "hold")
_VOMS: Final = TextRule("meta/voms", 256, _SOURCE, "hold")
_HEADNODE: Final = TextRule("meta/headnode", 256, _SOURCE, "hold")
_SUBJECT: Final = TextRule("meta/subject", 256, _SOURCE, "drop")
_SIXTY_FOUR_BITS: Final = "AUDITOR's amounts, whole numbers of 64 bits"

_DEFAULTS: Final = AuditorOptions()


def _cpu_ms(job: Job) -> int:
    amount = job.cpu_ms
    if amount is None and job.cpu_user_ms is not None and job.cpu_system_ms is not None:
        amount = job.cpu_user_ms + job.cpu_system_ms
    if amount is None:
        raise unreported("CpuDuration", job.system)
    return amount


def _wall_s(job: Job) -> int:
    if job.wall_ms is None:
        raise unreported("WallDuration", job.system)
    return duration_seconds(job.wall_ms) if job.wall_ms >= 0 else job.wall_ms


def _cpu_s(job: Job) -> int:
    amount = _cpu_ms(job)
    return duration_seconds(amount) if amount >= 0 else amount


def _energy_j(job: Job) -> int:
    if job.energy_j is None:
        raise unreported("Energy", job.system)
    return int(job.energy_j + 0.5)


AMOUNTS: Final[dict[Amount, Callable[[Job], int]]] = {
    "cores": lambda job: job.cores or job.slots or 0,
    "nodes": lambda job: job.nodes or 0,
    "gpus": lambda job: job.gpus or 0,
    "cpu-s": _cpu_s,
    "cpu-ms": _cpu_ms,
    "wall-s": _wall_s,
    "memory-kib": lambda job: job.memory_rss_kib or 0,
    ENERGY: _energy_j,
}
"""The amounts of a run. 0 where the source does not have it, except for times: the run is held."""


class AuditorFormat:
    """Renders runs as records of AUDITOR for one view."""

    name = NAME
    content_type = "application/json"
    overhead_bytes, separator_bytes = 3, 2

    def __init__(self, view: View) -> None:
        self._view = view
        self._options: AuditorOptions = view.options if isinstance(view.options, AuditorOptions) else _DEFAULTS

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message: an array."""
        return b"[" + b",\n".join(bodies) + b"]\n"

    def record(self, job: Job, created: int) -> Rendered:  # noqa: ARG002 - this format has no createTime
        """Render one run.

        Raises `CannotRenderError` for a run that has not ended, has no wall time, CPU time, or score that a component
        needs, or a site, VO, or host that AUDITOR cannot store.
        """
        notes: list[Note] = []
        if not job.finished:
            raise CannotRenderError(RuleCode.NOT_PUBLISHED, "Status", status=job.status)
        if job.end is None:
            raise CannotRenderError(RuleCode.MISSING, "stop_time")
        start = self._start(job, job.end, notes)
        record_id = self._record_id(job, notes)
        record = {
            "record_id": record_id,
            "meta": {name: [text] for name, text in self._meta(job, start, notes).items()},
            "components": [self._component(component, job) for component in self._options.components],
            "start_time": date_time(start),
            "stop_time": date_time(job.end),
        }
        return Rendered(json.dumps(record, separators=(",", ":")).encode("ascii"), tuple(notes), record_id)

    def _start(self, job: Job, end: int, notes: list[Note]) -> int:
        """The start of the record; a note says where the run time at AUDITOR is not the wall time of the run."""
        wall_s = _wall_s(job)
        start = end - wall_s
        if self._options.start_from == "start" and job.start is not None:
            start = job.start
        if not FIRST_INSTANT <= start <= end <= LAST_INSTANT:
            raise CannotRenderError(RuleCode.BAD_TIMES, "start_time", start=start, end=end)
        if end - start != wall_s:
            rule = "the run time at AUDITOR is end - start, and not the wall time of the job"
            notes.append(Note("runtime", rule, f"{wall_s} s", f"{end - start} s"))
        elif job.start is not None and job.start != start:
            rule = "the run time at AUDITOR is end - start: the start is the end less the wall time"
            notes.append(Note("start_time", rule, date_time(job.start), date_time(start)))
        if start == end:
            notes.append(Note("runtime", "AUDITOR's APEL plugin does not read records of 0 s", "0 s", "0 s"))
        return start

    def _record_id(self, job: Job, notes: list[Note]) -> str:
        prefix = self._view.record_id_prefix
        if self._options.record_id == "run":
            return fit.token(_ID, prefix + job.record_id, notes)[0]
        # Slurm: PREFIX-JobID; HTCondor: PREFIX-GlobalJobId; behind a CE the batch system has the collector
        name = job.local_id if job.is_of_grid or not job.global_id else job.global_id
        if not name:
            raise CannotRenderError(RuleCode.NO_JOB_ID, _ID.field)
        return fit.token(_ID, f"{prefix}-{name}", notes)[0]

    def _meta(self, job: Job, start: int, notes: list[Note]) -> dict[str, str]:
        site = fit.fitting_text(_SITE, job.site or self._view.site, notes)
        if not site:
            raise CannotRenderError(RuleCode.NO_SITE, _SITE.field)
        meta = {
            "site_id": site,
            "voms": self._fitting(_VOMS, voms_of(job), notes),
            "headnode": self._fitting(_HEADNODE, submit_host_of(job, self._view), notes),
            "subject": self._fitting(_SUBJECT, dn_for(job, self._view), notes),
            OWN_KEY: OWN_VALUE,
            "started_at": date_time(job.start) if job.start is not None and job.start != start else "",
        }
        return {name: text for name, text in meta.items() if text}

    @staticmethod
    def _fitting(rule: TextRule, value: str | None, notes: list[Note]) -> str:
        return fit.fitting_text(rule, value, notes) if value else ""

    @staticmethod
    def _component(component: Component, job: Job) -> dict[str, Any]:
        amount = AMOUNTS[component.amount](job)
        if not 0 <= amount <= INT64:
            rule = NumberRule(f"components/{component.name}", 0, INT64, _SIXTY_FOUR_BITS, "hold")
            raise CannotRenderError(RuleCode.OUT_OF_RANGE, rule.field, rule, value=shown(amount))
        scores = [{"name": name, "value": _score(benchmark, job)} for name, benchmark in component.scores]
        return {"name": component.name, "amount": amount, "scores": scores}


def voms_of(job: Job) -> str | None:
    """VO, group, and role as VOMS writes them; of a run whose VO is not that of its attributes, the VO alone."""
    vo = vo_of(job)
    for fqan in job.fqans[:1]:
        text = fqan.split(";", 1)[0].removesuffix("/Capability=NULL").removesuffix("/Role=NULL")
        if text.startswith("/") and vo is not None and compared(vo_read_by_apel(text)) == compared(vo):
            return text
    return None if vo is None else f"/{vo.removeprefix('/')}"


def _score(benchmark: str, job: Job) -> float:
    """The score of a benchmark, rounded to three decimals, as in APEL's summaries. Raises `CannotRenderError`."""
    for each in job.benchmarks:
        if canonical_name(each.type) == canonical_name(benchmark) and usable_score(each.value):
            return round(each.value, 3)
    raise CannotRenderError(RuleCode.NO_BENCHMARK, benchmark, taken=benchmark, largest=str(LARGEST_SCORE))


ORIGINS: Final[Origins] = {
    "record_id": msgspec.structs.replace(RECORD_ID, settings=("record_id", "record_id_prefix")),
    "meta/site_id": origin("site", how="the site of the job, else [site] of the configuration"),
    "meta/voms": origin("vo", "fqans", how="the first VOMS attribute, or the VO if the attribute has another one"),
    "meta/headnode": SUBMIT_HOST,
    "meta/subject": USER_NAME,
    "meta/publisher": origin(how="always usage-publisher: our source leaves out what we wrote"),
    "meta/started_at": origin("start", how="if it is not start_time"),
    "components/amount": origin(
        "cores",
        "slots",
        "nodes",
        "gpus",
        "cpu_ms",
        "cpu_user_ms",
        "cpu_system_ms",
        "wall_ms",
        "memory_rss_kib",
        "energy_j",
        how="the amount of the component; durations rounded to whole seconds, half up",
        settings=("components",),
    ),
    "components/scores/value": origin("benchmarks", how="rounded to three decimals", settings=("components",)),
    "start_time": origin("end", "wall_ms", "start", how="end - wall time, or the start", settings=("start_from",)),
    "stop_time": origin("end", how="RFC 3339, UTC"),
}


FORMAT: Final = Format(
    name=NAME,
    title="AUDITOR records",
    shape="record",
    make=AuditorFormat,
    key_settings=frozenset({"target.record_id_prefix", "target.record_id"}),
    content_type=AuditorFormat.content_type,
    columns=read_columns,
    needs_benchmark=True,
    inspected=inspected,
    origins=ORIGINS,
)
