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

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import partial
from typing import Any, Final, get_args

import msgspec
import numpy as np

from formats.calendar import Month, month_bounds, month_of
from formats.job import Status
from publisher.config.reports import Charged, Charges, Factor, Node, Price, hours_s
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.report.calendar import month_in, zone_of
from publisher.report.energy import COLUMNS as ENERGY_COLUMNS
from publisher.report.energy import define_energy
from publisher.report.held_amounts import rounded
from publisher.report.hours_of_day import Hours, HoursOfDay
from publisher.report.integers import Ints, distinct, sum_by
from publisher.report.inventory import INFERRED, Inventory
from publisher.report.matching import Matching, RunBatch, columns_of, computed, summed
from publisher.report.met import Met
from publisher.report.ranking import order_of
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report, Series, keys_text, others
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.items import (
    FACTOR_KEYS,
    UNIT_MS,
    UNITS,
    Used,
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
from publisher.report.view_kind import CHARGES, Resource
from publisher.report.views.energy import energy_by
from publisher.report.views.nodes import REQUIRED, Placing
from publisher.text import counted

EVERYONE: Final = "(all)"
"""In the row of the grand total."""
_LOST: Final[Status] = "lost"


def statements(context: ReportContext, request: ReportRequest) -> Statements:
    """The statements of a month, with the totals since the beginning of its year. Raises as `month_charges`."""
    made = month_charges(context, request)
    month = month_of(request.start)
    energy = _energy_lines(context, request, made)
    year: dict[str, Decimal] = {one.payer: one.total for one in made.all}
    for number in range(1, month.month):
        start, stop = month_bounds(Month(month.year, number))
        for one in month_charges(context, msgspec.structs.replace(request, start=start, stop=stop)).all:
            year[one.payer] = year.get(one.payer, Decimal(0)) + one.total
    earlier = msgspec.structs.replace(request, start=month_bounds(Month(month.year, 1))[0], stop=request.start)
    purged = context.purged_note(earlier) if month.month > 1 else ""
    return msgspec.structs.replace(
        made,
        all=tuple(
            msgspec.structs.replace(one, year_total=year[one.payer], energy=energy.get(one.payer, ""))
            for one in made.all
        ),
        year_total=sum(year.values(), Decimal(0)),
        year_note=purged and f"In the total since {made.year_start}: {purged[0].lower()}{purged[1:]}",
    )


def month_charges(context: ReportContext, request: ReportRequest) -> Statements:
    """The statements of a month. The interval must be a UTC month; it means that month in the configured `timezone`.

    Raises `UsageError`.
    """
    month = month_of(request.start)
    if (request.start, request.stop) != month_bounds(month):
        raise UsageError("charges are made for a whole month", hint="Name it with --month, such as --month 2026-11")
    request.require_keys(CHARGES)
    settings = context.config.charges
    start, stop = month_in(month, zone_of(settings.timezone))
    request = msgspec.structs.replace(request, start=start, stop=stop)
    if not settings.prices:
        raise UsageError("the configuration has no price list", hint="Add [[charges.prices]] to it")
    by = request.by[0] if request.by else settings.by
    charged = ChargedUsage()
    nothing = None
    for resource in get_args(Charged):
        if any(price.resource == resource for price in settings.prices):
            found_of = _usage(context, msgspec.structs.replace(request, interval=None), by, resource)
            charged.add(found_of)
            nothing = found_of.met.nothing()
    lines = itemised(settings, charged.usage)
    lost = lost_runs(settings, charged.lost_usage, charged.lost_runs)
    users = {} if by == "user" else user_charges(settings, charged.users)
    adjusted: dict[str, list[Adjusted]] = {}
    for one in settings.adjustments:
        if by == settings.by and one.month == str(month) and _concerned(one.payer, by, request):
            adjusted.setdefault(one.payer, []).append(Adjusted(rounded(one.amount, settings.decimals), one.reason))
    found = tuple(
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
        all=found,
        unpriced=_unpriced(charged),
        nothing=None if found else nothing,
        made_at=context.now,
        settings=context.config.statements,
        purged=context.purged_note(request),
        zone=settings.timezone,
    )


def _usage(context: ReportContext, request: ReportRequest, by: str, resource: Charged) -> ChargedUsage:
    """The usage of a resource by the runs of a request. A cluster does not compute energy: its archive is read here."""
    settings = context.config.charges
    if resource == "energy":
        columns = columns_of(request, *ENERGY_COLUMNS, "wall_ms", *_words(settings, by))
        return computed(context, request, columns, "ended", partial(_charged_energy, config=context.config, by=by))
    part = partial(_charged, settings=settings, nodes=context.config.nodes, by=by, resource=resource)
    return summed(context, request, columns_of(request, *_columns(settings, resource, by)), "ended", part)


def _energy_lines(context: ReportContext, request: ReportRequest, made: Statements) -> dict[str, str]:
    """By payer, the line on the energy of its jobs, if the configuration has energy."""
    if "energy" not in context.config.model_fields_set:
        return {}
    month = msgspec.structs.replace(request, start=made.start, stop=made.stop, by=(made.by,), interval=None)
    found = energy_by(context, month)
    pue = context.config.energy.pue_thousandths
    return {label or UNKNOWN_NAME: use.line(pue) for (label,), use in found.groups}


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
        notes.append(f"The energy of {counted(unknown, 'run')} is unknown and is not charged: see `report energy`.")
    return tuple(notes)


def _concerned(payer: str, by: str, request: ReportRequest) -> bool:
    """Whether adjustments of a payer belong to the request: not if it selects only some of the jobs."""
    return request.filters.keys() <= {by} and fnmatchcase(payer, request.filters.get(by, "*"))


class ChargedUsage:
    """The usage of some runs by the keys of items: `publisher.report.dask.PartialReport`."""

    def __init__(self) -> None:
        self.usage: dict[Used, int] = {}
        self.users: dict[tuple[Used, str], int] = {}
        """The same by user."""
        self.unpriced: dict[tuple[str, str, str], int] = {}
        """Usage without a price, by resource, type of nodes, and queue."""
        self.lost_usage: dict[Used, int] = {}
        """The part of `usage` that is of lost runs."""
        self.lost_runs: dict[tuple[str, str], int] = {}
        """Lost runs that held some of a resource, by payer and resource."""
        self.energy_unknown = 0
        """Runs whose energy is unknown."""
        self.met = Met()

    def add(self, other: ChargedUsage) -> None:
        """Add the usage of other runs."""
        for key, amount in other.usage.items():
            self.add_amount(key, amount)
        for of_user, amount in other.users.items():
            self.users[of_user] = self.users.get(of_user, 0) + amount
        for kind, amount in other.unpriced.items():
            self.add_amount(kind, amount)
        for key, amount in other.lost_usage.items():
            self.lost_usage[key] = self.lost_usage.get(key, 0) + amount
        for held, runs in other.lost_runs.items():
            self.lost_runs[held] = self.lost_runs.get(held, 0) + runs
        self.energy_unknown += other.energy_unknown
        self.met.add(other.met)

    def use(self, key: Used | tuple[str, str, str], usage: int, words: Mapping[str, str], energy_runs: int = 0) -> None:
        """Add usage of runs with these words. `energy_runs`: how many, of energy, which has no batches to count in."""
        self.add_amount(key, usage)
        if not isinstance(key, Used):
            return
        user = words["user"] or UNKNOWN_NAME
        self.users[key, user] = self.users.get((key, user), 0) + usage
        if words["status"] == _LOST:
            self.lost_usage[key] = self.lost_usage.get(key, 0) + usage
            if energy_runs:
                held = (key.payer, key.resource)
                self.lost_runs[held] = self.lost_runs.get(held, 0) + energy_runs

    def add_amount(self, key: Used | tuple[str, str, str], amount: int) -> None:
        """Add an amount times milliseconds."""
        sums: dict[Any, int] = self.usage if isinstance(key, Used) else self.unpriced
        sums[key] = sums.get(key, 0) + amount


def _charged_energy(matching: Matching, *, config: Config, by: str) -> ChargedUsage:
    """The energy of the matching runs, with PUE."""
    define_energy(matching, config.energy, config.nodes)
    names = _words(config.charges, by)
    keys = _ItemKeys(config.charges, by, "energy", names)
    found = ChargedUsage()
    of_runs = ", ".join(f'"{name}"' for name in names)
    amounts = "sum(coalesce(measured_mj, modelled_mj)), count(*), count(coalesce(measured_mj, modelled_mj))"
    everywhere = frozenset(range(len(config.charges.prices)))
    for row in matching.rows(f"SELECT {of_runs}, {amounts} FROM energy GROUP BY ALL ORDER BY ALL"):  # noqa: S608 - names of ours
        *given, energy_mj, runs, known = row
        words = tuple(word or "" for word in given)
        found.met.runs += runs
        found.met.matched += runs
        found.energy_unknown += runs - known
        usage = (energy_mj or 0) * config.energy.pue_thousandths
        if not usage:
            continue
        found.use(keys.of(everywhere, ("", ""), words), usage, dict(zip(names, words, strict=True)), known)
    return found


def _charged(
    matching: Matching, *, settings: Charges, nodes: Sequence[Node], by: str, resource: Resource
) -> ChargedUsage:  # fmt: skip
    """The usage of a resource by the matching runs."""
    charging = _Charging(settings, nodes, by, resource)
    for batch in matching.batches(_columns(settings, resource, by), charging.found.met):
        charging.add(batch)
    return charging.found


def _columns(settings: Charges, resource: Resource, by: str) -> frozenset[str]:
    return frozenset({*REQUIRED[resource], "wall_ms", *_words(settings, by)})


def _words(settings: Charges, by: str) -> tuple[str, ...]:
    """The words of a run on which its charge depends: few kinds of runs differ in them."""
    rules = (*settings.group_factors, *settings.job_factors)
    of_factors = [key for key in FACTOR_KEYS if any(getattr(rule, key) is not None for rule in rules)]
    return tuple(dict.fromkeys((by, "cluster", "queue", "status", "user", *of_factors)))


class _Charging:
    """Sums up the usage of a resource by payer, price, and factors."""

    def __init__(self, settings: Charges, nodes: Sequence[Node], by: str, resource: Resource) -> None:
        self._resource: Charged = resource
        self._by = by
        self._inventory = Inventory(nodes)
        hours = [None if price.hours is None else Hours(*hours_s(price.hours)) for price in settings.prices]
        self._hours = HoursOfDay(hours, zone_of(settings.timezone))
        """The prices that apply in each part of the day."""
        self._placing = Placing(self._inventory, resource)
        self._names = _words(settings, by)
        self._item_keys = _ItemKeys(settings, by, resource, self._names)
        self._classes: dict[tuple[str, str], int] = {}
        """The numbers of the classes of nodes, by cluster and type."""
        self._keys: dict[tuple[frozenset[int], tuple[str, str], tuple[str, ...]], Used | tuple[str, str, str]] = {}
        self.found = ChargedUsage()

    def add(self, batch: RunBatch) -> None:
        """Add the runs of a batch."""
        placed = self._placing.of(batch)
        used = placed.amount > 0
        row, node, amount = placed.row[used], placed.node[used], placed.amount[used]
        if not len(row):
            return
        columns = [batch.words(name) for name in self._names]
        of_nodes = [
            self._classes.setdefault((one.cluster, one.type), len(self._classes)) for one in self._inventory.nodes
        ]
        class_of = np.array(of_nodes, np.int64)
        found, inverse = distinct([class_of[node], *(column.codes[row] for column in columns)])
        classes = list(self._classes)
        kinds = [
            (classes[number], tuple(column.words[code] for column, code in zip(columns, codes, strict=True)))
            for number, *codes in found.tolist()
        ]
        self._count_lost(batch, np.unique(row))
        wall_ms = np.maximum(batch.numbers("wall_ms"), 0)
        parts = self._hours.spread(batch.numbers("start"), batch.numbers("stop"), wall_ms)
        for part, of_part in zip(self._hours.parts, parts, strict=True):
            sums = _products(inverse, amount, of_part[row], len(found))
            for (nodes, words), usage in zip(kinds, sums, strict=True):
                if not usage and len(parts) > 1:
                    continue
                key = self._keys.get((part, nodes, words))
                if key is None:
                    key = self._keys[part, nodes, words] = self._item_keys.of(part, nodes, words)
                self.found.use(key, usage, dict(zip(self._names, words, strict=True)))

    def _count_lost(self, batch: RunBatch, rows: Ints) -> None:
        """Count the lost runs among these rows by payer."""
        status, payers = batch.words("status"), batch.words(self._by)
        lost = np.array([word == _LOST for word in status.words], np.bool_)
        for code in payers.codes[rows[lost[status.codes[rows]]]].tolist():
            held = (payers.words[code] or UNKNOWN_NAME, self._resource)
            self.found.lost_runs[held] = self.found.lost_runs.get(held, 0) + 1


class _ItemKeys:
    """The keys of items of a resource, by the words of a run."""

    def __init__(self, settings: Charges, by: str, resource: Charged, names: Sequence[str]) -> None:
        self._settings = settings
        self._by = by
        self._resource: Charged = resource
        self._names = names

    def of(
        self, part: frozenset[int], nodes: tuple[str, str], kind: tuple[str, ...]
    ) -> Used | tuple[str, str, str]:  # fmt: skip
        """The key of usage of this kind on a class of nodes in a part of the day, in which the prices `part` apply."""
        cluster, node_type = nodes
        words = dict(zip(self._names, kind, strict=True))
        where = {"cluster": cluster or words["cluster"], "type": node_type, "queue": words["queue"]}
        price = _first(
            self._settings.prices,
            lambda one: one.resource == self._resource and _match(one, ("cluster", "type", "queue"), where),
            among=part,
        )
        if price < 0:
            return (self._resource, node_type, words["queue"])
        factors = (
            _first(listed, lambda one: _match(one, FACTOR_KEYS, words))
            for listed in (self._settings.group_factors, self._settings.job_factors)
        )
        return Used(words[self._by] or UNKNOWN_NAME, self._resource, price, *factors)


def _first(rules: tuple[Any, ...], matches: Callable[[Any], bool], among: frozenset[int] | None = None) -> int:
    """The place of the first matching rule `among` some places (None: all); -1 if none matches."""
    places = (place for place in range(len(rules)) if among is None or place in among)
    return next((place for place in places if matches(rules[place])), -1)


def _match(rule: Price | Factor, keys: tuple[str, ...], words: dict[str, str]) -> bool:
    given = ((key, getattr(rule, key)) for key in keys)
    return all(
        any(fnmatchcase(words[key], pattern) for pattern in patterns) for key, patterns in given if patterns is not None
    )


def _products(group: Ints, amount: Ints, wall_ms: Ints, count: int) -> list[int]:
    """Exact sums of amount times milliseconds."""
    if int(amount.max()) * int(wall_ms.max()) < 1 << 62:
        return sum_by(group, amount * np.maximum(wall_ms, 0), count)
    exact = [0] * count
    for place, some, wall in zip(group.tolist(), amount.tolist(), wall_ms.tolist(), strict=True):
        exact[place] += some * max(wall, 0)
    return exact


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: the items, the adjustments, and the total of every statement."""
    made = month_charges(context, request)
    report = Report(
        view=CHARGES.name,
        title=f"Charges of {made.shown_month}",
        site=made.site,
        start=made.start,
        stop=made.stop,
        timezone=made.zone,
        columns=(
            Column(made.by, "text"), Column("item", "text"), Column("applies_to", "text"),
            Column("quantity", "number", decimals=3), Column("unit", "text"),
            Column("price", "money", made.currency), Column("group_factor", "number"), Column("job_factor", "number"),
            Column("amount", "money", made.currency, adds="sum"),
        ),
        rows=(
            *(row for statement in made.all for row in _rows(statement)),
            *([_total_row(EVERYONE, made.total)] if len(made.all) > 1 else []),
        ),
        sorted_by="amount",
        plots=_plots(made) if made.all else (),
        notes=notes_on(made),
        nothing=made.nothing,
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
    for one in statement.adjustments:
        yield (statement.payer, f"adjustment: {one.reason}", "", None, "", None, None, None, one.amount)
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
    series = (Series("charges", tuple(float(one.total) for one in made.all)),)
    names = tuple(one.payer for one in made.all)
    title = f"Charges by {keys_text((made.by,))}"
    return (
        Plot(
            title=title,
            style="bar",
            x=names,
            unit=made.currency,
            decimals=made.decimals,
            names_add_up=True,
            series=series,
        ),
    )
