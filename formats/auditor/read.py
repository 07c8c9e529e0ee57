"""Read records of AUDITOR, and compare a record that it has with one that is sent.

AUDITOR keeps the order of components, which says nothing, but not of the keys in `meta`, and writes times with 0, 3, or
6 decimals.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from formats.columns import RecordColumns
from formats.text import date_time, read_date_time

_SITE: Final = "site_id"
_FRACTION: Final = re.compile(r"\.([0-9]+)")


class Score(msgspec.Struct, frozen=True):
    """A score of a component."""

    name: str
    value: float


class ReadComponent(msgspec.Struct, frozen=True):
    """A component: its whole amount, and its scores."""

    name: str
    amount: int
    scores: tuple[Score, ...] = ()

    def __str__(self) -> str:
        scores = ", ".join(sorted(f"{score.name} {score.value:.9g}" for score in self.scores))
        return f"{self.name} {self.amount}" + (f" ({scores})" if scores else "")


class AuditorRecord(msgspec.Struct, frozen=True):
    """A record as sent or as AUDITOR gives it. Times are texts of RFC 3339; no `stop_time`: the run has not ended."""

    record_id: str
    start_time: str
    stop_time: str | None = None
    components: tuple[ReadComponent, ...] = ()
    meta: dict[str, tuple[str, ...]] | None = None

    @property
    def start(self) -> int:
        """Epoch seconds. Raises `ValueError`."""
        return read_date_time(self.start_time)

    @property
    def stop(self) -> int | None:
        """Epoch seconds. Raises `ValueError`."""
        return None if self.stop_time is None else read_date_time(self.stop_time)

    @property
    def shown_components(self) -> str:
        """For people, in one order: ours is that of the settings, which may have changed."""
        return ", ".join(sorted(map(str, self.components)))

    @property
    def shown_meta(self) -> str:
        """For people, without the site."""
        meta = self.meta or {}
        return ", ".join(f"{name} {' '.join(meta[name])}" for name in sorted(meta) if name != _SITE)


_decode_all = msgspec.json.Decoder(list[AuditorRecord]).decode


def read_message(payload: bytes) -> list[AuditorRecord]:
    """The records of a message, in order. Raises `msgspec.MsgspecError`."""
    return _decode_all(payload)


def read_columns(payload: bytes) -> list[RecordColumns]:
    """The records of a message as AUDITOR has them. Raises `msgspec.MsgspecError` and `ValueError`."""
    return [columns_of(record) for record in read_message(payload)]


def columns_of(record: AuditorRecord) -> RecordColumns:
    """A record in columns. CPU time is one of its components, whose names and units are settings."""
    stop = record.stop
    site = " ".join((record.meta or {}).get(_SITE, ()))
    return RecordColumns(
        record.record_id,
        stop,
        None if stop is None else (stop - record.start) * 1000,
        None,
        {"site": site, "start": record.start, "components": record.shown_components, "meta": record.shown_meta},
    )


class Comparison(msgspec.Struct, frozen=True):
    """How a record that AUDITOR has differs from one that is sent. `difference`: empty if they are equal;
    `is_correctable`: only in its end, which AUDITOR can change."""

    difference: str = ""
    is_correctable: bool = False


def compare(theirs: AuditorRecord, ours: AuditorRecord) -> Comparison:
    """Compare the contents of two records with one id. Raises `ValueError` for a time that cannot be read."""
    pairs = (
        ("meta", theirs.shown_meta, ours.shown_meta),
        ("site", (theirs.meta or {}).get(_SITE), (ours.meta or {}).get(_SITE)),
        ("components", theirs.shown_components, ours.shown_components),
        # With its fraction: a collector that writes one is another writer, though the whole second is the same.
        ("start", _exact(theirs.start_time), _exact(ours.start_time)),
    )
    parts = [f"{name} {_shown(there)} there, {_shown(here)} here" for name, there, here in pairs if there != here]
    if _exact(theirs.stop_time or "") == _exact(ours.stop_time or ""):
        return Comparison("; ".join(parts))
    ends = f"end {theirs.stop_time or 'unknown'} there, {ours.stop_time} here"
    return Comparison("; ".join([*parts, ends]), is_correctable=not parts)


def _exact(time: str) -> str:
    """A time in one spelling, with its fraction of a second, if it has one. Raises `ValueError`."""
    if not time:
        return ""
    fraction = (_FRACTION.findall(time) or [""])[0].rstrip("0")
    return date_time(read_date_time(time)) + (f" and 0.{fraction} s" if fraction else "")


def _shown(value: str | tuple[str, ...] | None) -> str:
    return " ".join(value) if isinstance(value, tuple) else value or "none"
