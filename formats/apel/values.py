"""Values of a run as APEL's text messages contain them, with a note of each alteration; and the key of a run's record.

Job records and summaries both use them, so that a summary has the sums that the service computes from records.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from formats.apel.text import CARRIED_RULE, NULL, carried, is_null
from formats.base import Note
from formats.fit import shown, unreported
from formats.hosts import infrastructure_of, submit_host_of
from formats.job import Job
from formats.names import dn_for, parse_fqan, vo_of, vo_read_by_apel
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import JOB_NUMBERS, TEXTS, NumberRule, compared
from formats.text import duration_seconds
from formats.view import View

_UP_TO_620: Final = frozenset({"arc-6.20", "arc-6.17"})
_NAMES_UP_TO_620: Final = re.compile(r"(?:/[-\w.]+)+")
"""Matches what ARC up to 6.20 writes as the group of a VOMS attribute: names up to the first other character, such as
`=`."""


def text(field: str, value: str | None, notes: list[Note]) -> str:
    """A text by the rule of its field; empty if it is missing, omitted, or a word that the server treats as missing."""
    if not value or is_null(value):
        return ""
    rule = TEXTS[field]
    fitting = carried(value)
    if fitting != value:
        notes.append(Note(field, CARRIED_RULE, shown(value), shown(fitting) or None))
    if is_null(fitting):
        return ""
    if len(fitting) > rule.longest:
        if rule.too_long == "hold":
            raise CannotRenderError(RuleCode.TOO_LONG, field, rule, length=len(fitting))
        cut = fitting[: rule.longest].rstrip() if rule.too_long == "shorten" else ""
        how = "shortened" if cut else "left out"
        notes.append(
            Note(field, f"longer than {rule.longest}: {how} ({rule.source})", shown(value), shown(cut) or None)
        )
        return cut
    return fitting


def named(field: str, value: str | None, notes: list[Note]) -> str:
    """As `text`; `None`, the server's word, if it is missing."""
    return text(field, value, notes) or NULL


def required(field: str, value: str | None, notes: list[Note]) -> str:
    """As `text`; raises `CannotRenderError` if it is missing."""
    fitting = text(field, value, notes)
    if not fitting:
        raise CannotRenderError(RuleCode.MISSING_OR_NULL, field)
    return fitting


def number(rule: NumberRule, value: int | None, notes: list[Note]) -> int | None:
    """A whole number in its range; None if it is missing or omitted."""
    if value is None or rule.least <= value <= rule.largest:
        return value
    if rule.outside == "hold":
        raise CannotRenderError(RuleCode.OUT_OF_RANGE, rule.field, rule, value=shown(value))
    notes.append(Note(rule.field, f"not in {rule.least}..{rule.largest}: omitted ({rule.source})", shown(value), None))
    return None


def needed(rule: NumberRule, value: int | None, system: str = "") -> int:
    """A whole number in its range; else raises `CannotRenderError`. `system`: that of the run."""
    if value is None:
        raise unreported(rule.field, system)
    if not rule.least <= value <= rule.largest:
        raise CannotRenderError(RuleCode.OUT_OF_RANGE, rule.field, rule, value=shown(value))
    return value


def seconds(field: str, amount_ms: int | None, system: str) -> int:
    """Whole seconds of a duration, rounded half up; raises `CannotRenderError` if it is missing or negative."""
    rounded = amount_ms if amount_ms is None or amount_ms < 0 else duration_seconds(amount_ms)
    return needed(JOB_NUMBERS[field], rounded, system)


def finished(job: Job) -> None:
    """Raises `CannotRenderError` for a run that has not ended."""
    if not job.finished:
        raise CannotRenderError(RuleCode.NOT_PUBLISHED, "Status", status=job.status)


def cpu_ms(job: Job) -> int | None:
    """CPU time of a run: the total, else user plus system if both are known."""
    if job.cpu_ms is None and job.cpu_user_ms is not None and job.cpu_system_ms is not None:
        return job.cpu_user_ms + job.cpu_system_ms
    return job.cpu_ms


def node_count(job: Job, notes: list[Note]) -> int:
    """NodeCount; 0 is APEL's word for unknown."""
    return number(JOB_NUMBERS["NodeCount"], job.nodes, notes) or 0


