"""A run of the program, of the history, in a few words: for the command, the state, and the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from publisher.store.history import ProgramRun
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

    Of a run without an end nothing is known here: what it sent before it was killed is in the ledger.
    """

    run: ProgramRun
    sources: list[SourceWork]
    targets: list[TargetWork]
    findings: list[str] = []
    """What it found when it compared with the services and checked the store, as sentences."""

    @property
    def took(self) -> str:
        """How long it was at work; empty without an end."""
        return "" if self.run.ended_at is None else duration_text(self.run.ended_at - self.run.began_at)

    @property
    def result(self) -> str:
        """How it ended, in words; the exit code is what a script or cron saw."""
        code = self.run.exit_code
        if not code:
            return "at work, or killed" if code is None else _EXIT_TEXTS[code]
        return f"{_EXIT_TEXTS.get(code, 'unknown')} (exit code {code})"

    @property
    def new(self) -> int | None:
        """Jobs that it stored; None: unknown."""
        return None if self.run.ended_at is None else sum(source.new for source in self.sources)

    @property
    def problem(self) -> str | None:
        """Why it stopped before its end, or why the store could not be checked."""
        error: str | None = self.run.done.get("error") or self.run.done.get("checked", {}).get("error")
        return error

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
        return None if self.run.ended_at is None else sum(getattr(target, name) or 0 for target in self.targets)

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
    """What a run did. Keys that an earlier version did not record count as 0."""
    done = run.done
    reconciled = done.get("reconciled", {})
    sources = [
        SourceWork(
            name=name,
            new=each.get("new", 0),
            changed=each.get("changed", 0),
            unreadable=each.get("unreadable", 0),
            error=_error(each),
        )
        for name, each in done.get("sources", {}).items()
    ]
    targets = [
        TargetWork(
            name=name,
            sent=each.get("accepted", 0),
            totals=each.get("groups", 0),
            confirmed=_confirmed(each, reconciled.get(name)),
            rejected=each.get("rejected", 0),
            held=each.get("held", 0),
            waiting=each.get("waiting", 0),
            error=_error(each),
        )
        for name, each in done.get("targets", {}).items()
    ]
    commanded = {name: each for name, each in done.get("targets", {}).items() if "differences_total" in each}
    findings = [
        finding for name, result in (reconciled | commanded).items() for finding in reconciled_findings(name, result)
    ]
    findings += [*done.get("problems", []), *_damage(done.get("checked", {}).get("damage", []))]
    return RunSummary(run, sources, targets, findings)


def reconciled_findings(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    """What is to be known of the reconciliation of a target, as `run` or `reconcile` has it in JSON."""
    if problem := result.get("problem"):
        yield f"{name}: no evidence of what the service has: {problem}"
    if differences := result.get("differences_total") or result.get("differences"):
        differing = counted(differences, "difference")
        yield f"{name}: {differing} to what the service has: usage-publisher reconcile {shlex.quote(name)}"
    yield from (f"{name}: {sentence}" for sentence in result.get("counted_twice", ()))
    if result.get("unfinished"):
        yield f"{name}: the comparison took too long; the next run continues it"


def _damage(found: Sequence[str]) -> Iterator[str]:
    yield from (f"damaged: {text}" for text in found[:_MOST_DAMAGE])
    if len(found) > _MOST_DAMAGE:
        yield f"{len(found) - _MOST_DAMAGE:,} more; `usage-publisher store check` lists them"


def _confirmed(target: Mapping[str, Any], reconciled: Mapping[str, Any] | None) -> int | None:
    """From the reconciliation of a run, or the months of the command `reconcile`."""
    if reconciled is not None:
        return int(reconciled["confirmed"])
    months = target.get("months")
    return None if months is None else sum(month["confirmed"] for month in months.values())


def _error(work: Mapping[str, Any]) -> str | None:
    """Why the work on a source or target stopped."""
    return work.get("error") or work.get("no_evidence") or ("interrupted" if work.get("interrupted") else None)
