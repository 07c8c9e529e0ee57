"""Progress while a command works: a bar on a terminal, lines with --verbose, troubles always."""

from __future__ import annotations

import sys
import threading
import time

from publisher.cli import output
from publisher.cli.output import safe, say
from publisher.observe.events import (
    BatchSettled,
    DeliveryBegun,
    Event,
    Observer,
    PageStored,
    RecordSettled,
    RetryPlanned,
    TargetPaused,
)

_FIRST_SHOWN_AFTER_S = 1.0
_REDRAWN_AFTER_S = 0.1
_BAR_WIDTH = 20


def observer(*, verbose: bool, quiet: bool, terminal: bool) -> Observer:
    """The observer that suits these options."""
    return _Watcher(verbose=verbose, quiet=quiet, terminal=terminal)


class _Watcher:
    """Tells events. Called from several threads."""

    def __init__(self, *, verbose: bool, quiet: bool, terminal: bool) -> None:
        self._verbose = verbose
        self._quiet = quiet
        self._line = terminal and not quiet and not verbose
        self._lock = threading.Lock()
        self._began = self._drawn = time.monotonic()
        self._read = 0
        self._sent: dict[str, int] = {}
        self._answers: dict[str, str] = {}
        self._goals: dict[str, int] = {}
        self._width = 0
        output.before_output(self._clear)

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._count(event)
            told = self._tell(event)
            if told and not (self._quiet and not isinstance(event, TargetPaused)):
                say(told)
            if self._line:
                self._draw()

    def _count(self, event: Event) -> None:
        if isinstance(event, PageStored):
            self._read += event.read
        elif isinstance(event, DeliveryBegun):
            self._goals[event.target] = event.waiting
            self._answers.pop(event.target, None)
        elif isinstance(event, BatchSettled) and event.outcome == "Accepted":
            self._sent[event.target] = self._sent.get(event.target, 0) + event.records

    def _tell(self, event: Event) -> str | None:
        match event:
            case TargetPaused():
                return f"{event.target}: stopped: {event.reason}"
            case RetryPlanned():
                return f"{event.target}: {self._answer(event)}; trying again in {event.pause_s:.1f} s"
            case RecordSettled():
                return f"{event.target}: {event.record_id} is {event.state}: {event.reason}"
            case PageStored() if self._verbose:
                return f"{event.source}: {event.read} read, {event.new} new, {event.changed} changed"
            case BatchSettled() if self._verbose:
                records = output.counted(event.records, "record")
                return f"{event.target}: batch {event.batch_id}: {records}, {event.outcome.lower()}"
        return None

    def _answer(self, event: RetryPlanned) -> str:
        """What was answered, the first time; what to do about it is told if the run stops because of it."""
        told, self._answers[event.target] = self._answers.get(event.target), event.answer
        return "the same" if told == event.answer else event.answer.partition(". ")[0].rstrip(".")

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._began < _FIRST_SHOWN_AFTER_S or now - self._drawn < _REDRAWN_AFTER_S:
            return
        self._drawn = now
        bars = [self._bar(name, goal) for name, goal in sorted(self._goals.items()) if goal]
        line = "  ".join([f"read {self._read}", *bars])
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def _bar(self, name: str, goal: int) -> str:
        sent = min(self._sent.get(name, 0), goal)
        full = _BAR_WIDTH * sent // goal
        return f"{safe(name)} [{'#' * full}{'.' * (_BAR_WIDTH - full)}] {sent}/{goal}"

    def _clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
