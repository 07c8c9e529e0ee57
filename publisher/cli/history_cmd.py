"""history: runs of the program, and what each did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from publisher.cli.options import All, limit_of, list_json, say_if_cut
from publisher.cli.output import data, json_object, say
from publisher.cli.session import session
from publisher.cli.table import level_text, show_table
from publisher.errors import UsageError
from publisher.text import iso, safe

if TYPE_CHECKING:
    from rich.text import Text

    from publisher.status.run_summary import RunSummary, SourceWork, TargetWork
    from publisher.store.history import ProgramRun

_SHOWN: Final = 20
_GRAVE: Final = frozenset({2, 4, 5, 6})
"""The exit codes after which nothing more happens until somebody has acted."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("history")(history)


def history(
    run: Annotated[int | None, typer.Argument(metavar="ID", help="Number of a run, which is shown in full.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="The newest N. Default: 20.")] = None,
    show_all: All = False,
) -> None:
    """List the runs that collect, send, or reconcile, newest first: when, the exit code, and what each did."""
    most = limit_of(limit, _SHOWN, show_all=show_all)
    with session.publisher() as publisher:
        if run is not None:
            recorded = publisher.history.of_id(run)
            if recorded is None:
                raise UsageError(f"run {run} is not in the history", hint="`usage-publisher history` lists the runs")
            runs, total = [recorded], 1
        else:
            runs, total = publisher.history.newest(most), publisher.history.count()
    if session.json:
        json_object(list_json([run_json(each) for each in runs], total))
    elif run is not None:
        _show(runs[0])
    elif runs:
        _list(runs)
        say_if_cut(len(runs), total, "newest")
    else:
        say(publisher.missing or "nothing ran yet")


def run_json(run: ProgramRun) -> dict[str, Any]:
    """A run, for `--json`."""
    from publisher.status.run_summary import summary_of  # noqa: PLC0415

    summary = summary_of(run)
    return {
        "id": run.id,
        "command": run.command,
        "host": run.host,
        "began": iso(run.began_at),
        "ended": iso(run.ended_at),
        "exit_code": run.exit_code,
        "readable": run.damage is None,
        "error": summary.problem,
        "findings": summary.findings,
        "sources": {source.name: _work_json(source) for source in summary.sources},
        "targets": {target.name: _work_json(target) for target in summary.targets},
    }


def _work_json(work: SourceWork | TargetWork) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(work).items() if name != "name"}


def _list(runs: list[ProgramRun]) -> None:
    from publisher.status.run_summary import LISTED, summary_of  # noqa: PLC0415

    columns = ["run", "began", "took", "command", "new jobs", *LISTED, "result"]
    rows = [
        [
            summary.run.id, iso(summary.run.began_at), summary.took, summary.run.command, summary.new,
            *(summary.total(name) for name in LISTED), _result(summary),
        ]
        for summary in map(summary_of, runs)
    ]  # fmt: skip
    show_table("Runs of the program", columns, rows, right={"run", "new jobs", *LISTED})
    if any(run.exit_code or any(summary_of(run).errors) for run in runs):
        data("`usage-publisher history RUN` shows one in full, with its errors")


def _result(summary: RunSummary) -> Text:
    code = None if summary.run.damage else summary.run.exit_code
    return level_text("green" if code == 0 else "red" if code in _GRAVE else "yellow", summary.result)


def _show(run: ProgramRun) -> None:
    from publisher.status.run_summary import summary_of  # noqa: PLC0415

    summary = summary_of(run)
    facts: list[list[object]] = [
        ["command", run.command], ["host", run.host], ["began", iso(run.began_at)], ["ended", iso(run.ended_at)],
        ["took", summary.took], ["result", _result(summary)],
    ]  # fmt: skip
    show_table(f"Run {run.id}", ["fact", "value"], facts)
    for table in summary.tables:
        rows = [[row.name, *row.cells, row.error] for row in table.rows]
        show_table(table.title, [table.what, *table.numbers, "error"], rows, right={*table.numbers})
    if summary.problem:
        data(safe(f"Error: {summary.problem}"))
    for finding in summary.findings:
        data(safe(finding))
