"""Progress while a command works: a bar on a terminal, lines with --verbose, troubles always.

Records that are held or rejected are told by reason, when the command has something else to say or goes on to the next
run: a site may have ten thousand of them. With --verbose each has its line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from publisher.cli import output
from publisher.cli.output import safe, say
from publisher.events import (
    BatchSettled,
    DeliveryBegun,
    Event,
    Observer,
    PageStored,
    RecordSettled,
    RetryPlanned,
    TargetPaused,
)
from publisher.reason import sentence

_FIRST_SHOWN_AFTER_S = 1.0
_REDRAWN_AFTER_S = 0.1
_BAR_WIDTH = 20
_MOST_REASONS = 20
"""Of one state at one target; answers may differ record by record."""


class _Alike:
    """Records that are held or rejected for one reason: how many, and the first of them."""

    def __init__(self, record_id: str) -> None:
        self.records = 0
        self.example = record_id


def observer(*, verbose: bool, quiet: bool, terminal: bool, clock: Callable[[], float] = time.monotonic) -> Observer:
    """The observer for these options. `clock`: seconds that never go back."""
    return _Watcher(clock, verbose=verbose, quiet=quiet, terminal=terminal)


class _Watcher:
    """Tells events. Called from several threads."""

    def __init__(self, clock: Callable[[], float], *, verbose: bool, quiet: bool, terminal: bool) -> None:
        self._clock = clock
        self._verbose = verbose
        self._quiet = quiet
        self._line = terminal and not quiet and not verbose
        self._lock = threading.Lock()
        self._began = self._drawn = clock()
        self._read = 0
        self._sent: dict[str, int] = {}
        self._answers: dict[str, str] = {}
        self._goals: dict[str, int] = {}
        self._width = 0
        self._settled: dict[tuple[str, str], dict[str, _Alike]] = {}
        self._unlisted: dict[tuple[str, str], int] = {}
        self._telling = False
        output.before_output(self._make_room)

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._telling = True
            try:
                if isinstance(event, DeliveryBegun):
                    self._tell_settled()
                self._count(event)
                told = self._tell(event)
                if told and not (self._quiet and not isinstance(event, TargetPaused)):
                    say(told)
                if self._line:
                    self._draw()
            finally:
                self._telling = False

    def _count(self, event: Event) -> None:
        if isinstance(event, PageStored):
            self._read += event.read
        elif isinstance(event, DeliveryBegun):
            self._goals[event.target] = event.waiting
            self._answers.pop(event.target, None)
        elif isinstance(event, RecordSettled) and not self._verbose:
            self._remember(event)
        elif isinstance(event, BatchSettled) and event.outcome == "Accepted":
            self._sent[event.target] = self._sent.get(event.target, 0) + event.records

    def _tell(self, event: Event) -> str | None:
        match event:
            case TargetPaused():
                return f"{event.target}: stopped: {event.reason}"
            case RetryPlanned():
                return f"{event.target}: {self._answer(event)}; trying again in {event.pause_s:.1f} s"
            case RecordSettled() if self._verbose:
                return f"{event.target}: {event.record_id} is {event.state}: {sentence(event.reason)}"
            case PageStored() if self._verbose:
                return f"{event.source}: {event.read} read, {event.new} new, {event.changed} changed"
            case BatchSettled() if self._verbose:
                records = output.counted(event.records, "record")
                return f"{event.target}: batch {event.batch_id}: {records}, {event.outcome.lower()}"
        return None

    def _remember(self, event: RecordSettled) -> None:
        place = (event.target, event.state)
        reasons = self._settled.setdefault(place, {})
        reason = sentence(event.reason)
        if reason not in reasons and len(reasons) == _MOST_REASONS:
            self._unlisted[place] = self._unlisted.get(place, 0) + 1
        else:
            reasons.setdefault(reason, _Alike(event.record_id)).records += 1

    def _tell_settled(self) -> None:
        """By reason, how many records are held or rejected, and what lists them."""
        lines = []
        for (target, state), reasons in self._settled.items():
            for reason, alike in reasons.items():
                if alike.records == 1:
                    lines.append(f"{target}: {alike.example} is {state}: {reason}")
                else:
                    lines.append(f"{target}: {alike.records} records are {state}: {reason} (such as {alike.example})")
            others = self._unlisted.get((target, state), 0)
            if others:
                lines.append(f"{target}: {output.counted(others, 'record')} more, {state} for other reasons")
            if others or any(alike.records > 1 for alike in reasons.values()):
                lines.append(f"{target}: `usage-publisher {state} list --each --target {target}` lists them")
        self._settled.clear()
        self._unlisted.clear()
        if lines and not self._quiet:
            say(*lines)

    def _answer(self, event: RetryPlanned) -> str:
        """What was answered, the first time; what to do about it is told if the run stops because of it."""
        told, self._answers[event.target] = self._answers.get(event.target), event.answer
        return "the same" if told == event.answer else event.answer.partition(". ")[0].rstrip(".")

    def _draw(self) -> None:
        now = self._clock()
        if now - self._began < _FIRST_SHOWN_AFTER_S or now - self._drawn < _REDRAWN_AFTER_S:
            return
        self._drawn = now
        bars = [self._bar(name, goal) for name, goal in sorted(self._goals.items()) if goal]
        line = "  ".join([f"read {self._read}", *bars])
        output.draw("\r" + line.ljust(self._width))
        self._width = len(line)

    def _bar(self, name: str, goal: int) -> str:
        sent = min(self._sent.get(name, 0), goal)
        full = _BAR_WIDTH * sent // goal
        return f"{safe(name)} [{'#' * full}{'.' * (_BAR_WIDTH - full)}] {sent}/{goal}"

    def _make_room(self) -> None:
        """Before anything is printed: by the command itself, then what it did is told first."""
        self._clear()
        if not self._telling:
            with self._lock:
                self._telling = True
                try:
                    self._tell_settled()
                finally:
                    self._telling = False

    def _clear(self) -> None:
        if self._width:
            output.draw("\r" + " " * self._width + "\r")
            self._width = 0
