"""The statements of a month: what `publisher.report.views.charges` computes, and what documents show."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import msgspec

from publisher.config.reports import Charged, StatementSettings
from publisher.report.held_amounts import rounded
from publisher.text import counted, iso


class StatementItem(msgspec.Struct, frozen=True):
    """A line of a statement: a quantity of a class of resources, its price, and its factors."""

    resource: Charged
    name: str
    quantity: Fraction
    unit: str
    price: Decimal
    group_factor: Decimal
    job_factor: Decimal
    amount: Decimal
    applies_to: str = ""
    """Which usage it is, by the rules of the price list, so that no two items of a statement look alike."""


class Adjusted(msgspec.Struct, frozen=True):
    """An adjustment: an amount that the site adds to a statement or takes off it, and why."""

    amount: Decimal
    reason: str


class Correction(msgspec.Struct, frozen=True):
    """What changed of a closed month, as a line of a later statement. `item`: the differences of quantity and amount.

    `included_in`: the statement that had this correction before, in a successor that includes it in its items.
    """

    month: str
    amount: Decimal
    item: StatementItem | None = None
    late: int = 0
    changed: int = 0
    vanished: int = 0
    included_in: str = ""

    @property
    def jobs(self) -> int:
        """How many jobs it is about."""
        return self.late + self.changed + self.vanished

    @property
    def reason(self) -> str:
        """Why: how many jobs came late, changed, or vanished."""
        if self.item is None:
            return f"the correction in statement {self.included_in} is part of the items here"
        counts = (("late", self.late), ("changed", self.changed), ("vanished", self.vanished))
        return ", ".join(f"{counted(count, 'job')} {word}" for word, count in counts if count)

    @property
    def name(self) -> str:
        """What it is, in a line: `correction of 2026-10: cores`."""
        return f"correction of {self.month}" + (f": {self.item.name}" if self.item else "")


class LostRuns(msgspec.Struct, frozen=True):
    """Runs whose batch system reported no usage (status `lost`), so that their time is an estimate."""

    runs: int
    amount: Decimal
    """Their charge, rounded once."""


class UserCharge(msgspec.Struct, frozen=True):
    """The part of a payer's items that is of one user, rounded once."""

    user: str
    quantities: tuple[tuple[Fraction, str], ...]
    """Amounts of each resource, and their units."""
    amount: Decimal


class Statement(msgspec.Struct, frozen=True):
    """The charges of a payer for a month."""

    payer: str
    items: tuple[StatementItem, ...]
    adjustments: tuple[Adjusted, ...]
    left_out: tuple[StatementItem, ...] = ()
    """Items that are not zero and round to zero."""
    lost: LostRuns | None = None
    """The charge of lost runs, which is in the items; None if it is zero."""
    users: tuple[UserCharge, ...] = ()
    """The users whose jobs the items are, the largest charge first; empty if the payer is a user."""
    energy: str = ""
    """The line on the energy of the payer's jobs; empty: not configured, or unknown."""
    year_total: Decimal | None = None
    """The sum of the totals of the months of the year up to this one; None: not computed."""
    corrections: tuple[Correction, ...] = ()
    """What changed of months that are closed, in a statement of a month that is closed too."""
    number: str = ""
    """Its number in the series, if its month is closed."""
    cancels: str = ""
    """The number of the statement that it cancels and replaces."""

    @property
    def total(self) -> Decimal:
        """The sum of the lines."""
        items = sum((item.amount for item in (*self.items, *self.left_out)), Decimal(0))  # the latter are 0.00
        adjustments = sum((adjustment.amount for adjustment in self.adjustments), Decimal(0))
        return items + adjustments + sum((correction.amount for correction in self.corrections), Decimal(0))


class Statements(msgspec.Struct, frozen=True, kw_only=True):
    """All statements of a month of a time zone; `price_notes`: on usage without a price, and what may be mistakes."""

    month: str
    start: int
    """The start of the month, epoch seconds, like `stop`, which is not included."""
    stop: int
    site: str
    by: str
    currency: str
    decimals: int
    all: tuple[Statement, ...]
    price_notes: tuple[str, ...]
    nothing: str | None
    made_at: int
    """When they were made, epoch seconds."""
    settings: StatementSettings
    purged: str = ""
    """The note on runs of the month that were purged from the store and are not charged."""
    zone: str = "UTC"
    year_total: Decimal | None = None
    """The total of all payers since the beginning of the year; None: not computed."""
    year_note: str = ""
    """The note on earlier months of the year whose runs were purged."""
    sql: str = ""
    """The SQL that read the runs."""

    @property
    def total(self) -> Decimal:
        """The total of all payers."""
        return sum((statement.total for statement in self.all), Decimal(0))

    @property
    def year_start(self) -> str:
        """The first day of the year: 2026-01-01."""
        return f"{self.month[:4]}-01-01"

    @property
    def so_far(self) -> int | None:
        """If the month is not over, the instant up to which runs are charged."""
        return self.made_at if self.made_at < self.stop else None

    @property
    def shown_month(self) -> str:
        """The month, with its time zone if that is not UTC."""
        return self.month if self.zone == "UTC" else f"{self.month} ({self.zone})"

    @property
    def unfinished(self) -> str:
        """The note that the month is not over; else empty."""
        return (
            ""
            if self.so_far is None
            else f"The month is not over: these are the charges of jobs that ended up to {iso(self.so_far)}."
        )


def notes_on(made: Statements) -> tuple[str, ...]:
    """The notes on all statements."""
    if not made.all:
        return made.price_notes
    return (*([made.unfinished] if made.unfinished else []), *made.price_notes, *_lost_note(made), *_left_out(made))


def _lost_note(made: Statements) -> tuple[str, ...]:
    lost = [statement.lost for statement in made.all if statement.lost is not None]
    if not lost:
        return ()
    runs, amount = sum(lost_runs.runs for lost_runs in lost), sum((lost_runs.amount for lost_runs in lost), Decimal(0))
    payers = f"{len(lost)} of {counted(len(made.all), 'payer')}"
    note = (
        f"{counted(runs, 'lost run')} of {payers}: {amount:,f} {made.currency} are charged for estimated times. A job "
        "factor of 0 for the status lost charges nothing for them."
    )
    return (note,)


def _left_out(made: Statements) -> tuple[str, ...]:
    some = [statement for statement in made.all if statement.left_out]
    if not some:
        return ()
    items, nothing = sum(len(statement.left_out) for statement in some), rounded(Fraction(0), made.decimals)
    note = (
        f"No line for {counted(items, 'item')} of {len(some)} of {counted(len(made.all), 'payer')}: each amount rounds "
        f"to {nothing} {made.currency}. The statements name them."
    )
    return (note,)
