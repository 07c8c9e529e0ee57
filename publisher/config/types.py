"""Types of settings: durations, instants, time zones, paths, URLs, patterns; and the base of all tables."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Final, TypeVar
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Strict, ValidationInfo

from formats.benchmark import BENCHMARKS, canonical_name
from publisher.config.store_url import store_url
from publisher.errors import UsageError
from publisher.text import did_you_mean, duration_s, instant_s, months_of_age


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone of the tz database, such as Europe/Oslo") from None
    return value


def _relative_to_file(path: Path, info: ValidationInfo) -> Path:
    base = (info.context or {}).get("base")
    path = path.expanduser()
    return path if path.is_absolute() or base is None else Path(base) / path


def _path_or_url(value: str, info: ValidationInfo) -> str:
    if value.startswith("https://"):
        return value
    if "://" in value:
        raise ValueError("must be a path, or a URL that begins with https://")
    return str(_relative_to_file(Path(value), info))


def _one_or_several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


FROM_STORE: Final = {"store": True}
"""The context in which settings that the store kept are read again: instants are numbers there, and values that were
not given are there too."""


def _is_from_store(info: ValidationInfo) -> bool:
    return bool((info.context or {}).get("store"))


def _not_empty(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if not all(value) or not (value or _is_from_store(info)):
        raise ValueError('must be a pattern such as "atlas*", or a list of patterns')
    return value


EXCLUDES: Final = "!"
"""Begins a pattern of a `NameFilter` that excludes what it matches."""


def _excluding(value: tuple[str, ...]) -> tuple[str, ...]:
    if EXCLUDES in value:
        raise ValueError("'!' alone excludes nothing; write the pattern after it, such as '!test*'")
    return value


def _store_url(value: str, info: ValidationInfo) -> str:
    base = (info.context or {}).get("base")
    if base is None:
        return value
    try:
        return store_url(value, base)
    except UsageError as error:
        raise ValueError(str(error)) from None


def http_parts(value: str, must_be: str) -> SplitResult:
    """The parts of a URL of http or https that names a host and no user. Raises `ValueError`, with what it must be."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from None
    if not value.startswith(("http://", "https://")) or not host:
        raise ValueError(f"must be {must_be}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user name or a password")
    return parts


def _service_url(value: str) -> str:
    host = http_parts(value, "a URL that begins with https:// and the name of a host").hostname or ""
    if value.startswith("http://") and not is_here(host):
        raise ValueError(f"must begin with https://: write https{value.removeprefix('http')}")
    return value


def is_here(host: str) -> bool:
    """Whether a host is this one."""
    from publisher.security.connections import is_loopback  # noqa: PLC0415 - loads sockets, for a rare setting

    return is_loopback(host)


def _benchmark_name(value: str) -> str:
    if canonical_name(value) is None:
        allowed = f"allowed: {', '.join(BENCHMARKS)}"
        raise ValueError(f"{value!r} is not a benchmark that APEL accepts; {allowed}{did_you_mean(value, BENCHMARKS)}")
    return value


KeyProblem = tuple[tuple[str, ...], str]
"""The place of a key below its table, and what is wrong with it."""


def instant(value: object, info: ValidationInfo) -> int:
    """Epoch seconds of a setting. Raises `ValueError`."""
    if isinstance(value, int) and _is_from_store(info):
        return value
    return instant_s(value)


class WrongKeysError(ValueError):
    """Raised by the validator of a table; names the keys that are wrong."""

    def __init__(self, *problems: KeyProblem) -> None:
        super().__init__("; ".join(message for _, message in problems))
        self.problems = problems


Count = Annotated[int, Strict()]
"""A whole number, not a text that looks like one."""
Switch = Annotated[bool, Strict()]
Number = Annotated[float, Strict()]
Seconds = Annotated[float, BeforeValidator(duration_s)]


def matching(pattern: str, rule: str) -> AfterValidator:
    """The test of a text by a regular expression, for the whole of it; `rule`: what it must be, in words."""

    def matched(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(rule)
        return value

    return AfterValidator(matched)


Instant = Annotated[int, BeforeValidator(instant)]
Months = Annotated[int, BeforeValidator(months_of_age)]
"""An age in whole calendar months."""
ZoneName = Annotated[str, AfterValidator(_zone)]
FilePath = Annotated[Path, AfterValidator(_relative_to_file)]
PathOrUrl = Annotated[str, AfterValidator(_path_or_url)]
"""The path of a file, or an https URL."""
PathsOrUrls = Annotated[tuple[PathOrUrl, ...], BeforeValidator(_one_or_several)]
"""One of these, or a list."""
StoreUrl = Annotated[str, AfterValidator(_store_url)]
"""The URL of a database; the path of an SQLite file is relative to the configuration."""
ServiceUrl = Annotated[str, AfterValidator(_service_url)]
"""An https URL; http only for a service on this host."""
BenchmarkName = Annotated[str, AfterValidator(_benchmark_name)]
"""The name of a benchmark that APEL takes, in any case."""
Folders = Annotated[tuple[FilePath, ...], BeforeValidator(_one_or_several)]
"""One folder or a list of them."""
Patterns = Annotated[tuple[str, ...], BeforeValidator(_one_or_several), AfterValidator(_not_empty)]
"""One pattern or a list of them, one of which must match: `*`, `?`, and `[...]` as in the shell, case-sensitive."""

NameFilter = Annotated[Patterns, AfterValidator(_excluding)]
"""Patterns of names, of which those that begin with `!` exclude what they match."""


class Settings(BaseModel):
    """Base of all tables: frozen, and an unknown key is an error.

    Validators are built when they are first needed: a process that receives validated settings builds none, and an
    omitted table is made by `model_construct`, since default values are not validated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class Effect(Enum):
    """The effect of a changed setting on deliveries: see `PlansAgain` and `KeepsPlan`."""

    PLANS_AGAIN = "plans again"
    KEEPS_PLAN = "keeps the plan"


class Since(Enum):
    """Of a setting that not every version had: see `PlansAgainIfGiven`."""

    LATER = "later than the first version"


_T = TypeVar("_T")
PlansAgain = Annotated[_T, Effect.PLANS_AGAIN]
"""A setting of a source or target that decides which runs are due or held: after a change, deliveries that were not
sent are planned again."""
PlansAgainIfGiven = Annotated[_T, Effect.PLANS_AGAIN, Since.LATER]
"""The same, of a setting that the first version did not have: with its default value, stores of before are not planned
again, in which everything that is held would be tried once more."""
KeepsPlan = Annotated[_T, Effect.KEEPS_PLAN]
"""A setting of how a source is read or of how messages are sent."""


@cache
def planning_settings(model: type[Settings]) -> frozenset[str]:
    """The settings of a table that are `PlansAgain`."""
    return frozenset(name for name, field in model.model_fields.items() if Effect.PLANS_AGAIN in field.metadata)


def came_later(model: type[Settings], name: str) -> bool:
    """Whether a setting of a table is `PlansAgainIfGiven`."""
    return Since.LATER in model.model_fields[name].metadata
