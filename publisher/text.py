"""Text for people: escaping of text from outside, numbers, durations, instants, and TOML.

Durations and instants are written as in the configuration and on the command line. TOML is made of plain values for
`init` and `import`; text from outside can never become a key or table in it.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias

Instant: TypeAlias = Annotated[int, "epoch seconds"]
"""A point in time. Fields of results with this type are ISO 8601 in `--json`."""
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_DIRECTION: Final = {
    code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
_HARMLESS: Final = _CONTROL | _DIRECTION


def safe(text: object) -> str:
    """Text from outside, with control characters, line ends, and direction marks escaped."""
    shown = str(text).translate(_HARMLESS)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def utf8(text: str) -> str:
    """A text that a database and JSON take: lone surrogates are spelled `\\udcff`.

    In the name of a file they represent bytes that are not UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def numbered(names: Sequence[str]) -> list[str]:
    """Names, each once: one that came before gets the first number with which no other has it, as in `wall_s_2`."""
    taken, distinct = set(names), []
    last: dict[str, int] = {}
    for name in names:
        number = last.get(name, 0) + 1
        while number > 1 and f"{name}_{number}" in taken:
            number += 1
        last[name] = number
        distinct.append(name if number == 1 else f"{name}_{number}")
        taken.add(distinct[-1])
    return distinct


def cell_text(value: object) -> str:
    """A value in a table or on the page: numbers with thousands separators and few digits; empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return f"{value:,}"
    return safe(value)


def number_text(value: float, largest: float | None = None) -> str:
    """A number for people with few digits: 12,346; 123.5; 1.23; 0.0123. `largest`: of the numbers that it is read with.

    Numbers of a column have as many decimals as the largest needs; smaller ones that would be 0 are `<0.1`.
    """
    top = abs(value if largest is None else largest)
    if not value or top >= 1_000:
        decimals = 0
    elif top >= 1:
        decimals = 1 if top >= 10 else 2
    else:
        decimals = min(9, 1 - math.floor(math.log10(top))) + 1
    text = f"{value:,.{decimals}f}"
    least = 10.0**-decimals
    if value and not text.strip("-0."):
        return f"{'<' if value > 0 else '>-'}{least:,.{decimals}f}"
    return text.removesuffix(".0") if largest is None else text


def amount_texts(values: Sequence[float | None], largest: float, decimals: int | None = None) -> list[str]:
    """The amounts of bars: with these decimals or, if it is None, counts as whole numbers and others with the decimals
    that `largest` needs. A value of None is unknown."""
    if decimals is not None:
        return ["unknown" if value is None else f"{value:,.{decimals}f}" for value in values]
    if all(value is None or float(value).is_integer() for value in values):
        return ["unknown" if value is None else f"{value:,.0f}" for value in values]
    return ["unknown" if value is None else number_text(value, largest) for value in values]


_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size_bytes: float) -> str:
    """A number of bytes for people: 512 B, 1.2 TiB."""
    place = 0
    while size_bytes >= 1024 and place < len(_BYTES) - 1:
        size_bytes /= 1024
        place += 1
    digits = 1 if place and size_bytes < 100 else 0
    return f"{size_bytes:,.{digits}f} {_BYTES[place]}"


def problem_text(error: Exception) -> str:
    """What an error says; of one of the system without its number and the file, which the message around it names."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def counted(number: int, what: str, plural: str | None = None) -> str:
    """A number of things for people: 1 message, 2 messages, 8,076 messages. `plural`: where it is not `what` and s."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {plural or what + 's'}"


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """The nearest known name as the end of a message, such as "; did you mean 'arc'?"; empty where none is near."""
    import difflib  # noqa: PLC0415 - only where something is wrong

    names = list(known)
    begun = [name for name in names if given and name.startswith(str(given))]
    near = begun or difflib.get_close_matches(str(given), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


CLOCK_SKEW_S: Final = 300
"""Accepted difference between the clocks of two hosts: hosts that share a store, this host and an authority."""


def past(instant: int | None, now: int) -> int | None:
    """An instant that was recorded earlier; None if it is in the future: the clock was wrong then, or is wrong now.

    Callers treat such a time as if it had not been recorded.
    """
    return None if instant is None or instant > now + CLOCK_SKEW_S else instant


def elapsed_s(instant: int | None, now: int) -> int | None:
    """Seconds since an instant that was recorded earlier; None if it is unknown or in the future (`past`)."""
    known = past(instant, now)
    return None if known is None else max(0, now - known)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_DURATION_HELP = "must be a duration: a number of seconds, or text such as 30s, 15m, 6h, 2d"
_INSTANT_HELP = "must be a time such as 2026-11-20 or 2026-11-20T00:00:00Z"
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration_s(value: object) -> float:
    """Seconds of `90`, `"90s"`, `"1h30m"`, `"2d"`. Raises ValueError for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (parts := _DURATION.findall(value)) and not _DURATION.sub("", value).strip():
        seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    else:
        raise ValueError(_DURATION_HELP)
    if not 0 <= seconds < math.inf:
        raise ValueError("a duration must not be negative or infinite")
    return seconds


