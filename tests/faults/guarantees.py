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


class Row(msgspec.Struct, frozen=True):
    """What happened, records that the service took more than once, and what ARC's publisher does."""

    happened: str
    twice: int
    arc: str


class Fault(msgspec.Struct, frozen=True):
    """A fault as the table names it, and what ARC's publisher does about it, where that was measured."""

    title: str
    arc: str = "-"


FAULTS: Final[Mapping[str, Fault]] = {
    "storm": Fault("the service answers 503 for a while", "950 twice"),
    "outage": Fault("the service answers 500 to everything", "950 twice"),
    "full": Fault("the service accepts only records that it has"),
    "reset": Fault("connection reset before a batch is taken", "950 twice"),
    "cut": Fault("connection cut after a batch is taken", "1 000 twice"),
    "hang": Fault("the service hangs", "950 twice, blocked for ever"),
    "slow": Fault("the answer arrives byte by byte"),
    "html": Fault("batch taken, answer 200 with HTML"),
    "maintenance": Fault("a proxy answers 200 with its own JSON"),
    "stale receipt": Fault("a cache repeats an earlier receipt"),
    "numbers": Fault("200 with numbers that are not ids"),
    "throttled": Fault("429 with Retry-After"),
    "oversized": Fault("413"),
    "duplicate receipts": Fault("one receipt for two batches"),
    "dns": Fault("the name does not resolve"),
    "handshake": Fault("the TLS handshake fails"),
    "untrusted": Fault("a certificate of an unknown authority"),
    "expired": Fault("our certificate expires between batches"),
    "unauthorised": Fault("the right to insert is withdrawn"),
    "signing": Fault("messages cannot be signed", "loses 1 918"),
    "ams lost answer": Fault("the broker takes a message, answers 500", "1 818 twice"),
    "poison": Fault("5 bad records"),
    "bad group": Fault("a bad summary, alone in the oldest month"),
    "filling": Fault("the service's disk fills and is freed during the search for a bad record"),
    "not latin-1": Fault("a name that is not Latin-1", "918 stuck, 1 000 twice each run"),
    "markup": Fault("`&` and `<` in a name", "batch is malformed"),
    "late": Fault("31 late jobs with older end times", "loses all"),
    "other target": Fault("the first of two targets fails", "loses 1 918"),
    "disk full": Fault("disk full midway", "1 918 twice"),
    "disk full on the way": Fault("disk filled by another program during a post"),
    "disk full at collect": Fault("disk full during `collect`"),
    "disk full at purge": Fault("disk full during `store purge`"),
    "disk full at forget": Fault("disk full during `store forget`"),
    "disk full at export": Fault("disk full during `store export`"),
    "disk full at import": Fault("disk full during `store import`"),
    "disk full at copy": Fault("disk full during `store copy`"),
    "disk full at backup": Fault("disk full during `store backup`"),
    "read-only": Fault("the store cannot be written"),
    "locked": Fault("the store is locked by another program", "1 918 twice"),
    "corrupt": Fault("the store is damaged, then an older copy is restored"),
    "clock": Fault("the clock jumps back a day"),
    "overlap": Fault("two runs at the same time"),
    "kill collect": Fault("`kill -9` during `collect`"),
    "kill publish": Fault("`kill -9` during `publish`", "1 000 to 1 200 twice"),
    "kill republish": Fault("`kill -9` during `republish`"),
    "kill creation": Fault("`kill -9` during the creation of a store"),
    "kill purge": Fault("`kill -9` during `store purge`"),
    "kill forget": Fault("`kill -9` during `store forget`"),
    "kill export": Fault("`kill -9` during `store export`"),
    "kill import": Fault("`kill -9` during `store import`"),
    "kill copy": Fault("`kill -9` during `store copy`"),
    "kill backup": Fault("`kill -9` during `store backup`"),
    "terminate": Fault("SIGTERM during a post"),
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
        row = Row(" ".join(happened.split()), twice, fault.arc)
        if self._rewrite:
            self._put(fault.title, row)
        found = rows_of(self._table.read_text("utf-8")).get(fault.title)
        assert found == row, f"{self._table.name} differs; `--rewrite-golden` writes what happened"

    def _put(self, title: str, row: Row) -> None:
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


def rows_of(text: str) -> dict[str, Row]:
    """The rows of the table by their title."""
    head, *rows = csv.reader(text.splitlines())
    assert tuple(head) == HEAD
    return {title: Row(happened, int(twice), arc) for title, happened, twice, arc in rows}
