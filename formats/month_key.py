"""What the keys of summaries and of sync counts begin with: site and month."""

from __future__ import annotations

import msgspec

from formats.month import Month


class MonthKey(msgspec.Struct, frozen=True, order=True):
    """Something of a site in a month."""

    site: str
    year: int
    month: int

    @property
    def when(self) -> Month:
        """The month."""
        return Month(self.year, self.month)

    @property
    def text(self) -> str:
        """The key as one line: a JSON list, the same for equal keys only."""
        return msgspec.json.encode(msgspec.structs.astuple(self)).decode("ascii")
