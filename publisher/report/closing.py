"""Closing months: numbered statements that stay as they are, and corrections of what comes or changes later.

At any time, the statements in force and the open corrections add up to what the runs of closed months cost now, by
payer. A month is closed in one transaction, while nothing is collected: a closing that is killed has left nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Final

import msgspec
from sqlalchemy import Connection

from formats.calendar import Month, month_bounds, month_numbered, month_of
from formats.rule_codes import Reason
from publisher.errors import UsageError
from publisher.messages.completeness import known_until, why_not_read
from publisher.reason import ReasonCode, sentence
from publisher.report.calendar import month_in, zone_of
from publisher.report.request import ReportRequest
from publisher.report.run_usage import RunUsages, run_usages
from publisher.report.runs import ReportContext
from publisher.report.statements.closed import ClosedStatement, PriceList, encoded, in_force, issued_statements
from publisher.report.statements.items import Used, item_of
from publisher.report.statements.statement import Correction, Statement
from publisher.report.views.charges import energy_lines, month_charges
from publisher.store import closed_months, registry, sent_mark
from publisher.store.closed_months import Closing, IssuedStatement, RunUsage, TextTokens
from publisher.store.stored_json import decoded
from publisher.text import counted, iso

_NOTHING: Final = Decimal(0)


class MonthChanges(msgspec.Struct, frozen=True):
    """What changed of a closed month: corrections by payer, and what the runs that differ are charged for now."""

    closing: Closing
    price_list: PriceList
    corrections: dict[str, tuple[Correction, ...]]
    runs: tuple[RunUsage, ...]
    known_lines: int
    lines: tuple[Used, ...]

    @property
    def month(self) -> Month:
        """The closed month."""
        return month_numbered(self.closing.month)

    @property
    def uncorrected(self) -> set[Month]:
        """The UTC months of it, if any run differs from what it was charged for."""
        start, stop = month_in(self.month, zone_of(self.price_list.charges.timezone))
        return {month_of(start), self.month, month_of(stop - 1)} if self.runs else set()

    @property
    def open_amount(self) -> Decimal:
        """The sum of the corrections."""
        return sum((one.amount for some in self.corrections.values() for one in some), _NOTHING)


class ClosedMonth(msgspec.Struct, frozen=True):
    """A closed month: its statements, also those that were cancelled, and its open corrections."""

    changes: MonthChanges
    statements: tuple[ClosedStatement, ...]

    @property
    def total(self) -> Decimal:
        """The sum of the statements in force."""
        return sum((issued.statement.total for issued in self.statements if not issued.cancelled_by), _NOTHING)


def closed(context: ReportContext) -> list[ClosedMonth]:
    """All closed months with their open corrections."""
    with context.store.read() as connection:
        closed_months.require_sound(connection)
        issued = issued_statements(connection)
        closings = in_force(connection)
    return [
        ClosedMonth(
            _changes(context, closing),
            tuple(statement for statement in issued if statement.closing.month == closing.month),
        )
        for closing in closings.values()
    ]


def close(context: ReportContext, month: Month) -> list[ClosedStatement]:
    """Close a month: its statements, with the corrections of earlier closed months. Raises `UsageError`."""
    with _alone(context):
        with context.store.read() as connection:
            closed_months.require_sound(connection)
            closings = in_force(connection)
        if month.number in closings:
            raise UsageError(
                f"{month} is closed already",
                hint="What changed since is a correction in the statements of the next month that is closed",
            )
        price_list = PriceList.of(context.config)
        changes = [_changes(context, closing) for closing in closings.values()]
        for change in changes:
            # Amounts in two currencies, or by two keys, cannot be added to one total.
            if change.corrections and _unit(change.price_list) != _unit(price_list):
                raise UsageError(
                    f"the open corrections of {change.month} are in "
                    f"{' '.join(map(str, _unit(change.price_list)))}, and the configuration has "
                    f"{' '.join(map(str, _unit(price_list)))}",
                    hint=f"`usage-publisher month cancel {change.month}` issues its statements again as configured now",
                )
        statements = {statement.payer: statement for statement in _whole_month(context, month)}
        for change in changes:
            for payer, corrections in change.corrections.items():
                known = statements.get(payer, Statement(payer, (), ()))
                statements[payer] = msgspec.structs.replace(known, corrections=(*known.corrections, *corrections))
        return _issue(context, month, [statements[payer] for payer in sorted(statements)], changes)


def cancel(context: ReportContext, month: Month, reason: str) -> list[ClosedStatement]:
    """Cancel the statements of a closed month: a successor of each, from what is known and configured now, names it.

    Raises `UsageError`.
    """
    with _alone(context):
        with context.store.read() as connection:
            closed_months.require_sound(connection)
            closing = in_force(connection).get(month.number)
            issued = [statement for statement in issued_statements(connection) if not statement.cancelled_by]
        if closing is None:
            raise UsageError(f"{month} is not closed", hint="`usage-publisher month list` shows the closed months")
        old = [one for one in issued if one.closing.id == closing.id]
        others = [one for one in issued if one.closing.id != closing.id]
        made = {one.payer: one for one in _whole_month(context, month)}
        payers: dict[str, list[ClosedStatement]] = {payer: [] for payer in made}
        for one in old:
            payers.setdefault(one.statement.payer, []).append(one)
        statements: list[Statement] = []
        for payer, cancelled in sorted(payers.items()):
            # Corrections of other months stay as they were issued. Those of this month, in later statements, are part
            # of its items now.
            carried = [
                correction
                for one in cancelled
                for correction in one.statement.corrections
                if correction.month != str(month)
            ]
            included = [
                Correction(str(month), -correction.amount, included_in=other.statement.number)
                for other in others
                if other.statement.payer == payer
                for correction in other.statement.corrections
                if correction.month == str(month)
            ]
            known = made.get(payer, Statement(payer, (), ()))
            statements.append(_successor(known, (*carried, *included), cancelled[0] if cancelled else None))
            # Payers who became one person's pseudonym have one statement.
            statements += [_successor(Statement(payer, (), ()), (), one) for one in cancelled[1:]]
        price_list = PriceList.of_closing(closing)
        if _unit(price_list) != _unit(PriceList.of(context.config)) and any(
            statement.corrections for statement in statements
        ):
            raise UsageError(
                f"statements of {month} contain corrections in {price_list.charges.currency}, which the configuration "
                "no longer has",
                hint="Set by, currency, and decimals of [charges] as they were",
            )
        return _issue(context, month, statements, [], replaces=closing, reason=reason)


def _successor(known: Statement, corrections: Sequence[Correction], cancelled: ClosedStatement | None) -> Statement:
    cancels = cancelled.statement.number if cancelled is not None else ""
    return msgspec.structs.replace(known, corrections=tuple(corrections), cancels=cancels)


def _unit(price_list: PriceList) -> tuple[str, int, str]:
    charges = price_list.charges
    return charges.currency, charges.decimals, charges.by


@contextmanager
def _alone(context: ReportContext) -> Iterator[None]:
    """Inside the block nothing is collected, purged, or closed by another process."""
    with context.store.lock("collect") as held:
        if not held:
            raise UsageError("another run is collecting", hint="Try again when it has finished")
        context.store.require_latest()  # a restored store would give numbers again
        yield


def _request(month: Month, price_list: PriceList) -> ReportRequest:
    start, stop = month_in(month, zone_of(price_list.charges.timezone))
    return ReportRequest(start=start, stop=stop)


def _whole_month(context: ReportContext, month: Month) -> Sequence[Statement]:
    """The statements of a month that every source has completely. Raises `UsageError`."""
    request = _request(month, PriceList.of(context.config))
    read_until = known_until(context.store, context.config, None, context.now)
    # In another zone than UTC, a source that is complete since the first of the month lacks the hours before it.
    interval = str(month) if request.start == month_bounds(month)[0] else f"{month} ({iso(request.start)})"
    why: Reason | None = why_not_read(context.store, context.config, request.start, request.stop, interval)
    if why is not None:
        # Who has set the first of the month in UTC would read that it is to be set.
        is_unset = why.code in (ReasonCode.SOURCE_INCOMPLETE, ReasonCode.SOURCES_INCOMPLETE)
        value = f' = "{iso(request.start)}"' if is_unset else ""
        raise UsageError(f"{month} cannot be closed: {sentence(why)}{value}")
    if read_until is None or read_until < request.stop:
        read = (
            "not every source was read to its end"
            if read_until is None
            else f"sources were read up to {iso(read_until)}"
        )
        raise UsageError(
            f"{month} cannot be closed: it ends at {iso(request.stop)}, and {read}",
            hint="Run `usage-publisher collect` once it is over",
        )
    start, stop = month_bounds(month)
    whole = ReportRequest(start=start, stop=stop)
    made = month_charges(context, whole, PriceList.of(context.config))
    energy = energy_lines(context, whole, made)
    return [msgspec.structs.replace(statement, energy=energy.get(statement.payer, "")) for statement in made.all]


def _changes(context: ReportContext, closing: Closing) -> MonthChanges:
    """What changed of a closed month, by the price list with which it was closed."""
    price_list = PriceList.of_closing(closing)
    with context.store.read() as connection:
        texts = closed_months.texts(connection)
        tokens = [
            decoded(body, Used, "a line of a closed month") for body in closed_months.lines(connection, closing.id)
        ]
    known = [msgspec.structs.replace(key, payer=texts.get(key.payer, key.payer)) for key in tokens]
    corrections: dict[str, list[Correction]] = {}
    request = _request(month_numbered(closing.month), price_list)
    with run_usages(context, request, price_list, closing, known) as usages:
        for change in usages.changes():
            key = usages.lines[change.line]
            before, after = (item_of(price_list.charges, key, usage)[0] for usage in (change.before, change.after))
            # Less than the smallest amount of the currency is no correction: statements would fill with lines of zero.
            if before.amount != after.amount:
                amount = after.amount - before.amount
                item = msgspec.structs.replace(after, quantity=after.quantity - before.quantity, amount=amount)
                month = str(month_numbered(closing.month))
                counts = (change.late, change.changed, change.vanished)
                corrections.setdefault(key.payer, []).append(Correction(month, amount, item, *counts))
        runs, lines = tuple(usages.rows(differing=True)), tuple(usages.lines)
    by_payer = {payer: tuple(some) for payer, some in sorted(corrections.items())}
    return MonthChanges(closing, price_list, by_payer, runs, len(known), lines)


def _issue(
    context: ReportContext, month: Month, statements: Sequence[Statement], changes: Sequence[MonthChanges],
    replaces: Closing | None = None, reason: str = "",
) -> list[ClosedStatement]:  # fmt: skip
    """Store a closing with its statements, what each run is charged for, and the digest; all of it or nothing."""
    price_list = PriceList.of(context.config)
    request = _request(month, price_list)
    tokens = TextTokens()
    with run_usages(context, request, price_list) as usages, context.store.write() as connection:
        old = None if replaces is None else replaces.id

        def token(text: str) -> str:
            return tokens.of(closed_months.plain(connection, text))

        settings = closed_months.tokenized(price_list.to_json(), token)
        closing_id = closed_months.add_closing(connection, month.number, settings, context.now, old)
        numbers = {one.label: one.number for one in closed_months.issued(connection)}
        issued = _numbered(context, connection, closing_id, month, statements, numbers, tokens)
        closed_months.add_statements(connection, issued)
        _add_runs(connection, closing_id, closing_id, usages, tokens)
        for change in changes:
            new = [_line(key, tokens) for key in change.lines[change.known_lines :]]
            closed_months.add_lines(connection, change.closing.id, change.known_lines, new)
            closed_months.add_runs(connection, change.closing.id, closing_id, change.runs)
        tokens.add(connection)
        digest = closed_months.seal(connection, closing_id).hex()
        labels = f", {issued[0].label} to {issued[-1].label}" if issued else ""
        detail = f"{counted(len(issued), 'statement')}{labels}; digest {digest}"
        action = "close month" if replaces is None else "cancel month"
        registry.record_action(connection, action, str(month), f"{detail}; {reason}" if reason else detail, context.now)
        for row, statement in zip(issued, statements, strict=True):
            if row.cancels is not None:
                why = f"replaced by {row.label}: {reason}"
                registry.record_action(connection, "cancel statement", statement.cancels, why, context.now)
        # As for messages: a store restored from before would otherwise give the same numbers to other statements.
        mark = sent_mark.count_messages(connection, len(issued), context.now)
    context.store.mark_sent(mark)
    with context.store.read() as connection:
        return [one for one in issued_statements(connection) if one.closing.id == closing_id]


def _numbered(
    context: ReportContext, connection: Connection, closing_id: int, month: Month, statements: Sequence[Statement],
    numbers: dict[str, int], tokens: TextTokens,
) -> list[IssuedStatement]:  # fmt: skip
    first = closed_months.take_numbers(connection, len(statements))
    pattern, site = context.config.statements.series, context.config.site.name
    rows = []
    for number, statement in enumerate(statements, first):
        label = pattern.format(site=site, year=month.year, number=number)
        if label in numbers:
            raise UsageError(
                f"the number {label} was given before",
                hint="statements.series was changed: choose one that gives other numbers",
            )
        body = encoded(
            msgspec.structs.replace(statement, number="", cancels=""),
            lambda text: tokens.of(closed_months.plain(connection, text)),
        )
        rows.append(IssuedStatement(number, closing_id, numbers.get(statement.cancels), label, body))
    return rows


def _add_runs(
    connection: Connection, closing_id: int, issued_in: int, usages: RunUsages, tokens: TextTokens
) -> None:  # fmt: skip
    closed_months.add_lines(connection, closing_id, 0, [_line(key, tokens) for key in usages.lines])
    closed_months.add_runs(connection, closing_id, issued_in, usages.rows())


def _line(key: Used, tokens: TextTokens) -> str:
    return msgspec.json.encode(msgspec.structs.replace(key, payer=tokens.of(key.payer))).decode()
