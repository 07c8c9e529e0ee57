"""A run of the program, of the history, in a few words: for the command, the state, and the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from publisher.store.history import ProgramRun, ReconciledDone, RunDone, TargetDone
from publisher.text import counted, duration_text

_EXIT_TEXTS: Final[Mapping[int, str]] = {
    0: "done",
    1: "something waits, or failed",
    2: "wrong usage or configuration",
    3: "records newly held or rejected",
    4: "credentials cannot be used, or were refused",
    5: "the store could not be used, or is damaged",
    6: "internal error",
    130: "interrupted",
}
"""By exit code (`publisher.cli.exit_code`)."""
_UNREADABLE: Final = "its record cannot be read"
_MOST_DAMAGE: Final = 20
LISTED: Final = ("sent", "totals", "confirmed", "rejected", "held")
"""The numbers of a run in lists, of all targets."""
_COLLECTED: Final = ("new", "changed", "unreadable")
_DELIVERED: Final = (*LISTED, "waiting")


class SourceWork(msgspec.Struct, frozen=True):
    """What a run read from a source: jobs, pieces of unreadable input, and why it stopped."""

    name: str
    new: int
    changed: int
    unreadable: int
    error: str | None


class TargetWork(msgspec.Struct, frozen=True):
    """What a run sent to a target (jobs, and totals or reports of jobs), and what its reconciliation confirmed: None
    without one; what is left then."""

    name: str
    sent: int
    totals: int
    confirmed: int | None
    rejected: int
    held: int
    waiting: int
    error: str | None


class WorkTable(msgspec.Struct, frozen=True):
    """What a run did by source or by target (`what`): a row for each, with its `numbers` in their order."""

    title: str
    what: str
    numbers: tuple[str, ...]
    rows: list[WorkRow]


class WorkRow(msgspec.Struct, frozen=True):
    """A source or target; None: unknown."""

    name: str
    cells: tuple[int | None, ...]
    error: str | None


class RunSummary(msgspec.Struct, frozen=True):
    """A run: `took` and `result` for people; what it did by source and target.

    Of a run without an end nothing is known here: what it sent before it was killed is in the ledger. Nor is anything
    of a run whose record cannot be read.
    """

    run: ProgramRun
    sources: list[SourceWork]
    targets: list[TargetWork]
    findings: list[str] = []
    """What it found when it compared with the services and checked the store, as sentences."""

    @property
    def took(self) -> str:
        """How long it was at work; empty without an end."""
        if self.run.ended_at is None or self.run.began_at is None:
            return ""
        return duration_text(self.run.ended_at - self.run.began_at)

    @property
    def result(self) -> str:
        """How it ended, in words; the exit code is what a script or cron saw."""
        code, damaged = self.run.exit_code, self.run.damage is not None
        if code is None:
            return _UNREADABLE if damaged else "at work, or killed"
        text = _EXIT_TEXTS.get(code, "unknown") + (f" (exit code {code})" if code else "")
        return f"{text}; {_UNREADABLE}" if damaged else text

    @property
    def is_known(self) -> bool:
        """Whether it is known what it did."""
        return self.run.ended_at is not None and self.run.done is not None

    @property
    def new(self) -> int | None:
        """Jobs that it stored; None: unknown."""
        return sum(source.new for source in self.sources) if self.is_known else None

    @property
    def problem(self) -> str | None:
        """Why it stopped before its end, why the store could not be checked, or why its record cannot be read."""
        done = self.run.done or RunDone()
        return self.run.damage or done.error or done.checked.error

    @property
    def errors(self) -> Iterator[str]:
        """What went wrong, each with the source or target."""
        if self.problem:
            yield self.problem
        works = [(source.name, source.error) for source in self.sources] + [
            (target.name, target.error) for target in self.targets
        ]
        yield from (f"{name}: {error}" for name, error in works if error)
        yield from self.findings

    @property
    def tables(self) -> list[WorkTable]:
        """What it did by source, then by target; nothing where it did nothing."""
        parts: Sequence[tuple[str, str, tuple[str, ...], Sequence[SourceWork | TargetWork]]] = (
            ("Collected", "source", _COLLECTED, self.sources), ("Delivered", "target", _DELIVERED, self.targets)
        )  # fmt: skip
        return [
            WorkTable(
                title, what, numbers,
                [WorkRow(work.name, tuple(getattr(work, name) for name in numbers), work.error) for work in works],
            )
            for title, what, numbers, works in parts if works
        ]  # fmt: skip

    def total(self, name: str) -> int | None:
        """A number of `TargetWork`, of all targets; None: unknown."""
        return sum(getattr(target, name) or 0 for target in self.targets) if self.is_known else None

    @property
    def work(self) -> str:
        """What it did, in words; empty: unknown."""
        if self.new is None:
            return ""
        sent, rejected = self.total("sent") or 0, self.total("rejected") or 0
        totals = self.total("totals") or 0
        what = f"{counted(sent, 'job')} and {counted(totals, 'total')}" if totals else counted(sent, "record")
        return f"; {counted(self.new, 'new job')}, {what} sent, {rejected:,} rejected"


def summary_of(run: ProgramRun) -> RunSummary:
    """What a run did."""
    done = run.done or RunDone()
    sources = [
        SourceWork(
            name=name,
            new=source.new,
            changed=source.changed,
            unreadable=source.unreadable,
            error=source.error or ("interrupted" if source.interrupted else None),
        )
        for name, source in done.sources.items()
    ]
    targets = [
        TargetWork(
            name=name,
            sent=target.accepted,
            totals=target.groups,
            confirmed=_confirmed(target, done.reconciled.get(name)),
            rejected=target.rejected,
            held=target.held,
            waiting=target.waiting,
            error=target.error or target.no_evidence,
        )
        for name, target in done.targets.items()
    ]
    commanded = {
        name: ReconciledDone(differences=target.differences_total, counted_twice=target.counted_twice)
        for name, target in done.targets.items()
        if target.differences_total is not None
    }
    findings = [
        finding
        for name, result in (done.reconciled | commanded).items()
        for finding in reconciled_findings(name, result)
    ]
    findings += [*done.problems, *_damage(done.checked.damage)]
    return RunSummary(run, sources, targets, findings)


def reconciled_findings(name: str, result: ReconciledDone) -> Iterator[str]:
    """What is to be known of the reconciliation of a target."""
    if result.problem:
        yield f"{name}: no evidence of what the service has: {result.problem}"
    if result.differences:
        differing = counted(result.differences, "difference")
        yield f"{name}: {differing} to what the service has: usage-publisher reconcile {shlex.quote(name)}"
    yield from (f"{name}: {sentence}" for sentence in result.counted_twice)
    if result.unfinished:
        yield f"{name}: the comparison took too long; the next run continues it"


def _damage(found: Sequence[str]) -> Iterator[str]:
    yield from (f"damaged: {text}" for text in found[:_MOST_DAMAGE])
    if len(found) > _MOST_DAMAGE:
        yield f"{len(found) - _MOST_DAMAGE:,} more; `usage-publisher store check` lists them"


def _confirmed(target: TargetDone, reconciled: ReconciledDone | None) -> int | None:
    """From the reconciliation of a run, or the months of the command `reconcile`."""
    if reconciled is not None:
        return reconciled.confirmed
    return None if target.months is None else sum(month.confirmed for month in target.months.values())
