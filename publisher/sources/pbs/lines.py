"""The line of an accounting file of TORQUE or PBS Pro: its parts, its local time, and the end of a broken one.

    MM/DD/YYYY HH:MM:SS;X;job id;text

The text may contain semicolons. Only the stamp is in the server's local time; every instant in the text is epoch
seconds. Nothing is guessed: a line of another form is a `LineError` with a reason. (The facts on sources, 4 and 5.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from publisher.sources.fields import CutError, LineError, decoded

# Lines may be a little out of order: with less, such a line of the first pass would be moved by an hour.
FOLD_SLACK_S: Final = 300
"""A stamp of a repeated hour belongs to its second pass if, in the first, it would be earlier than the previous line by
more than this.
"""

FOLD_REACH_S: Final = 7200
"""The upper limit of that: beyond it, the previous line belongs to another log."""

_STAMP: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:[0-5]\d", re.ASCII)
_SECONDS: Final = {f":{second:02}": second for second in range(60)}
_MOST_MINUTES: Final = 4_096
_USER: Final = re.compile(rb";user=(\S+)")
_OWNER: Final = re.compile(rb" owner=([^@\s]+)")
_INSTANT_DIGITS: Final = 12
_WRITTEN_WITHIN_S: Final = 5
"""The server takes the time of a start or an end when it writes its record."""
_OF_RUNS: Final = frozenset({b"S", b"s", b"E", b"R", b"u", b"c", b"e"})
"""Types of records that have the attributes of a run."""
_FRAMED: Final = re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;", re.ASCII)
_GLUED: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];", re.ASCII)


class PbsLogEntry(msgspec.Struct, frozen=True, gc=False):
    """One line of the log: its local stamp, record type, job id as written, and the rest."""

    stamp: str
    kind: str
    job_id: str
    text: str


def frame(raw: bytes) -> PbsLogEntry:
    """The four parts of a line, decoded; bytes that are not UTF-8 become `\\xNN`.

    Raises `LineError` for anything else, `CutError` for a cut-off line followed by another record in the same line.
    """
    parts = (raw.decode() if raw.isascii() and b"\0" not in raw else decoded(raw)).split(";", 3)
    if len(parts) == 3:  # a record without text and without its last separator
        parts.append("")
    if len(parts) != 4 or len(parts[0]) != 19 or parts[0][2] != "/" or parts[0][10] != " ":
        raise LineError("it does not have the form `MM/DD/YYYY HH:MM:SS;type;job;text`")
    stamp, kind, job_id, text = parts
    if len(kind) != 1 or not job_id:
        raise LineError("the record type is not one letter, or the job id is missing")
    if ";" in text and _GLUED.search(text):
        # A user's text may look so too, and the rest of the broken record come later: only all of its lines are whole.
        error = LineError if "\n" in text else CutError
        raise error("a part of a record, followed by another record in the same line")
    return PbsLogEntry(stamp, kind, job_id, text)


class LocalClock:
    """Instants of local stamps. In a repeated hour (end of daylight saving time) the lines around a stamp decide."""

    def __init__(self, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        self._minutes: dict[str, tuple[int, int]] = {}

    def instant(self, stamp: str, *, after: int, near: str = "") -> int:
        """Epoch seconds of `MM/DD/YYYY HH:MM:SS`.

        In a repeated hour, the instant nearest to `near` (an instant in the record, as written) is taken; without one,
        the first, unless the log, at `after`, is already past it. Raises `LineError` for a text that is not a time.
        """
        both = self._minutes.get(stamp[:16])
        seconds = _SECONDS.get(stamp[16:])
        if both is None or seconds is None:
            both, seconds = self._readings(stamp), int(stamp[17:])
        first = both[0] + seconds
        second = both[1] + seconds
        if second <= first:
            return first
        if near.isdecimal() and len(near) <= 12:
            return first if abs(int(near) - first) <= abs(int(near) - second) else second
        return second if FOLD_SLACK_S < after - first <= FOLD_REACH_S else first

    def _readings(self, stamp: str) -> tuple[int, int]:
        """Both possible instants of the minute of a stamp; the next lines most likely have the same minute."""
        if not _STAMP.fullmatch(stamp):
            raise LineError("the time does not have the form MM/DD/YYYY HH:MM:SS")
        month, day, year, hour, minute = map(int, (stamp[:2], stamp[3:5], stamp[6:10], stamp[11:13], stamp[14:16]))
        try:
            local = datetime(year, month, day, hour, minute, tzinfo=self._zone)
            both = int(local.timestamp()), int(local.replace(fold=1).timestamp())
        except (ValueError, OverflowError):
            raise LineError("the time does not exist in the calendar") from None
        if len(self._minutes) >= _MOST_MINUTES:
            self._minutes.clear()
        self._minutes[stamp[:16]] = both
        return both


def is_rest(line: bytes) -> bool:
    """Whether a line can only be a part of a record that a line feed broke: the server begins each record with a stamp.

    Users cannot write NUL: a line with one is damaged.
    """
    return not _FRAMED.match(line) and b"\0" not in line


class RestOfRecord:
    """Recognises the last line of a record that line feeds in users' texts broke.

    It is called with the first line and a later one. The later line is not a record of a run, nor one without its
    beginning; it has the attributes that the server writes after the texts of users and that the first line lacks, and
    agrees with the first in the user, if it names the owner, and in the time at which the record was written.
    """

    def __init__(self, clock: LocalClock, *, has_owner: bool) -> None:
        self._clock = clock
        self._has_owner = has_owner
        """Whether the server writes the owner, after the account and the name."""

    def __call__(self, first: bytes, line: bytes) -> bool:
        """Whether the line ends the record that begins with the first."""
        if b"user=" in line or (_FRAMED.match(line) and line[20:21] in _OF_RUNS):
            return False
        user, owner = _USER.search(first), _OWNER.search(line)
        return (user is None or owner is None or user[1] == owner[1]) and self.may_end(first, line)

    def is_open(self, first: bytes, lines: Iterator[bytes]) -> bool:
        """Whether lines after the first may have the end of its record.

        After a record cut off before its owner, that is in the line with its rest or before, so jobs of others are not
        held for a line that a full disk cut. Texts have no greatest length: TORQUE takes any account and request.
        """
        user = _USER.search(first) if self._has_owner and b" owner=" not in first else None
        return user is None or any(user[1] in _OWNER.findall(line) for line in lines)

    def may_end(self, first: bytes, line: bytes) -> bool:
        """Whether a line has what the server writes at the end of the record that begins with the first, and is of the
        same second. It may be a record by itself: a user's text may have the beginning of one, and an owner."""
        key = b" end=" if first[20:21] in {b"E", b"R"} else b" start="
        lacks = [b" queue=", b" start=", key] if b" queue=" not in first else [key]
        if not all(lack in line for lack in lacks):
            return False
        at = line.rpartition(key)[2].partition(b" ")[0]
        try:
            written = self._clock.instant(first[:19].decode("latin-1"), after=0, near=at.decode("latin-1"))
        except LineError:
            return False
        return at.isdigit() and len(at) <= _INSTANT_DIGITS and abs(written - int(at)) <= _WRITTEN_WITHIN_S
