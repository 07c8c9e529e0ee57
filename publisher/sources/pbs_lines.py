"""The line of an accounting file of TORQUE or PBS Pro: its frame, its local time, its attributes.

    MM/DD/YYYY HH:MM:SS;X;job id;text

The text may hold semicolons; only the stamp is in the server's local time, every instant inside the text is epoch
seconds. Keeps the promise that nothing is guessed in silence: a line that does not fit is a `LineError` with a reason.
(The facts on sources, 4 and 5.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from publisher.sources.fields import LineError, decoded

FOLD_SLACK_S: Final = 300
"""A stamp of a repeated hour is of its second pass if, as one of the first, it went back by more than this."""

FOLD_REACH_S: Final = 7200
"""But not by more than this: then the log before it is another one."""

FREE_TEXT: Final = frozenset({"user", "group", "account", "project", "jobname", "accounting_id", "gridname", "depend"})
"""Attributes whose value the user may choose: a blank or a `word=` in them belongs to the value."""

_FIRST_WINS: Final = frozenset({"user", "group", "account", "jobname"})

_PLAIN_KEYS: Final = FREE_TEXT | frozenset(
    {
        "queue", "resvname", "resvID", "ctime", "qtime", "etime", "start", "end", "owner", "exec_host", "exec_vnode",
        "exec_gpus", "exec_mics", "login_node", "session", "alt_id", "total_execution_slots", "unique_node_count",
        "Exit_status", "eligible_time", "run_count", "array_indices", "requestor", "destination",
    }
)  # fmt: skip

_COMMON_RESOURCES: Final = frozenset(
    f"{group}.{name}"
    for group in ("Resource_List", "resources_used")
    for name in (
        "cput", "mem", "vmem", "walltime", "pcput", "pmem", "pvmem", "ncpus", "ngpus", "nodect", "nodes", "neednodes",
        "nice", "place", "select", "cpupercent", "energy_used", "mpiprocs", "feature", "opsys", "software",
    )
)  # fmt: skip
_COMMON_KEYS: Final = _PLAIN_KEYS | _COMMON_RESOURCES

_RESOURCE = r"(?:Resource_List|resources_used)\.[A-Za-z_][\w.-]*"
_RESOURCE_KEY: Final = re.compile(_RESOURCE, re.ASCII)
_KEY: Final = re.compile(rf"(?:^| )({'|'.join(sorted(_PLAIN_KEYS))}|{_RESOURCE})=", re.ASCII)
_OTHER_KEY: Final = re.compile(r"[A-Za-z_][\w.-]*=", re.ASCII)
_STAMP: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:[0-5]\d", re.ASCII)
_SECONDS: Final = re.compile(r":[0-5]\d", re.ASCII)
_MOST_MINUTES: Final = 4_096
_GLUED: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];", re.ASCII)


class Entry(NamedTuple):
    """One line of the log: its local stamp, record type, job id as written, and the rest."""

    stamp: str
    kind: str
    job_id: str
    text: str


def frame(raw: bytes) -> Entry:
    """The four parts of a line, decoded; bytes that are no UTF-8 are kept as `\\xNN`.

    Raises `LineError` for anything else, and for a torn line with another record glued behind it.
    """
    parts = decoded(raw).split(";", 3)
    if len(parts) == 3:  # a record without text, written without its last separator
        parts.append("")
    if len(parts) != 4 or len(parts[0]) != 19 or parts[0][2] != "/" or parts[0][10] != " ":
        raise LineError("not of the form `MM/DD/YYYY HH:MM:SS;type;job;text`")
    stamp, kind, job_id, text = parts
    if len(kind) != 1 or not job_id:
        raise LineError("the record type is not one letter, or the job id is missing")
    if ";" in text and _GLUED.search(text):
        raise LineError("a torn record with another one glued behind it")
    return Entry(stamp, kind, job_id, text)


class LocalClock:
    """Instants of local stamps. An hour that a change of the clocks repeats is told apart by what stands around it."""

    def __init__(self, zone: str) -> None:
        self._zone = ZoneInfo(zone)
        self._minutes: dict[str, tuple[int, int]] = {}

    def instant(self, stamp: str, *, after: int, near: str = "") -> int:
        """Epoch seconds of `MM/DD/YYYY HH:MM:SS`.

        In a repeated hour the reading nearest to `near` (an instant inside the record, as written there) is taken;
        without one the first, unless the log, at `after`, is past it already. Raises `LineError` for what is no time.
        """
        both = self._minutes.get(stamp[:16])
        if both is None or not _SECONDS.fullmatch(stamp, 16):
            both = self._readings(stamp)
        seconds = int(stamp[17:])
        first = both[0] + seconds
        second = both[1] + seconds
        if second <= first:
            return first
        if near.isdecimal() and len(near) <= 12:
            return first if abs(int(near) - first) <= abs(int(near) - second) else second
        return second if FOLD_SLACK_S < after - first <= FOLD_REACH_S else first

    def _readings(self, stamp: str) -> tuple[int, int]:
        """Both readings of the minute of a stamp, which the next lines most likely have too."""
        if not _STAMP.fullmatch(stamp):
            raise LineError("the time is not of the form MM/DD/YYYY HH:MM:SS")
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


def attributes(text: str, *, quoted: bool) -> dict[str, str]:
    """The `key=value` pairs of a record's text.

    Values may hold blanks, quotes and semicolons, so a value ends where a known key begins. `quoted`: PBS Pro's way,
    where a value with a blank may stand in `"` or `'`, without escapes. A key that stands twice is one that a user
    wrote into a free text: of user, group, account and job name, which are written first, the first counts, of all
    others the last. Raises `LineError` where the text does not begin with an attribute.
    """
    text = text.strip(" ")
    if not text:
        return {}
    words = text.split(" ")
    try:
        found = dict([word.split("=", 1) for word in words])
    except ValueError:
        return _split_with_care(text, quoted=quoted)
    if len(found) != len(words) or not (_COMMON_KEYS.issuperset(found) or _all_known(found.keys() - _COMMON_KEYS)):
        return _split_with_care(text, quoted=quoted)
    if quoted and ('"' in text or "'" in text):
        account = found.get("account", "")
        if len(account) > 1 and account[0] == account[-1] == '"' and text.count('"') == 2 and "'" not in text:
            found["account"] = account[1:-1]  # what PBS Pro always quotes; nearly always the only one
            return found
        for key, value in found.items():
            if value[:1] in {'"', "'"}:
                if len(value) < 2 or value[-1] != value[0]:
                    return _split_with_care(text, quoted=quoted)
                found[key] = value[1:-1]
    return found


def start_in(text: str, *, quoted: bool) -> str:
    """The start in a record's text, as `attributes` would find it; empty if there is none. Raises `LineError`."""
    before, key, after = text.partition(" start=")
    in_doubt = quoted and ("'" in text or text.count('"') > 2 or before.count('"') % 2)
    if key and " start=" not in after and not in_doubt and _KEY.match(before):
        return after.partition(" ")[0]
    return attributes(text, quoted=quoted).get("start", "")


