"""status: what was read, what each target has, and what is left to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import msgspec
from sqlalchemy import Connection

from formats.calendar import SECONDS_A_DAY, period_of
from publisher.config.schema import Config, Target
from publisher.config.target_kind import EvidenceSource
from publisher.encoded_run import UsageNote
from publisher.errors import CredentialError, StoreError
from publisher.messages import completeness, due
from publisher.sources.base import FUTURE_S
from publisher.store import (
    batches,
    deliveries,
    groups,
    history,
    queries,
    reconciliations,
    registry,
    suspects,
    unreadable_input,
    usage_notes,
)
from publisher.store.admin import check_progress
from publisher.store.database import Store
from publisher.store.history import ProgramRun
from publisher.store.reconciliations import Reconciled
from publisher.store.registry import SourceCount
from publisher.store.schema import State
from publisher.store.sent_mark import RESTORED_HINT
from publisher.text import Instant, elapsed_s, past


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source: runs stored from it, unreadable input, and how fresh it is. `silent` is beyond `expect_every`."""

    jobs: int = 0
    unreadable: int = 0
    suspect: int = 0
    """Pieces of the unreadable input that have a job, which is held: a user may have made it."""
    unread_files: int = 0
    """Files of it that disappeared before they were read to their end, and are not settled."""
    skipped: int = 0
    cpu_sampled: int = 0
    cpu_doubtful: int = 0
    """Stored runs with this `UsageNote`."""
    last_collected: Instant | None = None
    last_job_end: Instant | None = None
    read_to_end: bool = False
    silent: bool = False
    error: str | None = None
    waiting: tuple[str, ...] = ()
    """Incomplete input that later input completes: a last line without its end, slave records."""
    ends_in_future: bool = False
    """The last job ended in the future: the clock of the batch system or of this host is wrong."""
    times_in_future: dict[str, Instant] = {}
    """Recorded times in the future, by the name of their field, which is None: a clock was wrong."""
    retired: bool = False
    """The configuration says that it is not read any more."""


class TargetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A target: its ledger in numbers, and its last attempt. Instants are epoch seconds."""

    accepted: int = 0
    assumed: int | None = 0
    """Accepted runs that an earlier publisher delivered, according to its state; None: not counted."""
    confirmed: int = 0
    evidence: EvidenceSource = "none"
    """The kind of evidence of what the service has; `none`: it gives none."""
    evidence_problem: str | None = None
    """Why the last reconciliation had no evidence."""
    reconciled_at: Instant | None = None
    """When the target was last reconciled."""
    differences: int = 0
    """How many the last reconciliation with evidence found."""
    missing: int = 0
    """Of what was sent: how much it did not find at the service (jobs, or groups of jobs)."""
    differing: int = 0
    """Of what was sent: how much the service has with other values."""
    unconfirmed_since: Instant | None = None
    """When the oldest of the unconfirmed jobs was accepted; None: all are confirmed, or there is no evidence."""
    unconfirmed_days: int | None = None
    """The whole days since then."""
    waiting: int = 0
    shadow: bool = False
    """Nothing is sent until this setting is removed."""
    not_due: int = 0
    """Waiting runs whose report is sent when its period is over."""
    in_flight: int = 0
    rejected: int = 0
    held: int = 0
    waived: int = 0
    superseded: int = 0
    not_selected: int | None = None
    """Jobs of the store that this target does not select, so that nothing is sent; None: not planned yet."""
    last_sent_end_time: Instant | None = None
    complete_until: Instant | None = None
    oldest_waiting_end_time: Instant | None = None
    last_attempt: Instant | None = None
    last_success: Instant | None = None
    due_at: Instant | None = None
    """The next time that something is sent, because of `every`; None: the next run."""
    last_error: str | None = None
    certificate_expires: Instant | None = None
    """When the certificate that signs or connects expires."""
    times_in_future: dict[str, Instant] = {}
    """As of a source."""
    groups: dict[str, int] | None = None
    removed_amounts: dict[str, int] = {}
    """Amounts of totals that the settings do not have any more, each with the number of totals that have it at the
    service, or may have: zero is sent with the next version of each."""
    certificate_days_left: int | None = None
    confirmation_overdue: bool = False
    """Whether `unconfirmed_days` reaches that of `notices`, where there was evidence before, or one is configured."""

    @property
    def is_contradicted(self) -> bool:
        """Whether the service lacks what was sent, has other values, or did not confirm it for too long."""
        return not self.shadow and bool(self.missing or self.differing or self.confirmation_overdue)

    @property
    def totals_open(self) -> int:
        """Totals or reports that are in flight or to be sent again, with or without a run that waits."""
        states = self.groups or {}
        return states.get(State.WAITING.word, 0) + states.get(State.IN_FLIGHT.word, 0)

    @property
    def totals_held(self) -> int:
        """Totals that the service does not take now, with or without a run that is held for it: it has other values."""
        return (self.groups or {}).get(State.HELD.word, 0)

    @property
    def totals_rejected(self) -> int:
        """Totals or reports that the service refused, with or without a run that is rejected: it has other values."""
        return (self.groups or {}).get(State.REJECTED.word, 0)

    @property
    def has_work(self) -> bool:
        """Whether something waits that is due, or is in flight."""
        return bool(self.waiting > self.not_due or self.in_flight or self.totals_open)

    @property
    def is_held(self) -> bool:
        """Whether something is held."""
        return bool(self.held or self.totals_held)

    @property
    def is_rejected(self) -> bool:
        """Whether something is rejected."""
        return bool(self.rejected or self.totals_rejected)

    @property
    def untouched(self) -> bool:
        """Whether the target has selected no run so far."""
        undelivered = self.waiting + self.in_flight + self.rejected + self.held + self.waived + self.superseded
        return not (self.accepted + self.confirmed + undelivered)


def reconcile_command(name: str, target: TargetStatus) -> str:
    """The command that compares a target with evidence: with a file where its service gives none."""
    file = " --file FILE" if target.evidence == "none" else ""
    return f"usage-publisher reconcile {shlex.quote(name)}{file}"


class Status(msgspec.Struct, frozen=True):
    """`complete`: nothing waits or is in flight for any target, and every source was read to its end.

    What waits, or is held, for a shadow does not count: nothing is sent there. `not_latest`: why the store may not know
    of all that was sent, as after a restore, and what to do; nothing is sent until then.
    """

    complete: bool
    sources: dict[str, SourceStatus]
    targets: dict[str, TargetStatus]
    not_latest: str | None = None
    removed_sources: dict[str, SourceCount] = {}
    """Sources that the configuration does not name any more, whose jobs are stored."""
    removed_targets: dict[str, TargetStatus] = {}
    """Targets that the configuration does not name any more, which have jobs: their counts. Nothing is sent there."""
    damaged_jobs: int = 0
    """Stored jobs that runs found damaged, and that were not replaced since."""
    last_run: ProgramRun | None = None
    """The last run of the program in its history."""

    @property
    def delivered(self) -> bool:
        """Complete, nothing is held or rejected, and nothing is known to be damaged."""
        if self.damaged_jobs or any(source.suspect for source in self.sources.values()):
            return False
        undelivered = (target.is_held or target.is_rejected for target in self.targets.values() if not target.shadow)
        return self.complete and not any(undelivered)


def status(store: Store | None, config: Config, clock: Callable[[], int], *, assumed: bool = True) -> Status:
    """The state of all sources and targets; `store` is None before the first collect.

    `assumed`: also count what an earlier publisher delivered, which takes time for millions of runs.
    """
    now = clock()
    sources = {name: _source(store, config, name, now) for name in config.sources}
    known_until = _known_until(sources)
    targets = {name: _target(store, config, name, now, known_until, assumed=assumed) for name in config.targets}
    complete = all(source.read_to_end for source in sources.values()) and not any(
        not target.shadow and target.has_work for target in targets.values()
    )
    if store is None:
        return Status(complete, sources, targets)
    with store.read() as connection:
        damaged = check_progress.count_damaged(connection)
        last_run = next(iter(history.newest(connection, 1)), None)
    return Status(
        complete,
        sources,
        targets,
        _why_not_latest(store),
        removed_sources=_removed(store, config),
        removed_targets=_removed_targets(store, config),
        damaged_jobs=damaged,
        last_run=last_run,
    )


def _removed(store: Store, config: Config) -> dict[str, SourceCount]:
    with store.read() as connection:
        known = registry.count_by_source(connection)
    return {name: count for name, count in known.items() if name not in config.sources and count.jobs}


def _removed_targets(store: Store, config: Config) -> dict[str, TargetStatus]:
    removed = {}
    with store.read() as connection:
        for name, target_id in registry.target_ids(connection).items():
            if name not in config.targets:
                counts = deliveries.of_target(connection, target_id)
                removed[name] = TargetStatus(
                    accepted=counts[State.ACCEPTED],
                    waiting=counts[State.WAITING],
                    in_flight=counts[State.IN_FLIGHT],
                    rejected=counts[State.REJECTED],
                    held=counts[State.HELD],
                    waived=counts[State.WAIVED],
                    superseded=counts[State.SUPERSEDED],
                    confirmed=deliveries.confirmed(connection, target_id),
                    last_sent_end_time=batches.last_sent_end(connection, target_id),
                    oldest_waiting_end_time=queries.oldest_waiting(connection, target_id),
                )
    return {name: one for name, one in removed.items() if not one.untouched}


def _why_not_latest(store: Store) -> str | None:
    try:
        why = store.why_not_latest()
    except StoreError as error:
        return str(error)
    return None if why is None else f"{why}. {RESTORED_HINT}"


def _earlier(oldest_open: int | None, known_until: int | None) -> int | None:
    """The time up to which a target has everything; None if a source was not read to its end."""
    return known_until if oldest_open is None or known_until is None else min(oldest_open, known_until)


def _known_until(sources: dict[str, SourceStatus]) -> int | None:
    """The time up to which every source was read."""
    present = [source for source in sources.values() if not source.retired] or [*sources.values()]
    reads = [source.last_collected if source.read_to_end else None for source in present]
    known = [read for read in reads if read is not None]
    return min(known) if known and len(known) == len(reads) else None


def _source(store: Store | None, config: Config, name: str, now: int) -> SourceStatus:
    row = None
    last_end = None
    if store is not None:
        with store.read() as connection:
            row = registry.get_source(connection, name)
            last_end = row.last_job_end if row is not None else None
            if row is not None and past(last_end, now) != last_end:
                last_end = registry.last_end_before(connection, row.id, now)
            unread = unreadable_input.unread_files(connection, row.id) if row is not None else []
            error = unreadable_input.unread_error(connection, row.id) if row is not None else None
            notes = usage_notes.count(connection, row.id) if row is not None else {}
            suspect = suspects.count(connection, [name]) if row is not None and row.unreadable else 0
    expect, retired = config.sources[name].expect_every, config.sources[name].retired
    if row is None:
        return SourceStatus(read_to_end=retired, retired=retired)
    quiet_s = elapsed_s(last_end, now)
    silent = expect is not None and not retired and (quiet_s is None or quiet_s > expect)
    times, in_future = _times({"last_collected": row.last_collected}, now)
    return SourceStatus(
        jobs=row.jobs,
        unreadable=row.unreadable,
        skipped=row.skipped,
        last_collected=times["last_collected"],
        last_job_end=row.last_job_end,
        read_to_end=(row.at_end or retired) and not unread,
        silent=silent,
        error=error if retired else row.last_error or error,
        waiting=row.waiting,
        unread_files=len(unread),
        ends_in_future=row.last_job_end is not None and row.last_job_end > now + FUTURE_S,
        times_in_future=in_future,
        cpu_sampled=notes.get(UsageNote.CPU_SAMPLED, 0),
        cpu_doubtful=notes.get(UsageNote.CPU_DOUBTFUL, 0),
        suspect=suspect,
        retired=retired,
    )


def _times(recorded: Mapping[str, int | None], now: int) -> tuple[dict[str, int | None], dict[str, int]]:
    """Recorded times by name, with None for those in the future; and those in the future."""
    known = {name: past(at, now) for name, at in recorded.items()}
    return known, {name: at for name, at in recorded.items() if at is not None and known[name] is None}


def _target(
    store: Store | None, config: Config, name: str, now: int, known_until: int | None, *, assumed: bool
) -> TargetStatus:
    settings = config.targets[name]
    expires = _certificate_expires(config, name)
    target_status = TargetStatus(
        certificate_days_left=None if expires is None else (expires - now) // SECONDS_A_DAY,
        certificate_expires=expires,
        groups={} if settings.format.is_snapshot else None,
        shadow=settings.shadow,
        evidence=settings.evidence_source,
    )
    if store is None:
        return target_status
    read_until = completeness.known_until(store, config, settings, now)
    with store.read() as connection:
        row = registry.get_target(connection, name)
        if row is None:
            return target_status
        target_status = msgspec.structs.replace(
            target_status,
            complete_until=_earlier(queries.oldest_open(connection, row.id), known_until),
            not_due=_not_due(connection, settings, row.id, read_until),
            assumed=deliveries.assumed(connection, row.id) if assumed else None,
            due_at=due.due_at(settings, row, now),
        )
        return _with_ledger(connection, config, row, target_status, now)


def _with_ledger(
    connection: Connection, config: Config, row: registry.TargetRow, found: TargetStatus, now: int
) -> TargetStatus:
    """The status with the counts, times, and reconciliation of the ledger."""
    times, in_future = _times({"last_attempt": row.last_attempt, "last_success": row.last_success}, now)
    counts = deliveries.of_target(connection, row.id)
    stored = sum(source.jobs for source in registry.count_by_source(connection).values())
    unconfirmed = _Unconfirmed(connection, config, row.name, row.id, counts[State.ACCEPTED], now)
    return msgspec.structs.replace(
        found,
        accepted=counts[State.ACCEPTED],
        confirmed=deliveries.confirmed(connection, row.id),
        waiting=counts[State.WAITING],
        in_flight=counts[State.IN_FLIGHT],
        rejected=counts[State.REJECTED],
        held=counts[State.HELD],
        waived=counts[State.WAIVED],
        superseded=counts[State.SUPERSEDED],
        not_selected=max(0, stored - sum(counts.values())),
        last_sent_end_time=batches.last_sent_end(connection, row.id),
        oldest_waiting_end_time=queries.oldest_waiting(connection, row.id),
        last_attempt=times["last_attempt"],
        last_success=times["last_success"],
        last_error=row.last_error,
        groups=None if found.groups is None else _groups(connection, row.id),
        removed_amounts=_removed_amounts(connection, config.targets[row.name], row.id),
        times_in_future=in_future,
        evidence_problem=unconfirmed.reconciled.problem,
        reconciled_at=past(unconfirmed.reconciled.looked_at, now),
        differences=unconfirmed.reconciled.differences,
        missing=unconfirmed.reconciled.missing,
        differing=unconfirmed.reconciled.differing,
        unconfirmed_since=unconfirmed.since,
        unconfirmed_days=unconfirmed.days,
        confirmation_overdue=unconfirmed.is_overdue,
    )


def _removed_amounts(connection: Connection, settings: Target, target_id: int) -> dict[str, int]:
    totals = settings.format.totals
    return {} if totals is None else groups.left_over(connection, target_id, totals, settings.format_options)


def _groups(connection: Connection, target_id: int) -> dict[str, int]:
    """The summaries or reports of a target by state, and how many are confirmed, if any."""
    counts = {state.word: count for state, count in groups.count(connection, target_id).items()}
    confirmed = groups.count_confirmed(connection, target_id)
    return counts | ({"confirmed": confirmed} if confirmed else {})


class _Unconfirmed:
    """The accepted jobs of a target that are not confirmed."""

    def __init__(
        self, connection: Connection, config: Config, name: str, target_id: int, accepted: int, now: int
    ) -> None:
        settings = config.targets[name]
        self.reconciled = reconciliations.of_target(connection, target_id) or Reconciled(due_at=now)
        self.since: int | None = None
        if settings.evidence_source != "none" and accepted > deliveries.confirmed(connection, target_id):
            later = reconciliations.accepted_after(connection, target_id, self.reconciled.last_batch_id)
            known = [since for since in (self.reconciled.unconfirmed_since, later) if since is not None]
            self.since = past(min(known, default=None), now)
        self.days = None if self.since is None else (now - self.since) // SECONDS_A_DAY
        expected = bool(settings.evidence) or self.reconciled.evidence_at is not None
        self.is_overdue = expected and self.days is not None and self.days >= config.notices.unconfirmed_days


def _not_due(connection: Connection, settings: Target, target_id: int, known: int | None) -> int:
    """How many runs wait for the end of the period that a report, or a file, will be of."""
    if known is None or (settings.reporting is None and not settings.by_day):
        return 0
    kind = "day" if settings.by_day else settings.period_kind
    return queries.count_waiting_from(connection, target_id, period_of(kind, known).start)


def _certificate_expires(config: Config, name: str) -> int | None:
    """Epoch seconds; None where the target has no certificate that can be read."""
    certificate = config.credentials_of(config.targets[name]).certificate
    if certificate is None:
        return None
    from publisher.security.credentials import load_certificates  # noqa: PLC0415 - loads OpenSSL, which most commands need not

    try:
        return int(load_certificates(certificate)[0].not_valid_after_utc.timestamp())
    except CredentialError:
        return None
