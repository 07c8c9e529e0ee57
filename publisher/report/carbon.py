"""The carbon intensity of the electricity: a constant, or the hours of a file. Nothing between them is guessed.

The file is CSV with the columns `start` and `g_per_kwh`: a row for each hour, in order, with the zone or the offset of
its start, because an hour of local time exists twice when clocks change. Hours may be missing: energy that was used in
them has no known emissions.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Final

import msgspec
from pydantic import TypeAdapter, ValidationError

from publisher.config.energy import MILLI, Energy, Intensity
from publisher.report.settings_csv import refused, rows
from publisher.text import counted, iso, zoned_instant_s

HOUR_S: Final = 3600
_COLUMNS: Final = ("start", "g_per_kwh")
_KEY: Final = "energy.carbon_file"
_intensity: Final[TypeAdapter[Decimal]] = TypeAdapter(Intensity)


class CarbonHour(msgspec.Struct, frozen=True):
    """An hour of the file: its start, and mg CO2e a kWh. `before`: mg s/kWh of all hours before it; `island`: the
    number of the hours without a gap that it belongs to."""

    start: int
    mg_per_kwh: int
    before: int
    island: int


def carbon_hours(settings: Energy) -> tuple[CarbonHour, ...]:
    """The hours of the file of the settings; empty without one. Raises `ConfigError`."""
    path = settings.carbon_file
    if path is None:
        return ()
    carbon: list[CarbonHour] = []
    hint = f"Its first line must be {','.join(_COLUMNS)}"
    for line, cells in rows(path, _KEY, needed=_COLUMNS, hint=hint):
        start, intensity = (cells[name] for name in _COLUMNS)
        try:
            carbon.append(_hour(carbon[-1] if carbon else None, zoned_instant_s(start), _milligrams(intensity)))
        except ValueError as error:
            raise refused(path, line, str(error), _KEY) from error
    return tuple(carbon)


def _hour(last: CarbonHour | None, start: int, mg_per_kwh: int) -> CarbonHour:
    if last is None:
        return CarbonHour(start, mg_per_kwh, 0, 0)
    if start < last.start + HOUR_S:
        raise ValueError(f"{iso(start)} is not an hour or more after {iso(last.start)}, the line before")
    return CarbonHour(
        start, mg_per_kwh, last.before + last.mg_per_kwh * HOUR_S, last.island + (start > last.start + HOUR_S)
    )


def _milligrams(text: str) -> int:
    try:
        grams = _intensity.validate_python(text)
    except ValidationError as error:
        raise ValueError(f"{text!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return int(grams * MILLI)


def gaps_note(hours: tuple[CarbonHour, ...], start: int, stop: int) -> str:
    """The note on the time of an interval of which the file has no hour; empty if there is none."""
    if not hours:
        return ""
    bounds = [(start, hours[0].start), (hours[-1].start + HOUR_S, stop)]
    bounds += [(one.start + HOUR_S, two.start) for one, two in pairwise(hours) if two.island > one.island]
    gaps = [(max(first, start), min(last, stop)) for first, last in bounds]
    missing = sorted((first, last) for first, last in gaps if last > first)
    if not missing:
        return ""
    seconds = sum(last - first for first, last in missing)
    return (
        f"The carbon file has no value for {counted(-(-seconds // HOUR_S), 'hour')} of the interval, from "
        f"{iso(missing[0][0])} on: emissions are those of the other energy (`carbon_known`)."
    )
