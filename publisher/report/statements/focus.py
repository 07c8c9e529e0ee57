"""Statements in FOCUS 1.2 (FinOps Open Cost and Usage Specification), as CSV or Parquet: a row for each line.

The sum of BilledCost of a payer (SubAccountId) and statement (InvoiceId) is the total of the statement. A correction of
a closed month has the ChargeClass Correction, the month that it is about as charge period, and that of its statement as
billing period.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from formats.calendar import Month
from publisher.csv_text import csv_text
from publisher.errors import OutputError, UsageError
from publisher.report.calendar import month_in, zone_of
from publisher.report.held_amounts import rounded
from publisher.report.statements.statement import Statement, StatementItem, Statements
from publisher.whole_file import require_own_folder, write_whole

FocusForm = Literal["csv", "parquet"]
_CODE: Final = re.compile(r"[A-Z]{3}", re.ASCII)
_TIMES: Final = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
_AMOUNTS: Final = (
    "BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "ConsumedQuantity", "PricingQuantity",
    "CommitmentDiscountQuantity", "ContractedUnitPrice", "ListUnitPrice",
)  # fmt: skip
COLUMNS: Final = (
    "AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName",
    "CommitmentDiscountQuantity", "CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceId",
    "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit",
    "ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId",
    "SubAccountId", "SubAccountName", "Tags",
)  # fmt: skip
"""In the order of their names; a column without a value is NULL."""
_UNITS: Final = {
    "core h": "Core-Hours", "GPU h": "GPU-Hours", "GiB h": "GiB-Hours", "kWh": "Kilowatt-Hours",
}  # fmt: skip
_DECIMALS: Final = 9
"""Of quantities; amounts have those of their currency."""
_TYPES: Final = {
    **dict.fromkeys(COLUMNS, pa.string()),
    **dict.fromkeys(_TIMES, pa.timestamp("s", tz="UTC")),
    **dict.fromkeys(_AMOUNTS, pa.decimal128(38, _DECIMALS)),
}


def write_focus(made: Statements, directory: Path, form: FocusForm) -> Path:
    """Write the statements of a month into a folder, always under one name. Raises as `focus`, and `OutputError`."""
    file = directory / f"focus-{made.month}.{form}"
    content = focus(made, form)
    try:
        require_own_folder(directory)
        write_whole(file, content)
    except OSError as error:
        raise OutputError(
            f"{file} cannot be written: {error.strerror}",
            hint="Free space there, or name another folder with --output",
        ) from error
    return file


def focus(made: Statements, form: FocusForm) -> bytes:
    """The statements as the content of a file. Raises `UsageError`."""
    if _CODE.fullmatch(made.currency) is None:
        hint = "Set currency in [charges] to its code in ISO 4217, such as EUR"
        raise UsageError(f"FOCUS has codes of currencies, and {made.currency!r} is not a code", hint=hint)
    rows = [row for statement in made.all for row in _rows(made, statement)]
    if form == "parquet":
        table = {name: pa.array([row.get(name) for row in rows], _TYPES[name]) for name in COLUMNS}
        content = io.BytesIO()
        pq.write_table(pa.table(table), content)  # type: ignore[no-untyped-call]
        return content.getvalue()
    cells = ([_cell(row.get(name)) for name in COLUMNS] for row in rows)
    return csv_text([COLUMNS, *cells]).encode("utf-8", "backslashreplace")


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, Decimal):
        # A point in each: a column of whole numbers only is not read as decimals.
        return f"{value:f}" if "." in f"{value:f}" else f"{value:f}.0"
    return "NULL" if value is None else str(value)


def _rows(made: Statements, one: Statement) -> Iterator[dict[str, Any]]:
    common = _common(made, one)
    own = _period("Charge", made.start, made.stop)
    for item in one.items:
        yield {**common, **own, **_item(item, made.decimals), "ChargeDescription": _described(item)}
    for adjusted in one.adjustments:
        yield {**common, **own, **_once(adjusted.amount), "ChargeDescription": adjusted.reason}
    for correction in one.corrections:
        start, stop = month_in(Month(*map(int, correction.month.split("-"))), zone_of(made.zone))
        yield {
            **common, **_period("Charge", start, stop),
            **(_once(correction.amount) if correction.item is None else _item(correction.item, made.decimals)),
            "ChargeClass": "Correction", "ChargeDescription": f"{correction.name}: {correction.reason}",
        }  # fmt: skip


def _common(made: Statements, one: Statement) -> Mapping[str, Any]:
    sender = (made.settings.sender or made.site).strip().splitlines()[0]
    return {
        "BillingAccountId": made.site, "BillingAccountName": sender, "BillingCurrency": made.currency,
        **_period("Billing", made.start, made.stop), "InvoiceId": one.number or None, "InvoiceIssuerName": sender,
        "ProviderName": sender, "PublisherName": sender, "ServiceCategory": "Compute", "ServiceName": made.site,
        "ServiceSubcategory": "Other (Compute)", "SubAccountId": one.payer, "SubAccountName": one.payer, "Tags": "{}",
    }  # fmt: skip


def _period(kind: str, start: int, stop: int) -> dict[str, datetime]:
    return {
        f"{kind}PeriodStart": datetime.fromtimestamp(start, UTC), f"{kind}PeriodEnd": datetime.fromtimestamp(stop, UTC),
    }  # fmt: skip


def _costs(amount: Decimal, listed: Decimal) -> dict[str, Decimal]:
    return {"BilledCost": amount, "ContractedCost": amount, "EffectiveCost": amount, "ListCost": listed}


def _item(item: StatementItem, decimals: int) -> dict[str, Any]:
    factor = Fraction(item.group_factor) * Fraction(item.job_factor)
    quantity, unit = rounded(item.quantity, _DECIMALS), _UNITS[item.unit]
    return {
        **_costs(item.amount, rounded(item.quantity * Fraction(item.price), decimals)),
        "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based", "ConsumedQuantity": quantity, "ConsumedUnit": unit,
        "PricingQuantity": quantity, "PricingUnit": unit, "PricingCategory": "Standard", "ListUnitPrice": item.price,
        "ContractedUnitPrice": rounded(Fraction(item.price) * factor, _DECIMALS), "SkuId": item.resource,
        "SkuMeter": item.resource, "SkuPriceId": f"{item.resource}: {item.name}",
    }  # fmt: skip


def _once(amount: Decimal) -> dict[str, Any]:
    return {**_costs(amount, amount), "ChargeCategory": "Adjustment", "ChargeFrequency": "One-Time"}


def _described(item: StatementItem) -> str:
    return f"{item.name} ({item.applies_to})" if item.applies_to else item.name
