"""What reconciling does with a month: the base of what compares it with a kind of evidence."""

from __future__ import annotations

from publisher.reconcile.ledger import Ledger
from publisher.reconcile.result import MonthFound
from publisher.targets.base import EvidenceUnavailable


class MonthComparison:
    """Counts what was sent, and compares it with nothing, as with receipts alone."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def month(self, month: MonthFound) -> EvidenceUnavailable | None:
        """Compare a month. If the service does not answer, return why; what was sent is counted all the same."""
        for _entries in self._ledger.counted_pages(month):
            pass
        return None

    def end(self) -> None:
        """Add what can be said only after the last month."""
