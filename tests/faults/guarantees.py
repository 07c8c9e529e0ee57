"""The table of docs/internals/guarantees.md: one row a fault, written by the test that makes the fault happen.

A test says what happened to it; the normal run holds that against the page, `--rewrite-golden` writes it there. The
columns of ARC are what its publisher (6.17) was measured to do under the same fault; "-" where that was not tried.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

HEAD: Final = (
    "| fault | what happens | lost | sent twice | ARC lost | ARC sent twice |",
    "|---|---|---|---|---|---|",
)
_ROW: Final = re.compile(r"^\| (?P<title>[^|]+) \|.*\|$")


class Fault(msgspec.Struct, frozen=True):
    """A fault as the page names it, and what ARC's publisher does about it: records lost, records sent twice."""

    title: str
    arc_lost: str = "-"
    arc_twice: str = "-"


FAULTS: Final[Mapping[str, Fault]] = {
    "storm": Fault("the service answers 503 for a while", "0", "950"),
    "outage": Fault("the service answers 500 to everything", "0", "950"),
    "full": Fault("the service can store nothing new, and answers well to what it has"),
    "reset": Fault("the connection is reset before the service took a batch", "0", "950"),
    "cut": Fault("the service takes a batch, then the connection is cut", "0", "1 000"),
    "hang": Fault("the service hangs", "0", "950, and blocked for ever"),
    "slow": Fault("the service takes a batch and lets its answer drip, a byte now and then"),
    "html": Fault("the service takes a batch and answers 200 with an HTML page"),
    "maintenance": Fault("a proxy answers 200 with a JSON object of its own instead of the service"),
    "stale receipt": Fault("a cache repeats the receipt of an earlier batch"),
    "numbers": Fault("200 with an object of numbers that are no ids"),
    "throttled": Fault("429 with Retry-After"),
    "oversized": Fault("413: the message is too large for the service"),
    "duplicate receipts": Fault("the same receipt for two batches"),
    "dns": Fault("the service's name does not resolve"),
    "handshake": Fault("the TLS handshake fails"),
    "untrusted": Fault("the service shows a certificate of an unknown authority"),
    "expired": Fault("our certificate expires between two batches"),
    "unauthorised": Fault("the service no longer lets us insert"),
    "signing": Fault("messages cannot be signed", "all 1 918, and its state moves on", "0"),
    "ams lost answer": Fault("the broker takes a signed message, then answers 500", "0", "1 818"),
    "poison": Fault("records that the service refuses"),
    "bad group": Fault("a summary that the service refuses, alone in the oldest month"),
    "filling": Fault("the service's disk fills while a bad record is looked for, and is free again later"),
    "not latin-1": Fault("a job's name that is not Latin-1", "918 stuck behind it, for ever", "1 000 at each run"),
    "markup": Fault("`&` and `<` in a name", "the whole batch is malformed XML"),
    "late": Fault("jobs that arrive late, with an older end time", "all of them, for ever", "0"),
    "other target": Fault("the first of two targets cannot be used", "all 1 918 of the second target", "0"),
    "disk full": Fault("the disk is full midway", "0", "1 918"),
    "disk full on the way": Fault("another program fills the disk while a message is on its way"),
    "disk full at collect": Fault("the disk is full while jobs are collected"),
    "disk full at purge": Fault("the disk is full during `store purge`"),
    "disk full at forget": Fault("the disk is full during `store forget`"),
    "disk full at export": Fault("the disk is full during `store export`"),
    "disk full at import": Fault("the disk is full during `store import`"),
    "disk full at copy": Fault("the disk is full during `store copy`"),
    "disk full at backup": Fault("the disk is full during `store backup`"),
    "read-only": Fault("the store cannot be written"),
    "locked": Fault("the store is locked by another program", "0", "1 918"),
    "corrupt": Fault("the store's file is damaged, and an older copy put in its place"),
    "clock": Fault("the clock jumps back a day between two batches"),
    "overlap": Fault("two runs at the same time"),
    "kill collect": Fault("`kill -9` at any step of collecting"),
    "kill publish": Fault("`kill -9` at any step of publishing", "0", "1 000 to 1 200"),
    "kill republish": Fault("`kill -9` at any step of sending again"),
    "kill creation": Fault("`kill -9` at any step of creating a store"),
    "kill purge": Fault("`kill -9` at any step of `store purge`"),
    "kill forget": Fault("`kill -9` at any step of `store forget`"),
    "kill export": Fault("`kill -9` at any step of `store export`"),
    "kill import": Fault("`kill -9` at any step of `store import`"),
    "kill copy": Fault("`kill -9` at any step of `store copy`"),
    "kill backup": Fault("`kill -9` at any step of `store backup`"),
    "terminate": Fault("SIGTERM while a batch is on its way"),
}


class Guarantees:
    """The page, and how rows get there or are held against it."""

    def __init__(self, page: Path, *, rewrite: bool) -> None:
        self._page = page
        self._rewrite = rewrite

    def row(self, key: str, happened: str, lost: int, twice: int) -> None:
        """What a fault did: in words, in records lost, and in records that the service took more than once."""
        fault = FAULTS[key]
        said = " ".join(happened.split()).replace("|", "\\|")
        line = f"| {fault.title} | {said} | {lost} | {twice} | {fault.arc_lost} | {fault.arc_twice} |"
        if self._rewrite:
            self._put(fault.title, line)
        found = rows_of(self._page.read_text("utf-8")).get(fault.title)
        assert found == line, f"{self._page.name} says otherwise; `--rewrite-golden` writes what happened"

    def _put(self, title: str, line: str) -> None:
        with self._page.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # tests may run side by side
            text = file.read()
            rows = rows_of(text) | {title: line}
            table = [*HEAD, *(rows[fault.title] for fault in FAULTS.values() if fault.title in rows)]
            before, _, rest = text.partition(HEAD[0])
            behind = "\n".join(rest.splitlines()).partition("\n\n")[2]
            file.seek(0)
            file.truncate()
            file.write(before + "\n".join(table) + ("\n\n" + behind if behind else "") + "\n")


def rows_of(text: str) -> dict[str, str]:
    """The rows of the page by their title."""
    behind = text.partition(HEAD[1])[2]
    found: dict[str, str] = {}
    for line in behind.strip("\n").splitlines():
        row = _ROW.match(line)
        if row is None:
            break
        found[row["title"]] = line
    return found
