"""Values as Slurm writes them: instants, durations, sizes, resources (TRES), lists of nodes, states.

Pure. Nothing is guessed: a value of another form is a `LineError`, a value that Slurm does not know is None. (The facts
on sources, 6; the manual page of sacct.)
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from formats.job import Status
from publisher.sources.fields import LineError

MOST_NODES: Final = 16_384
"""A longer list is kept as it is written."""

UNKNOWN: Final = frozenset({"", "Unknown", "None", "N/A", "(null)", "NONE", "INVALID"})
"""How Slurm writes an unknown value."""

NO_NODES: Final = frozenset({"", "None assigned", "(null)", "None", "N/A"})

_MOST_MINUTES: Final = 50_000
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:[0-5]\d", re.ASCII)
_SECONDS_OF_STAMPS: Final = frozenset({f":{number:02}" for number in range(60)})
_DURATION: Final = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})(?:\.(\d{1,9}))?", re.ASCII)
_HOURS: Final = {f"{number:02}:": number * 3_600_000 for number in range(100)}
_MINUTES: Final = {f"{number:02}:": number * 60_000 for number in range(100)}
_SECONDS: Final = {f"{number:02}": number * 1_000 for number in range(100)}
_SIZE: Final = re.compile(r"(\d{1,20})(\.\d{1,9})?([KMGTP]?)[cn]?", re.ASCII)
_KIB: Final = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}
_LARGEST_KIB: Final = 1 << 50
_CPU_USAGE: Final = re.compile(r"(?:.*,)?cpu=([^,]*)", re.ASCII)
_TRES: Final = re.compile(r"([a-z]+(?:/[^=,]*)?)=([^,]*)", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_NODES: Final = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]\s]*\])+", re.ASCII)
_PIECE: Final = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_STATE: Final = re.compile(r"([A-Z_]{2,30})\+?(?: by \S{1,64})?", re.ASCII)

_STATUS: Final[dict[str, Status]] = {
    "COMPLETED": "completed",
    "RESIZING": "completed",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "DEADLINE": "failed",
    "OUT_OF_MEMORY": "failed",
    "SPECIAL_EXIT": "failed",
    "CANCELLED": "cancelled",
    "BOOT_FAIL": "aborted",
    "LAUNCH_FAILED": "aborted",
    "NODE_FAIL": "aborted",
    "PREEMPTED": "aborted",
    "RECONFIG_FAIL": "aborted",
    "REQUEUED": "aborted",
    "REVOKED": "aborted",
}
_UNFINISHED: Final = frozenset(
    {
        "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED", "POWER_UP_NODE",
        "UPDATE_DB",
    }
)  # fmt: skip
_PENDING: Final = frozenset(
    {"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "EXPEDITING", "REVOKED", "SPECIAL_EXIT", "REQUEUED"}
)


@lru_cache(maxsize=1_024)
def meaning(state: str) -> tuple[bool, Status]:
    """Whether a job in this state may have no end, and the status of a run with this state and an end.

    An unknown state counts as the system's doing. A state of running or waiting jobs, on a run that has an end, means
    that the run was ended for another one. Raises `LineError` if the text is not a state.
    """
    match = _STATE.fullmatch(state)
    if match is None:
        raise LineError("the state is not one of Slurm's")
    word = match[1]
    return word in _UNFINISHED or word in _PENDING, _STATUS.get(word, "aborted")


class Clock:
    """Instants of stamps: epoch seconds, or local time of a zone."""

    def __init__(self, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        self._minutes: dict[str, tuple[int, int]] = {}
        self._repeated: set[str] = set()
        """The minutes that there were twice, of stamps that were read."""

    def instant(self, text: str) -> int | None:
        """Epoch seconds of a stamp, the first of two possible ones in a repeated hour; None: unknown to Slurm.

        Raises `LineError`.
        """
        if text.isdecimal() and len(text) <= 11:
            return int(text) or None
        if text in UNKNOWN:
            return None
        return self._minute(text)[0] + int(text[17:])

    def span(
        self, start: str, end: str, elapsed_s: int | None, submitted: int | None = None
    ) -> tuple[int | None, int | None]:
        """Start and end of a run.

        Stamps in a repeated hour (end of daylight saving time) are read such that the end comes after the start, at the
        distance of the elapsed time if that is known, and the start not before the submission if that is possible.
        Raises `LineError`.
        """
        if start.isdecimal() and end.isdecimal() and len(start) <= 11 and len(end) <= 11:
            return int(start) or None, int(end) or None
        first = self.instant(start), self.instant(end)
        if first[0] is None or first[1] is None:
            return first
        if not self._repeated or self._repeated.isdisjoint((start[:16], end[:16])):
            return first
        starts, ends = self._readings(start), self._readings(end)
        spans = [(begin, stop) for begin in starts for stop in ends]
        earliest = starts[0] if submitted is None else submitted
        if elapsed_s is not None:
            return min(spans, key=lambda span: (abs(span[1] - span[0] - elapsed_s), span[0] < earliest))
        return min(spans, key=lambda span: (span[1] < span[0], span[0] < earliest))

    def _readings(self, stamp: str) -> tuple[int, ...]:
        if stamp.isdecimal():
            return (int(stamp),)
        first, second = self._minute(stamp)
        seconds = int(stamp[17:])
        return (first + seconds, second + seconds) if second > first else (first + seconds,)

    def _minute(self, stamp: str) -> tuple[int, int]:
        """Both possible instants of the minute of a stamp."""
        known = self._minutes.get(stamp[:16])
        if known is not None and stamp[16:] in _SECONDS_OF_STAMPS:
            return known
        if not _STAMP.fullmatch(stamp):
            raise LineError("a time is neither YYYY-MM-DDTHH:MM:SS nor epoch seconds")
        try:
            local = datetime.fromisoformat(stamp[:16]).replace(tzinfo=self._zone)
            both = int(local.timestamp()), int(local.replace(fold=1).timestamp())
        except (ValueError, OverflowError):
            raise LineError("a time does not exist in the calendar") from None
        if len(self._minutes) >= _MOST_MINUTES:
            self._minutes.clear()
        self._minutes[stamp[:16]] = both
        if both[1] > both[0]:
            self._repeated.add(stamp[:16])
        return both


def duration_ms(text: str) -> int | None:
    """Milliseconds of `D-HH:MM:SS`, `HH:MM:SS` or `MM:SS.mmm`; None: unknown. Raises `LineError`."""
    if len(text) == 8:  # nearly always: HH:MM:SS
        try:
            return _HOURS[text[:3]] + _MINUTES[text[3:6]] + _SECONDS[text[6:]]
        except KeyError:
            pass
    if text in UNKNOWN:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise LineError("a duration is not of the form D-HH:MM:SS or MM:SS.mmm")
    days, hours, minutes, seconds, fraction = match.groups()
    whole = (int(days or 0) * 24 + int(hours or 0)) * 3600 + int(minutes) * 60 + int(seconds)
    return whole * 1000 + (int(fraction[:3].ljust(3, "0")) if fraction else 0)


def sampled_cpu_ms(usage: str) -> int | None:
    """The CPU time in `TRESUsageInTot` (`cpu=01:00:00,energy=0,mem=1000K`), in milliseconds; None: it has none.

    Raises `LineError`.
    """
    match = _CPU_USAGE.match(usage)
    return None if match is None else duration_ms(match[1])


def time_before_resize_s(start: int, submit: int | None, end: int | None) -> int:
    """Seconds by which a run of a resized job began after the `Start` that Slurm gives.

    A job has one record for each size. Slurm sets the submission of the later ones to the time of the change, but their
    start to that of the job, so sacct counts the time before the change twice. (Seen with Slurm 22.05.8.)
    """
    if submit is None or submit <= start or (end is not None and submit > end):
        return 0
    return submit - start


def size_kib(text: str) -> int | None:
    """KiB, rounded up, of `3168K`, `0.10G`, or bytes without a letter; None: there is no size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    amount = float(match[1] + (match[2] or "")) * _KIB[match[3]]
    # Rounded up: a peak of less than a KiB would otherwise be 0, and the least that UR and CAR can have is 1.
    return -int(-amount // 1) if amount < _LARGEST_KIB else None


def count(text: str) -> int | None:
    """A small number; None: there is none (an abbreviated column with 1K has none). Never raises."""
    return int(text) if text.isdecimal() and len(text) <= 9 else None


@lru_cache(maxsize=4_096)
def gpus(tres: str) -> int | None:
    """GPUs of allocated resources: `gres/gpu` if it is there, else the sum of `gres/gpu:TYPE`."""
    amounts = dict(_TRES.findall(tres))
    total = count(amounts.get("gres/gpu", ""))
    if total is not None:
        return total
    typed = [count(value) for name, value in amounts.items() if name.startswith("gres/gpu:")]
    return sum(number or 0 for number in typed) if typed else None


@lru_cache(maxsize=4_096)
def tres_count(tres: str, name: str) -> int | None:
    """The amount of one resource, such as `cpu`; None: it is not a plain number."""
    return count(dict(_TRES.findall(tres)).get(name, ""))


@lru_cache(maxsize=4_096)
def nodes(text: str) -> tuple[str, ...] | None:
    """Names of the nodes of `n[1-3,5],m1`; None: the list is too long or of another form."""
    if text in NO_NODES:
        return ()
    names: list[str] = []
    at = 0
    for match in _NODES.finditer(text):
        if match.start() != at:
            return None
        at = match.end() + 1
        expanded = _expanded(match[0])
        if expanded is None or len(names) + len(expanded) > MOST_NODES:
            return None
        names += expanded
    return tuple(names) if at == len(text) + 1 else None


def _expanded(text: str) -> list[str] | None:
    """Names of `rack[1-2]n[01-16]`, in order."""
    names = [""]
    for piece in _PIECE.finditer(text):
        numbers = _numbers(piece[2]) if piece[2] is not None else [""]
        if numbers is None or len(names) * len(numbers) > MOST_NODES:
            return None
        names = [name + piece[1] + number for name in names for number in numbers]
    return names


def _numbers(text: str) -> list[str] | None:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < MOST_NODES - len(numbers):
            return None
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers
