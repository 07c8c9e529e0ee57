"""reconcile: compare what was sent with what the services have, and send again what they lack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from publisher.cli import completion, exit_code, options
from publisher.cli.options import All, limit_of, say_if_cut
from publisher.cli.output import data, json_object, result_json, say
from publisher.cli.publish_cmd import delivered_json, error_json, said, show_delivered, status_after
from publisher.cli.recorded import recorded
from publisher.cli.session import session
from publisher.cli.sums_view import show_sums, sums_json, write_csv
from publisher.cli.table import level_text, show_table
from publisher.errors import UsageError
from publisher.text import counted, iso, safe

if TYPE_CHECKING:
    from formats.calendar import Month
    from publisher.reconcile.reconcile import Reconciliation
    from publisher.reconcile.result import Difference, Found, MonthFound

_LISTED: Final = 1000
_ALL_TAKEN: Final = (
    "no message is in the directory any more. Use --file, or set `evidence` of the target, with an export of what the "
    "service has"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reconcile")(reconcile)


def reconcile(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="Names of targets. Default: all.", autocompletion=completion.targets),
    ] = None,
    month: Annotated[
        list[str] | None,
        typer.Option(
            "--month",
            metavar="MONTH",
            help="A month, such as 2026-11; may be repeated. Default: the last two.",
            autocompletion=completion.months,
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", metavar="FILE", help="CSV or JSON export of the service of one target; may be repeated."
        ),
    ] = None,
    resend: Annotated[bool, typer.Option("--resend", help="Send again what the service lacks.")] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Record as delivered what the service has and this store never sent.",
        ),
    ] = False,
    yes: options.Yes = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="The first N differences of each target. Default: 1000."),
    ] = None,
    show_all: All = False,
    source: Annotated[
        bool,
        typer.Option(
            "--source", help="Read the sources again, and compare the sums of source, store, sent, and service."
        ),
    ] = False,
    by: Annotated[
        Literal["vo", "user"] | None, typer.Option("--by", help="With --source: also by VO or by user.")
    ] = None,
    with_tool: Annotated[
        bool, typer.Option("--with-tool", help="With --source: ask qacct, sacct, or arcctl as well.")
    ] = False,
    form: Annotated[
        Literal["table", "csv"], typer.Option("--format", help="With --source: print the sums as CSV.")
    ] = "table",
) -> None:
    """Compare what was sent with what the services have, for whole months, and confirm what they have."""
    most = limit_of(limit, _LISTED, show_all=show_all)
    if not source and (by is not None or with_tool or form != "table"):
        raise UsageError("--by, --with-tool, and --format need --source")
    if session.json:
        form = "table"
    chosen = months_of(month or (), since, until)
    with (
        session.publisher() as publisher,
        recorded(publisher, "reconcile") as recording,
        publisher.reconcile(targets or (), chosen, file or ()) as found,
    ):
        answer: dict[str, Any] = {"targets": {name: _target_json(found, name, most) for name in found.targets}}
        conserved = publisher.conservation(found, by, with_tool=with_tool) if source else None
        if conserved is not None and form == "csv":
            write_csv(conserved)
        elif conserved is not None and not session.json:
            show_sums(conserved)
        if not session.json and form == "table":
            for name in found.targets:
                _show_target(found, name, most)
        taken_over = publisher.take_over_found(found, _evidence_text(file or ())) if take_over else {}
        delivered = {}
        again = sum(target.again_jobs + target.again_groups for target in found.targets.values())
        if resend and again:
            _confirm(found, yes=yes)
            delivered = publisher.send_missing(found)
        status, problem = status_after(publisher)
        agrees = all(target.agrees for target in found.targets.values())
        if conserved is not None:
            answer["sums"] = sums_json(conserved)
        closed = bool(delivered) and not any(target.others for target in found.targets.values())
        # of targets that were not named, it is only said
        compared_nothing = bool(targets) and any(target.compared_nothing for target in found.targets.values())
        refused = any(target.unauthorised for target in found.targets.values())
        resent_json = delivered_json(delivered, status) if delivered else {}
        more = {"agrees": found.agrees, "resent": resent_json, "taken_over": taken_over} | error_json(problem)
        recording.done = {"targets": {name: _recorded(one) for name, one in answer["targets"].items()}} | more
        if session.json:
            json_object(answer | more)
        elif delivered and not session.quiet:
            show_delivered(delivered, status)
            say("Run reconcile again in a few minutes: services count accepted records with a delay")
        elif not resend and any(month.missing for target in found.targets.values() for month in target.months):
            say("`--resend` sends again what is missing, under the same ids")
        _say_taken_over(taken_over)
        resent = exit_code.of_run((), delivered, None, contexts=publisher.written_contexts())
        agrees = (agrees or closed) and (conserved is None or conserved.agrees)
        agrees = agrees and not any(target.counted_twice for target in found.targets.values())
        code = _code(agrees=agrees, refused=refused, resent=resent)
        if compared_nothing and code == exit_code.DONE:
            code = exit_code.USAGE
        raise typer.Exit(said(problem, code))


def _recorded(target: dict[str, Any]) -> dict[str, Any]:
    """Of the answer about a target, what the history keeps: without its differences, which may be many."""
    return {
        key: value for key, value in target.items() if key == "counted_twice" or not isinstance(value, list | tuple)
    }


def _say_taken_over(jobs_by_target: dict[str, int]) -> None:
    for name, jobs in jobs_by_target.items():
        if not session.json:
            say(f"{name}: {counted(jobs, 'job')} recorded as delivered; what else waits there will be sent")


def _evidence_text(files: Sequence[Path]) -> str:
    return f"they are in {', '.join(map(str, files))}" if files else "the service has them"


def _code(*, agrees: bool, refused: bool, resent: int) -> int:
    """Refused credentials first, then the result of sending again, then whether everything agrees."""
    if refused:
        return exit_code.CREDENTIALS
    if resent != exit_code.DONE:
        return resent
    return exit_code.DONE if agrees else exit_code.WAITING


def months_of(named: Sequence[str], since: str | None, until: str | None) -> list[Month] | None:
    """The months that are named, each once, in order; None: none is named. Raises `UsageError`."""
    from formats.calendar import months_between  # noqa: PLC0415

    if named:
        if since is not None or until is not None:
            raise UsageError("--month cannot be combined with --since or --until")
        return sorted({options.month_in(text, "--month") for text in named})
    begin, end = options.window_bounds(since, until)
    if begin is None and end is None:
        return None
    if begin is None:
        raise UsageError("--until needs --since", hint="Name the first month with --since")
    return months_between(begin, options.now() if end is None else end)


def _confirm(found: Reconciliation, *, yes: bool) -> None:
    for name, one in found.targets.items():
        if one.again_jobs or one.again_groups:
            jobs, groups = counted(one.again_jobs, "job"), counted(one.again_groups, "group")
            say(f"{name}: {jobs} and {groups} will be sent again")
    options.confirm("Send them?", yes=yes, hint="Add --yes, or omit --resend to see the differences only")


# --- as JSON


def _target_json(found: Reconciliation, name: str, limit: int | None) -> dict[str, Any]:
    one = found.targets[name]
    differences = [_difference_json(item) for item in found.differences(name, limit)]
    return {
        **result_json(one, *_NOT_SHOWN),
        "agrees": one.agrees,
        "months": {str(month.month): _month_json(month) for month in one.months},
        "to_resend": {"jobs": one.again_jobs, "groups": one.again_groups},
        "differences_total": found.count_differences(name),
        "differences_shown": len(differences),
        "differences": differences,
    }


_NOT_SHOWN: Final = (
    "target", "keeps_first", "unauthorised", "again_jobs", "again_groups", "delivered_jobs", "too_recent",
)  # fmt: skip


def _month_json(month: MonthFound) -> dict[str, Any]:
    at_service = ("service_jobs", "service_wall_s", "service_cpu_s", "counts_jobs")
    return {
        **{state.word: jobs for state, jobs in month.states.items()},
        **result_json(month, "month", "states", "is_done", *at_service),
        "at_service": month.at_service,
    }


def _difference_json(item: Difference) -> dict[str, Any]:
    return result_json(item) | {"month": None if item.month is None else str(item.month)}


# --- for people


def _show_target(found: Reconciliation, name: str, limit: int | None) -> None:
    from publisher.reconcile.reconcile import EVIDENCE  # noqa: PLC0415

    one = found.targets[name]
    if one.busy:
        say(f"{name}: another run is sending to this target. Try again when it has finished")
        return
    wall = "core h" if any(month.per_core for month in one.months) else "wall h"
    columns = [
        "month", "sent", wall, "CPU h", "at service", wall, "CPU h", "confirmed", "missing", "foreign", "other values",
        "other hours", "",
    ]  # fmt: skip
    rows: list[list[object]] = [_row(month) for month in one.months]
    show_table(f"{name}: by {EVIDENCE[one.evidence].words}", columns, rows, right=set(columns[1:-1]))
    if one.unavailable is not None:
        say(f"{name}: nothing was confirmed: {one.unavailable}")
    elif one.compared_nothing:
        say(f"{name}: nothing was compared: {_ALL_TAKEN}")
    if one.compared and not {"wall", "cpu", "sync", "amounts"} & set(one.compared):
        say(f"{name}: confirmed by numbers of jobs alone: the evidence has no wall or CPU time")
    elif one.evidence == "file" and one.compared:
        say(f"{name}: compared: {', '.join(one.compared)}")
    for sentence in (*one.counted_twice, *one.notes):
        say(f"{name}: {sentence}")
    for machine, at in one.registered.items():
        data(safe(f"{machine}: the service last accepted records at {iso(at)}"))
    _show_differences(found, name, limit)


def _row(month: MonthFound) -> list[object]:
    known = month.service_jobs is not None
    if month.purged:
        remark = level_text("yellow", "purged: what was sent is unknown")
    elif not known:
        remark = level_text("yellow", "receipts only")
    elif month.totals_open and not (month.missing or month.differing or month.foreign):
        remark = level_text("yellow", f"{counted(month.totals_open, 'total')} not taken, or not sent yet")
    elif not month.agrees:
        remark = level_text("red", "differs")
    elif month.states_open:
        remark = level_text("yellow", f"{month.states_open} not sent yet")
    else:
        remark = level_text("green", "agrees")
    sent = [month.month, month.sent.jobs, _hours(month.sent.wall_s), _hours(month.sent.cpu_s)]
    if not known:  # receipts show what is missing; they confirm nothing
        return [*sent, "", "", "", "", month.missing, "", "", "", remark]
    there: list[object] = [month.service_jobs, _hours(month.service_wall_s), _hours(month.service_cpu_s)]
    if not month.counts_jobs:
        there = ["", "", ""]
    return [
        *sent, *there,
        month.confirmed, month.missing, month.foreign, month.differing - month.other_hours, month.other_hours, remark,
    ]  # fmt: skip


def _hours(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / 3600:.1f}"


def _show_differences(found: Reconciliation, name: str, limit: int | None) -> None:
    items = list(found.differences(name, limit))
    if not items:
        return
    rows: list[list[object]] = [[item.month or "", item.kind, item.record, item.detail] for item in items]
    show_table("", ["month", "difference", "record or group", "detail"], rows)
    say_if_cut(len(items), found.count_differences(name), "first", of=name)
    for line in _advice(found.targets[name], items):
        say(line)


def _advice(one: Found, items: Sequence[Difference]) -> list[str]:
    kinds = {item.kind for item in items}
    advice = []
    if "superseded" in kinds:
        advice += [
            f"{one.target}: superseded jobs changed after the service accepted them; it keeps the first version",
            "Show one:",
            "  usage-publisher jobs RECORD",
            "Accept the difference, with a reason:",
            f"  usage-publisher records waive RECORD --state superseded --target {one.target} --reason TEXT",
            "Or have the service's administrator remove its version, and send the current one:",
            f"  usage-publisher records retry RECORD --state superseded --target {one.target}",
        ]
    if kinds & {"differs", "hours"}:
        advice += _advice_on_values(one)
    if "foreign" in kinds:
        advice.append(
            f"{one.target}: foreign records were not sent from this store: does another publisher send for this site?"
        )
    return advice


def _advice_on_values(one: Found) -> list[str]:
    """What helps where the service has other values than were sent."""
    if one.keeps_first:
        return [
            f"{one.target}: the service keeps the first version of a record: sending again does not change its values",
            "Ask the service's administrator what it has of these jobs, and to remove the records that are wrong",
            "What was removed is missing in the next `reconcile`, which then says how to send it",
        ]
    if one.evidence == "totals" and one.again_groups:
        return [
            f"{one.target}: `--resend` does not replace what another program wrote: stop that program, then set",
            f"targets.{one.target}.replaces_until, and send again",
        ]
    if one.again_jobs or one.again_groups:
        return [
            f"{one.target}: `--resend` replaces what differs",
            "Where it differs again after that, another publisher sends records with the same keys: find out which",
        ]
    return []
