"""The line of an accounting file of TORQUE or PBS Pro: its parts, its local time, its attributes.

    MM/DD/YYYY HH:MM:SS;X;job id;text

The text may contain semicolons. Only the stamp is in the server's local time; every instant in the text is epoch
seconds. Nothing is guessed: a line of another form is a `LineError` with a reason. (The facts on sources, 4 and 5.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from publisher.sources.fields import CutError, LineError, decoded

FOLD_SLACK_S: Final = 300
"""A stamp of a repeated hour belongs to its second pass if, in the first, it would be earlier than the previous line by
more than this.
"""

FOLD_REACH_S: Final = 7200
"""The upper limit of that: beyond it, the previous line belongs to another log."""

FREE_TEXT: Final = frozenset({"user", "group", "account", "project", "jobname", "accounting_id", "gridname", "depend"})
"""Attributes whose value the user may choose: a blank or a `word=` in them belongs to the value."""

_FIRST_WINS: Final = frozenset({"user", "group", "account", "jobname"})

_BEFORE_NAME: Final = ("user", "group", "account", "project", "accounting_id")
"""Attributes before the job name, which is before the queue; TORQUE writes the first three of them."""

_TORQUE_BEFORE_NAME: Final = 3
_OF_END: Final = frozenset(
    {
        "session", "alt_id", "total_execution_slots", "unique_node_count", "end", "Exit_status", "eligible_time",
        "run_count",
    }
)  # fmt: skip
"""Attributes after all requested resources, followed by `resources_used`."""

_PLAIN_KEYS: Final = FREE_TEXT | frozenset(
    {
        "queue", "resvname", "resvID", "ctime", "qtime", "etime", "start", "end", "owner", "exec_host", "exec_vnode",
        "exec_gpus", "exec_mics", "login_node", "session", "alt_id", "total_execution_slots", "unique_node_count",
        "Exit_status", "eligible_time", "run_count", "array_indices", "requestor", "destination",
    }
)  # fmt: skip

_RESOURCE = r"(?:Resource_List|resources_used)\.[A-Za-z_][\w.-]*"
_RESOURCE_KEY: Final = re.compile(_RESOURCE, re.ASCII)
_KEY: Final = re.compile(rf"(?:^| )({'|'.join(sorted(_PLAIN_KEYS))}|{_RESOURCE})=", re.ASCII)
_OTHER_KEY: Final = re.compile(r"[A-Za-z_][\w.-]*=", re.ASCII)
_STAMP: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:[0-5]\d", re.ASCII)
_SECONDS: Final = {f":{second:02}": second for second in range(60)}
_MOST_MINUTES: Final = 4_096
_CREATED: Final = re.compile(r" ctime=\d+ qtime=\d+ etime=\d+(?= |$)", re.ASCII)
"""The server writes these together, directly after the queue and its attributes."""
_ASKED_KEY: Final = re.compile(r"(?:^| )Resource_List\.[A-Za-z_][\w.-]*=", re.ASCII)
_QUOTE_AND_KEY: Final = re.compile(r"[\"'] (?:project|accounting_id|jobname)=")
_USER: Final = re.compile(rb";user=(\S+)")
_OWNER: Final = re.compile(rb" owner=([^@\s]+)")
_INSTANT_DIGITS: Final = 12
_KEYS_CHARACTERS: Final = 4_096
_WRITTEN_WITHIN_S: Final = 5
"""The server takes the time of a start or an end when it writes its record."""
_OF_RUNS: Final = frozenset({b"S", b"s", b"E", b"R", b"u", b"c", b"e"})
"""Types of records that have the attributes of a run."""
_FRAMED: Final = re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;", re.ASCII)
_GLUED: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];", re.ASCII)


class ForgedEndError(CutError):
    """A start record contains an end, which only a user's text can: the end record will contain it too."""


class PbsLogEntry(NamedTuple):
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


def require_whole_start(text: str, *, quoted: bool) -> None:
    """Raises `CutError` if the text of an S record ends within a text that a user chose."""
    if " queue=" in text and " end=" not in text and " jobname=" in text:  # nearly always
        return
    found = attributes(text, quoted=quoted)
    _require_name_and_queue(found)
    if "end" in found or "Exit_status" in found:
        raise ForgedEndError("a start record contains an end: a user's text has a record's attributes")


def require_whole_end(found: Mapping[str, str]) -> None:
    """Raises `CutError` if the attributes of an E record, or R with usage, end within a text that a user chose."""
    if "jobname" in found and "queue" in found and "start" in found and "end" in found:  # nearly always
        return
    _require_name_and_queue(found)
    if "start" not in found:
        raise CutError("no start: the record is cut off, or is not of a run")
    if "end" not in found and found["start"] != "0":
        raise CutError("no end: the record is cut off, or is not of a run")


