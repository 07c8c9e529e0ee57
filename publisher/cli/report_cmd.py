"""report VIEW: utilization, totals, occupation, and the other views, as a table, data, a chart, a picture, or a page.

Each view is a command, made from its descriptor (`publisher.report.view_kind`).
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec
import typer

from formats.utilization.measure import KEYS
from publisher.cli import options
from publisher.cli.command_group import CommandGroup
from publisher.cli.output import exact, is_utf8, json_object, picture, say, write_output
from publisher.cli.session import session
from publisher.cli.table import plain_width, show_lines, show_table
from publisher.errors import UsageError
from publisher.report.view_kind import VIEW_KINDS, ViewKind
from publisher.report.view_option import OPTIONS, ViewOption
from publisher.text import counted, safe

if TYPE_CHECKING:
    from decimal import Decimal

    from rich.text import Text

    from publisher.report.plot.draw import Form
    from publisher.report.report import Plot, Report
    from publisher.report.request import ReportRequest
    from publisher.report.statements.files import Kind

_LAST_DAYS_S: Final = 30 * 86_400
_PICTURES: Final = ("png", "svg", "pdf", "ps", "html")
_ENDINGS: Final[Mapping[str, str]] = {
    "txt": "table", "csv": "csv", "json": "json", "md": "md", "prom": "prom", **{form: form for form in _PICTURES}
}  # fmt: skip
"""The format of a file, by the ending of its name."""
_OF_PICTURES: Final = ("style", "grid", "legend", "title", "plot")
_FOR_READING: Final = frozenset({"table", "md"})
_MOST_ROWS: Final = 100
_NOT_OF_TERM: Final = frozenset({"grid", "legend"})


def _option(kind: Any, name: str, text: str, metavar: str | None = None) -> Any:
    return Annotated[kind, typer.Option(name, metavar=metavar, help=text)]


def _parameter(option: ViewOption) -> Any:
    """The parameter of a command for an option of a view."""
    if option.argument:
        return Annotated[option.value, typer.Argument(metavar=option.metavar, help=option.text)]
    return _option(option.value | None, f"--{option.name}", option.text, option.metavar)


_INTERVAL: Final[dict[str, Any]] = {
    "since": _option(str | None, "--since", "Start (inclusive), UTC. Default: 30 days before the end.", "TIME"),
    "until": _option(str | None, "--until", "End (exclusive), UTC. Default: now.", "TIME"),
    "days": _option(int | None, "--days", "The N days before the end, instead of --since.", "N"),
    "month": _option(str | None, "--month", "A whole month, instead of --since and --until: 2026-11.", "MONTH"),
}
_OUTPUT: Final[dict[str, Any]] = {
    "form": _option(
        Literal["table", "csv", "json", "md", "prom", "term", "png", "svg", "pdf", "ps", "html"] | None,
        "--format", "Default: table, or the ending of --output; term: a chart as text.",
    ),
    "output": _option(Path | None, "--output", "Write this file instead of standard output.", "FILE"),
    "style": _option(Literal["line", "bar"] | None, "--style", "Lines or bars, for pictures over time."),
    "grid": _option(bool, "--grid", "Draw a grid."),
    "legend": _option(
        bool | None, "--legend/--no-legend", "Draw a legend. Default: if there are several series."
    ),
    "title": _option(str | None, "--title", "Title of the picture or page.", "TEXT"),
    "plot": _option(int | None, "--plot", "Which picture, if a view has several. Default: 1.", "N"),
}  # fmt: skip

_EXPLAIN: Final = _option(bool, "--explain", "Print the SQL of the report instead of the report.")
_DEFAULTS: Final = {"grid": False, "explain": False, "statement": inspect.Parameter.empty}
"""The defaults of parameters that have another one than None."""


def register(app: typer.Typer) -> None:
    """Add a command for each view."""
    group = CommandGroup(help="Report how the site was used: `report VIEW --help` lists the options of a view.")
    for kind in VIEW_KINDS.values():
        epilog = "A PATTERN may contain * and ?, as in the shell." if kind.filters else None
        group.command(kind.name, help=kind.summary, epilog=epilog)(_command(kind))
    group.command("statements")(statements)
    group.command("focus")(focus)
    app.add_typer(group, name="report")


def _command(kind: ViewKind) -> Callable[..., None]:
    """The command of a view, with a parameter for each option that it takes."""
    own = {name: _parameter(kind.option(name)) for name in OPTIONS if name in kind.options}
    interval = {} if kind.interval == "all" else _INTERVAL
    explain = {"explain": _EXPLAIN} if kind.in_sql else {}
    pictures = {name: one for name, one in _OUTPUT.items() if kind.pictures or name not in _OF_PICTURES}
    kinds = {name.replace("-", "_"): one for name, one in (interval | own | explain | pictures).items()}

    def command(**given: Any) -> None:
        _report(kind, own, {name: value for name, value in given.items() if value is not None})

    command.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=annotated
        )
        for name, annotated in kinds.items()
    ])  # fmt: skip
    command.__annotations__ = kinds
    return command


class _OutputChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The format and what is chosen for a picture or page. `legend` None: if there are several series."""

    form: str
    output: Path | None
    style: Literal["line", "bar"] | None = None
    grid: bool = False
    legend: bool | None = None
    title: str | None = None
    plot: int | None = None


