"""A statement as a document: its texts in order, which text, HTML, and PDF all show.

Amounts are those of `publisher.report.statements.statement`, with thousands separators. Texts are safe to show:
characters that cannot be printed are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import Final

import msgspec

from publisher.config.reports import Charged, StatementRecipient
from publisher.report.calendar import zone_of
from publisher.report.held_amounts import plain
from publisher.report.statements.statement import Statement, StatementItem, Statements
from publisher.text import counted, iso

HEADINGS: Final = ("No.", "Item", "Quantity", "Unit", "Price", "Factor", "Amount")
USER_HEADINGS: Final = ("Of which by user", "Quantity", "Amount")
NUMBERS: Final = frozenset({0, 2, 4, 5, 6})
"""The columns that are aligned to the right."""
_RESOURCES: Final[dict[Charged, str]] = {
    "cores": "Cores", "memory": "Memory", "vmem": "Virtual memory", "gpus": "GPUs", "energy": "Energy",
}  # fmt: skip
_SMALL: Final = 0.001
_ITEM_WIDTH: Final = 40
_TIMES: Final = "\N{MULTIPLICATION SIGN}"


class StatementLine(msgspec.Struct, frozen=True):
    """A line: the cells of the table, and which usage the item applies to."""

    cells: tuple[str, ...]
    applies_to: str = ""


class StatementSection(msgspec.Struct, frozen=True):
    """The lines of one resource, or the adjustments, and their sum."""

    title: str
    lines: tuple[StatementLine, ...]
    subtotal: str


class StatementDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a statement."""

    title: str
    sender: tuple[str, ...]
    recipient: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    """Labels and values: number, date, period, and so on."""
    sections: tuple[StatementSection, ...]
    total: str
    currency: str
    year: tuple[str, str] | None
    """The label and the amount of the total since the beginning of the year."""
    users: tuple[tuple[str, ...], ...]
    """A line for each user: name, quantities, and amount; the last is what rounding adds, if it adds anything."""
    notes: tuple[str, ...]
    """How the amounts were computed, and what else a reader must know."""
    footer: tuple[str, ...]

    @property
    def number(self) -> str:
        """The number of the statement."""
        return self.facts[0][1]


def statement_document(made: Statements, one: Statement) -> StatementDocument:
    """The document of a statement."""
    settings = made.settings
    to = next((recipient for recipient in settings.recipients if _matches(recipient, one.payer)), None)
    number = one.number or settings.number.format(site=made.site, month=made.month, payer=one.payer)
    zone = zone_of(made.zone)
    date, first = (datetime.fromtimestamp(at, zone).date() for at in (made.made_at, made.start))
    last = datetime.fromtimestamp(made.stop - 1, zone).date()
    facts = [
        ("Statement number", number), ("Date", f"{date}"), ("Period", f"{first} to {last} ({made.zone})"),
        ("Site", made.site), (made.by.capitalize() if made.by != "vo" else "VO", one.payer),
        ("Currency", made.currency),
    ]  # fmt: skip
    if one.cancels:
        facts.append(("Replaces", f"statement {one.cancels}, which is cancelled"))
    if to is not None and to.reference:
        facts.append(("Your reference", to.reference))
    if made.so_far is not None:
        facts.append(("Status", f"preliminary: jobs that ended up to {iso(made.so_far)}"))
    return StatementDocument(
        title=f"Statement for {made.shown_month}",
        sender=_lines(settings.sender or made.site),
        recipient=_lines(one.payer if to is None else to.address),
        facts=tuple((label, _safe(value)) for label, value in facts),
        sections=tuple(_sections(one)),
        total=_amount(one.total),
        currency=_safe(made.currency),
        year=None
        if one.year_total is None
        else (f"Total {_safe(made.currency)} since {made.year_start}", _amount(one.year_total)),
        users=tuple(_users(one)),
        notes=tuple(map(_safe, _notes(made, one))),
        footer=_lines(settings.footer or ""),
    )


def _matches(recipient: StatementRecipient, payer: str) -> bool:
    return any(fnmatchcase(payer, pattern) for pattern in recipient.payer)


def _sections(one: Statement) -> list[StatementSection]:
    """The items by resource, the adjustments, then the corrections; their lines are numbered."""
    sections: list[tuple[str, list[tuple[str, Decimal, StatementItem | None, str]]]] = [
        (_RESOURCES[resource], [(item.name, item.amount, item, item.applies_to) for item in some])
        for resource, some in groupby(one.items, lambda item: item.resource)
    ]
    sections.append(
        ("Adjustments", [(adjustment.reason, adjustment.amount, None, "") for adjustment in one.adjustments])
    )
    sections.append(
        (
            "Corrections",
            [
                (correction.name, correction.amount, correction.item, correction.reason)
                for correction in one.corrections
            ],
        )
    )
    parts: list[StatementSection] = []
    number = 0
    for title, some_lines in sections:
        lines = []
        for name, amount, item, note in some_lines:
            number += 1
            of_item = ("",) * 4 if item is None else (_quantity(item), item.unit, f"{item.price:f}", _factor(item))
            cells = (str(number), name, *of_item, _amount(amount))
            lines.append(StatementLine(tuple(map(_safe, cells)), _safe(note)))
        if lines:
            total = sum((amount for _, amount, _, _ in some_lines), Decimal(0))
            parts.append(StatementSection(title, tuple(lines), _amount(total)))
    return parts


