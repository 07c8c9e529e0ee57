"""report: utilization, totals, occupation, waiting and the other views, in every form."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from publisher.cli import when
from publisher.cli.output import exact, json_object, make_table, safe, say, show, write_output
from publisher.cli.report_pictures import PICTURED, Drawn, give_picture, require_drawn
from publisher.cli.session import session
from publisher.errors import UsageError

if TYPE_CHECKING:
    from publisher.report.report import Report
    from publisher.report.request import ReportRequest

_LAST_DAYS_S = 30 * 86_400


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def _pattern(key: str, what: str) -> Any:
    return typer.Option(f"--{key}", metavar="PATTERN", help=what)


ViewName = Literal[
    "utilization", "totals", "occupation", "waiting", "scarce", "charges", "paths", "load", "job"
]  # fmt: skip


def report(
    view: Annotated[ViewName, typer.Option("--view", help="What is reported.")] = "utilization",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Start (inclusive). Default: 30 days before the end.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Stop (exclusive). Default: now.")
    ] = None,
    days: Annotated[int | None, typer.Option("--days", metavar="N", help="The N days before the end instead.")] = None,
    month: Annotated[str | None, typer.Option("--month", metavar="MONTH", help="A whole month: 2026-11.")] = None,
    bin_: Annotated[str | None, typer.Option("--bin", metavar="DURATION", help="Size of the bins; default 1h.")] = None,
    bins: Annotated[int | None, typer.Option("--bins", metavar="N", help="Number of the bins instead.")] = None,
    measure: Annotated[
        Literal["queue", "cpu"] | None, typer.Option("--measure", help="What the table shows; default queue.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="KEY[,KEY]", help="Told apart by host, queue, group, owner, month, node ...")
    ] = "",
    counted: Annotated[
        Literal["overlapping", "started", "ended"] | None,
        typer.Option("--counted", help="Runs of which a part lies in the interval, or that started or ended in it."),
    ] = None,
    period: Annotated[
        Literal["day", "week", "month", "year"] | None, typer.Option("--period", help="Of occupation; default month.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="In which days and months begin; default UTC.")
    ] = None,
    resource: Annotated[
        Literal["cores", "memory", "vmem", "gpus"] | None,
        typer.Option("--resource", help="Of occupation; default cores."),
    ] = None,
    queue: Annotated[str | None, _pattern("queue", "Only of these queues, with * and ? as in names of files.")] = None,
    host: Annotated[str | None, _pattern("host", "Only on these hosts.")] = None,
    complex_: Annotated[str | None, _pattern("complex", "Only with such a resource (DQS, Grid Engine).")] = None,
    group: Annotated[str | None, _pattern("group", "Only of these groups.")] = None,
    owner: Annotated[str | None, _pattern("owner", "Only of these users.")] = None,
    job: Annotated[str | None, _pattern("job", "Only jobs of such an id or name.")] = None,
    task: Annotated[str | None, _pattern("task", "Only these array tasks; also 1-10:2.")] = None,
    vo: Annotated[str | None, _pattern("vo", "Only of these VOs.")] = None,
    project: Annotated[str | None, _pattern("project", "Only of these projects.")] = None,
    account: Annotated[str | None, _pattern("account", "Only on these accounts.")] = None,
    department: Annotated[str | None, _pattern("department", "Only of these departments.")] = None,
    status: Annotated[str | None, _pattern("status", "Only those that ended so: completed, failed ...")] = None,
    pe: Annotated[str | None, _pattern("pe", "Only in these parallel environments.")] = None,
    slots: Annotated[str | None, _pattern("slots", "Only with so many slots.")] = None,
    cluster: Annotated[str | None, _pattern("cluster", "Only of these clusters.")] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Read runs from an archive, not from the store.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Let a Dask cluster read the archive: its scheduler's address."),
    ] = None,
    stat_file: Annotated[
        Path | None, typer.Option("--stat-file", metavar="FILE", help="Samples for the view load.")
    ] = None,
    form: Annotated[
        Literal["table", "csv", "json", "md", "png", "svg", "pdf", "ps", "html"],
        typer.Option("--format", help="Form: text, a picture, or a page that needs nothing else."),
    ] = "table",
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write it here.")] = None,
    style: Annotated[
        Literal["line", "bar"] | None, typer.Option("--style", help="Of pictures over time: lines or bars.")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="A grid in the picture.")] = False,
    legend: Annotated[
        bool | None, typer.Option("--legend/--no-legend", help="Default: where there is something to tell apart.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the picture or page.")] = None,
    plot: Annotated[
        int | None, typer.Option("--plot", metavar="N", help="Which picture, where a view has several; default 1.")
    ] = None,
) -> None:
    """How the site was used: utilization as DQS measures it, totals as qacct gives them, occupation, waiting ..."""
    from publisher.report.request import ReportRequest, require_taken  # noqa: PLC0415

    patterns = _given({
        "queue": queue, "host": host, "complex": complex_, "group": group, "owner": owner, "job": job, "task": task,
        "vo": vo, "project": project, "account": account, "department": department, "status": status, "pe": pe,
        "slots": slots, "cluster": cluster,
    })  # fmt: skip
    chosen = _given({"measure": measure, "period": period, "zone": zone, "resource": resource})
    others = _given({"bin": bin_, "bins": bins, "counted": counted, "archive": archive, "dask": dask,
                     "stat-file": stat_file, "by": by or None})  # fmt: skip
    keys = tuple(key.strip() for key in by.split(",")) if by else ()
    require_taken(view, [*others, *chosen, *patterns], keys)
    drawn = Drawn(style=style, grid=grid, legend=legend, title=title, plot=plot)
    require_drawn(form, drawn)
    start, stop = _interval(since, until, days, month)
    request = ReportRequest(
        start=start,
        stop=stop,
        filters=patterns,
        bin_s=_bin_s(bin_),
        bins=bins,
        by=keys,
        interval=counted,
        archive=archive,
        dask=dask,
        stat_file=stat_file,
        **chosen,
    )
    made = _made(view, request)
    if form not in PICTURED:
        _give(made, form, output)
        return
    if made.nothing:
        say(made.nothing)
    say(*made.notes)
    give_picture(made, form, drawn, output)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _made(view: str, request: ReportRequest) -> Report:
    with session.publisher() as publisher:
        return publisher.view(view, request)


def _give(made: Report, form: str, output: Path | None) -> None:
    """Print a report or write it to a file; what a reader must know goes to standard error."""
    from publisher.report import output as report_output  # noqa: PLC0415

    if made.nothing:
        say(made.nothing)
    chosen = "json" if session.json and form == "table" else form
    if chosen not in {"json", "md"} or output is not None:
        say(*made.notes)
    if output is not None:
        write_output(output, _text(made, chosen).encode("utf-8", "backslashreplace"))
        if session.json:
            json_object(report_output.json_object(made))
    elif chosen == "json":
        json_object(report_output.json_object(made))
    elif chosen == "table" and made.nothing is None:
        columns = report_output.shown_columns(made)
        names = [report_output.heading(column) for column in columns]
        right = {name for name, column in zip(names, columns, strict=True) if not report_output.is_text(column)}
        show(make_table("", names, [list(row) for row in report_output.text_rows(made)], right=right))
    elif chosen != "table":
        exact(_text(made, chosen))


def _text(made: Report, form: str) -> str:
    from publisher.report import output as report_output  # noqa: PLC0415

    if form == "json":
        return report_output.to_json(made)
    if form == "csv":
        return report_output.to_csv(made)
    if form == "md":
        return report_output.to_markdown(made)
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


def _interval(since: str | None, until: str | None, days: int | None, month: str | None) -> tuple[int, int]:
    """Start and stop of what is asked for. Raises `UsageError`."""
    if month is not None:
        if since is not None or until is not None or days is not None:
            raise UsageError("--month is a whole month", hint="Leave --since, --until and --days away")
        from formats.calendar import month_bounds, month_of  # noqa: PLC0415

        at = when.moment(month, "--month")
        return month_bounds(month_of(at or 0))
    stop = when.moment(until, "--until")
    stop = int(time.time()) if stop is None else stop
    start = when.moment(since, "--since")
    if days is not None:
        if start is not None:
            raise UsageError("--days and --since exclude each other", hint="Give the number of days or the start")
        if days < 1:
            raise UsageError("--days: there must be at least one day")
        start = stop - days * 86_400
    return stop - _LAST_DAYS_S if start is None else start, stop


def _bin_s(text: str | None) -> int | None:
    if text is None:
        return None
    size_s = when.seconds(text, "--bin")
    if size_s < 1 or size_s != int(size_s):
        raise UsageError("--bin: a bin is a whole number of seconds, at least one")
    return int(size_s)
