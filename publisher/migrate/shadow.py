"""Compare what a target would be sent with what an earlier publisher sent: record by record or group by group.

What the earlier publisher sent is read from its messages or its database (`publisher.migrate.old_records`). What would
be sent are the items of `publisher.messages.items`. Nothing is changed here; `publisher.publish.decide` does that.

The known reasons why fields differ are those of the facts on formats, 5.1 (ARC), 5.2 (APEL client), and 5.3 (BaRT). A
difference without a known reason is to be examined before the move.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from formats.apel.fold import Group
from formats.apel.text import is_null
from formats.calendar import Month
from formats.check.fields import Fields, each_fields_of, fields_of
from formats.job import Job
from formats.rules import compared
from formats.text import read_duration_ms
from publisher.collect.enrich import Enrichers
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.job_ids import id_with_schedd
from publisher.messages.item import Held, ItemPage
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Scope, Section
from publisher.migrate.export import read_instant
from publisher.migrate.old_records import KeptRecord, OldRecord, OldRecords, group_of, key_of
from publisher.migrate.wrong_zone import EndsByDay, WrongZone, wrong_zones
from publisher.reason import sentence
from publisher.sources.base import Window
from publisher.store import deliveries, registry, runs
from publisher.store.database import Store
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun
from publisher.text import counted

_REASONS: Final = tuple(
    (re.compile(field), reason)
    for field, reason in (
        (r"RecordIdentity@recordId", "each publisher makes its own record ids; only those of ARC are kept"),
        (r"JobIdentity/GlobalJobId", "not every publisher has one"),
        (
            r"(UserIdentity/)?(VO\b.*|GroupAttribute.*|VOGroup|VORole|FQAN)",
            "spelling of VO groups and roles: `vo_spelling`",
        ),
        (r"SubmitHost.*", "spelling of the computing element: `submit_host`"),
        (
            r"MachineName",
            "the host of the computing element; the APEL client names the batch system's",
        ),
        (r"Memory.*|Swap.*|Network.*|Disk.*", "zero means unknown here, and `virtual` is not a type of the standard"),
        (r"NodeCount|Processors", "the granted number is sent; zero means unknown here"),
        (r"Host.*", "ARC sends none, BaRT joins all into one"),
        (r"TimeInstant.*|TimeDuration.*|SubmitTime", "more times are sent here"),
        (r"(Start|End)Time", "which event counts: `start_time` and `end_time` of the source"),
        (r"ServiceLevel.*", "the benchmark: others send HEPSPEC 1.0 or none where it is missing"),
        (r"Infrastructure.*|Middleware.*|LoggerName.*|UsageRecord@.*", "names the publishing program"),
        (
            r"UserTime|KernelTime|ExitCode|ExitStatus|Status.*|Queue.*|ProjectName|RuntimeEnvironment.*|FileTransfers.*",
            "other publishers omit it",
        ),
        (r"(Earliest|Latest)EndTime", "other publishers begin a month at another time"),
    )
)


def reason_of(field: str, before: str | None, after: str | None) -> str:
    """The known reason why a field differs, or an empty text. `before`: the earlier publisher's value."""
    if before is not None and after is not None and "%" in before and before != after:
        return "ARC sends %27 for an apostrophe and %23 for a number sign"
    for pattern, reason in _REASONS:
        if pattern.fullmatch(field):
            return reason
    return ""


def same_value(one: str, other: str) -> bool:
    """Whether two values mean the same: durations, instants, numbers, and null have several spellings.

    In XML they are `PT60S` and `2026-10-01T00:01:00Z`, in APEL's text and tables seconds.
    """
    if one == other or (is_null(one) and is_null(other)):
        return True
    for read in (_duration_ms, read_instant, float):
        try:
            return read(one) == read(other)
        except ValueError:
            continue
    return False


def _duration_ms(text: str) -> int:
    return int(text) * 1000 if text.isascii() and text.isdigit() else read_duration_ms(text)


NOTHING_CHANGED: Final = (
    "Nothing was changed. Keep `shadow = true` until --take-over succeeds: else every job is sent again."
)
_TOTAL: Final = re.compile(r"(?<=\[)total,?|,total(?=[,\]])")
_SUMS: Final = ("NumberOfJobs", "WallDuration", "CpuDuration")
_NOT_COMPARED: Final = frozenset({"EarliestEndTime", "LatestEndTime", "InfrastructureDescription"})
"""Of exports: always different, and of no use."""

