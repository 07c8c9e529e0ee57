"""The texts in ARC's rows: escapes, times, hosts, users, benchmarks.

ARC's writer replaces `'`, `#`, line ends, NUL, backspace, and the percent sign itself by `%` and two hexadecimal
digits. Only those are restored here; NUL and backspace stay escaped, because no format can carry them.
"""

from __future__ import annotations

import ipaddress
import math
import re
import struct
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from formats.job import Benchmark, Host

_WRITTEN: Final = {"27": "'", "23": "#", "25": "%", "0a": "\n", "0d": "\r"}
_ESCAPE: Final = re.compile(r"%(27|23|25|0[aAdD])")
_NODE: Final = re.compile(r"\[([^\]]*)\]|([^:]+)")
_UNSIGNED: Final = 2**64
_WITHIN_HOUR: Final = {
    b"%02d:%02dZ" % (minute, second): minute * 60 + second for minute in range(60) for second in range(60)
}
_parts_of_times: Final = struct.Struct("14s6sx").iter_unpack
"""The hour, and the time within it, of times of 20 characters, each followed by one more."""
_HOURS_KEPT: Final = 4_096


class _HourEpochs(dict[bytes, int]):
    """Epoch seconds of the beginning of an hour, by its text `2026-11-20T12:`; KeyError for other texts.

    Times of ARC's form are parsed once for each hour: with eight events for each job this is the most frequent
    operation.
    """

    def __missing__(self, text: bytes) -> int:
        epoch = epoch_s(text.decode("utf-8", "replace") + "00:00Z")
        if epoch is None:
            raise KeyError(text)
        if len(self) >= _HOURS_KEPT:
            self.clear()
        self[text] = epoch
        return epoch


_hours: Final = _HourEpochs()


def unescaped(text: str) -> str:
    """The text as it was before ARC's writer escaped it."""
    return _ESCAPE.sub(lambda found: _WRITTEN[found[1].lower()], text) if "%" in text else text


def unsigned(size: int) -> int:
    """A size that was written as an unsigned number of 64 bits and stored as a signed one."""
    return size if size >= 0 else size + _UNSIGNED


def epochs_s(texts: str, count: int) -> list[int] | None:
    """Epoch seconds of so many times as ARC writes them, `2026-11-20T12:00:00Z`, with a character between each two;
    None: one of them has another form.
    """
    try:
        times = [_hours[hour] + _WITHIN_HOUR[within] for hour, within in _parts_of_times(texts.encode() + b" ")]
    except (KeyError, struct.error):
        return None
    return times if len(times) == count else None


def epoch_s(text: str) -> int | None:
    """Epoch seconds of a time of JobEvents, UTC unless it has a zone; None: it is not a time, or before 1970."""
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return int(seconds) if seconds > 0 else None


@lru_cache(maxsize=4096)
def hosts_of(text: str) -> tuple[Host, ...]:
    """The nodes of a list separated by colons, each once; IPv6 addresses are in brackets, or alone."""
    if _is_ipv6(text):
        return (Host(text),)
    names = dict.fromkeys(match[1] or match[2] for match in _NODE.finditer(text))
    return tuple(Host(name.strip()) for name in names if name and name.strip())


def client_host(text: str) -> str | None:
    """The host of `host:port`, `[address]:port`, or either without a port; an IPv6 address may lack the brackets."""
    host, colon, port = text.rpartition(":")
    if ":" not in host and "[" not in host:  # nearly always
        return (host if colon and port.isdecimal() else text) or None
    if text.startswith("["):
        return text[1:].partition("]")[0] or None
    if _is_ipv6(text):
        return text
    return (host if colon and port.isdecimal() else text) or None


@lru_cache(maxsize=4096)
def benchmarks_of(text: str) -> tuple[Benchmark, ...]:
    """The score of `TYPE:value`; none for blanks. For another text, or a score that is not positive, the type and 0."""
    kind, _, value = (part.strip() for part in text.partition(":"))
    try:
        score = float(value)
    except ValueError:
        score = 0.0
    if kind and 0 < score < math.inf:
        return (Benchmark(kind, score),)
    return (Benchmark(text.strip(), 0.0),) if text.strip() else ()


def _is_ipv6(text: str) -> bool:
    if text.count(":") < 2:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
