"""View `charges`: the charges of users or projects for a month, item by item.

A run is charged as a whole in the month in which it ended. For each resource the charge is the amount held of nodes
of a class, times the wall time, times the price of the class, times a factor for the group and one for the kind of
job (Li, Yang, Wu 2016, section 2.1). Usage is in whole numbers (amount times milliseconds), prices and factors are
decimals. Only the amount of each item is rounded, once: half away from zero, to the decimals of the currency. The
total of a statement is the sum of its rounded items and its adjustments, so it differs from the unrounded sum by at
most half a unit of the last decimal for each item. An item that rounds to zero is not a line, but is named below the
statement; an item whose price or factor is zero is a line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final

import msgspec

from formats.calendar import Month, month_bounds, month_of
from publisher.config.reports import Charges
from publisher.errors import UsageError
from publisher.report.calendar import month_in, zone_of
from publisher.report.held_amounts import rounded
from publisher.report.inventory import INFERRED
from publisher.report.met import Met
from publisher.report.ranking import order_of
from publisher.report.report import EVERYONE, UNKNOWN_NAME, Cell, Column, Plot, Report, Series, others
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, purged_note
from publisher.report.statements.closed import PriceList, closed_price_list, closed_statements
from publisher.report.statements.items import (
    UNIT_MS,
    UNITS,
    itemised,
    lost_runs,
    user_charges,
)
from publisher.report.statements.statement import (
    Adjusted,
    Statement,
    Statements,
    notes_on,
)
from publisher.report.view_kind import CHARGES
from publisher.report.views.charging import ChargedUsage, charged_usage, priced
from publisher.report.views.energy import energy_by
from publisher.text import counted

CURRENCY_DECIMALS: Final = {
    "BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0,
    "UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
    "BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}  # fmt: skip
"""Of the currencies of ISO 4217 that do not have two."""


def statements(context: ReportContext, request: ReportRequest) -> Statements:
    """The statements of a month, with the totals since the beginning of its year; of a closed month, those that were
    issued. Raises as `month_charges`."""
    if (issued := closed_statements(context, request)) is not None:
        return issued
    made = month_charges(context, request)
    month = month_of(request.start)
    energy = energy_lines(context, request, made)
    year: dict[str, Decimal] = {statement.payer: statement.total for statement in made.all}
    for number in range(1, month.month):
        start, stop = month_bounds(Month(month.year, number))
        for statement in month_charges(context, msgspec.structs.replace(request, start=start, stop=stop)).all:
            year[statement.payer] = year.get(statement.payer, Decimal(0)) + statement.total
    earlier = msgspec.structs.replace(request, start=month_bounds(Month(month.year, 1))[0], stop=request.start)
    purged = purged_note(context.purged(earlier)) if month.month > 1 else ""
    return msgspec.structs.replace(
        made,
        all=tuple(
            msgspec.structs.replace(statement, year_total=year[statement.payer], energy=energy.get(statement.payer, ""))
            for statement in made.all
        ),
        year_total=sum(year.values(), Decimal(0)),
        year_note=purged and f"In the total since {made.year_start}: {purged[0].lower()}{purged[1:]}",
    )


def month_charges(
    context: ReportContext, request: ReportRequest, price_list: PriceList | None = None
) -> Statements:  # fmt: skip
    """The statements of a month. The interval must be a UTC month; it means that month in the configured `timezone`.

    `price_list` None: that of the configuration, or with which the month was closed. Raises `UsageError`.
    """
    month = month_of(request.start)
    if (request.start, request.stop) != month_bounds(month):
        raise UsageError("charges are made for a whole month", hint="Name it with --month, such as --month 2026-11")
    request.require_keys(CHARGES)
    price_list = price_list or closed_price_list(context, request) or PriceList.of(context.config)
    settings = price_list.charges
    start, stop = month_in(month, zone_of(settings.timezone))
    request = msgspec.structs.replace(request, start=start, stop=stop)
    if not settings.prices:
        raise UsageError("the configuration has no price list", hint="Add [[charges.prices]] to it")
    by = request.by[0] if request.by else settings.by
    charged, met = ChargedUsage(), Met()
    nothing = None
    for resource in priced(settings):
        of_resource = charged_usage(context, msgspec.structs.replace(request, interval=None), price_list, by, resource)
        charged.add(of_resource.made)
        met.add(of_resource.met)
        nothing = of_resource.met.nothing()
    lines = itemised(settings, charged.usage)
    lost = lost_runs(settings, charged.lost_usage, charged.lost_runs)
    users = {} if by == "user" else user_charges(settings, charged.users)
    adjusted = _adjusted(settings, by, month, request)
    made_statements = tuple(
        Statement(payer, items, tuple(adjusted.get(payer, ())), left_out, lost.get(payer), users.get(payer, ()))
        for payer in sorted(lines.keys() | adjusted.keys())
        for items, left_out in [lines.get(payer, ((), ()))]
    )
    return Statements(
        month=str(month),
        start=start,
        stop=stop,
        site=context.config.site.name,
        by=by,
        currency=settings.currency,
        decimals=settings.decimals,
        all=made_statements,
        price_notes=(
            *_unpriced(charged),
            *_doubts(settings, by, lines.keys(), [payer for payer in adjusted if payer not in lines]),
        ),
        nothing=None if made_statements else nothing,
        made_at=context.now,
        settings=context.config.statements,
        purged=purged_note(context.purged(request)),
        zone=settings.timezone,
        sql=met.sql,
    )


def _adjusted(settings: Charges, by: str, month: Month, request: ReportRequest) -> dict[str, list[Adjusted]]:
    """The adjustments of a month by payer, if the payers are those of the configuration."""
    adjusted: dict[str, list[Adjusted]] = {}
    for adjustment in settings.adjustments:
        if by == settings.by and adjustment.month == str(month) and _concerned(adjustment.payer, by, request):
            adjusted.setdefault(adjustment.payer, []).append(
                Adjusted(rounded(adjustment.amount, settings.decimals), adjustment.reason)
            )
    return adjusted


def energy_lines(context: ReportContext, request: ReportRequest, made: Statements) -> dict[str, str]:
    """By payer, the line on the energy of its jobs, if the configuration has energy."""
    if "energy" not in context.config.model_fields_set:
        return {}
    month = msgspec.structs.replace(request, start=made.start, stop=made.stop, by=(made.by,), interval=None)
    energy, _ = energy_by(context, month)
    pue = context.config.energy.pue_thousandths
    return {label or UNKNOWN_NAME: use.line(pue) for (label,), use in energy.groups}


def _unpriced(charged: ChargedUsage) -> tuple[str, ...]:
    """Notes on usage without a price; the last says what to do where nodes have no table."""
    notes = [
        f"{float(Fraction(amount, UNIT_MS[resource])):.3f} {UNITS[resource]}"
        f"{'' if resource == 'energy' else f' on nodes of type {kind or UNKNOWN_NAME}'} in queue "
        f"{queue or UNKNOWN_NAME} have no price and are not charged."
        for (resource, kind, queue), amount in sorted(charged.unpriced.items())
    ]
    if any(kind == INFERRED for _, kind, _ in charged.unpriced):
        notes.append(
            f"Nodes of type {INFERRED} have no table [[nodes]]: write one with their `type`, or a price without `type`."
        )
    if unknown := charged.energy_unknown:
        notes.append(f"The energy of {counted(unknown, 'job')} is unknown and is not charged: see `report energy`.")
    return tuple(notes)


def _doubts(settings: Charges, by: str, payers: Collection[str], only_adjusted: Iterable[str]) -> Iterator[str]:
    """Notes on what may be mistakes in the price list: its currency, its `by`, and payers of adjustments."""
    decimals = CURRENCY_DECIMALS.get(settings.currency)
    if decimals is not None and decimals < settings.decimals:
        yield (
            f"{settings.currency} has {counted(decimals, 'decimal')}, and amounts are rounded to {settings.decimals}: "
            f"set decimals = {decimals} in [charges]."
        )
    if UNKNOWN_NAME in payers:
        yield f"Jobs without {by} are charged to {UNKNOWN_NAME}. If all are, batch systems may have it as another `by`."
    for payer in only_adjusted:
        yield f"The adjustment for {payer} is alone on its statement, because no job has this {by}: check its name."


def _concerned(payer: str, by: str, request: ReportRequest) -> bool:
    """Whether adjustments of a payer belong to the request: not if it selects only some of the jobs."""
    return request.filters.keys() <= {by} and fnmatchcase(payer, request.filters.get(by, "*"))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: the items, the adjustments, and the total of every statement."""
    made = month_charges(context, request)
    report = context.report(
        CHARGES,
        request,
        title=f"Charges of {made.shown_month}",
        start=made.start,
        stop=made.stop,
        timezone=made.zone,
        columns=(Column(made.by, "text", key=made.by), *CHARGES.made_columns(currency=made.currency)),
        rows=(
            *(row for statement in made.all for row in _rows(statement)),
            *([_total_row(EVERYONE, made.total)] if len(made.all) > 1 else []),
        ),
        sorted_by="amount",
        plots=_plots(made) if made.all else (),
        notes=notes_on(made),
        nothing=made.nothing,
        sql=made.sql,
        facts={
            "month": made.month,
            "timezone": made.zone,
            "by": [made.by],
            "currency": made.currency,
            "totals": {statement.payer: str(statement.total) for statement in made.all},
            "lost_runs": sum(statement.lost.runs for statement in made.all if statement.lost),
            "charged_for_lost_runs": str(sum((one.lost.amount for one in made.all if one.lost), Decimal(0))),
            "items_that_round_to_nothing": sum(len(statement.left_out) for statement in made.all),
            "all": str(made.total),
        },
    )  # fmt: skip
    return report if request.sort is None and request.top is None else _largest(report, request, made)