Kind = Literal["same", "differs", "other key", "only here", "only there"]
"""`other key`: both have it, with keys that differ at the service: it would count twice."""


class FieldDifference(msgspec.Struct, frozen=True):
    """A field that differs: their value, ours (None: missing), and the reason, empty if unknown."""

    field: str
    theirs: str | None
    ours: str | None
    reason: str


class ShadowRecord(msgspec.Struct, frozen=True):
    """A record or group on both sides. `reason`: why it is on one side alone, or would not be sent.

    `key`: the parts of the service's key that differ. `same_as`: the record of ours that matched the same record of
    theirs before; it is unknown which of the two they sent. `is_settled`: it counts as delivered already.
    """

    record: str
    kind: Kind
    fields: tuple[FieldDifference, ...] = ()
    reason: str = ""
    run_id: int | None = None
    key: tuple[FieldDifference, ...] = ()
    same_as: str | None = None
    is_settled: bool = False

    @property
    def is_on_both_sides(self) -> bool:
        """Whether both sides have it."""
        return self.kind in {"same", "differs", "other key"}

    @property
    def is_delivered(self) -> bool:
        """Whether their record shows that a run of ours was delivered. If another run has the same key, it does not:
        the service has one record."""
        return self.run_id is not None and self.is_on_both_sides and (self.same_as is None or self.kind == "other key")

    @property
    def would_count_twice(self) -> bool:
        """Whether the service would have it twice if it were sent."""
        return self.kind == "other key" and not self.is_settled

    @property
    def explained(self) -> bool:
        """Whether the reason of every difference is known."""
        return all(field.reason for field in self.fields)


class _OurGroup(msgspec.Struct, frozen=True):
    """A group of ours whose key none of theirs has."""

    name: str
    fields: Fields
    key: dict[str, str]