def _users(one: Statement) -> Iterator[tuple[str, ...]]:
    """The lines of users; their amounts add up to the sum of the items."""
    for user in one.users:
        quantities = "; ".join(f"{_number(quantity)} {unit}" for quantity, unit in user.quantities)
        yield (_safe(user.user), quantities, _amount(user.amount))
    rest = sum((item.amount for item in one.items), Decimal(0)) - sum((user.amount for user in one.users), Decimal(0))
    if one.users and rest:
        yield ("(rounding)", "", _amount(rest))


def _factor(item: StatementItem) -> str:
    factors = [plain(factor) for factor in (item.group_factor, item.job_factor) if factor != 1]
    return f" {_TIMES} ".join(factors) or "1"


def _notes(made: Statements, one: Statement) -> list[str]:
    zero = f"{Decimal(0):.{made.decimals}f}"
    computed = (
        f"How it was computed: a job is charged in the month in which it ended (time zone {made.zone}). Amount = "
        f"quantity {_TIMES} price {_TIMES} factor. Quantity = cores, GiB, or GPUs held {_TIMES} hours of wall time; it "
        "is computed exactly and shown with three decimals. A factor belongs to the group or the kind of job that its "
        f"line names. Each amount is rounded once, half away from zero, to {made.decimals} decimals; the total is the "
        "sum of the amounts shown."
    )
    if one.users:
        computed += " The amount of a user is rounded once, too; the line (rounding) is the difference of these sums."
    if any(item.resource == "energy" for item in one.items):
        computed += " Of energy, the quantity is what was measured or else modelled, with the PUE of the site."
    notes = [computed, *([one.energy] if one.energy else [])]
    if one.left_out:
        items = "; ".join(f"{item.name}, {_quantity(item)} {item.unit}" for item in one.left_out)
        notes.append(f"Not charged, because the amount rounds to {zero} {made.currency}: {items}.")
    if one.lost is not None:
        notes.append(
            f"Estimated: {one.lost.amount:,f} {made.currency} for {counted(one.lost.runs, 'lost run')} whose usage the "
            "batch system did not report. Its quantity is what it had from its start until it was restarted or deleted."
        )
    return [*notes, *filter(None, (made.unfinished, made.purged, made.year_note))]


def _quantity(item: StatementItem) -> str:
    return _number(item.quantity)


def _number(quantity: Fraction) -> str:
    """Three decimals, or as many as show that it is not zero."""
    amount = float(quantity)
    return f"{amount:,.3f}" if abs(amount) >= _SMALL else f"{amount:.2g}"


def _amount(amount: Decimal) -> str:
    return f"{amount:,f}"


def _lines(text: str) -> tuple[str, ...]:
    return tuple(_safe(line) for line in text.strip().splitlines())


