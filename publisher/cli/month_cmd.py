"""month: close a month, so that its statements get numbers and stay as they are; list closed months; cancel one."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from publisher.cli import completion
from publisher.cli.command_group import CommandGroup
from publisher.cli.options import Yes, confirm, list_json, month_in
from publisher.cli.output import json_object, say
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.text import counted, iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from formats.calendar import Month
    from publisher.api import Publisher
    from publisher.report.closing import ClosedMonth
    from publisher.report.statements.closed import ClosedStatement
    from publisher.report.statements.statement import Correction

_MONTH = typer.Argument(metavar="MONTH", help="Which month: 2026-11.", autocompletion=completion.months)


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = CommandGroup(help="Close months: numbered statements that stay as they are, and corrections of them.")
    group.command("close")(close)
    group.command("list")(list_)
    group.command("cancel")(cancel)
    app.add_typer(group, name="month")


def close(month: Annotated[str, _MONTH], yes: Yes = False) -> None:
    """Close a month: its statements get numbers and stay as they are. It must be over and completely collected."""
    chosen = month_in(month, "MONTH")
    with session.publisher() as publisher:
        costs = _costs(publisher, chosen)
        confirm(f"Close {chosen}, {costs}? A closed month is not opened again.", yes=yes)
        issued = publisher.close_month(chosen)
    _show_issued(issued)


def _costs(publisher: Publisher, month: Month) -> str:
    """What a month costs now, in words; the notes on its charges are printed, since a closed month stays as it is."""
    from formats.calendar import month_bounds  # noqa: PLC0415
    from publisher.report.request import ReportRequest  # noqa: PLC0415

    start, stop = month_bounds(month)
    report = publisher.view("charges", ReportRequest(start=start, stop=stop))
    say(*report.notes)
    payers = counted(len(report.facts["totals"]), "payer")
    return f"{Decimal(report.facts['all']):,f} {report.facts['currency']} of {payers}"


def cancel(
    month: Annotated[str, _MONTH],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why. Kept in the audit log.")],
    yes: Yes = False,
) -> None:
    """Cancel the statements of a closed month: successors with what is known and configured now name them."""
    chosen = month_in(month, "MONTH")
    with session.publisher() as publisher:
        confirm(f"Cancel the statements of {chosen}, and issue successors?", yes=yes)
        issued = publisher.cancel_month(chosen, reason)
    _show_issued(issued)


def _show_issued(issued: Sequence[ClosedStatement]) -> None:
    if session.json:
        json_object(list_json([_statement_json(statement) for statement in issued], len(issued)))
        return
    _show_statements(issued)
    say(f"{counted(len(issued), 'statement')} issued; `report statements` writes them as files")


def list_(
    month: Annotated[
        str | None, typer.Argument(metavar="MONTH", help="The statements and corrections of this closed month.")
    ] = None,
) -> None:
    """List the closed months with their open corrections; or the statements and open corrections of one."""
    chosen = month_in(month, "MONTH") if month is not None else None
    with session.publisher() as publisher:
        months = [
            closed_month
            for closed_month in publisher.closed_months()
            if chosen is None or closed_month.changes.month == chosen
        ]
    if session.json:
        json_object(list_json([_month_json(one) for one in months], len(months)))
    elif not months:
        say("no month is closed" if chosen is None else f"{chosen} is not closed")
    elif chosen is None:
        rows: list[list[object]] = [
            [
                one.changes.month, iso(one.changes.closing.closed_at), len(one.statements), f"{one.total:,f}",
                f"{one.changes.open_amount:,f}", one.changes.price_list.charges.currency,
                one.changes.closing.digest.hex()[:16],
            ]
            for one in months
        ]  # fmt: skip
        names = ["month", "closed", "statements", "total", "open corrections", "currency", "digest"]
        show_table("", names, rows, right={"statements", "total", "open corrections"})
    else:
        _show_statements(months[0].statements)
        _show_corrections(months[0])


def _show_statements(statements: Sequence[ClosedStatement]) -> None:
    rows: list[list[object]] = [
        [
            issued.statement.number, issued.statement.payer, f"{issued.statement.total:,f}",
            issued.statement.cancels, issued.cancelled_by,
        ]
        for issued in statements
    ]  # fmt: skip
    show_table("", ["number", "payer", "total", "replaces", "cancelled by"], rows, right={"total"})


def _show_corrections(month: ClosedMonth) -> None:
    rows: list[list[object]] = [
        [payer, one.name, f"{one.amount:,f}", one.reason]
        for payer, some in month.changes.corrections.items()
        for one in some
    ]
    if rows:
        show_table("", ["payer", "open correction", "amount", "reason"], rows, right={"amount"})
    else:
        say("no open corrections")


def _month_json(month: ClosedMonth) -> dict[str, Any]:
    changes = month.changes
    return {
        "month": str(changes.month),
        "closed_at": iso(changes.closing.closed_at),
        "currency": changes.price_list.charges.currency,
        "total": str(month.total),
        "open": str(changes.open_amount),
        "digest": changes.closing.digest.hex(),
        "statements": [_statement_json(statement) for statement in month.statements],
        "corrections": [
            {"payer": payer, **_correction_json(one)} for payer, some in changes.corrections.items() for one in some
        ],
    }


def _statement_json(one: ClosedStatement) -> dict[str, Any]:
    return {
        "number": one.statement.number,
        "month": str(one.month),
        "payer": one.statement.payer,
        "total": str(one.statement.total),
        "corrections": [_correction_json(correction) for correction in one.statement.corrections],
        "cancels": one.statement.cancels or None,
        "cancelled_by": one.cancelled_by or None,
    }


def _correction_json(one: Correction) -> dict[str, Any]:
    amount: Decimal = one.amount
    counts = {"late": one.late, "changed": one.changed, "vanished": one.vanished}
    return {"month": one.month, "item": one.item.name if one.item else None, "amount": str(amount), **counts}