class ShadowComparison:
    """Compares one target with what another publisher sent, in a window of end times (the end exclusive)."""

    def __init__(
        self, store: Store, config: Config, target: str, old: OldRecords, window: tuple[int, int], now: int
    ) -> None:
        """`now`: epoch seconds."""
        self._store = store
        self._name = target
        self._settings = config.targets[target]
        self._sites = config.site_names
        self._enrichers = Enrichers(config)
        self._recipient = Recipient(store, config, target)
        self._now = now
        self._old = old
        self._window = window
        self._jobs_here: Counter[Month] = Counter()
        self._same_ends = EndsByDay()
        self._zones = {name: source.timezone for name, source in config.sources.items()}
        self.counts: Counter[Kind] = Counter()

    def records(self) -> Iterator[ShadowRecord]:
        """Every record of both sides, each once: ours, then those that are theirs alone."""
        shadow_records = self._of_groups() if self._settings.format.shape == "totals" else self._of_runs()
        for shadow_record in shadow_records:
            self.counts[shadow_record.kind] += 1
            yield shadow_record
        for old in self._old.unmatched():
            if self._is_in_window(old):
                self.counts["only there"] += 1
                name = old.name if old.name[:1] != "[" else _group_name(old.fields)
                yield ShadowRecord(name, "only there", reason=self._why_not_here(old))

    def require_own_sites(self) -> None:
        """Raise `UsageError` if some of their records are of another site: they must not be taken over or replaced."""
        own = set(map(compared, self._sites))
        others = [site for site in self._old.sites() if compared(site) not in own]
        if others:
            raise UsageError(
                f"the earlier publisher sent records of {', '.join(others)}, and here the site is "
                f"{', '.join(dict.fromkeys(self._sites))}",
                hint="Nothing was changed. Export the rows of this site alone, with `WHERE Site = ...`; or set "
                "site.name, or `site` of a source, to the name that the earlier publisher used",
            )

    def wrong_zones(self) -> list[WrongZone]:
        """The sources whose time zone is wrong; call it after `records`."""
        return wrong_zones(self._old.other_ends(), self._same_ends, self._zones)

    def require_complete(self, since: int | None, until: int | None, *, is_assured: bool) -> None:
        """Raise `UsageError` if their list may lack jobs; call it after `records`.

        Ends from `since` to before `until` matter. What the list lacks is sent from here, and may count twice.
        `is_assured`: somebody says that it has everything, so only numbers can contradict that.
        """
        since = max((each for each in (since, self._settings.since) if each is not None), default=None)
        counts = self._old.job_counts
        lacking = list(counts.shortages(self._old.listed(), self._sites, (since, until)))
        if lacking:
            months = ", ".join(f"{each.month}: {each.listed:,} of {each.counted:,}" for each in lacking)
            raise UsageError(
                f"the earlier publisher's list lacks jobs that its other tables count: {months}",
                hint=f"{NOTHING_CHANGED} Export all rows of VJobRecords: a condition on UpdateTime leaves out what "
                "`interval = gap` and `all` sent. If job records were deleted there, set `since` of "
                f"targets.{self._name} to the first month after them, or ask APEL for its own list",
            )
        only_here = self.counts["only here"]
        is_list = counts.is_listed and self._settings.format.shape == "record"
        if is_list and not counts.is_known and not is_assured and only_here:
            raise UsageError(
                f"{counted(only_here, 'job')} here are not in the earlier publisher's list, which may be incomplete",
                hint=f"{NOTHING_CHANGED} Export all rows of VJobRecords, and the numbers of jobs, VSyncRecords; give "
                "both to --against. Rows up to LastUpdated lack what `interval = gap` and `all` sent. If the list "
                "surely has everything, such as APEL's own, add --complete",
            )

    def groups_to_take_over(self) -> list[Group]:
        """Return what they sent in the window; call it after `records`.

        Raises `UsageError` if they sent more jobs of a month than would be sent from here: the difference would be
        lost. Steps of jobs are no jobs: their groups are taken over, so that they are sent with no jobs.
        """
        theirs = []
        jobs_there, steps = Counter[Month](), Counter[Month]()
        for old in self._old.all():
            if self._is_in_window(old):
                group = group_of(old.fields)
                theirs.append(group)
                jobs_there[group.key.when] += group.jobs
                if self._old.steps.is_group(old.fields):
                    steps[group.key.when] += group.jobs
        jobs_there -= steps if self._old.steps.by_month is None else self._old.steps.by_month
        for month in sorted(jobs_there):
            if jobs_there[month] > self._jobs_here[month]:
                raise UsageError(
                    f"the earlier publisher sent {jobs_there[month]:,} jobs of {month}, and {self._name} would be sent "
                    f"{self._jobs_here[month]:,}",
                    hint="Nothing was changed. Take over only the months that this program sends (--since), or find "
                    "the missing jobs first: look at held records, vo, local_jobs, and the time zone and oldest log of "
                    "each source. Jobs that are steps of Slurm are left out if --against names an export of "
                    "VJobRecords too",
                )
        return theirs

    def _is_in_window(self, old: OldRecord) -> bool:
        return old.end is None or self._window[0] <= old.end < self._window[1]

    def _ours(self) -> Iterator[tuple[Section, ItemPage]]:
        """The items of the window that would be sent, also of incomplete months."""
        scope = Scope(Window(*self._window), incomplete=True)
        for step in items(self._recipient, scope, now=self._now):
            if isinstance(step, Section) and step.form.name == self._settings.records:
                yield from ((step, page) for page in step.pages)

    def _of_runs(self) -> Iterator[ShadowRecord]:
        for section, page in self._ours():
            run_ids = [item.members.run_ids[0] for item in page.items]
            stored_runs, settled = self._runs(run_ids), self._settled(run_ids)
            for item, run_id in zip(page.items, run_ids, strict=True):
                ours = fields_of(self._settings.records, section.form.message([item.body]))
                run = stored_runs[run_id]
                kept = KeptRecord(run_id, item.digest, item.key, _local_id(run.job), ours, source=run.source)
                old = self._old.match(ours, item.key)
                if old is None:
                    self._old.keep_for_later(kept)
                else:
                    yield self._of_kept(kept, old, is_settled=run_id in settled)
            yield from self._held(page.held)
        for kept, old in self._old.match_the_rest():
            if old is None:
                reason = kept.held or "the earlier publisher did not send it"
                yield ShadowRecord(kept.name, "only here", reason=reason, run_id=kept.run_id)
            else:
                is_settled = bool(self._settled([kept.run_id]))
                yield self._of_kept(kept, old, is_settled=is_settled)

    def _held(self, held: Sequence[Held]) -> Iterator[ShadowRecord]:
        """Compare what would be held: the earlier publisher may have sent it."""
        run_ids = [held_item.members.run_ids[0] for held_item in held]
        stored_runs, settled, view = self._runs(run_ids), self._settled(run_ids), self._recipient.view
        for each, run_id in zip(held, run_ids, strict=True):
            job, reason = stored_runs[run_id].job, f"it would be held: {sentence(each.reason)}"
            record_id = view.record_id_prefix + job.record_id if self._settings.format.key == "record id" else None
            known = (
                ("Site", job.site or view.site),
                ("LocalJobId", job.local_id),
                ("EndTime", None if job.end is None else str(job.end)),
                ("JobIdentity/GlobalJobId", job.global_id),
                ("RecordIdentity@recordId", record_id),
            )
            ours: Fields = {name: (value,) for name, value in known if value is not None}
            source = stored_runs[run_id].source
            kept = KeptRecord(run_id, stored_runs[run_id].digest, each.key, _local_id(job), ours, reason, source)
            old = self._old.match(ours, each.key)
            if old is None:
                self._old.keep_for_later(kept)
            else:
                yield self._of_kept(kept, old, is_settled=run_id in settled)

    def _of_kept(self, ours: KeptRecord, old: OldRecord, *, is_settled: bool) -> ShadowRecord:
        if ours.held is not None:  # of a held run there are the parts of the key alone, as in an export
            old = msgspec.structs.replace(old, is_export=True)
        shadow_record = self._compared(ours.name, old, ours.fields, ours.run_id, is_settled=is_settled)
        if old.end is not None:
            self._same_ends.add(ours.source, old.end)
        if shadow_record.is_delivered:
            self._old.keep_delivered(ours.run_id, ours.digest)
        return shadow_record if ours.held is None else msgspec.structs.replace(shadow_record, reason=ours.held)

    def _runs(self, run_ids: Sequence[int]) -> dict[int, StoredRun]:
        with self._store.read() as connection:
            stored_runs = runs.by_ids(connection, run_ids)
        return {
            run.run_id: msgspec.structs.replace(run, job=self._enrichers.apply(run.source, run.job))
            for run in stored_runs
        }

    def _settled(self, run_ids: Sequence[int]) -> set[int]:
        """The runs that count as delivered by an earlier publisher: accepted, and never sent from here."""
        if self._recipient.target_id is None:
            return set()
        with self._store.read() as connection:
            states = deliveries.deliveries_of(connection, self._recipient.target_id, run_ids)
        return {run_id for run_id, each in states.items() if each.state is State.ACCEPTED and not each.sent}

    def _of_groups(self) -> Iterator[ShadowRecord]:
        left: list[_OurGroup] = []
        for section, page in self._ours():
            for item in page.items:
                (ours,) = each_fields_of(self._settings.records, section.form.message([item.body]))
                group = group_of(ours)
                self._jobs_here[group.key.when] += group.jobs
                name = _group_name(ours)
                old = self._old.match(ours, name)
                if old is None:
                    left.append(_OurGroup(name, ours, key_of(self._settings.records, ours)))
                else:
                    yield self._compared(name, old, ours, None)
        paired = self._paired(left)
        for each in left:
            old = paired.get(each.name)
            if old is None:
                yield ShadowRecord(each.name, "only here", reason="the earlier publisher did not send it")
            else:
                self._old.mark_matched(old.name, each.name)
                yield self._compared(each.name, old, each.fields, None)

    def _paired(self, ours: Sequence[_OurGroup]) -> dict[str, OldRecord]:
        """Pair groups of both sides that are probably the same jobs with another key: of the same month and user, with
        the same sums or, if there are none, with the fewest differences in the key."""
        theirs: dict[tuple[str, ...], list[tuple[OldRecord, dict[str, str]]]] = defaultdict(list)
        for old in self._old.unmatched():
            key = key_of(self._settings.records, old.fields)
            theirs[_user_and_month(key)].append((old, key))
        old_records: dict[str, OldRecord] = {}
        for with_same_sums in (True, False):
            for record in ours:
                candidates = theirs[_user_and_month(record.key)]
                if record.name in old_records or not candidates:
                    continue
                best = min(candidates, key=lambda candidate: len([*_differing(candidate[1], record.key)]))
                if with_same_sums:
                    same = [one for one in candidates if _sums_of(one[0].fields) == _sums_of(record.fields)]
                    if not same:
                        continue
                    best = min(same, key=lambda candidate: len([*_differing(candidate[1], record.key)]))
                candidates.remove(best)
                old_records[record.name] = best[0]
        return old_records

    def _compared(
        self, record: str, old: OldRecord, ours: Fields, run_id: int | None, *, is_settled: bool = False
    ) -> ShadowRecord:
        form = self._settings.records
        key = tuple(_differing(key_of(form, old.fields), key_of(form, ours)))
        theirs = old.fields
        if old.is_export:  # it has not all fields of a message, and those of the key were compared
            both = (theirs.keys() & ours.keys()) - key_of(form, ours).keys() - _NOT_COMPARED
            theirs, ours = ({name: side[name] for name in sorted(both)} for side in (theirs, ours))
        fields = tuple(_differences(_usual(theirs), _usual(ours)))
        kind: Kind = "other key" if key else "differs" if fields else "same"
        return ShadowRecord(record, kind, fields, "", run_id, key, old.matched_by, is_settled)

    # --- records that only they have

    def _why_not_here(self, old: OldRecord) -> str:
        if self._settings.format.shape == "totals":
            if self._old.steps.is_group(old.fields):
                return "steps of Slurm jobs, which the client counted as jobs: --take-over sends the group with no jobs"
            return "no job here makes this group"
        if self._old.steps.is_step(old.fields):
            return "a step of a Slurm job, which the client sent as a job: only APEL can delete it"
        names = [
            values[0]
            for name in ("RecordIdentity@recordId", "JobIdentity/GlobalJobId", "JobIdentity/LocalJobId", "LocalJobId")
            if (values := old.fields.get(name))
        ]
        with self._store.read() as connection:
            row = registry.get_target(connection, self._name)
            for name in names:
                masters = [run for run in runs.find(connection, name) if not run.job.slave]
                if not masters:
                    continue
                states = deliveries.states_of(connection, row.id, [masters[0].run_id]) if row is not None else {}
                if masters[0].run_id not in states:
                    status = masters[0].job.status
                    return f"it is known ({status}), but not selected here: see vo, statuses, since, and local_jobs"
                return "it is known with another end or id; `usage-publisher jobs` shows it"
        return "no source here has it"