def _safe(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def to_text(made: StatementDocument) -> str:
    """The document as plain text."""
    table, width = _text_table(made)
    label_width = max(len(label) for label, _ in made.facts)
    blocks = [
        made.sender,
        made.recipient,
        [made.title],
        [f"{label:<{label_width}}  {value}" for label, value in made.facts],
        table,
        _text_users(made, width),
        *(wrap(note, width) for note in made.notes),
        made.footer,
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _text_table(made: StatementDocument) -> tuple[list[str], int]:
    """The lines of the table, and its width."""
    rows = [HEADINGS, *(row for section in made.sections for line in section.lines for row in _text_rows(line))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADINGS))]
    widths[-1] = max(widths[-1], len(made.total), *(len(section.subtotal) for section in made.sections), 0)
    width = sum(widths) + 2 * (len(widths) - 1)
    rule = "-" * width

    def text_of(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(room) if place in NUMBERS else cell.ljust(room)
            for place, (cell, room) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    def sum_of(label: str, amount: str) -> str:
        return f"{label}  {amount.rjust(max(0, width - len(label) - 2))}"

    table = [text_of(HEADINGS), rule]
    for section in made.sections:
        table += [section.title, *(text_of(row) for line in section.lines for row in _text_rows(line))]
        table += [sum_of(f"Subtotal {section.title}", section.subtotal), rule]
    table.append(sum_of(f"Total {made.currency}", made.total))
    return [*table, *([sum_of(*made.year)] if made.year else [])], width


def _text_users(made: StatementDocument, width: int) -> list[str]:
    """The lines of users, as wide as the table if they fit."""
    if not made.users:
        return []
    rows = [USER_HEADINGS, *made.users]
    room = [max(len(row[place]) for row in rows) for place in range(len(USER_HEADINGS))]
    room[1] = max(room[1], width - room[0] - room[2] - 4)
    return [f"{user:<{room[0]}}  {held:<{room[1]}}  {amount:>{room[2]}}" for user, held, amount in rows]


def _text_rows(line: StatementLine) -> list[tuple[str, ...]]:
    """A line of the table as rows of text: long items, and what they apply to, have further rows."""
    number, item, *amounts = line.cells
    first, *more = [
        *(wrap(item, _ITEM_WIDTH) or [""]),
        *wrap(f"({line.applies_to})" * bool(line.applies_to), _ITEM_WIDTH),
    ]
    blank = [""] * len(amounts)
    return [(number, first, *amounts), *(("", text, *blank) for text in more)]


def to_html(made: StatementDocument) -> str:
    """The document as one self-contained page; whatever a name holds is text in it."""
    facts = "".join(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>\n" for label, value in made.facts)
    heads = "".join(f'<th scope="col"{_side(place)}>{escape(text)}</th>' for place, text in enumerate(HEADINGS))
    rows: list[str] = []
    for section in made.sections:
        rows.append(f'<tr class="section"><th colspan="7">{escape(section.title)}</th></tr>')
        for line in section.lines:
            cells = [f"<td{_side(place)}>{escape(cell)}</td>" for place, cell in enumerate(line.cells)]
            if line.applies_to:
                cells[1] = f"<td>{escape(line.cells[1])}<br><small>{escape(line.applies_to)}</small></td>"
            rows.append(f"<tr>{''.join(cells)}</tr>")
        rows.append(_sum_row("subtotal", f"Subtotal {section.title}", section.subtotal))
    rows.append(_sum_row("total", f"Total {made.currency}", made.total))
    if made.year:
        rows.append(_sum_row("subtotal", *made.year))
    users = "".join(
        f'<tr><td>{escape(user)}</td><td>{escape(held)}</td><td class="number">{escape(amount)}</td></tr>\n'
        for user, held, amount in made.users
    )
    user, held, amount = USER_HEADINGS
    heads_of_users = (
        f'<th scope="col">{user}</th><th scope="col">{held}</th><th scope="col" class="number">{amount}</th>'
    )
    table = f'<table class="items users">\n<thead><tr>{heads_of_users}</tr></thead>\n<tbody>\n{users}</tbody>\n</table>'
    return _HTML.format(
        title=escape(f"{made.title}: {made.number}"), heading=escape(made.title), sender=_html_lines(made.sender),
        recipient=_html_lines(made.recipient), facts=facts, heads=heads, rows="\n".join(rows),
        users=table if made.users else "",
        notes="\n".join(f"<p>{escape(note)}</p>" for note in made.notes), footer=_html_lines(made.footer),
    )  # fmt: skip


def _side(place: int) -> str:
    return ' class="number"' if place in NUMBERS else ""


def _sum_row(kind: str, label: str, amount: str) -> str:
    return f'<tr class="{kind}"><td colspan="6">{escape(label)}</td><td class="number">{escape(amount)}</td></tr>'


def _html_lines(lines: tuple[str, ...]) -> str:
    return "<br>".join(map(escape, lines))


_HTML: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
@page {{ size: A4; margin: 20mm 18mm;
  @bottom-right {{ content: "page " counter(page) " of " counter(pages); font: 8pt sans-serif; color: #555; }} }}
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
  background: #fff; overflow-wrap: break-word; }}
header {{ display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2rem; }}
table {{ border-collapse: collapse; }}
.facts th {{ text-align: left; font-weight: normal; color: #555; padding: 0 1rem 0 0; white-space: nowrap; }}
.items {{ width: 100%; margin: 1.5rem 0; }}
.items th, .items td {{ padding: .3rem .5rem; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; }}
.items .number {{ text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }}
.items td:nth-child(2) {{ overflow-wrap: anywhere; min-width: 8rem; }}
.items:not(.users) td:nth-child(4) {{ white-space: nowrap; }}
.items .section th {{ padding-top: 1rem; }}
.items .subtotal td {{ font-weight: bold; }}
.items .total td {{ font-weight: bold; border-top: 2px solid #1a1a1a; border-bottom: 0; font-size: 1.1em; }}
small, .notes {{ color: #555; font-size: .85em; }}
tr {{ break-inside: avoid; }}
@media print {{ body {{ margin: 0; padding: 0; max-width: none; font-size: 10pt; }} }}
</style>
</head>
<body>
<p>{sender}</p>
<h1>{heading}</h1>
<header>
<p>{recipient}</p>
<table class="facts">
{facts}</table>
</header>
<table class="items">
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
{users}
<div class="notes">
{notes}
</div>
<footer><p>{footer}</p></footer>
</body>
</html>
"""
