"""The query of an address: the report that it requests, and the fields of the form that makes it.

The fields are those of DQS' qusage, with the names that the command line has for them, and those of our views. No query
names a file or anything else of this host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal, cast, get_args

import msgspec

from formats.calendar import Month, month_bounds, month_of
from formats.utilization.measure import KEYS
from publisher.errors import UsageError
from publisher.page.addresses import with_query
from publisher.page.auth import Person
from publisher.page.html import Choice
from publisher.report.report import keys_text
from publisher.report.request import FIRST_INSTANT, LIMIT_INSTANT, ReportRequest
from publisher.report.row_jobs import RowSelection, row_selection
from publisher.report.view_kind import ViewKind
from publisher.report.view_option import PERIOD_LENGTHS, Compared, Interval, PeriodLength, Resource
from publisher.text import duration_s, iso, moment_s

DAY_S: Final = 86_400
DEFAULT_DAYS: Final = 30
_MOST_DAYS: Final = 200_000
_MOST_TOP: Final = 1_000
_MOST_BINS: Final = 10_000
_ABOUT_BINS: Final = 800
_FEWER_BINS: Final = 400
"""For each value of a key."""
_BINS_S: Final = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY_S, 7 * DAY_S, 28 * DAY_S, 364 * DAY_S)
_PATTERNS: Final = ("queue", "host", "complex", "group", "user", "job", "vo", "project")
_OF_JOBS: Final = ("job", "user", "group", "vo", "project", "account", "queue", "host", "status")
MOST_LETTERS: Final = 1_000
"""Of each value of the query of a view."""
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OPTION: Final = re.compile("--([a-z]+)")
_RESOURCES: Final[tuple[str, ...]] = get_args(Resource)


ROW: Final = "row"
"""The selection of the jobs of a row of a report."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the form."""

    name: str
    label: str
    value: str
    type: str = "text"
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    fixed: bool = False


class PageQuery(msgspec.Struct, frozen=True):
    """The report that a query requests, and the look of its plots."""

    request: ReportRequest
    choice: Choice
    query: Mapping[str, str]


def parse(
    kind: ViewKind, query: Mapping[str, str], now: int, known: tuple[int | None, int | None], person: Person
) -> PageQuery:
    """Parse a query of a view. `known`: ends of the first and the last run, epoch seconds. Raises `UsageError`."""
    for name, value in query.items():
        if len(value) > MOST_LETTERS:
            raise UsageError(f"{name} has more than {MOST_LETTERS:,} characters")
    start, stop = _month(query, now) if kind.interval == "month" else _interval(query, now, known)
    filters = {key: query[key] for key in kind.filters if query.get(key)}
    if not filters.keys() >= {*kind.required}:
        raise UsageError("no job is selected", hint="Fill in its id, or a pattern of its name")
    if person.owner is not None:
        filters["user"] = person.owner
    request = ReportRequest(
        start=start,
        stop=stop,
        filters=filters,
        bin_s=_bin_s(query.get("bin", ""), stop - start, _FEWER_BINS if query.get("by") else _ABOUT_BINS),
        measure="cpu" if query.get("measure") == "cpu" else "queue",
        by=(kind.user_key,) if kind.user_key and person.owner is not None else _by(kind, query, person),
        period=cast("PeriodLength", _one_of(query, "period", PERIOD_LENGTHS, kind.page_period)),
        compare=cast("Compared | None", _one_of(query, "compare", ("", *get_args(Compared)), "") or None)
        if "compare" in kind.options
        else None,
        resource=cast("Resource", _one_of(query, "resource", _RESOURCES, "cores")),
        running=person.owner is None,
        sort=query.get("sort") or None,
        top=_whole("top", query.get("top", ""), _MOST_TOP),
    )
    return PageQuery(request, choice(query), query)


