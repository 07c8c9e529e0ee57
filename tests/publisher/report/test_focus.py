"""FOCUS: a row for each line of a statement, with its amounts to the cent; corrections are marked as such."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from formats.calendar import Month, month_bounds
from publisher.errors import UsageError
from publisher.report.request import ReportRequest
from publisher.report.statements.focus import COLUMNS, focus
from publisher.report.statements.statement import Statements
from tests.publisher.report.closing_site import charges, closing_site, come, job
from tests.publisher.site import Site

SEPTEMBER, OCTOBER = Month(2026, 9), Month(2026, 10)
IN_SEPTEMBER, IN_OCTOBER = month_bounds(SEPTEMBER)[0] + 86_400, month_bounds(OCTOBER)[0] + 86_400
ADJUSTED = {"month": "2026-10", "payer": "bob", "amount": "-0.05", "reason": "=outage"}
FACTOR = {"factor": "0.5", "user": "eve"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """October is closed, and has a correction of September."""
    site = closing_site(
        tmp_path, job(1, "ada", IN_SEPTEMBER), job(2, "bob", IN_OCTOBER, 12_345), job(3, "eve", IN_OCTOBER + 9, 777),
        adjustments=[ADJUSTED], group_factors=[FACTOR],
    )  # fmt: skip
    site.publisher.close_month(SEPTEMBER)
    come(site, job(4, "ada", IN_SEPTEMBER + 5, 999), job(5, "eve", IN_OCTOBER + 9, 4567, queue="short"))
    site.publisher.close_month(OCTOBER)
    return site


def written(site: Site, month: Month) -> tuple[Statements, list[dict[str, str]]]:
    begin, end = month_bounds(month)
    made, file = site.publisher.focus(ReportRequest(start=begin, stop=end), site.folder / "focus", "csv")
    assert file.name == f"focus-{month}.csv"
    return made, list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))


def test_sums_are_those_of_the_statements(site: Site) -> None:
    made, rows = written(site, OCTOBER)
    sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for row in rows:
        sums[row["SubAccountId"], row["InvoiceId"]] += Decimal(row["BilledCost"])
        assert "" not in row.values()
    assert sums == {(one.payer, one.number): one.total for one in made.all}
    assert len(rows) == sum(len(one.items) + len(one.adjustments) + len(one.corrections) for one in made.all)
    table = pq.read_table(io.BytesIO(focus(made, "parquet")))
    assert tuple(table.column_names) == COLUMNS == tuple(rows[0])
    assert sum(table.column("BilledCost").to_pylist()) == made.total


def test_corrections_adjustments_and_factors(site: Site) -> None:
    _, rows = written(site, OCTOBER)
    names = (
        "SubAccountId",
        "ChargeCategory",
        "ChargeClass",
        "ChargeFrequency",
        "ChargePeriodStart",
        "BilledCost",
        "ListCost",
    )
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("ada", "Usage", "Correction", "Usage-Based", "2026-09-01T00:00:00Z", "0.06", "0.06"),
        ("bob", "Usage", "NULL", "Usage-Based", "2026-10-01T00:00:00Z", "0.75", "0.75"),
        ("bob", "Adjustment", "NULL", "One-Time", "2026-10-01T00:00:00Z", "-0.05", "-0.05"),
        ("eve", "Usage", "NULL", "Usage-Based", "2026-10-01T00:00:00Z", "0.47", "0.94"),
        ("eve", "Usage", "NULL", "Usage-Based", "2026-10-01T00:00:00Z", "0.02", "0.05"),
    ]
    adjustment = rows[2]
    assert adjustment["ConsumedQuantity"] == adjustment["SkuId"] == "NULL"
    assert adjustment["ChargeDescription"] != "=outage"  # no formula for a spreadsheet


def test_a_currency_without_decimals(tmp_path: Path) -> None:
    site = closing_site(tmp_path, job(1, "ada", IN_SEPTEMBER))
    site.table["charges"] = charges({"main": "11"}, currency="JPY", decimals=0)
    site.reopen()
    made, rows = written(site, SEPTEMBER)
    assert [(row["BilledCost"], row["BillingCurrency"], row["InvoiceId"]) for row in rows] == [("22.0", "JPY", "NULL")]
    assert made.total == Decimal(22)


def test_a_currency_without_a_code_is_refused(tmp_path: Path) -> None:
    site = closing_site(tmp_path, job(1, "ada", IN_OCTOBER), currency="credits")
    with pytest.raises(UsageError, match="'credits' is not a code"):
        written(site, OCTOBER)
    assert not (tmp_path / "focus").exists()