def _rows(statement: Statement) -> Iterator[tuple[Cell, ...]]:
    for item in statement.items:
        yield (
            statement.payer, item.name, item.applies_to, float(item.quantity), item.unit, item.price, item.group_factor,
            item.job_factor, item.amount,
        )  # fmt: skip
    for adjustment in statement.adjustments:
        yield (statement.payer, f"adjustment: {adjustment.reason}", "", None, "", None, None, None, adjustment.amount)
    yield _total_row(statement.payer, statement.total)


def _total_row(payer: str, total: Decimal) -> tuple[Cell, ...]:
    return (payer, "total", "", None, "", None, None, None, total)


def _largest(report: Report, request: ReportRequest, made: Statements) -> Report:
    """The statements in the order that the request names, cut to its `top`; the others as one total."""
    order = order_of(report, request.sort)
    if order.column.name not in {made.by, "amount"}:
        raise UsageError(f"--sort: charges are sorted by {made.by} or amount")
    amounts = order.column.name == "amount"
    by_payer: dict[tuple[Cell, ...], Statement] = {(one.payer,): one for one in made.all}
    ranked = order.ranked(
        (payer, [statement.total if amounts else statement.payer]) for payer, statement in by_payer.items()
    )
    kept = [by_payer[payer] for payer in ranked[: request.top]]
    rest = [by_payer[payer] for payer in ranked[len(kept) :]]
    rows = [row for statement in kept for row in _rows(statement)]
    notes = report.notes
    if rest:
        amount = sum((statement.total for statement in rest), Decimal(0))
        rows.append(_total_row(others(len(rest)), amount))
    if len(made.all) > 1:
        rows.append(_total_row(EVERYONE, made.total))
    if rest:
        shown = f"{len(kept):,} of {len(ranked):,} statements are shown, {order.words}"
        notes = (f"{shown}; {others(len(rest))} is the sum of the others.", *notes)
    plots = tuple(msgspec.structs.replace(plot, most=request.top) for plot in report.plots)
    return msgspec.structs.replace(report, rows=tuple(rows), total=len(report.rows), notes=notes, plots=plots)


def _plots(made: Statements) -> tuple[Plot, ...]:
    series = Series("charges", tuple(float(statement.total) for statement in made.all))
    names, units = tuple(statement.payer for statement in made.all), {"currency": made.currency}
    more = {"x": names, "decimals": made.decimals, "names_add_up": True}
    return (CHARGES.pictures["charges"].plot("bar", series, keys=(made.by,), units=units, **more),)