def jobs_request(
    query: Mapping[str, str], now: int, known: tuple[int | None, int | None], person: Person
) -> ReportRequest:
    """The runs that a query asks for: those of a report, or of a job. Raises `UsageError`."""
    start, stop = _interval(query, now, known)
    filters = {key: query[key] for key in KEYS if query.get(key)}
    if person.owner is not None:
        filters["user"] = person.owner
    counted = cast("Interval", _one_of(query, "counted", get_args(Interval), "ended"))
    return ReportRequest(start=start, stop=stop, filters=filters, interval=counted, running=person.owner is None)


def selected_row(query: Mapping[str, str]) -> RowSelection | None:
    """The row of a report whose jobs a query asks for; None for all. Raises `UsageError`."""
    return row_selection(query[ROW]) if query.get(ROW) else None


def jobs_fields(query: Mapping[str, str], now: int, person: Person) -> tuple[Field, ...]:
    """The fields of the form of the list of jobs, with the filters of the address."""
    others = tuple(key for key in KEYS if key not in _OF_JOBS and query.get(key))
    controls = [
        Field(
            name=key, label="Job id or name" if key == "job" else _label(key), value=query.get(key, ""),
            hint="" if key == "job" else "any",
        )
        for key in (*_OF_JOBS, *others)
        if key != "user" or person.owner is None
    ]  # fmt: skip
    counted = tuple(
        (word, f"{word} in it" if word != "overlapping" else "overlapping it") for word in get_args(Interval)
    )
    return (
        *controls,
        *_interval_fields(query, now),
        _select("counted", "Jobs that", query.get("counted", "ended"), counted),
        *([Field(name=ROW, label="", value=query[ROW], type="hidden")] if query.get(ROW) else []),
    )


def _interval(query: Mapping[str, str], now: int, known: tuple[int | None, int | None]) -> tuple[int, int]:
    """The interval: `since` to `until`, or `days` from the one or before the other; without either, up to the end of
    today."""
    tomorrow = now - now % DAY_S + DAY_S
    stop = _moment("until", query, now) if query.get("until") else None
    days = _whole("days", query.get("days", ""), _MOST_DAYS)
    first = known[0] if known[0] is not None else now
    if query.get("since"):
        start = _moment("since", query, now)
    elif "since" in query:
        start = first - first % DAY_S
    else:
        start = (tomorrow if stop is None else stop) - (days or DEFAULT_DAYS) * DAY_S
    if stop is None:
        stop = max(tomorrow, start + DAY_S) if days is None else start + days * DAY_S
    if start >= stop:
        raise UsageError("until must be after since")
    if not FIRST_INSTANT <= start < stop < LIMIT_INSTANT:
        raise UsageError("the interval must lie in the years 1 to 9999")
    return start, stop


def _moment(name: str, query: Mapping[str, str], now: int) -> int:
    """An instant of a query; one so many days ago is a midnight."""
    try:
        instant = moment_s(query[name], now)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{name}: {error}") from None
    return instant - instant % DAY_S if query[name].startswith("-") else instant


class IntervalLink(msgspec.Struct, frozen=True):
    """A link to the same page for another interval."""

    label: str
    href: str
    current: bool
    """Whether the page shows this interval, however it was asked for."""