def _require_name_and_queue(found: Mapping[str, str]) -> None:
    """Raises `CutError` unless each job name is followed by a queue, and each account and project by a job name."""
    named = "jobname" in found
    if (named and "queue" not in found) or (not named and ("account" in found or "project" in found)):
        raise CutError("no job name or no queue: the record is cut off, or an account or name has a line feed")


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
        if not all(each in line for each in lacks):
            return False
        at = line.rpartition(key)[2].partition(b" ")[0]
        try:
            written = self._clock.instant(first[:19].decode("latin-1"), after=0, near=at.decode("latin-1"))
        except LineError:
            return False
        return at.isdigit() and len(at) <= _INSTANT_DIGITS and abs(written - int(at)) <= _WRITTEN_WITHIN_S


def attributes(text: str, *, quoted: bool) -> dict[str, str]:
    """The `key=value` pairs of a record's text.

    Values may contain blanks, quotes, and semicolons, so a value ends where a known key begins. `quoted`: PBS Pro's
    way: a value with a blank may be in `"` or `'`, without escapes.

    A user chooses the account, the job name, and values of requested resources, so text in them that looks like an
    attribute is not one: attributes count only in the order in which the server writes them, as far as `ctime qtime
    etime` shows where that begins. Raises `LineError` if the text does not begin with an attribute, or if a user's text
    makes it ambiguous which of two values the server wrote.
    """
    text = text.strip(" ")
    if not text:
        return {}
    words = text.split(" ")
    try:
        found = dict([word.split("=", 1) for word in words])
    except ValueError:
        return _split_with_care(text, quoted=quoted)
    keys = " ".join(found)
    if len(found) != len(words) or len(keys) > _KEYS_CHARACTERS or not _are_in_order(keys, quoted):
        return _split_with_care(text, quoted=quoted)
    if quoted and ('"' in text or "'" in text):
        account = found.get("account", "")
        if len(account) > 1 and account[0] == account[-1] == '"' and text.count('"') == 2 and "'" not in text:
            found["account"] = account[1:-1]  # PBS Pro always quotes it, and nearly always only it
            return found
        for key, value in found.items():
            if value[:1] in {'"', "'"}:
                if len(value) < 2 or value[-1] != value[0]:
                    return _split_with_care(text, quoted=quoted)
                found[key] = value[1:-1]
    return found


@lru_cache(maxsize=1024)
def _are_in_order(keys: str, quoted: bool, /) -> bool:
    """Whether keys, with blanks between, are all known and in the server's order, so that none belongs to a user's
    text.

    Cached, since a site has few different lists of keys.
    """
    order = [_place(key, quoted=quoted) for key in keys.split(" ")]
    return _NOWHERE not in order and order == sorted(order)


_NOWHERE: Final = -1
_NAME, _QUEUE, _GRANTED, _ASKED, _END, _USED = range(len(_BEFORE_NAME), len(_BEFORE_NAME) + 6)


def _place(key: str, *, quoted: bool) -> int:
    """The rank of a key in the server's order; keys of one rank have any order. `_NOWHERE`: unknown."""
    if key in _BEFORE_NAME:
        rank = _BEFORE_NAME.index(key)
        return rank if quoted or rank < _TORQUE_BEFORE_NAME else _NOWHERE
    if key in {"jobname", "queue"}:
        return _NAME if key == "jobname" else _QUEUE
    if key in _OF_END:
        return _USED if key in {"eligible_time", "run_count"} else _END
    if _RESOURCE_KEY.fullmatch(key):
        return _ASKED if key.startswith("Resource_List.") else _USED
    return _GRANTED if key in _PLAIN_KEYS and key not in FREE_TEXT else _NOWHERE


def start_in(text: str, *, quoted: bool) -> str:
    """The start in a record's text, as `attributes` would find it; empty: there is none. Raises `LineError`."""
    before, key, after = text.partition(" start=")
    in_doubt = quoted and ("'" in text or text.count('"') > 2 or before.count('"') % 2)
    if key and " start=" not in after and not in_doubt and _KEY.match(before):
        return after.partition(" ")[0]
    return attributes(text, quoted=quoted).get("start", "")


def _split_with_care(text: str, *, quoted: bool) -> dict[str, str]:
    created = [found.start() for found in _CREATED.finditer(text)]
    if len(created) > 1:
        raise LineError("`ctime= qtime= etime=` occurs more than once: a user's text has a record's attributes")
    queue = text.rfind(" queue=", 0, created[0]) if created else -1
    if queue < 0:  # another program wrote or shortened it: the order is unknown
        return _as_found(text, quoted=quoted)
    of_server = _of_server(text[queue + 1 :], quoted=quoted)
    found = _of_user(text[:queue], quoted=quoted, status_too="end" in of_server and "Exit_status" not in of_server)
    for key, value in of_server.items():
        found.setdefault(key, value)
    return found


