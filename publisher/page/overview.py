"""The first page: the state of publishing as tiles, problems, recent usage, then each target and source; and records.

Names and states are those of `status` and `records list`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final, Literal

import msgspec

from formats.calendar import SECONDS_A_DAY
from publisher.errors import UsageError
from publisher.finding import DAMAGE_HINT
from publisher.page.addresses import with_query
from publisher.page.html import instant_text, markup
from publisher.reason import sentence
from publisher.status.notes import (
    FEW_DAYS,
    SELECTS_NONE,
    differences_text,
    evidence_notes,
    removed_amount_notes,
    totals_left,
    usage_notes,
)
from publisher.status.records import ListedRecord
from publisher.status.run_summary import summary_of
from publisher.status.status import SourceStatus, Status, TargetStatus
from publisher.store.schema import State
from publisher.text import counted, future_notes

Tone = Literal["good", "busy", "warn", "bad", "plain"]
MOST_LISTED: Final = 200
"""Records of a state that a page lists for each target; `records list` lists more."""
_MOST_REASONS: Final = 5
"""Reasons of a state of a target on the first page."""
NEED_DECISION: Final = ("held", "rejected")
"""The lists of records that need somebody."""


class RecordList(msgspec.Struct, frozen=True):
    """Records that a page lists: in these states, by one name, and what people do about them."""

    name: str
    states: tuple[State, ...]
    about: str

    def count(self, target: TargetStatus) -> int:
        """How many records of a target are in these states."""
        return sum(getattr(target, state.word) for state in self.states)


RECORD_LISTS: Final[Mapping[str, RecordList]] = {
    one.name: one
    for one in (
        RecordList("delivered", (State.ACCEPTED,), "The service accepted these records."),
        RecordList(
            "waiting",
            (State.WAITING, State.IN_FLIGHT),
            "The next run sends these records. Records that were in flight when a run ended are sent again.",
        ),
        RecordList(
            "held",
            (State.HELD,),
            "Something that these records need is missing. Change the configuration as the reason says: the next run "
            "tries them again.",
        ),
        RecordList(
            "rejected",
            (State.REJECTED,),
            "The service refused these records. Correct the cause, then send them again with `usage-publisher records "
            "retry`, or decide against them with `usage-publisher records waive`.",
        ),
        RecordList(
            "superseded",
            (State.SUPERSEDED,),
            "These jobs changed after a service accepted them, and it keeps the first version.",
        ),
    )
}


class Tile(msgspec.Struct, frozen=True):
    """A number at the top of the page, with a link to its records."""

    label: str
    number: int
    detail: str
    tone: Tone
    href: str


def tiles(status: Status) -> list[Tile]:
    """The four numbers of all targets to which records are sent."""
    targets = _sent_to(status)
    accepted, confirmed, held, rejected = (
        sum(getattr(target, name) for target in targets) for name in ("accepted", "confirmed", "held", "rejected")
    )
    waiting = sum(RECORD_LISTS["waiting"].count(target) for target in targets)
    oldest = min((target.oldest_waiting_end_time for target in targets if target.oldest_waiting_end_time), default=None)
    confirmable = any(target.evidence != "none" for target in targets)
    unsent = any(target.last_error for target in targets)
    return [
        _tile("delivered", accepted, f"{confirmed:,} confirmed" if confirmable else "accepted by the services",
              "good" if status.delivered else "plain"),
        _tile("waiting", waiting, f"oldest {instant_text(oldest)[:10]}" if oldest else "for the next run",
              "warn" if unsent else "busy"),
        _tile("held", held, "something is missing", "warn"),
        _tile("rejected", rejected, "refused by a service", "bad"),
    ]  # fmt: skip


def _tile(name: str, number: int, detail: str, tone: Tone) -> Tile:
    if not number:
        return Tile(name.capitalize(), 0, "none", "plain", with_query("/records", {"state": name}))
    return Tile(name.capitalize(), number, detail, tone, with_query("/records", {"state": name}))


def _sent_to(status: Status) -> list[TargetStatus]:
    return [target for target in status.targets.values() if not target.shadow]


def headline(status: Status) -> tuple[str, Tone]:
    """The state of publishing in a sentence."""
    if not status.targets:
        return "No target is configured: nothing is sent.", "warn"
    if status.not_latest is not None:
        return f"Nothing is sent: {status.not_latest}", "bad"
    if status.damaged_jobs:
        return f"The store is damaged ({counted(status.damaged_jobs, 'job')}): `usage-publisher store check`.", "bad"
    if status.delivered:
        return "Everything that was read is delivered.", "good"
    parts = [
        text
        for text, holds in (
            ("a source was not read to its end", not all(source.read_to_end for source in status.sources.values())),
            ("jobs wait to be sent", any(RECORD_LISTS["waiting"].count(target) for target in _sent_to(status))),
            ("held jobs need a change of the configuration", any(target.is_held for target in _sent_to(status))),
            ("rejected jobs are to be sent again or waived", any(target.is_rejected for target in _sent_to(status))),
        )
        if holds
    ]
    return f"Not everything is delivered: {'; '.join(parts)}.", "warn"


def problems(status: Status) -> list[tuple[str, str]]:
    """What an administrator should look at: the source or target, and what is wrong there."""
    texts = [(name, text) for name, one in status.sources.items() for text in _source_problems(one)]
    texts += [(name, text) for name, one in status.targets.items() for text in _target_problems(name, one)]
    if any(source.last_job_end is not None for source in status.sources.values()):
        texts += [(name, SELECTS_NONE) for name, one in status.targets.items() if one.untouched]
    if status.not_latest is not None and status.damaged_jobs:  # the headline has only the first of them
        texts.append(("store", f"{counted(status.damaged_jobs, 'damaged job')}: {DAMAGE_HINT}"))
    return texts


def _source_problems(one: SourceStatus) -> Iterable[str]:
    if one.error:
        yield one.error
    elif one.last_collected is None and not (one.times_in_future or one.retired):
        yield "never read: run `usage-publisher check`, then `usage-publisher run`"
    if one.ends_in_future:
        yield "the last job ends in the future: a clock is wrong"
    if one.silent:
        yield "silent for longer than `expect_every`"
    if one.suspect:
        yield f"{counted(one.suspect, 'suspect job')} held: see `usage-publisher collect --unreadable`"
    if one.unreadable:
        yield f"{counted(one.unreadable, 'unreadable record')}: see `usage-publisher collect --unreadable`"
    yield from future_notes(one.times_in_future)
    yield from one.waiting
    yield from usage_notes(one)


def _target_problems(name: str, one: TargetStatus) -> Iterable[str]:
    if one.last_error:
        yield one.last_error
    if one.certificate_days_left is not None and one.certificate_days_left < FEW_DAYS:
        yield f"the certificate expires in {counted(one.certificate_days_left, 'day')}"
    yield from totals_left(one)
    if one.evidence != "none":  # else the card of the target says so
        yield from evidence_notes(name, one, early=False)
    elif one.differences:  # to a file
        yield differences_text(name, one)
    yield from removed_amount_notes(name, one)
    yield from future_notes(one.times_in_future)


class Fact(msgspec.Struct, frozen=True):
    """A named value of a target, with a link to its records where there are any."""

    name: str
    value: str
    href: str | None = None


class TargetCard(msgspec.Struct, frozen=True):
    """A target: its numbers, then its times."""

    name: str
    note: str
    numbers: tuple[Fact, ...]
    times: tuple[Fact, ...]


def target_card(name: str, one: TargetStatus) -> TargetCard:
    """What is known of a target."""
    numbers = [
        Fact("accepted", f"{one.accepted:,}", _records("delivered", name, one.accepted)),
        Fact("confirmed", "no evidence" if one.evidence == "none" and not one.confirmed else f"{one.confirmed:,}"),
        Fact("waiting", f"{one.waiting:,}", _records("waiting", name, one.waiting)),
        Fact("in flight", f"{one.in_flight:,}", _records("waiting", name, one.in_flight)),
        Fact("held", f"{one.held:,}", _records("held", name, one.held)),
        Fact("rejected", f"{one.rejected:,}", _records("rejected", name, one.rejected)),
        Fact("waived", f"{one.waived:,}"),
        Fact("superseded", f"{one.superseded:,}", _records("superseded", name, one.superseded)),
    ]
    if one.not_selected:
        numbers.append(Fact("not selected", f"{one.not_selected:,}"))
    times = [
        Fact("last sent end", instant_text(one.last_sent_end_time)),
        Fact("complete until", instant_text(one.complete_until, "not known")),
        Fact("last success", instant_text(one.last_success)),
    ]
    if one.oldest_waiting_end_time is not None:
        times.insert(0, Fact("oldest waiting", instant_text(one.oldest_waiting_end_time)))
    if one.unconfirmed_days:
        times.append(Fact("unconfirmed for", counted(one.unconfirmed_days, "day")))
    if one.certificate_expires is not None:
        times.append(Fact("certificate expires", instant_text(one.certificate_expires)[:10]))
    note = "a shadow: nothing is sent" if one.shadow else ""
    if one.not_due:
        note = f"{counted(one.not_due, 'job')} of a period that is not over"
    return TargetCard(name, note, tuple(numbers), tuple(times))


def _records(state: str, target: str, number: int) -> str | None:
    return with_query("/records", {"state": state, "target": target}) if number else None


class UsageRow(msgspec.Struct, frozen=True):
    """Usage under one name. `share`: of the largest, in percent."""

    name: str
    jobs: int
    core_h: float
    share: float
    href: str = ""
    """The users behind it; empty for sums of others."""


class RecentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Recent usage by a key, or why it is not shown. `mine`: of the person alone."""

    by: str = ""
    interval: str = ""
    rows: tuple[UsageRow, ...] = ()
    href: str = ""
    mine: bool = False
    problem: str | None = None


