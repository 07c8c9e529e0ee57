"""The statements of closed months, read from the store as they were issued: nothing of them is computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from formats.calendar import Month, month_numbered, month_of
from publisher.config.energy import Energy
from publisher.config.reports import Charges, Node
from publisher.config.schema import Config
from publisher.report.calendar import month_in, zone_of
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.statement import Statement, Statements
from publisher.store import closed_months
from publisher.store.closed_months import Closing, IssuedStatement
from publisher.store.stored_json import read_with
from publisher.text import iso


class PriceList(msgspec.Struct, frozen=True):
    """What decides on charges: prices, factors, and adjustments, the types of nodes, and the power of jobs."""

    charges: Charges
    nodes: tuple[Node, ...]
    energy: Energy

    @classmethod
    def of(cls, config: Config) -> PriceList:
        """That of the configuration."""
        # Carbon file and meters decide on no charge, and may be others later.
        energy = config.energy.model_copy(update={"carbon_file": None, "measured": ()})
        return cls(config.charges, config.nodes, energy)

    @classmethod
    def of_closing(cls, closing: Closing) -> PriceList:
        """With which a month was closed. Raises `StoreCorruptError`."""
        return read_with(cls._read, closing.settings, f"the price list of closing {closing.id}")

    @classmethod
    def _read(cls, text: str) -> PriceList:
        settings = msgspec.json.decode(text)
        # Instants are stored as numbers, and read as people write them.
        nodes = tuple(
            Node.model_validate({**node, "since": iso(node["since"]), "until": iso(node["until"])})
            for node in settings["nodes"]
        )
        # Earlier releases stored meters with all their keys, which a CSV file may not have.
        energy = Energy.model_validate({**settings["energy"], "measured": ()})
        return cls(Charges.model_validate(settings["charges"]), nodes, energy)

    def to_json(self) -> str:
        """As the store has it."""
        settings = {
            "charges": self.charges.model_dump(mode="json"),
            "nodes": [node.model_dump(mode="json") for node in self.nodes],
            "energy": self.energy.model_dump(mode="json"),
        }
        return msgspec.json.encode(settings).decode()


class ClosedStatement(msgspec.Struct, frozen=True):
    """A statement as it was issued. `cancelled_by`: the number of its successor, if it was cancelled."""

    number: int
    closing: Closing
    statement: Statement
    cancelled_by: str

    @property
    def month(self) -> Month:
        """Its month."""
        return month_numbered(self.closing.month)


def encoded(statement: Statement, token: Callable[[str], str]) -> str:
    """A statement as the store has it: `token` gives that of a name or text."""
    return msgspec.json.encode(with_texts(statement, token), enc_hook=str).decode()


def with_texts(statement: Statement, text: Callable[[str], str]) -> Statement:
    """A statement with other names and texts."""
    replace = msgspec.structs.replace

    def of_items(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(item, applies_to=text(item.applies_to)) for item in items)

    return replace(
        statement,
        payer=text(statement.payer),
        items=of_items(statement.items),
        left_out=of_items(statement.left_out),
        adjustments=tuple(replace(adjustment, reason=text(adjustment.reason)) for adjustment in statement.adjustments),
        users=tuple(replace(user, user=text(user.user)) for user in statement.users),
        corrections=tuple(
            correction if correction.item is None else replace(correction, item=of_items([correction.item])[0])
            for correction in statement.corrections
        ),
    )


def issued_statements(connection: Connection) -> list[ClosedStatement]:
    """All issued statements by number. Raises `StoreCorruptError`."""
    closings = {closing.id: closing for closing in closed_months.closings_of(connection)}
    rows = closed_months.issued(connection)
    if not rows:
        return []
    texts = closed_months.texts(connection)
    labels = {row.number: row.label for row in rows}
    successors = {row.cancels: row.label for row in rows if row.cancels is not None}
    return [
        ClosedStatement(
            row.number, closings[row.closing_id], _statement(row, texts, labels), successors.get(row.number, "")
        )
        for row in rows
    ]  # fmt: skip


def _statement(row: IssuedStatement, texts: dict[str, str], labels: dict[int, str]) -> Statement:
    decoded = read_with(_DECODER.decode, row.body, f"statement {row.label}")
    cancels = "" if row.cancels is None else labels.get(row.cancels, "")
    shown = with_texts(decoded, lambda token: texts.get(token, token))
    return msgspec.structs.replace(shown, number=row.label, cancels=cancels)


def _fraction(kind: type, value: Any) -> Any:
    if kind is Fraction:
        return Fraction(value)
    raise NotImplementedError


_DECODER: Final = msgspec.json.Decoder(Statement, dec_hook=_fraction)


def closing_of(context: ReportContext, request: ReportRequest) -> Closing | None:
    """The closing of the month of a request that is in force; None if it is not closed, or an archive is read."""
    if request.archive is not None:
        return None
    with context.store.read() as connection:
        return in_force(connection).get(month_of(request.start).number)


def in_force(connection: Connection) -> dict[int, Closing]:
    """The closings by the number of their month, without those that were replaced."""
    return {closing.month: closing for closing in closed_months.closings_of(connection) if closing.successor is None}


def closed_price_list(context: ReportContext, request: ReportRequest) -> PriceList | None:
    """The price list with which the month of a request was closed; None if it is not closed."""
    closing = closing_of(context, request)
    return None if closing is None else PriceList.of_closing(closing)


def closed_statements(context: ReportContext, request: ReportRequest) -> Statements | None:
    """The issued statements of the month of a request; None if it is not closed, or the request is for others."""
    closing = closing_of(context, request)
    if closing is None:
        return None
    settings = PriceList.of_closing(closing).charges
    by = request.by[0] if request.by else settings.by
    if by != settings.by or not request.filters.keys() <= {by}:
        return None
    with context.store.read() as connection:
        issued = issued_statements(connection)
    chosen = request.filters.get(by, "*")
    statements = [one for one in issued if not one.cancelled_by and fnmatchcase(one.statement.payer, chosen)]
    mine = [closed.statement for closed in statements if closed.closing.id == closing.id]
    month = month_numbered(closing.month)
    start, stop = month_in(month, zone_of(settings.timezone))
    first = Month(month.year, 1).number
    of_year = [closed for closed in statements if first <= closed.closing.month <= closing.month]
    # Without a statement for each month before, the sum would be less than what the year cost.
    whole = {one.closing.month for one in of_year} == set(range(first, closing.month + 1))
    year = {
        one.payer: sum((each.statement.total for each in of_year if each.statement.payer == one.payer), one.total * 0)
        for one in mine
        if whole
    }
    return Statements(
        month=str(month),
        start=start,
        stop=stop,
        site=context.config.site.name,
        by=by,
        currency=settings.currency,
        decimals=settings.decimals,
        all=tuple(msgspec.structs.replace(one, year_total=year.get(one.payer)) for one in mine),
        price_notes=(),
        nothing=None if mine else f"{month} is closed, and nobody has a statement",
        made_at=closing.closed_at,
        settings=context.config.statements,
        zone=settings.timezone,
        year_total=sum(year.values(), start=mine[0].total * 0) if year else None,
    )
