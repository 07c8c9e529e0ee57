"""The attributes of a record of TORQUE or PBS Pro, `key=value` pairs, and whether they are those of a whole record.

Pure. Users choose some values, so what looks like an attribute may be a part of one. (The facts on sources, 4 and 5.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from publisher.sources.fields import CutError, LineError

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
_CREATED: Final = re.compile(r" ctime=\d+ qtime=\d+ etime=\d+(?= |$)", re.ASCII)
"""The server writes these together, directly after the queue and its attributes."""
_ASKED_KEY: Final = re.compile(r"(?:^| )Resource_List\.[A-Za-z_][\w.-]*=", re.ASCII)
_QUOTE_AND_KEY: Final = re.compile(r"[\"'] (?:project|accounting_id|jobname)=")
_KEYS_CHARACTERS: Final = 4_096
_LAYOUTS: Final = 4
_MOST_LAYOUTS: Final = 64


class ForgedEndError(CutError):
    """A start record contains an end, which only a user's text can: the end record will contain it too."""


def require_whole_start(text: str, *, quoted: bool) -> None:
    """Raises `CutError` if the text of an S record ends within a text that a user chose."""
    if " queue=" in text and " end=" not in text and " jobname=" in text:  # nearly always
        return
    values = attributes(text, quoted=quoted)
    _require_name_and_queue(values)
    if "end" in values or "Exit_status" in values:
        raise ForgedEndError("a start record contains an end: a user's text has a record's attributes")


def require_whole_end(found: Mapping[str, str]) -> None:
    """Raises `CutError` if the attributes of an E record, or R with usage, end within a text that a user chose."""
    if "jobname" in found and "queue" in found and "start" in found and "end" in found:  # nearly always
        return
    _require_name_and_queue(found)
    if "start" not in found:
        raise CutError("no start: the record is cut off, or is not of a job that ran")
    if "end" not in found and found["start"] != "0":
        raise CutError("no end: the record is cut off, or is not of a job that ran")


def _require_name_and_queue(found: Mapping[str, str]) -> None:
    """Raises `CutError` unless each job name is followed by a queue, and each account and project by a job name."""
    named = "jobname" in found
    if (named and "queue" not in found) or (not named and ("account" in found or "project" in found)):
        raise CutError("no job name or no queue: the record is cut off, or an account or name has a line feed")


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
    values = _of_words(text, quoted)
    return _split_with_care(text, quoted=quoted) if values is None else _unquoted(values, text, quoted=quoted)


def _of_words(text: str, quoted: bool, /) -> dict[str, str] | None:
    """The attributes of a text of which each word is one, in the server's order; None: another text."""
    words = text.split(" ")
    try:
        values = dict([word.split("=", 1) for word in words])
    except ValueError:
        return None
    keys = " ".join(values)
    if len(values) != len(words) or len(keys) > _KEYS_CHARACTERS or not _are_in_order(keys, quoted):
        return None
    return values


def _unquoted(found: dict[str, str], text: str, *, quoted: bool) -> dict[str, str]:
    """The attributes of such a text without the quotes of PBS Pro."""
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


class _AttributeLayout(NamedTuple):
    """The attributes of texts that have the same ones in the same order, each of them one word."""

    keys: tuple[str, ...]
    pattern: re.Pattern[str]


class AttributeReader:
    """Gives what `attributes` gives, in half its time for texts with the same attributes as a few earlier ones.

    A pattern takes a millisecond to make, so one is made for attributes that occur twice in a row, and only for so
    many: users choose which resources are in a record.
    """

    def __init__(self, *, quoted: bool) -> None:
        self._quoted = quoted
        self._layouts: list[_AttributeLayout] = []
        """The last first."""
        self._made = 0
        self._keys: tuple[str, ...] = ()
        """Of the last text that had none of them."""

    def __call__(self, text: str) -> dict[str, str]:
        """See `attributes`."""
        for place, layout in enumerate(self._layouts):
            if match := layout.pattern.fullmatch(text):
                if place:
                    self._layouts.insert(0, self._layouts.pop(place))
                values = dict(zip(layout.keys, match.groups()))  # noqa: B905 - checking the lengths takes a tenth longer
                return _unquoted(values, text, quoted=self._quoted)
        of_words = _of_words(text, self._quoted)
        if of_words is None:
            return attributes(text, quoted=self._quoted)
        self._learn(tuple(of_words))
        return _unquoted(of_words, text, quoted=self._quoted)

    def _learn(self, keys: tuple[str, ...]) -> None:
        if keys == self._keys and self._made < _MOST_LAYOUTS:
            pattern = re.compile(" ".join([f"{re.escape(key)}=([^ ]*)" for key in keys]))
            self._layouts = [_AttributeLayout(keys, pattern), *self._layouts[: _LAYOUTS - 1]]
            self._made += 1
        self._keys = keys


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
    values: dict[str, str] = {}
    for key, value, rest in _parts(text, lambda _key, _at: True, quoted=quoted):
        if key and (key not in _FIRST_WINS or key not in values):
            values[key] = value
        _put_unknown(values, rest)
    return values


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

    values: dict[str, str] = {}
    for key, value, rest in _parts(text, is_key, quoted=quoted):
        if key:
            values.setdefault(key, value)
        _put_unknown(values, rest)
    if quoted and any(_QUOTE_AND_KEY.search(value) for value in values.values()):
        raise LineError("a quote in a user's text makes it ambiguous where the account, project or job name ends")
    return values


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

    values: dict[str, str] = {}
    for key, value, rest in _parts(text, is_key, quoted=quoted):
        if key and values.setdefault(key, value) != value:
            raise LineError(f"`{key}=` occurs twice: a user's text has a record's attributes")
        _put_unknown(values, rest)
    return values


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
