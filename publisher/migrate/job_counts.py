"""Whether an earlier publisher's list is complete: its jobs by site and month beside the numbers in its other tables.

A list that lacks jobs is dangerous: what it does not name is sent from here again, and counts twice where the keys
differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from formats.apel.text import whole
from formats.calendar import Month, month_bounds, month_of
from formats.check.fields import Fields
from formats.rules import compared

_MONTHS = 12


class SiteMonth(msgspec.Struct, frozen=True, order=True):
    """A month of a site; the site as the service compares it."""

    month: Month
    site: str


class Shortage(msgspec.Struct, frozen=True):
    """A month of a site of which fewer jobs are listed than another table of the earlier publisher counts."""

    month: Month
    site: str
    listed: int
    counted: int


def place_of(site: str | None, end: int) -> SiteMonth:
    """Return the month of a site in which a job ended. `end`: epoch seconds."""
    return SiteMonth(month_of(end), compared(site or ""))


def jobs_of(fields: Fields) -> int:
    """Return the number of jobs of a summary or sync count; 0 if it cannot be read."""
    return whole(fields.get("NumberOfJobs", ("",))[-1]) or 0


class JobCounts:
    """Numbers of jobs by month and site: those listed in exports, and those that other tables count."""

    def __init__(self) -> None:
        self._counted: dict[SiteMonth, int] = {}
        self._files: list[Counter[SiteMonth]] = []

    @property
    def is_listed(self) -> bool:
        """Whether an export lists jobs: what it lacks is sent from here. Messages may be those of a while alone."""
        return bool(self._files)

    @property
    def is_known(self) -> bool:
        """Whether the earlier publisher's own numbers are known."""
        return bool(self._counted)

    def begin_file(self) -> None:
        """Count the jobs of another export."""
        self._files.append(Counter())

    def add(self, site: str | None, end: int | None, jobs: int) -> None:
        """Count jobs that the export lists. Two rows with one key at the service are two jobs of the client's table."""
        if end is not None:
            self._files[-1][place_of(site, end)] += jobs

    def expect(self, rows: Iterable[Fields]) -> None:
        """Read summaries or sync counts: how many jobs there are. Of several such files the higher number counts."""
        counts = Counter[SiteMonth]()
        for fields in rows:
            month, year = (whole(fields.get(name, ("",))[-1]) or 0 for name in ("Month", "Year"))
            if 1 <= month <= _MONTHS:
                counts[SiteMonth(Month(year, month), compared(fields["Site"][-1]))] += jobs_of(fields)
        for place, jobs in counts.items():
            self._counted[place] = max(jobs, self._counted.get(place, 0))

    def shortages(
        self, listed: Mapping[SiteMonth, int], sites: Iterable[str], window: tuple[int | None, int | None]
    ) -> Iterator[Shortage]:
        """The months in a window of ends of which too few jobs are listed, in their order.

        `listed`: the records that were read, each counted once; `sites`: others are left out.
        """
        own = set(map(compared, sites))
        for place, counted in sorted(self._counted.items()):
            begin, end = month_bounds(place.month)
            outside = (window[0] is not None and end <= window[0]) or (window[1] is not None and begin >= window[1])
            jobs = max([listed.get(place, 0), *(file[place] for file in self._files)])
            if place.site in own and not outside and jobs < counted:
                yield Shortage(place.month, place.site, jobs, counted)