def removed_text(target: TargetStatus) -> str:
    """What a target has that is not in the configuration any more."""
    left = target.waiting + target.in_flight + target.held + target.rejected
    return f"{target.accepted:,} accepted, {left:,} not delivered; not in the configuration any more"


class Decision(msgspec.Struct, frozen=True):
    """Records of a target that are held or rejected for a reason; `count`: at least, where not all are listed."""

    list: RecordList
    group: ReasonGroup
    count: str
    href: str


def decisions(status: Status, listed: Mapping[str, list[ListedRecord]]) -> list[Decision]:
    """What is held or rejected, and what to do, the most frequent reasons first. `listed`: by the name of a list, its
    oldest records."""
    needed = []
    for name, records in listed.items():
        groups = reason_groups(records)
        for target, one in status.targets.items():
            mine = [group for group in groups if group.target == target]
            total, seen = RECORD_LISTS[name].count(one), sum(len(group.records) for group in mine)
            href = with_query("/records", {"state": name, "target": target})
            for group in mine[:_MOST_REASONS]:
                count = len(group.records)
                text = counted(count, "record") if seen == total else f"at least {count:,} of {total:,} records"
                needed.append(Decision(RECORD_LISTS[name], group, text, href))
    return needed


def overview_page(
    status: Status | None,
    usage: RecentUsage | None,
    around: Mapping[str, Any],
    listed: Mapping[str, list[ListedRecord]] | None = None,
) -> str:
    """The first page. None: the person may not see this part. `listed`: see `decisions`."""
    context: dict[str, Any] = {"title": "Overview", "usage": usage, "status": status, "lead": "", "tone": "plain"}
    if status is not None:
        context["lead"], context["tone"] = headline(status)
        context |= {
            "tiles": tiles(status), "problems": problems(status), "decisions": decisions(status, listed or {}),
            "last_run": None if status.last_run is None else summary_of(status.last_run),
            "targets": [target_card(name, one) for name, one in status.targets.items()],
            "removed_targets": [(name, removed_text(one)) for name, one in status.removed_targets.items()],
        }  # fmt: skip
    return markup("overview.html", {**context, **around})