def _as_found(text: str, *, quoted: bool) -> dict[str, str]:
    """The attributes of a text without a known order: of user, group, account, and name the first, else the last."""
    found: dict[str, str] = {}
    for key, value, rest in _parts(text, lambda _key, _at: True, quoted=quoted):
        if key and (key not in _FIRST_WINS or key not in found):
            found[key] = value
        _put_unknown(found, rest)
    return found


def _of_user(text: str, *, quoted: bool, status_too: bool) -> dict[str, str]:
    """The attributes before the queue. Everything after the job name belongs to it.

    `status_too`: except the exit status, which some program writes there and nowhere else.
    """
    known = {*_BEFORE_NAME[: None if quoted else _TORQUE_BEFORE_NAME], "jobname"}
    named = False

    def is_key(key: str, _at: int) -> bool:
        nonlocal named
        counts = key in known if not named else status_too and key == "Exit_status"
        named = named or (counts and key == "jobname")
        return counts

    found: dict[str, str] = {}
    for key, value, rest in _parts(text, is_key, quoted=quoted):
        if key:
            found.setdefault(key, value)
        _put_unknown(found, rest)
    if quoted and any(_QUOTE_AND_KEY.search(value) for value in found.values()):
        raise LineError("a quote in a user's text makes it ambiguous where the account, project or job name ends")
    return found


def _of_server(text: str, *, quoted: bool) -> dict[str, str]:
    """The attributes from the queue on: granted resources, requested ones, which users choose, and the end."""
    asked = [match.start() for match in _ASKED_KEY.finditer(text)]
    first, last = (asked[0], asked[-1]) if asked else (len(text), -1)
    ended = False

    def is_key(key: str, at: int) -> bool:
        nonlocal ended
        place = _place(key, quoted=True)
        if place in {_END, _USED} and not key.startswith("resources_used."):
            counts = at < first or at > last
        elif place in {_QUEUE, _GRANTED, _ASKED}:
            counts = place == _ASKED or at < first
        else:  # a user's text, except after the end, where another program wrote it
            counts = at > last and ended
        ended = ended or (counts and key in {"end", "session"})
        return counts

    found: dict[str, str] = {}
    for key, value, rest in _parts(text, is_key, quoted=quoted):
        if key and found.setdefault(key, value) != value:
            raise LineError(f"`{key}=` occurs twice: a user's text has a record's attributes")
        _put_unknown(found, rest)
    return found


def _parts(text: str, is_key: Callable[[str, int], bool], *, quoted: bool) -> Iterator[tuple[str, str, str]]:
    """Key, value, and the text after a value that ends before the next key, in the order of the text.

    `is_key` is called for each known key and its place, in that order; a key that does not count is part of a value.
    Raises `LineError` if the text does not begin with an attribute.
    """
    at = _next_key(text, 0, is_key)
    unclosed: set[str] = set()
    if at is None or at.start() > 0:
        if not _OTHER_KEY.match(text):
            raise LineError("the text does not begin with an attribute")
        yield "", "", text[: at.start() if at else len(text)]
    while at is not None:
        key, begin = at[1], at.end()
        mark = text[begin : begin + 1]
        end = -1
        if quoted and mark in {'"', "'"} and mark not in unclosed:
            end = _closing(text, begin, mark)
            if end < 0:  # no later value has one either: this keeps the search linear
                unclosed.add(mark)
        if end >= 0:
            value = text[begin + 1 : end]
            at = _next_key(text, end + 1, is_key)
            rest = text[end + 1 : at.start() if at else len(text)].strip(" ")
        else:
            at = _next_key(text, begin, is_key)
            value, rest = text[begin : at.start() if at else len(text)].rstrip(" "), ""
            if " " in value and key not in FREE_TEXT and not key.startswith("Resource_List."):
                value, _, rest = value.partition(" ")
        yield key, value, rest


def _next_key(text: str, begin: int, is_key: Callable[[str, int], bool]) -> re.Match[str] | None:
    at = _KEY.search(text, begin)
    while at is not None and not is_key(at[1], at.start()):
        at = _KEY.search(text, at.end())
    return at


def _is_known(key: str) -> bool:
    return key in _PLAIN_KEYS or _RESOURCE_KEY.fullmatch(key) is not None


def _closing(text: str, begin: int, mark: str) -> int:
    """The place where the quote that opens at `begin` closes: before the end, or before something that looks like a
    key.
    """
    end = begin
    while (end := text.find(mark, end + 1)) >= 0:
        if end + 1 == len(text) or _KEY.match(text, end + 1):
            return end
        if text[end + 1] == " " and _OTHER_KEY.match(text, end + 2):
            return end
    return -1


def _put_unknown(found: dict[str, str], rest: str) -> None:
    """Attributes of an unknown version, between known ones: kept under their names."""
    last = ""
    for word in rest.split(" ") if rest else ():
        key, equals, value = word.partition("=")
        if equals and _OTHER_KEY.match(word):
            last = "" if _is_known(key) else key
            if last:
                found.setdefault(key, value)
        elif word and last:
            found[last] = f"{found[last]} {word}"