def processors(job: Job, notes: list[Note]) -> int:
    """Processors: the cores of a run, else its slots; 0 is APEL's word for unknown."""
    return number(JOB_NUMBERS["Processors"], job.cores or job.slots, notes) or 0


def user_name(job: Job, view: View, notes: list[Note]) -> str:
    """GlobalUserName: the user's name as the view requires it, in slash form, or `None`."""
    return named("GlobalUserName", dn_for(job, view), notes)


def submit_host(job: Job, view: View, notes: list[Note]) -> str:
    """SubmitHost: the same string in records, summaries, and sync counts."""
    return named("SubmitHost", submit_host_of(job, view), notes)


def vo_fields(job: Job, view: View, notes: list[Note]) -> tuple[str, str, str]:
    """VO, VOGroup and VORole (facts on formats, 4.7): `atlas`, `/atlas/no`, `Role=production`; `None` for a missing
    one.

    With `vo_spelling = "arc"` the role is `/Role=production`, or `Role=NULL` if there is none, and the group of a run
    without VOMS attributes is its VO, as in ARC's publisher since 6.21. `arc-6.20`: up to 6.20 the group ends with the
    word `Role` (`/atlas/Role`), and the role is always `Role=NULL`. `arc-6.17`: up to 6.19 a run without a VO also has
    the group `/` and `Role=NULL`. `apel-client`: see `vo_parts`.
    """
    vo, group, role = vo_parts(job, view)
    if view.vo_spelling not in {"plain", "apel-client"}:
        if view.vo_spelling in _UP_TO_620:
            leading = _NAMES_UP_TO_620.match(job.fqans[0]) if job.fqans else None
            group, role = leading[0] if leading else None, None
        group = group or f"/{vo or ''}"
        role = f"/{role}" if role else "Role=NULL"
        if vo is None and view.vo_spelling != "arc-6.17":
            group = role = None
    return named("VO", vo, notes), named("VOGroup", group, notes), named("VORole", role, notes)


def vo_parts(job: Job, view: View) -> tuple[str | None, str | None, str | None]:
    """VO, group, and role of a run in all formats of APEL: `atlas`, `/atlas/no`, `Role=production`.

    With `vo_spelling = "apel-client"` as the APEL client has them: the role as the FQAN has it, also `Role=NULL`, and
    the Unix group as VO of a local job. ARC's spellings are of its text formats alone: `vo_fields`.
    """
    if view.vo_spelling == "apel-client":
        return _vo_parts_of_client(job)
    primary = parse_fqan(job.fqans[0]) if job.fqans else None
    role = f"Role={primary.role}" if primary and primary.role else None
    return vo_of(job), primary.group if primary else None, role


def _vo_parts_of_client(job: Job) -> tuple[str | None, str | None, str | None]:
    """VO, group, and role as the APEL client writes them (facts on receivers, last section)."""
    if infrastructure_of(job) == "local":
        return job.local_group, None, None
    fqan = job.fqans[0].split(";", 1)[0] if job.fqans else ""
    if not fqan.startswith("/"):
        return fqan or vo_of(job), None, None
    parts = [part for part in fqan.split("/") if part]
    at = next((place for place, part in enumerate(parts) if part.lower().startswith("role=")), len(parts))
    return vo_read_by_apel(fqan), "".join(f"/{part}" for part in parts[:at]), parts[at] if at < len(parts) else None


KEY_SETTINGS: Final = frozenset(
    {"site.name", "target.local_id_prefix", "source.site", "source.local_id_prefix", "source.end_time"}
)
"""The settings that are part of the key; see `formats.base.Format`."""


class JobKey(NamedTuple):
    """APEL's key of a job record: a record replaces the earlier one with the same key (facts on formats, 4.8).

    Site and LocalJobId as its database compares them, and the end, epoch seconds; without the submit host.
    """

    site: str
    local_id: str
    end: int


def job_key(job: Job, view: View) -> JobKey | None:
    """The key of a run's record; None for a run without an end, which has no record.

    If there is no local id, the global one is used, as in the records.
    """
    if job.end is None:
        return None
    local_id = view.local_id_prefix + job.local_id if job.local_id else job.global_id or job.record_id
    return JobKey(compared(carried(job.site or view.site)), compared(carried(local_id)), job.end)