def _report(kind: ViewKind, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    choice = _choice(given)
    request = _request(kind, {name: given[key] for name in own if (key := name.replace("-", "_")) in given}, given)
    if choice.form in _FOR_READING and "bin" in own and request.bin_s is None and request.bins is None:
        request = msgspec.structs.replace(request, bin_s=_readable_bin_s(request.stop - request.start))
    with session.publisher() as publisher:
        made = publisher.view(kind.name, request)
    if given.get("explain"):
        exact(made.sql)
        return
    if choice.form not in (*_PICTURES, "term"):
        _give(made, choice)
        return
    say(*([made.nothing] if made.nothing else []), *made.notes)
    _give_picture(made, choice)


def _request(kind: ViewKind, own: Mapping[str, Any], given: Mapping[str, Any]) -> ReportRequest:
    from publisher.report.request import ReportRequest, require_zone_used  # noqa: PLC0415

    keys = tuple(key.strip() for key in own["by"].split(",")) if own.get("by") else ()
    zone = own.get("timezone")
    if zone is not None and "month" not in given:
        require_zone_used(kind, keys)
    since, until = _interval(given.get("since"), given.get("until"), given.get("days"), given.get("month"), zone)
    return ReportRequest(
        start=since,
        stop=until,
        filters={name: value for name, value in own.items() if name in KEYS},
        bin_s=_bin_s(own.get("bin")),
        bins=own.get("bins"),
        by=keys,
        interval=own.get("counted"),
        archive=own.get("archive"),
        dask=own.get("dask"),
        stat_file=own.get("stat-file"),
        statement=own.get("statement", ""),
        **{
            name: own[name]
            for name in ("measure", "compare", "period", "timezone", "resource", "sort", "top")
            if name in own
        },
    )


def _interval(
    since: str | None, until: str | None, days: int | None, month: str | None, zone: str | None
) -> tuple[int, int]:
    """Start and end of the interval; of a month, in a time zone. Raises `UsageError`."""
    if month is not None:
        if days is not None:
            raise UsageError("--month cannot be combined with --days")
        begin, end = options.month_window(month, since, until)
        if zone is None:
            return begin or 0, end or 0
        from publisher.report.calendar import month_in, zone_of  # noqa: PLC0415 - loads NumPy

        return month_in(options.month_in(month, "--month"), zone_of(zone))
    stop = options.moment(until, "--until")
    stop = int(time.time()) if stop is None else stop
    start = options.moment(since, "--since")
    if days is not None:
        if start is not None:
            raise UsageError("--days cannot be combined with --since")
        if days < 1:
            raise UsageError("--days must be at least 1")
        start = stop - days * 86_400
    return stop - _LAST_DAYS_S if start is None else start, stop


def _readable_bin_s(length_s: int) -> int | None:
    """The size of bins with which a table has at most about a hundred rows; None: the usual hour."""
    return next((size for size in (3600, 86_400, 7 * 86_400) if length_s <= size * _MOST_ROWS), 28 * 86_400)


def _bin_s(text: str | None) -> int | None:
    if text is None:
        return None
    size_s = options.seconds(text, "--bin")
    if size_s < 1 or size_s != int(size_s):
        raise UsageError("--bin must be a whole number of seconds, at least 1")
    return int(size_s)


# --- text and data


def _choice(given: Mapping[str, Any]) -> _OutputChoice:
    """The format and the options of pictures. `--json` takes precedence over `--format`, which does over `--output`.

    Raises `UsageError` for options of pictures with a format that is not one, and for an unknown ending of the file.
    """
    output: Path | None = given.get("output")
    if session.json and output is None:
        return _OutputChoice(form="json", output=None)
    form = given.get("form") or _form_of(output)
    if output is not None and output.suffix and _ENDINGS.get(output.suffix.lower().removeprefix("."), form) != form:
        raise UsageError(f"--output {output} and --format {form} name different formats", hint="Omit --format")
    chosen = {name: given[name] for name in _OF_PICTURES if name in given and (name != "grid" or given["grid"])}
    if "plot" in chosen and form == "html":
        raise UsageError("--plot chooses one picture, and a page has all of them", hint="Omit --plot")
    unused = [name for name in chosen if form not in (*_PICTURES, "term") or (form == "term" and name in _NOT_OF_TERM)]
    if unused:
        raise UsageError(
            f"--{unused[0]} is for pictures and pages, and the format {form} is text",
            hint="Omit it, or choose --format png, svg, pdf, ps, or html",
        )
    return _OutputChoice(form=form, output=output, **chosen)


def _form_of(output: Path | None) -> str:
    """The format that the ending of a file names. Raises `UsageError` for an unknown ending."""
    ending = "" if output is None else output.suffix.lower().removeprefix(".")
    if not ending:
        return "table"
    if ending not in _ENDINGS:
        known = ", ".join(f".{one}" for one in _ENDINGS)
        raise UsageError(f"--output {output}: unknown ending .{ending}", hint=f"Use one of {known}; or give --format")
    return _ENDINGS[ending]


def _give(made: Report, choice: _OutputChoice) -> None:
    """Print a report or write it to a file; notes go to standard error."""
    from publisher.report import output as report_output  # noqa: PLC0415

    form, output = choice.form, choice.output
    if made.nothing:
        say(made.nothing)
    if form not in {"json", "md"} or output is not None:
        say(*made.notes)
    if output is not None:
        write_output(output, _text(made, form).encode("utf-8", "backslashreplace"))
        if session.json:
            json_object(report_output.json_object(made))
    elif form == "json":
        json_object(report_output.json_object(made))
    elif form != "table":
        exact(_text(made, form))
    elif made.nothing is None:
        columns = report_output.shown_columns(made)
        names = [report_output.heading(column) for column in columns]
        right = {name for name, column in zip(names, columns, strict=True) if not report_output.is_text(column)}
        show_table(report_output.caption(made), names, report_output.text_rows(made), right=right)


def _text(made: Report, form: str) -> str:
    from publisher.report import output as report_output  # noqa: PLC0415

    if form == "json":
        return report_output.to_json(made)
    if form == "csv":
        return report_output.to_csv(made)
    if form == "md":
        return report_output.to_markdown(made)
    if form == "prom":
        return report_output.to_prometheus(made)
    if made.nothing:
        return safe(made.nothing) + "\n"
    columns = report_output.shown_columns(made)
    rows = [[report_output.heading(column) for column in columns], *report_output.text_rows(made)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]

    def line(row: list[str]) -> str:
        cells = zip(row, widths, columns, strict=True)
        padded = (
            cell.ljust(width) if report_output.is_text(column) else cell.rjust(width) for cell, width, column in cells
        )
        return safe("  ".join(padded).rstrip()) + "\n"

    return "".join(map(line, rows))


# --- charts, pictures, and pages


def _give_picture(made: Report, choice: _OutputChoice) -> None:
    """Write a report as a chart, a picture, or a page. Raises `UsageError` and `PublisherError`."""
    if choice.form == "term":
        _give_chart(made, choice)
        return
    if choice.output is None and sys.stdout.isatty():
        raise UsageError(f"{choice.form} cannot be shown on a terminal", hint="Name a file with --output")
    content = _page(made, choice) if choice.form == "html" else _picture(made, choice)
    if choice.output is None:
        picture(content)
        return
    write_output(choice.output, content)
    if session.json:
        from publisher.report import output as report_output  # noqa: PLC0415

        json_object(report_output.json_object(made))


def _give_chart(made: Report, choice: _OutputChoice) -> None:
    """Print a chart of text, or write it to a file. Raises `UsageError` and `PublisherError`."""
    from publisher.report.plot.style import look_of  # noqa: PLC0415
    from publisher.report.plot.terminal import TextPlot  # noqa: PLC0415

    plot = _chosen_plot(made, choice)
    look = look_of(made, style=choice.style, title=choice.title)

    def lines(width: int, coloured: bool) -> list[Text]:
        text_plot = TextPlot(width, unicode=choice.output is not None or is_utf8(), coloured=coloured)
        return text_plot.lines(plot, made.start, made.stop, look)

    if choice.output is None:
        show_lines(lines)
        return
    text = "".join(f"{line.plain.rstrip()}\n" for line in lines(plain_width(), False))
    write_output(choice.output, text.encode("utf-8", "backslashreplace"))
    if session.json:
        from publisher.report import output as report_output  # noqa: PLC0415

        json_object(report_output.json_object(made))


def _page(made: Report, choice: _OutputChoice) -> bytes:
    from publisher.page.html import Choice, report_file  # noqa: PLC0415

    measure: Literal["queue", "cpu"] = "cpu" if made.facts.get("measure") == "cpu" else "queue"
    drawn = Choice(style=choice.style, measure=measure, grid=choice.grid, legend=choice.legend is not False)
    titled = made if choice.title is None else msgspec.structs.replace(made, title=choice.title)
    return report_file(titled, drawn)


def _picture(made: Report, choice: _OutputChoice) -> bytes:
    from publisher.report.plot.draw import draw  # noqa: PLC0415
    from publisher.report.plot.style import is_labelled, look_of  # noqa: PLC0415

    plot = _chosen_plot(made, choice)
    legend = is_labelled(plot) if choice.legend is None else choice.legend
    look = look_of(made, style=choice.style, grid=choice.grid, legend=legend, title=choice.title)
    return draw(plot, made.stop, look, cast("Form", choice.form), start=made.start, say=say)


def _chosen_plot(made: Report, choice: _OutputChoice) -> Plot:
    """The plot that is chosen. Raises `UsageError` if the report does not have it."""
    if not made.plots:
        if made.nothing:
            raise UsageError("there is nothing to draw", hint="Select other jobs, or another interval")
        add = "Add --by KEY, or choose" if VIEW_KINDS[made.view].pictured_by_key else "Choose"
        raise UsageError(f"the view {made.view} has no picture for these options", hint=f"{add} another --format")
    number = 1 if choice.plot is None else choice.plot
    if not 1 <= number <= len(made.plots):
        titles = "; ".join(plot.title for plot in made.plots)
        raise UsageError(f"--plot: the view has {counted(len(made.plots), 'picture')}: {titles}")
    return made.plots[number - 1]


# --- statements


def statements(
    month: Annotated[str, typer.Option("--month", metavar="MONTH", help="Which month: 2026-11.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Write the files into DIR/MONTH.")],
    form: Annotated[
        Literal["all", "text", "html", "pdf"], typer.Option("--format", help="Which files. Default: all.")
    ] = "all",
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="KEY", help="One statement for each user, group, project, account, or vo."),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Read jobs from an archive, not from the store.")
    ] = None,
) -> None:
    """Write the statement of each user or project for a month, as text, HTML, and PDF."""
    from publisher.report.request import ReportRequest  # noqa: PLC0415
    from publisher.report.statements.files import SUFFIXES  # noqa: PLC0415
    from publisher.report.statements.statement import notes_on  # noqa: PLC0415

    begin, end = options.month_window(month, None, None)
    kinds: tuple[Kind, ...] = tuple(SUFFIXES) if form == "all" else (form,)
    request = ReportRequest(start=begin or 0, stop=end or 0, by=(by,) if by else (), archive=archive)
    with session.publisher() as publisher:
        made, files = publisher.statements(request, output, kinds)
    say(*(text for text in (made.nothing, made.purged, made.year_note) if text), *notes_on(made))
    totals = {statement.payer: str(statement.total) for statement in made.all}
    if session.json:
        paths = [str(path) for path in files.paths]
        facts = {
            "month": made.month,
            "currency": made.currency,
            "totals": totals,
            "all": str(made.total),
            "all_of_year": _amount_text(made.year_total),
            "statements": [
                {
                    "payer": one.payer,
                    "amount": str(one.total),
                    "of_year": _amount_text(one.year_total),
                    "users": [{"user": user.user, "amount": str(user.amount)} for user in one.users],
                }
                for one in made.all
            ],
        }
        json_object({**facts, "files": paths, "replaced": files.replaced})
        return
    lines = [(one.payer, one.total, one.year_total) for one in made.all]
    if len(lines) > 1:
        lines.append(("all", made.total, made.year_total))
    for payer, total, year in lines:
        of_year = "" if year is None else f"; since {made.year_start}: {year:,f}"
        say(f"{payer}: {total:,f} {made.currency}{of_year}")
    if not files.paths:
        say("nothing was written")
        return
    earlier = f"; {files.replaced:,} of them replaced earlier files" if files.replaced else ""
    say(f"{counted(len(files.paths), 'file')} written to {output / made.month}{earlier}")