def _local_id(job: Job) -> str | None:
    """The batch system's id of a run; for a task of an array that of the array and task, not Slurm's own number."""
    return f"{job.array_id}_{job.array_task}" if job.array_id and job.array_task is not None else id_with_schedd(job)


def _group_name(fields: Fields) -> str:
    """The name of a group for people."""
    shown = ("Year", "Month", "VO", "VOGroup", "VORole", "SubmitHost", "GlobalUserName", "Processors", "ServiceLevel")
    return " ".join(_text(fields.get(name)) for name in shown if fields.get(name))


def _usual(fields: Fields) -> Fields:
    """Leave the default attribute, the metric `total`, out of the names."""
    return {_TOTAL.sub("", name).replace("[]", ""): values for name, values in fields.items()}


def _text(values: tuple[str, ...] | None) -> str:
    return ", ".join(values or ())


def _user_and_month(key: Mapping[str, str]) -> tuple[str, ...]:
    return key["Year"], key["Month"], compared(key["GlobalUserName"])


def _sums_of(fields: Fields) -> tuple[tuple[str, ...] | None, ...]:
    return tuple(fields.get(name) for name in _SUMS)


def _differing(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[FieldDifference]:
    """The parts of a key that differ in the service's database."""
    for name in dict.fromkeys([*ours, *theirs]):
        before, after = theirs.get(name), ours.get(name)
        if before is None or after is None or compared(before) != compared(after):
            yield FieldDifference(name, before, after, reason_of(name, before, after))


def _same(theirs: Sequence[str], ours: Sequence[str]) -> bool:
    return len(theirs) == len(ours) and all(map(same_value, theirs, ours))


def _differences(
    theirs: Mapping[str, tuple[str, ...]], ours: Mapping[str, tuple[str, ...]]
) -> Iterator[FieldDifference]:
    for name in dict.fromkeys([*theirs, *ours]):
        there, here = theirs.get(name), ours.get(name)
        if there == here:
            continue
        if there is not None and here is not None and _same(there, here):
            continue
        before = None if there is None else _text(there)
        after = None if here is None else _text(here)
        yield FieldDifference(name, before, after, reason_of(name, before, after))