def _all_known(keys: Iterable[str]) -> bool:
    return all(key in _PLAIN_KEYS or _RESOURCE_KEY.fullmatch(key) for key in keys)


def _split_with_care(text: str, *, quoted: bool) -> dict[str, str]:
    at = _KEY.match(text)
    if at is None and not _OTHER_KEY.match(text):
        raise LineError("the text does not begin with an attribute")
    found: dict[str, str] = {}
    unclosed: set[str] = set()
    if at is None:
        at = _KEY.search(text)
        _put_unknown(found, text[: at.start() if at else len(text)])
    while at is not None:
        key, begin = at[1], at.end()
        mark = text[begin : begin + 1]
        end = -1
        if quoted and mark in {'"', "'"} and mark not in unclosed:
            end = _closing(text, begin, mark)
            if end < 0:  # nor will there be one for any later value: keeps this linear
                unclosed.add(mark)
        if end >= 0:
            value = text[begin + 1 : end]
            at = _KEY.search(text, end + 1)
            rest = text[end + 1 : at.start() if at else len(text)].strip(" ")
        else:
            at = _KEY.search(text, begin)
            value, rest = text[begin : at.start() if at else len(text)].rstrip(" "), ""
            if " " in value and key not in FREE_TEXT and not key.startswith("Resource_List."):
                value, _, rest = value.partition(" ")
        if key not in _FIRST_WINS or key not in found:
            found[key] = value
        if rest:
            _put_unknown(found, rest)
    return found


def _closing(text: str, begin: int, mark: str) -> int:
    """Where the quote that opens at `begin` is closed: before the end, or before something that looks like a key."""
    end = begin
    while (end := text.find(mark, end + 1)) >= 0:
        if end + 1 == len(text) or _KEY.match(text, end + 1):
            return end
        if text[end + 1] == " " and _OTHER_KEY.match(text, end + 2):
            return end
    return -1


def _put_unknown(found: dict[str, str], rest: str) -> None:
    """Attributes of a version we do not know, between known ones: kept under their names."""
    last = ""
    for word in rest.split(" "):
        key, equals, value = word.partition("=")
        if equals and _OTHER_KEY.match(word):
            found.setdefault(key, value)
            last = key
        elif word and last:
            found[last] = f"{found[last]} {word}"
