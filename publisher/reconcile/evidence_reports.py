"""Read the reports that a service has, from the messages in a directory or from a file.

Of several reports of one interval the last counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.columns import comparable
from formats.utilization.report import NotAReportError, UtilizationReport, read_report
from publisher.errors import UsageError
from publisher.inspect.unwrap import DecryptionKeys, unwrap
from publisher.reconcile.evidence_files import MOST_JSON_BYTES
from publisher.targets.base import KeptMessage

Interval = tuple[int, int]
"""First second, and first second after it: epoch seconds."""
_MOST_NOTES: Final = 100
_HINT: Final = "Give a report as it was sent, or a JSON list of reports"


class EvidenceReports(msgspec.Struct):
    """The reports of one site by interval, and notes on what could not be read. `sites`: its names."""

    sites: Sequence[str]
    reports: dict[Interval, UtilizationReport] = {}
    notes: list[str] = []
    elsewhere: int = 0

    def add(self, name: str, payload: bytes) -> None:
        """Add a report, which replaces an earlier one of its interval; reports of other sites are counted."""
        try:
            report = read_report(payload)
        except NotAReportError as error:
            self.note(f"{name}: {error}")
            return
        if any(comparable(report.site) == comparable(name) for name in self.sites):
            self.reports[report.start, report.stop] = report
        else:
            self.elsewhere += 1

    def note(self, text: str) -> None:
        """Add a note for people."""
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def all_notes(self) -> Sequence[str]:
        """The notes for people."""
        return [*self.notes, *([f"{self.elsewhere} reports are of other sites"] if self.elsewhere else [])]


def reports_of_messages(kept: Iterable[KeptMessage], sites: Sequence[str], now: int) -> EvidenceReports:
    """Read the messages of a directory in the order of their writing. Memory contains a report of each interval."""
    reports = EvidenceReports(sites, {}, [])
    for message in kept:
        if isinstance(message.content, str):
            reports.note(f"{message.name}: {message.content}")
            continue
        for inner in unwrap(message.name, message.content, DecryptionKeys(), now):
            if inner.payload is None:
                reports.note(f"{inner.label}: {'; '.join(violation.rule for violation in inner.violations)}")
            else:
                reports.add(inner.label, inner.payload)
    return reports


def reports_of_files(paths: Sequence[Path], sites: Sequence[str], now: int) -> EvidenceReports:
    """Read files, of which the last with a report of an interval counts. Raises as `reports_of_file`."""
    reports = EvidenceReports(sites, {}, [])
    for path in paths:
        one = reports_of_file(path, sites, now)
        reports.reports |= one.reports
        reports.elsewhere += one.elsewhere
        for note in one.notes:
            reports.note(note if len(paths) == 1 else f"{path}: {note}")
    return reports


def reports_of_file(path: Path, sites: Sequence[str], now: int) -> EvidenceReports:
    """Read a file: a message as it was sent, or JSON with many reports, such as the holdings of the simulator.

    Raises `UsageError` if it cannot be read, or has no report of this site.
    """
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise UsageError(f"{path} has more than {MOST_JSON_BYTES} bytes", hint="Give it in parts")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    listed = _listed(content)
    if listed is None:
        reports = reports_of_messages([KeptMessage(path.name, content)], sites, now)
    else:
        reports = EvidenceReports(sites, {}, [])
        for number, one in enumerate(listed, 1):
            reports.add(f"report {number}", msgspec.json.encode(one))
    if not reports.reports:
        why = f": {reports.notes[0]}" if reports.notes else ""
        raise UsageError(f"{path} has no report of {' or '.join(sites)}{why}", hint=_HINT)
    return reports


def _listed(content: bytes) -> list[Any] | None:
    """The reports of a JSON document with many, or of a service in it; None if it is something else."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(document, dict):
        parts = [document, *(part for part in document.values() if isinstance(part, dict))]
        document = next((part["reports"] for part in parts if "reports" in part), None)
    return document if isinstance(document, list) else None