class RecordQuery(msgspec.Struct, frozen=True):
    """Which records are listed: of one target or all (None), that ended on a day or later (None: the oldest first)."""

    list: RecordList
    target: str | None
    since: int | None

    @classmethod
    def parse(cls, query: Mapping[str, str], targets: Iterable[str], since: int | None) -> RecordQuery:
        """Raises `UsageError` for an unknown state or target."""
        state, target = query.get("state") or "held", query.get("target") or None
        if state not in RECORD_LISTS:
            raise UsageError(f"state: {state!r} is not one of: {', '.join(RECORD_LISTS)}")
        if target is not None and target not in targets:
            raise UsageError(f"target: {target!r} is not configured; there are: {', '.join(targets) or 'none'}")
        return cls(RECORD_LISTS[state], target, since)

    def targets(self, status: Status) -> dict[str, TargetStatus]:
        """The targets whose records are listed: the one that is named, or all to which records are sent."""
        if self.target is not None:
            return {self.target: status.targets[self.target]}
        return {name: one for name, one in status.targets.items() if not one.shadow}

    def last_day(self, status: Status) -> int | None:
        """Midnight of the day on which the job ended that was last delivered."""
        ends = (target.last_sent_end_time for target in self.targets(status).values())
        last = max((end for end in ends if end is not None), default=None)
        return None if last is None else last - last % SECONDS_A_DAY


class ReasonGroup(msgspec.Struct, frozen=True):
    """Listed records of a target with the same reason, which is empty for none."""

    target: str
    reason: str
    records: tuple[ListedRecord, ...]


def reason_groups(listed: Iterable[ListedRecord]) -> list[ReasonGroup]:
    """The records by target and reason, the most frequent reason first; records of a group are in their order."""

    def key(one: ListedRecord) -> tuple[str, str]:
        return one.target, sentence(one.reason)

    groups = [
        ReasonGroup(target, reason, tuple(alike)) for (target, reason), alike in groupby(sorted(listed, key=key), key)
    ]
    return sorted(groups, key=lambda group: (-len(group.records), group.target, group.reason))


def records_page(
    asked: RecordQuery, status: Status, listed: list[ListedRecord], *, with_ids: bool, around: Mapping[str, Any]
) -> str:
    """The records of a state. `with_ids`: the person may see single jobs; else only the reasons are shown."""
    chosen = asked.targets(status).values()
    total = sum(asked.list.count(one) for one in chosen)
    context = {
        "title": f"{asked.list.name.capitalize()} records", "about": asked.list.about, "total": total,
        "tabs": [
            (name, sum(one.count(target) for target in chosen),
             with_query("/records", {"state": name, **({"target": asked.target} if asked.target else {})}))
            for name, one in RECORD_LISTS.items()
        ],
        "state": asked.list.name, "target": asked.target, "targets": list(status.targets),
        "since": "" if asked.since is None else instant_text(asked.since)[:10],
        "groups": reason_groups(listed), "shown": len(listed), "with_ids": with_ids,
    }  # fmt: skip
    return markup("records.html", {**context, **around})
