"""What was read and what each service has, as a page: `status` for people who are not at the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from publisher.page.markup import markup
from publisher.pipeline.status import SourceStatus, Status, TargetStatus
from publisher.plain_text import safe
from publisher.times import future_notes, iso

_TARGETS: Final = (
    "target", "accepted", "confirmed", "waiting", "in flight", "rejected", "held", "waived", "superseded",
    "oldest waiting", "sent up to", "complete until", "last success", "certificate days", "trouble",
)  # fmt: skip
_SOURCES: Final = ("source", "jobs", "unreadable", "last read", "last job ended", "read to its end", "trouble")
_NUMBERS: Final = frozenset({*_TARGETS[1:9], "certificate days", "jobs", "unreadable"})


def status_page(status: Status, around: Mapping[str, Any]) -> str:
    """The page."""
    targets = [
        (
            f"{safe(name)} (shadow)" if one.shadow else safe(name), one.accepted, one.confirmed, one.waiting,
            one.in_flight, one.rejected, one.held, one.waived, one.superseded,
            iso(one.oldest_waiting_end_time) or "none", _at(one.last_sent_end_time), _at(one.complete_until),
            _at(one.last_success), "" if one.certificate_days_left is None else one.certificate_days_left,
            safe(_trouble_of(one)),
        )
        for name, one in status.targets.items()
    ]  # fmt: skip
    sources = [
        (
            safe(name), one.jobs, one.unreadable, _at(one.last_collected), _at(one.last_job_end),
            "yes" if one.read_to_end else "no", safe(_trouble(one)),
        )
        for name, one in status.sources.items()
    ]  # fmt: skip
    context = {
        "title": "Publishing", "lead": _lead(status), "targets": targets, "sources": sources,
        "target_columns": _TARGETS, "source_columns": _SOURCES, "target_numbers": _NUMBERS, "source_numbers": _NUMBERS,
    }  # fmt: skip
    return markup("status.html", {**context, **around})


def _lead(status: Status) -> str:
    if status.delivered:
        return "Everything that was read has been delivered."
    if not status.complete:
        return "Something is still to be read or to be delivered."
    held = sum(one.held for one in status.targets.values() if not one.shadow)
    rejected = sum(one.rejected for one in status.targets.values() if not one.shadow)
    return f"Not everything is delivered: {held:,} records are held, {rejected:,} were rejected."


def _trouble_of(one: TargetStatus) -> str:
    shadow = "a shadow: nothing is sent, and what waits is meant to" if one.shadow else ""
    return "; ".join(filter(None, (shadow, one.last_error, *future_notes(one.times_in_future))))


def _trouble(one: SourceStatus) -> str:
    if one.error:
        return one.error
    if one.ends_in_future:
        return "the last job ends in the future: a clock is wrong"
    silent = "silent for too long" if one.silent else ""
    return "; ".join(filter(None, (silent, *future_notes(one.times_in_future)))) or "; ".join(one.waiting)


def _at(instant: int | None) -> str:
    return iso(instant) or "never"
