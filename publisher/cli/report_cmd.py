"""report: utilization, and totals as qacct gives them."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from publisher.cli import when
from publisher.cli.output import data, json_object, make_table, safe, say, show
from publisher.cli.session import session
from publisher.errors import PublisherError, UsageError
from publisher.times import iso

if TYPE_CHECKING:
    from publisher.report.reports import Total, Totals, Utilization

_LAST_DAYS_S = 30 * 86_400


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def _pattern(key: str, what: str) -> Any:
    return typer.Option(f"--{key}", metavar="PATTERN", help=what)


def report(
    view: Annotated[Literal["utilization", "totals"], typer.Option("--view", help="What is reported.")] = "utilization",
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start (inclusive). Default: 30 days before the end.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Stop (exclusive). Default: now.")
    ] = None,
    bin_: Annotated[str | None, typer.Option("--bin", metavar="DURATION", help="Size of the bins; default 1h.")] = None,
    bins: Annotated[int | None, typer.Option("--bins", metavar="N", help="Number of the bins instead.")] = None,
    measure: Annotated[Literal["queue", "cpu"], typer.Option("--measure", help="What the table shows.")] = "queue",
    by: Annotated[
        str, typer.Option("--by", metavar="KEY[,KEY]", help="Totals by host, queue, group, owner, project, month ...")
    ] = "",
    queue: Annotated[str | None, _pattern("queue", "Only of these queues, with * and ? as in names of files.")] = None,
    host: Annotated[str | None, _pattern("host", "Only on these hosts.")] = None,
    complex_: Annotated[str | None, _pattern("complex", "Only of queues with such a resource (DQS).")] = None,
    group: Annotated[str | None, _pattern("group", "Only of these groups.")] = None,
    owner: Annotated[str | None, _pattern("owner", "Only of these users.")] = None,
    job: Annotated[str | None, _pattern("job", "Only jobs of such an id or name.")] = None,
    vo: Annotated[str | None, _pattern("vo", "Only of these VOs.")] = None,
    project: Annotated[str | None, _pattern("project", "Only of these projects.")] = None,
    account: Annotated[str | None, _pattern("account", "Only on these accounts.")] = None,
    department: Annotated[str | None, _pattern("department", "Only of these departments.")] = None,
    status: Annotated[str | None, _pattern("status", "Only those that ended so: completed, failed ...")] = None,
    pe: Annotated[str | None, _pattern("pe", "Only in these parallel environments.")] = None,
    slots: Annotated[str | None, _pattern("slots", "Only with so many slots.")] = None,
    form: Annotated[Literal["table", "csv", "json", "md"], typer.Option("--format", help="Form.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write it here.")] = None,
) -> None:
    """Queue and CPU utilization as DQS measures them, or totals as qacct gives them, of the runs that match."""
    from publisher.report.request import ReportRequest  # noqa: PLC0415

    given = {
        "queue": queue, "host": host, "complex": complex_, "group": group, "owner": owner, "job": job, "vo": vo,
        "project": project, "account": account, "department": department, "status": status, "pe": pe, "slots": slots,
    }  # fmt: skip
    stop = when.moment(until, "--until")
    stop = int(time.time()) if stop is None else stop
    start = when.moment(from_, "--from")
    request = ReportRequest(
        start=stop - _LAST_DAYS_S if start is None else start,
        stop=stop,
        filters={key: pattern for key, pattern in given.items() if pattern is not None},
        bin_s=_bin_s(bin_),
        bins=bins,
        measure=measure,
        by=tuple(key.strip() for key in by.split(",")) if by else (),
    )
    with session.publisher() as publisher:
        made = publisher.report(request) if view == "utilization" else publisher.totals(request)
    shown = _Shown(made, request.start, request.stop)
    if made.nothing:
        say(made.nothing)
    chosen = "json" if session.json and form == "table" else form
    if output is None and chosen == "json":
        json_object(shown.object)
    elif output is None and chosen == "table":
        show(make_table("", shown.columns, shown.rows, right=set(shown.columns[shown.texts :])))
    elif output is None:
        data(_text(shown, chosen))
    else:
        _write(output, _text(shown, chosen))
        if session.json:
            json_object(shown.object)


def _bin_s(text: str | None) -> int | None:
    if text is None:
        return None
    size_s = float(text) if text.isascii() and text.isdecimal() else when.seconds(text, "--bin")
    if size_s < 1 or size_s != int(size_s):
        raise UsageError("--bin: a bin is a whole number of seconds, at least one")
    return int(size_s)


class _Shown:
    """A report in columns and rows, the first `texts` of them text, and as the object for programs."""

    def __init__(self, made: Utilization | Totals, start: int, stop: int) -> None:
        from publisher.report.reports import Utilization  # noqa: PLC0415

        self.columns: list[str]
        self.rows: list[list[Any]]
        self.texts: int
        self.object: dict[str, Any]
        if isinstance(made, Utilization):
            self._utilization(made)
        else:
            self._totals(made, start, stop)

    def _utilization(self, made: Utilization) -> None:
        from formats.utilization_report import builtins  # noqa: PLC0415

        told = builtins(made.report)
        names = ["queue", "slots"] if made.report.measure == "queue" else ["cpu_user", "cpu_system"]
        names += [f"{name}_mean" for name in names]
        self.texts = 1
        self.columns = ["start", *names, "jobs"]
        self.rows = [[one["start"], *(f"{one[name]:.4f}" for name in names), one["jobs"]] for one in told["bins"]]
        self.object = {"view": "utilization", **told, "jobs": made.jobs, "jobs_of_no_length": made.zero_length}

    def _totals(self, made: Totals, start: int, stop: int) -> None:
        self.texts = len(made.by)
        self.columns = [*made.by, "jobs", "wall_s", "cpu_user_s", "cpu_system_s", "cpu_s", "memory_max_kib"]
        rows = made.rows if made.by else (made.all,)
        self.rows = [[*row.key, *_amounts(row).values()] for row in rows]
        self.object = {
            "view": "totals",
            "start": iso(start),
            "stop": iso(stop),
            "by": list(made.by),
            "totals": [{**dict(zip(made.by, row.key, strict=True)), **_amounts(row)} for row in made.rows],
            "all": _amounts(made.all),
        }


def _amounts(row: Total) -> dict[str, int | float]:
    return {
        "jobs": row.jobs,
        "wall_s": row.wall_ms / 1000,
        "cpu_user_s": row.cpu_user_ms / 1000,
        "cpu_system_s": row.cpu_system_ms / 1000,
        "cpu_s": row.cpu_ms / 1000,
        "memory_max_kib": row.memory_max_kib,
    }


def _text(shown: _Shown, form: str) -> str:
    if form == "json":
        import json  # noqa: PLC0415

        return json.dumps(shown.object, indent=2) + "\n"
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([shown.columns, *shown.rows])
        return text.getvalue()
    rules = ["---" if place < shown.texts else "---:" for place in range(len(shown.columns))]
    lines: list[list[Any]] = [shown.columns, rules, *shown.rows]
    return "".join("| " + " | ".join(safe(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise PublisherError(f"{file} cannot be written: {error.strerror}") from error
