"""The log: what happens, one line an event, with the run and the batch it belongs to.

Text for people or JSON, by structlog. Lines hold names, numbers and answers of services; never keys, tokens or the
content of records. Text from outside is written so that it cannot break a line or steer a terminal.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final, TextIO

import structlog

from publisher.config_observe import Log
from publisher.errors import ConfigError
from publisher.observe.events import (
    BatchAnswered,
    BatchInFlight,
    BatchSettled,
    DeliveryBegun,
    Event,
    PageStored,
    RecordSettled,
    RetryPlanned,
    TargetPaused,
)
from publisher.plain_text import safe

_FIRST: Final = ("timestamp", "level", "event", "run")
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class LogFile:
    """An observer that writes a log. Opened anew when the file was moved away, so that rotation needs no signal."""

    def __init__(self, settings: Log, path: Path) -> None:
        """Raises `ConfigError` where the file cannot be written."""
        self._path = path
        self._file = _open(path)
        self._settings = settings
        self._run = ""
        self._log: structlog.typing.FilteringBoundLogger = self._made()

    def begin(self) -> str:
        """A new run begins; gives its id, which its lines carry."""
        self._run = secrets.token_hex(4)
        self._reopen_if_moved()
        self._log.info("run begun", run=self._run)
        return self._run

    def end(self, exit_code: int) -> None:
        """The run has ended."""
        self._log.info("run ended", run=self._run, exit_code=exit_code)

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
            case RecordSettled():
                log.warning(
                    "record settled",
                    target=event.target,
                    record_id=event.record_id,
                    state=event.state,
                    reason=event.reason,
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
            self._file.close()
            self._file = _open(self._path)
            self._log = self._made()


def _harmless(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: safe(value) if isinstance(value, str) else value for key, value in event.items()}


def _open(path: Path) -> TextIO:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    except OSError as error:
        hint = "Check owner and mode of the file and its folder"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", key="log.file", hint=hint) from error
    return io.TextIOWrapper(os.fdopen(descriptor, "ab"), "utf-8", errors="backslashreplace", line_buffering=True)
