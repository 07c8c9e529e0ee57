"""Progress while a command works: a bar on a terminal, lines with --verbose, problems always.

Held and rejected records are counted by reason, since a site may have ten thousand of them, and shown when the command
prints something else or the next run begins. With --verbose each has its own line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from publisher.cli import output
from publisher.cli.output import say
from publisher.events import (
    BatchSettled,
    ContextFilled,
    DeliveryBegun,
    Event,
    Observer,
    PageStored,
    RecordSettled,
    RetryPlanned,
    TargetPaused,
    WorkAdvanced,
)
from publisher.reason import sentence
from publisher.text import counted, duration_text, safe

_FIRST_SHOWN_AFTER_S = 1.0
_REDRAWN_AFTER_S = 0.1
_BAR_WIDTH = 20
_MOST_REASONS = 20
"""Of one state at one target; answers may differ record by record."""


def observer(*, verbose: bool, quiet: bool, terminal: bool, clock: Callable[[], float] = time.monotonic) -> Observer:
    """The observer for these options; `clock` gives seconds that never go back."""
    return _ProgressDisplay(verbose=verbose, quiet=quiet, terminal=terminal, clock=clock)


class _Alike:
    """Records that are held or rejected for one reason: how many, and the first of them."""

    def __init__(self, record_id: str) -> None:
        self.records = 0
        self.example = record_id


class _Work:
    """A piece of work: how many jobs it has (None: unknown), and how many are done since it began."""

    def __init__(self, total: int | None, began: float) -> None:
        self.total = total
        self.began = began
        self.done = 0

    def text(self, name: str, now: float) -> str:
        """A bar with the rate and the remaining time; without the total the number and the rate."""
        rate = self.done / (now - self.began) if now > self.began else 0.0
        if not self.total:
            return f"{safe(name)} {self.done:,}" + (f", {_rate_text(rate)}" if rate else "")
        done = min(self.done, self.total)
        full = _BAR_WIDTH * done // self.total
        text = f"{safe(name)} [{'#' * full}{'.' * (_BAR_WIDTH - full)}] {done:,}/{self.total:,}"
        return f"{text}, {_rate_text(rate)}, {duration_text((self.total - done) / rate)} left" if rate else text


class _ShareRead:
    """The reading of a source: which share of it was read when it began, and is read now."""

    def __init__(self, share: float, began: float) -> None:
        self._first, self._began = share, began
        self.share = share

    def left_s(self, now: float) -> float | None:
        """The remaining time, if anything was read since; None: unknown."""
        done = self.share - self._first
        return (now - self._began) / done * (1 - self.share) if done > 0 and self.share < 1 else None


class _ProgressDisplay:
    """Shows events. Called from several threads."""

    def __init__(self, *, verbose: bool, quiet: bool, terminal: bool, clock: Callable[[], float]) -> None:
        self._verbose = verbose
        self._quiet = quiet
        self._line = terminal and not quiet and not verbose
        self._lock = threading.Lock()
        self._clock = clock
        self._began = self._drawn = clock()
        self._read = 0
        self._source = ""
        self._reading: dict[str, _ShareRead] = {}
        self._work: dict[str, _Work] = {}
        self._answers: dict[str, str] = {}
        self._width = 0
        self._settled: dict[tuple[str, str], dict[str, _Alike]] = {}
        self._unlisted: dict[tuple[str, str], int] = {}
        self._printing = False
        output.before_output(self._make_room)

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._printing = True
            try:
                if isinstance(event, DeliveryBegun):
                    self._say_settled()
                self._count(event)
                text = self._text(event)
                if text and not (self._quiet and not _is_problem(event)):
                    say(text)
                if self._line:
                    self._draw()
            finally:
                self._printing = False

    def _count(self, event: Event) -> None:
        if isinstance(event, PageStored):
            self._read += event.read
            if event.share is not None:
                self._reading.setdefault(event.source, _ShareRead(event.share, self._clock())).share = event.share
            self._source = event.source
        elif isinstance(event, DeliveryBegun):
            self._work[event.target] = _Work(event.waiting, self._clock())
            self._answers.pop(event.target, None)
        elif isinstance(event, RecordSettled) and not self._verbose:
            self._remember(event)
        elif isinstance(event, BatchSettled) and event.outcome == "Accepted" and event.target in self._work:
            self._work[event.target].done += event.records
        elif isinstance(event, WorkAdvanced):
            work = self._work.setdefault(event.work, _Work(event.total, self._began))
            work.done, work.total = event.done, event.total

    def _text(self, event: Event) -> str | None:
        text = None
        match event:
            case TargetPaused():
                text = f"{event.target}: stopped: {event.reason}"
            case ContextFilled():
                why = ": something had been removed from it, or altered" if event.was_incomplete else ""
                text = f"spool {event.context}: filled with all that is stored{why}"
            case RetryPlanned():
                text = f"{event.target}: {self._answer(event)}; trying again in {event.pause_s:.1f} s"
            case RecordSettled() if self._verbose:
                text = f"{event.target}: {event.record_id} is {event.state}: {sentence(event.reason)}"
            case PageStored() if self._verbose:
                text = f"{event.source}: {event.read:,} read, {event.new:,} new, {event.changed:,} changed"
            case BatchSettled() if self._verbose:
                records = counted(event.records, "record")
                text = f"{event.target}: batch {event.batch_id}: {records}, {event.outcome.lower()}"
        return text

    def _remember(self, event: RecordSettled) -> None:
        place = (event.target, event.state)
        reasons = self._settled.setdefault(place, {})
        reason = sentence(event.reason)
        if reason not in reasons and len(reasons) == _MOST_REASONS:
            self._unlisted[place] = self._unlisted.get(place, 0) + 1
        else:
            reasons.setdefault(reason, _Alike(event.record_id)).records += 1

    def _say_settled(self) -> None:
        """By reason, how many records are held or rejected, and which command lists them."""
        lines = []
        for (target, state), reasons in self._settled.items():
            for reason, alike in reasons.items():
                if alike.records == 1:
                    lines.append(f"{target}: {alike.example} is {state}: {reason}")
                else:
                    lines.append(f"{target}: {alike.records:,} records are {state}: {reason} (such as {alike.example})")
            others = self._unlisted.get((target, state), 0)
            if others:
                lines.append(f"{target}: {counted(others, 'record')} more, {state} for other reasons")
            if others or any(alike.records > 1 for alike in reasons.values()):
                command = f"usage-publisher records list --each --state {state} --target {target}"
                lines.append(f"{target}: `{command}` lists them")
        self._settled.clear()
        self._unlisted.clear()
        if lines and not self._quiet:
            say(*lines)

    def _answer(self, event: RetryPlanned) -> str:
        """What was answered; its hint is shown if the run stops because of it."""
        previous, self._answers[event.target] = self._answers.get(event.target), event.answer
        answer = event.answer.partition(". ")[0].rstrip(".")
        return f"{answer}, as before" if previous == event.answer else answer

    def _draw(self) -> None:
        now = self._clock()
        if now - self._began < _FIRST_SHOWN_AFTER_S or now - self._drawn < _REDRAWN_AFTER_S:
            return
        self._drawn = now
        parts = [work.text(name, now) for name, work in sorted(self._work.items()) if work.total or work.done]
        if self._read and not parts:  # nothing is sent before everything is read
            parts = [f"read {self._read:,}, {_rate_text(self._read / (now - self._began))}{self._left(now)}"]
        line = "  ".join(parts)
        output.draw("\r" + line.ljust(self._width))
        self._width = len(line)

    def _left(self, now: float) -> str:
        """The remaining time of the source that is read, if it is known how much of it is read."""
        reading = self._reading.get(self._source)
        left_s = None if reading is None else reading.left_s(now)
        return "" if left_s is None else f", {duration_text(left_s)} left of {safe(self._source)}"

    def _make_room(self) -> None:
        """Before the command itself prints something: clear the bar, and show first what was settled."""
        self._clear()
        if not self._printing:
            with self._lock:
                self._printing = True
                try:
                    self._say_settled()
                finally:
                    self._printing = False

    def _clear(self) -> None:
        if self._width:
            output.draw("\r" + " " * self._width + "\r")
            self._width = 0


def _is_problem(event: Event) -> bool:
    return isinstance(event, TargetPaused) or (isinstance(event, ContextFilled) and event.was_incomplete)


def _rate_text(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