def periods(
    path: str, query: Mapping[str, str], now: int, known: tuple[int | None, int | None], *, months: bool = False
) -> tuple[IntervalLink, ...]:
    """The intervals that people ask for; with `months` only single months. `known`: see `parse`."""
    this = month_of(now)
    number = this.year * 12 + this.month - 1
    last, current, last_quarter, quarter, last_year, year = (
        str(Month(at // 12, at % 12 + 1))
        for at in (number - 1, number, number // 3 * 3 - 3, number // 3 * 3, number // 12 * 12 - 12, number // 12 * 12)
    )
    if months:
        wanted = [("Last month", {"month": last}), ("This month", {"month": current})]
    else:
        spans = [
            ("7 days", "-6d", ""), ("30 days", "-29d", ""), ("90 days", "-89d", ""), ("Last month", last, current),
            ("This month", current, ""), ("Last quarter", last_quarter, quarter), ("This year", year, ""),
            ("Last year", last_year, year), ("All", "", ""),
        ]  # fmt: skip
        wanted = [(label, {"since": since, "until": until}) for label, since, until in spans]
    others = {name: value for name, value in query.items() if name not in {"since", "until", "days", "month"} and value}
    shown = _bounds(query, now, known, months=months)
    # Two of them may be the same, as this month and this year in January: the one that was asked for is marked.
    same = [(label, span) for label, span in wanted if shown and _bounds(span, now, known, months=months) == shown]
    asked = [label for label, span in same if span.items() <= query.items()]
    marked = next(iter([*asked, *(label for label, _ in same)]), None)
    return tuple(IntervalLink(label, with_query(path, {**others, **span}), label == marked) for label, span in wanted)


def _bounds(
    query: Mapping[str, str], now: int, known: tuple[int | None, int | None], *, months: bool
) -> tuple[int, int] | None:
    """The interval of a query; None for one that makes no sense, which a page reports beside its form."""
    with suppress(UsageError):
        return _month(query, now) if months else _interval(query, now, known)
    return None


def _month(query: Mapping[str, str], now: int) -> tuple[int, int]:
    try:
        return month_bounds(month_of(moment_s(query.get("month") or f"@{now}", now)))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"month: {error}") from None


def _whole(name: str, text: str, most: int) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= most:
        raise UsageError(f"{name} is not a whole number from 1 to {most:,}")
    return int(text)


def _bin_s(text: str, length_s: int, about: int) -> int:
    if not text:
        return next((size for size in _BINS_S if length_s <= size * about), _BINS_S[-1])
    try:
        size_s = duration_s(text)
    except ValueError as error:
        raise UsageError(f"bin: {error}") from None
    if size_s < 1 or size_s != int(size_s):
        raise UsageError("bin: the size of a bin must be a whole number of seconds, at least 1")
    if length_s > size_s * _MOST_BINS:
        raise UsageError(f"bin: a page has at most {_MOST_BINS:,} bins", hint="Choose larger bins, or fewer days")
    return int(size_s)


def _by(kind: ViewKind, query: Mapping[str, str], person: Person) -> tuple[str, ...]:
    allowed = kind.keys_for(person.role)
    given = [query.get("by", "".join(kind.page_keys[-1:])), query.get("by2", "")]
    keys = tuple(dict.fromkeys(key for key in given if key))
    for key in keys:
        if key not in allowed:
            raise UsageError(f"by: {key!r} is not a key of {kind.name}; its keys are: {', '.join(allowed) or 'none'}")
    return keys


def _one_of(query: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = query.get(name) or default
    if value not in allowed:
        raise UsageError(f"{name}: {value!r} is not one of: {', '.join(allowed)}")
    return value


def choice(query: Mapping[str, str]) -> Choice:
    """The look of plots that a query selects."""
    shown = "shown" in query  # a submitted form omits boxes that are not ticked
    styles: Mapping[str, Literal["line", "bar"]] = {"line": "line", "bar": "bar"}
    return Choice(
        style=styles.get(query.get("style", "")),
        measure="cpu" if query.get("measure") == "cpu" else "queue",
        grid="grid" in query,
        legend="legend" in query or not shown,
    )


def fields(kind: ViewKind, query: Mapping[str, str], now: int, person: Person) -> tuple[Field, ...]:
    """The fields of a view's form, filled in from a query. An empty `since` stays empty."""
    interval = [_month_field(query, now)] if kind.interval == "month" else _interval_fields(query, now)
    controls: list[Field] = [] if kind.interval in {"optional", "all"} else interval
    # Other filters of the address get a field too, so that submitting the form keeps them.
    usual = _PATTERNS if {*_PATTERNS} <= {*kind.filters} else kind.filters
    others = tuple(key for key in kind.filters if key not in usual and query.get(key))
    for key in (*usual, *others):
        mine = key == "user" and person.owner is not None
        value = person.name if mine else query.get(key, "")
        hint = "id or name" if key in kind.required else "any"
        controls.append(Field(name=key, label=_label(key), value=value, hint="" if mine else hint, fixed=mine))
    if kind.interval == "optional":
        controls += interval
    if "measure" in kind.options:
        sizes = ("15m", "1h", "6h", "1d", "7d")
        controls.append(
            _select("bin", "Bin", query.get("bin", ""), (("", "automatic"), *((size, size) for size in sizes)))
        )
    if kind.keys and not (kind.user_key and person.owner is not None):
        label = "Stacked by" if "measure" in kind.options else "By"
        none = "as configured" if kind.user_key else "nothing"
        options = (("", none), *((key, _label(key)) for key in kind.keys_for(person.role)))
        controls.append(_select("by", label, query.get("by", "".join(kind.page_keys[-1:])), options))
        if kind.most_keys > 1:
            controls.append(_select("by2", "And by", query.get("by2", ""), options))
    if "compare" in kind.options:
        choices = (("", "nothing"), ("previous", "the period before"), ("year", "a year before"))
        controls.append(_select("compare", "Compare with", query.get("compare", ""), choices))
    if "resource" in kind.options:
        lengths = tuple((length, length) for length in PERIOD_LENGTHS)
        controls.append(_select("period", "Period", query.get("period", kind.page_period), lengths))
        resources = tuple((resource, resource) for resource in _RESOURCES)
        controls.append(_select("resource", "Resource", query.get("resource", "cores"), resources))
    if "top" in kind.options:
        controls.append(Field(name="sort", label="Sort by", value=query.get("sort", ""), hint="column"))
        controls.append(Field(name="top", label="Top", value=query.get("top", ""), type="number", hint="all"))
    return tuple(controls)


def in_its_terms(text: str, fields: Iterable[Field]) -> str:
    """A message in the terms of a page: options of the command are the fields of its form."""
    labels = {
        field.name: f"\N{LEFT DOUBLE QUOTATION MARK}{field.label}\N{RIGHT DOUBLE QUOTATION MARK}" for field in fields
    }
    return _OPTION.sub(lambda option: labels.get(option[1], option[0]), text)


def chosen(fields: Iterable[Field]) -> str:
    """The filters and keys that a form selects, in one line; its interval excepted."""
    named = (field for field in fields if field.name not in {"since", "until", "month"} and field.value)
    return ", ".join(f"{field.name}: {field.value}" for field in named)


def _month_field(query: Mapping[str, str], now: int) -> Field:
    return Field(name="month", label="Month", value=query.get("month") or (iso(now) or "")[:7], type="month")


def _interval_fields(query: Mapping[str, str], now: int) -> list[Field]:
    given = [query.get("since"), query.get("until")]
    if given[0] is None or (given[1] is None and "days" in query):
        with suppress(UsageError):  # a page shows it
            interval = _interval(query, now, (None, None))
            bounds = [(iso(bound) or "").removesuffix("T00:00:00Z") for bound in interval]
            given = [bound if text is None else text for text, bound in zip(given, bounds, strict=True)]
    return [
        Field(name=name, label=label, value=value or "", type="date" if not value or _DATE.fullmatch(value) else "text")
        for (name, label), value in zip((("since", "Since"), ("until", "Until (not included)")), given, strict=True)
    ]  # a date field shows nothing but dates


def minute_text(instant: int | None) -> str:
    """An instant to the minute, UTC; empty for None."""
    return (iso(instant) or "")[:16].replace("T", " ")


def _select(name: str, label: str, value: str, choices: tuple[tuple[str, str], ...]) -> Field:
    return Field(name=name, label=label, value=value, choices=choices)


def _label(key: str) -> str:
    text = keys_text((key,))
    return text[:1].upper() + text[1:]


def plot_number(query: Mapping[str, str]) -> int:
    """The place of the selected plot among those of a report, from 0. Raises `UsageError`."""
    text = query.get("plot", "1")
    if not re.fullmatch(r"[1-9][0-9]?", text):
        raise UsageError(f"plot: {text!r} is not the number of a plot, from 1 to 99")
    return int(text) - 1
