"""The table docs/internals/faults.csv: one row a fault, written by the test that makes the fault happen.

A test reports what happened; the normal run compares that with the table, `--rewrite-golden` writes it there. The
column of ARC is what its publisher (6.17) was measured to do under the same fault; "-" where that was not tried.
"""

from __future__ import annotations

import csv
import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

HEAD: Final = ("fault", "what happens", "sent twice", "ARC 6.17")


class GuaranteeRow(msgspec.Struct, frozen=True):
    """What happened, records that the service took more than once, and what ARC's publisher does."""

    happened: str
    twice: int
    arc: str


class InjectedFault(msgspec.Struct, frozen=True):
    """A fault as the table names it, and what ARC's publisher does about it, where that was measured."""

    title: str
    arc: str = "-"


FAULTS: Final[Mapping[str, InjectedFault]] = {
    "storm": InjectedFault("the service answers 503 for a while", "950 twice"),
    "outage": InjectedFault("the service answers 500 to everything", "950 twice"),
    "full": InjectedFault("the service accepts only records that it has"),
    "reset": InjectedFault("connection reset before a batch is taken", "950 twice"),
    "cut": InjectedFault("connection cut after a batch is taken", "1 000 twice"),
    "hang": InjectedFault("the service hangs", "950 twice, blocked for ever"),
    "slow": InjectedFault("the answer arrives byte by byte"),
    "html": InjectedFault("batch taken, answer 200 with HTML"),
    "maintenance": InjectedFault("a proxy answers 200 with its own JSON"),
    "stale receipt": InjectedFault("a cache repeats an earlier receipt"),
    "numbers": InjectedFault("200 with numbers that are not ids"),
    "throttled": InjectedFault("429 with Retry-After"),
    "oversized": InjectedFault("413"),
    "duplicate receipts": InjectedFault("one receipt for two batches"),
    "dns": InjectedFault("the name does not resolve"),
    "handshake": InjectedFault("the TLS handshake fails"),
    "untrusted": InjectedFault("a certificate of an unknown authority"),
    "expired": InjectedFault("our certificate expires between batches"),
    "unauthorised": InjectedFault("the right to insert is withdrawn"),
    "signing": InjectedFault("messages cannot be signed", "loses 1 918"),
    "ams lost answer": InjectedFault("the broker takes a message, answers 500", "1 818 twice"),
    "poison": InjectedFault("5 bad records"),
    "bad group": InjectedFault("a bad summary, alone in the oldest month"),
    "filling": InjectedFault("the service's disk fills and is freed during the search for a bad record"),
    "not latin-1": InjectedFault("a name that is not Latin-1", "918 stuck, 1 000 twice each run"),
    "markup": InjectedFault("`&` and `<` in a name", "batch is malformed"),
    "late": InjectedFault("31 late jobs with older end times", "loses all"),
    "other target": InjectedFault("the first of two targets fails", "loses 1 918"),
    "disk full": InjectedFault("disk full midway", "1 918 twice"),
    "disk full on the way": InjectedFault("disk filled by another program during a post"),
    "disk full at collect": InjectedFault("disk full during `collect`"),
    "disk full at purge": InjectedFault("disk full during `store purge`"),
    "disk full at forget": InjectedFault("disk full during `store forget`"),
    "disk full at export": InjectedFault("disk full during `store export`"),
    "disk full at import": InjectedFault("disk full during `store import`"),
    "disk full at copy": InjectedFault("disk full during `store copy`"),
    "disk full at backup": InjectedFault("disk full during `store backup`"),
    "read-only": InjectedFault("the store cannot be written"),
    "locked": InjectedFault("the store is locked by another program", "1 918 twice"),
    "corrupt": InjectedFault("the store is damaged, then an older copy is restored"),
    "clock": InjectedFault("the clock jumps back a day"),
    "overlap": InjectedFault("two runs at the same time"),
    "kill collect": InjectedFault("`kill -9` during `collect`"),
    "kill publish": InjectedFault("`kill -9` during `publish`", "1 000 to 1 200 twice"),
    "kill republish": InjectedFault("`kill -9` during `republish`"),
    "kill creation": InjectedFault("`kill -9` during the creation of a store"),
    "kill purge": InjectedFault("`kill -9` during `store purge`"),
    "kill forget": InjectedFault("`kill -9` during `store forget`"),
    "kill export": InjectedFault("`kill -9` during `store export`"),
    "kill import": InjectedFault("`kill -9` during `store import`"),
    "kill copy": InjectedFault("`kill -9` during `store copy`"),
    "kill backup": InjectedFault("`kill -9` during `store backup`"),
    "terminate": InjectedFault("SIGTERM during a post"),
}


class Guarantees:
    """The table, and how rows get there or are compared with it."""

    def __init__(self, table: Path, *, rewrite: bool) -> None:
        self._table = table
        self._rewrite = rewrite

    def row(self, key: str, happened: str, lost: int, twice: int) -> None:
        """What a fault did: in words, in records lost (the page says that none was), and in records taken twice."""
        assert lost == 0, key
        fault = FAULTS[key]
        row = GuaranteeRow(" ".join(happened.split()), twice, fault.arc)
        if self._rewrite:
            self._put(fault.title, row)
        found = rows_of(self._table.read_text("utf-8")).get(fault.title)
        assert found == row, f"{self._table.name} differs; `--rewrite-golden` writes what happened"

    def _put(self, title: str, row: GuaranteeRow) -> None:
        with self._table.open("r+", encoding="utf-8", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # tests may run side by side
            rows = rows_of(file.read()) | {title: row}
            file.seek(0)
            file.truncate()
            written = csv.writer(file, lineterminator="\n")
            written.writerow(HEAD)
            for fault in FAULTS.values():
                if fault.title in rows:
                    written.writerow([fault.title, *msgspec.structs.astuple(rows[fault.title])])


def rows_of(text: str) -> dict[str, GuaranteeRow]:
    """The rows of the table by their title."""
    head, *rows = csv.reader(text.splitlines())
    assert tuple(head) == HEAD
    return {title: GuaranteeRow(happened, int(twice), arc) for title, happened, twice, arc in rows}