def duration_text(seconds: float) -> str:
    """A duration for people, rounded to at most two units: 45 s, 3 min 20 s, 3 h 12 min, 2 d 4 h."""
    total = max(0, round(seconds))
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            whole, rest = divmod((total + below // 2) // below, size // below)
            return f"{whole:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{total} s"


_MONTHS = re.compile(r"(\d{1,4})\s*(months?|years?)")


def months_of_age(value: object) -> int:
    """How many months `"36 months"` or `"3 years"` are. Raises ValueError for anything else, and for less than one."""
    match = _MONTHS.fullmatch(value) if isinstance(value, str) else None
    count = int(match[1]) * (12 if match[2].startswith("year") else 1) if match else 0
    if count < 1:
        raise ValueError("must be an age such as '36 months' or '3 years'")
    return count


def instant_s(value: object) -> int:
    """Epoch seconds of a TOML date or date-time, or of text in ISO 8601; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(_INSTANT_HELP) from None
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
    raise ValueError(_INSTANT_HELP)


def zoned_instant_s(text: str) -> int:
    """Epoch seconds of a time in a file of other programs: epoch seconds, or ISO 8601 with a zone or offset, because a
    local time may be two instants. Raises ValueError."""
    if text.isascii() and text.isdecimal() and len(text) <= 11:
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-11-01T00:00Z") from None
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no zone, so it may be two instants: write Z, or an offset such as +01:00")
    return int(instant.timestamp())


_MOMENT_HELP = "write it as 2026-11-01, 2026-11-01T12:00, 2026-11, -7d, or @1793491200"
_MONTH = re.compile(r"(\d{4})-(\d{2})")


def moment_s(text: str, now_s: int) -> int:
    """Epoch seconds of a time as people write it on the command line, UTC unless it carries a zone.

    A date, a date with a time, a month (its first second), `-7d` (so long ago), `@` and epoch seconds. Raises
    ValueError.
    """
    try:
        if text.startswith("@"):
            return int(text[1:])
        if text.startswith("-"):
            return now_s - int(duration_s(text[1:]))
        if month := _MONTH.fullmatch(text):
            return int(datetime(int(month[1]), int(month[2]), 1, tzinfo=UTC).timestamp())
        return instant_s(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; {_MOMENT_HELP}") from None


def iso(instant: int | None) -> str | None:
    """An instant in ISO 8601, UTC, with `Z`; None stays None. Years beyond 9999 come out as `@` and epoch seconds."""
    if instant is None:
        return None
    try:
        return datetime.fromtimestamp(instant, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"@{instant}"


def future_notes(times: Mapping[str, int]) -> list[str]:
    """A sentence for each recorded time, by its name, that is in the future."""
    return [
        f"{name.replace('_', ' ')} was recorded as {iso(at)}, which is in the future: a clock was wrong. It is "
        "ignored, and the next run records it again"
        for name, at in times.items()
    ]


_BARE: Final = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_NESTED: Final = 2
"""Deeper tables are written in one line."""
_PLACE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
"""The end of an error message of tomllib."""
_PASSWORD: Final = re.compile(r"(://[^:/@\s]*:)[^@\s]*@")
_MOST_SHOWN: Final = 80
"""Characters of a line before a mistake, and after it."""


def text_of(tables: Mapping[str, Any], comments: Mapping[tuple[str, ...], Sequence[str]] | None = None) -> str:
    """The file of these tables: `{"site": {"name": ...}, "sources": {"ce1": {...}}}`.

    Values are text, numbers, truth values, lists and mappings; a list of mappings two tables deep is written as
    `[[...]]`. `comments`: lines above a table, by its place.
    """
    return "\n".join("\n".join(part) + "\n" for part in _parts((), tables, comments or {}))


def unknown_name(what: str, given: object, known: Iterable[str]) -> str:
    """The message about an unknown name of a target, source, or format: those that are known, and the nearest."""
    names = [*known]
    return f"unknown {what} {given!r}; known: {', '.join(names) or 'none is configured'}{did_you_mean(given, names)}"


def mistake(text: str, error: tomllib.TOMLDecodeError) -> tuple[int | None, str]:
    """The mistake in a text that is not TOML: its line, and column, reason, and the line with `>>>` before the mistake.

    A password within a URL is not shown.
    """
    match = _PLACE.fullmatch(str(error))
    if match is None:
        return None, str(error)
    lines = text.rstrip("\r\n").split("\n")
    if match[2] is None:  # the end, of which nobody needs to see blank lines
        number, column = len(lines), len(lines[-1]) + 1
    else:
        number, column = int(match[2]), int(match[3])
    line = lines[number - 1].rstrip("\r") if number <= len(lines) else ""
    before, after = line[: column - 1], line[column - 1 :]
    cut = ("..." if len(before) > _MOST_SHOWN else "") + before[-_MOST_SHOWN:]
    rest = after[:_MOST_SHOWN] + ("..." if len(after) > _MOST_SHOWN else "")
    shown = _PASSWORD.sub(r"\1...@", f"{cut}>>>{rest}")
    return number, f"column {column}: {match[1]}: {shown}"


def quoted(text: object) -> str:
    """A basic string of TOML. Characters that are not printable are escaped."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in escaped) + '"'


def _parts(
    place: tuple[str, ...], table: Mapping[str, Any], comments: Mapping[tuple[str, ...], Sequence[str]]
) -> Iterator[list[str]]:
    own = {key: value for key, value in table.items() if not _is_table_below(place, value)}
    heading = [f"# {line}" if line else "#" for line in comments.get(place, ())]
    if place and (own or not any(isinstance(value, Mapping) for value in table.values())):
        heading.append(f"[{_dotted(place)}]")
    lines = [*heading, *(f"{_key(key)} = {_value(value)}" for key, value in own.items())]
    if lines:
        yield lines
    for key, value in table.items():
        if not _is_table_below(place, value):
            continue
        here = (*place, key)
        if isinstance(value, Mapping):
            yield from _parts(here, value, comments)
        else:
            for entry in value:
                yield [f"[[{_dotted(here)}]]", *(f"{_key(name)} = {_value(each)}" for name, each in entry.items())]


def _is_table_below(place: tuple[str, ...], value: object) -> bool:
    if isinstance(value, Mapping):
        return len(place) < _NESTED
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _dotted(place: Sequence[str]) -> str:
    return ".".join(_key(name) for name in place)


def _key(name: str) -> str:
    return name if _BARE(name) else quoted(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(key))} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return quoted(value)
