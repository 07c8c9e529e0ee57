"""Recognise a wrong time zone of a source: ends differ from the earlier publisher's by whole quarters of an hour.

With a wrong zone no key agrees: every job would be sent again, and count twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import msgspec

ZONE_STEP_S: Final = 900
"""Time zones differ by whole quarters of an hour."""
ZONES_DIFFER_S: Final = 26 * 3600
"""At most."""
_DAY_S: Final = 86_400
_FEW: Final = 2
_FITS: Final = 0.9
"""Of the days, so that jobs in the hour that a clock set back has twice do not exclude the right zone."""
_OTHER_NAMES: Final = (
    "Etc/", "SystemV/", "US/", "Canada/", "Brazil/", "Chile/", "Mexico/", "posix/", "right/",
)  # fmt: skip


class OtherEnds(msgspec.Struct, frozen=True):
    """A run that nothing matches, and the ends of their records of the same job that nothing matches. Epoch seconds."""

    source: str
    end: int
    theirs: tuple[int, ...]


class WrongZone(msgspec.Struct, frozen=True):
    """A source whose jobs ended at other times of day than the earlier publisher sent.

    `jobs`: how many; `hours`: later here than there; `zones`: the names of those that fit.
    """

    source: str
    timezone: str
    jobs: int
    hours: tuple[float, ...]
    zones: tuple[str, ...]

    @property
    def text(self) -> str:
        """What is wrong, for people."""
        hours = " or ".join(f"{abs(shift_h):g} h {'later' if shift_h > 0 else 'earlier'}" for shift_h in self.hours)
        return (
            f"{self.jobs:,} jobs of source {self.source} ended {hours} here than the earlier publisher sent: "
            f'timezone = "{self.timezone}" is wrong'
        )

    @property
    def remedy(self) -> str:
        """What to do, for people."""
        fitting = f"These time zones fit: {', '.join(self.zones)}. " if self.zones else "No time zone fits all. "
        return (
            f"{fitting}Set `timezone` in [sources.{self.source}], remove the store (its jobs have the wrong times, and "
            "nothing may have been sent from it), and run again"
        )


class EndsByDay:
    """The ends of runs that match a record of the earlier publisher, one of each source and day."""

    def __init__(self) -> None:
        self._ends: defaultdict[str, dict[int, int]] = defaultdict(dict)

    def add(self, source: str, end: int) -> None:
        """Keep an end that both sides have."""
        self._ends[source].setdefault(end // _DAY_S, end)

    def of(self, source: str) -> list[int]:
        """The ends that were kept of a source."""
        return [*self._ends[source].values()]


def wrong_zones(others: Iterable[OtherEnds], same: EndsByDay, zones: Mapping[str, str]) -> list[WrongZone]:
    """Find the sources whose time zone is wrong. `zones`: the time zone of each source.

    Most of the jobs of a source that both sides have with different ends must differ by whole quarters of an hour. A
    job that ran twice under one id does so once in 900 times, so a single one decides only where no job agrees.
    """
    jobs, moved = Counter[str](), Counter[str]()
    shifts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    days: defaultdict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for other in others:
        jobs[other.source] += 1
        theirs = next((end for end in other.theirs if end != other.end and (end - other.end) % ZONE_STEP_S == 0), None)
        if theirs is not None:
            moved[other.source] += 1
            shifts[other.source][other.end - theirs] += 1
            days[other.source].setdefault(theirs // _DAY_S, (other.end, theirs))
    wrong = []
    for source, number in sorted(moved.items()):
        agreeing = same.of(source)
        if number * 2 > jobs[source] and (number >= _FEW or not agreeing):
            pairs = [*days[source].values(), *((end, end) for end in agreeing)]
            hours = tuple(shift / 3600 for shift, _ in shifts[source].most_common(_FEW))
            fitting = _fitting(pairs, zones[source])
            wrong.append(WrongZone(source, zones[source], number, hours, fitting))
    return wrong


def _fitting(pairs: Iterable[tuple[int, int]], zone: str) -> tuple[str, ...]:
    """The zones in which ends that were read in `zone` are those of the other side. Pairs of epoch seconds."""
    written = ZoneInfo(zone)
    wanted = [(there, _offset_s(here, written) + here - there) for here, there in pairs]
    fits = Counter[str]()
    for name in ["UTC", *sorted(available_timezones())]:
        if name == "UTC" or ("/" in name and not name.startswith(_OTHER_NAMES)):
            candidate = ZoneInfo(name)
            fits[name] = sum(_offset_s(instant, candidate) == offset_s for instant, offset_s in wanted)
    best = max(fits.values())
    return tuple(name for name, number in fits.items() if number == best >= _FITS * len(wanted))


def _offset_s(instant: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
