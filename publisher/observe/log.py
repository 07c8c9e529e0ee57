"""The log: one line per event, with the run and the batch that it belongs to.

Text for people or JSON, by structlog. Lines have names, numbers, and answers of services; never keys, tokens, or the
content of records. Text of other programs is escaped: it cannot break a line or control a terminal.

If the log cannot be written, for example on a full disk, lines are lost, which is reported; the run continues.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Final, TextIO

import structlog

from publisher.config.operation import Log
from publisher.errors import ConfigError
from publisher.events import (
    BatchAnswered,
    BatchInFlight,
    BatchSettled,
    ContextFilled,
    DeliveryBegun,
    Event,
    PageStored,
    RecordSettled,
    RetryPlanned,
    TargetPaused,
)
from publisher.reason import sentence
from publisher.text import safe

_FIRST: Final = ("timestamp", "level", "event", "run")
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class LogFile:
    """An observer that writes a log. It opens the file again after the file was moved, so that rotation needs no
    signal."""

    def __init__(self, settings: Log, path: Path, warn: Callable[[str], None] = lambda _problem: None) -> None:
        """`warn` is called once a run when lines are lost. Raises `ConfigError` where the file cannot be opened."""
        self._path = path
        self._warn = warn
        self._warned = False
        self._file = self._open()
        self._settings = settings
        self._run = ""
        self._log: structlog.typing.FilteringBoundLogger = self._made()

    def begin(self) -> str:
        """Begin a run; return its id, which is in every line of the run."""
        self._run = secrets.token_hex(4)
        self._warned = False
        try:
            self._reopen_if_moved()
        except ConfigError as error:
            self._lose(str(error))
        self._log.info("run begun", run=self._run)
        return self._run

    def end(self, exit_code: int) -> None:
        """Write that the run has ended."""
        self._log.info("run ended", run=self._run, exit_code=exit_code)

    def warning(self, problem: str) -> None:
        """Write a problem that is not an event."""
        log = self._log.bind(run=self._run) if self._run else self._log
        log.warning(problem)

    def __call__(self, event: Event) -> None:
        """Write an event."""
        log = self._log.bind(run=self._run) if self._run else self._log
        match event:
            case PageStored():
                log.info("page stored", source=event.source, read=event.read, new=event.new, changed=event.changed)
            case DeliveryBegun():
                log.info("delivery begun", target=event.target, waiting=event.waiting)
            case BatchInFlight():
                log.info("batch sent", target=event.target, batch=event.batch_id, records=event.records)
                log.debug("records sent", target=event.target, batch=event.batch_id, record_ids=list(event.record_ids))
            case BatchAnswered():
                log.debug("batch answered", target=event.target, batch=event.batch_id, outcome=event.outcome)
            case BatchSettled():
                log.info(
                    "batch settled",
                    target=event.target,
                    batch=event.batch_id,
                    outcome=event.outcome,
                    records=event.records,
                    bytes=event.bytes,
                )
            case TargetPaused():
                log.warning("target stopped", target=event.target, reason=event.reason)
            case ContextFilled(context, was_incomplete):
                write = log.warning if was_incomplete else log.info
                write("context filled", context=context, was_incomplete=was_incomplete)
            case RecordSettled():
                log.warning(
                    "record settled",
                    target=event.target,
                    record_id=event.record_id,
                    state=event.state,
                    reason=sentence(event.reason),
                    reason_code=event.reason.code,
                )
            case RetryPlanned():
                log.warning(
                    "trying again",
                    target=event.target,
                    batch=event.batch_id,
                    attempt=event.attempt,
                    pause_s=round(event.pause_s, 1),
                    answer=event.answer,
                )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _made(self) -> structlog.typing.FilteringBoundLogger:
        renderer: Any = structlog.processors.LogfmtRenderer(key_order=_FIRST, bool_as_flag=False)
        if self._settings.format == "json":
            renderer = structlog.processors.JSONRenderer(ensure_ascii=True)
        made: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
            structlog.WriteLogger(self._file),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _harmless,
                renderer,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[self._settings.level]),
            context_class=dict,
        )
        return made

    def _reopen_if_moved(self) -> None:
        try:
            present: tuple[int, int] | None = (self._path.stat().st_dev, self._path.stat().st_ino)
        except FileNotFoundError:
            present = None
        ours = os.fstat(self._file.fileno())
        if present != (ours.st_dev, ours.st_ino):
            opened = self._open()
            self._file.close()
            self._file = opened
            self._log = self._made()

    def _lose(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"{problem}. Lines of the log are lost; the run continues")

    def _open(self) -> TextIO:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            raw = _Lossy(os.open(self._path, flags, 0o640), "ab")
        except OSError as error:
            hint = "Check owner and mode of the file and its folder"
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", key="log.file", hint=hint) from error
        raw.lost = lambda error: self._lose(f"the log {self._path} cannot be written: {error.strerror}")
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors="backslashreplace", line_buffering=True)


class _Lossy(io.FileIO):
    """A file that passes the error of a failed write to `lost` instead of raising it."""

    lost: Callable[[OSError], None]

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost(error)
            return len(data)


def _harmless(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: safe(value) if isinstance(value, str) else value for key, value in event.items()}