def _amount_text(amount: Decimal | None) -> str | None:
    """An amount in JSON; None: it is unknown, as that of a year of which not every month was closed."""
    return None if amount is None else str(amount)


def focus(
    month: Annotated[str, typer.Option("--month", metavar="MONTH", help="Which month: 2026-11.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Write focus-MONTH.csv or .parquet into it.")],
    form: Annotated[Literal["csv", "parquet"], typer.Option("--format", help="Default: csv.")] = "csv",
    by: Annotated[str | None, typer.Option("--by", metavar="KEY", help="As of `report statements`.")] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Read jobs from an archive, not from the store.")
    ] = None,
) -> None:
    """Write the charges of a month in FOCUS 1.2, for tools of cloud costs: a row for each line of a statement."""
    from publisher.report.request import ReportRequest  # noqa: PLC0415
    from publisher.report.statements.statement import notes_on  # noqa: PLC0415

    if output.suffix in {".csv", ".parquet"} and not output.is_dir():
        hint = f"Name the folder, and write --format {output.suffix[1:]}"
        raise UsageError(f"--output: {output} is the name of a file, and the file has a name of its own", hint=hint)
    begin, end = options.month_window(month, None, None)
    request = ReportRequest(start=begin or 0, stop=end or 0, by=(by,) if by else (), archive=archive)
    with session.publisher() as publisher:
        made, file = publisher.focus(request, output, form)
    say(*(text for text in (made.nothing, made.purged) if text), *notes_on(made))
    if session.json:
        json_object({"month": made.month, "currency": made.currency, "total": str(made.total), "file": str(file)})
    else:
        say(f"{made.total:,f} {made.currency} of {counted(len(made.all), 'payer')} written to {file}")
