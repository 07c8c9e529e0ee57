"""A source whose path contains logs of lines, and documents (JSON, XML) that are read as a whole, in any mixture.

Logs are read as usual (`publisher.sources.logs.reader`). A document is read when it is new or changed: it is identified
by device, inode, size, and time of change. Reading one again changes nothing, since the record id is that of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.errors import SourceError, SourceFormatError
from publisher.finding import Finding
from publisher.sources.base import (
    FILE_MARKS,
    PAGE_RECORDS,
    WAITING,
    Cursor,
    Outcome,
    Page,
    PageBuilder,
    Unreadable,
    UnreadableLine,
    Window,
    waiting_in,
)
from publisher.sources.logs.compression import DamagedError
from publisher.sources.logs.line_parser import EndingParser
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.open_log import OpenLog, open_log
from publisher.sources.logs.reader import LogReader
from publisher.sources.logs.sniff import KINDS, document_kind

_SNIFF: Final = 4_096

_BEGUN: Final = "begun"
_BEGUN_NUMBERS: Final = 5
Stamp = list[int]
"""Device, inode, size, and time of change (ns) of a document."""


class SavedSource:
    """A `Source` of logs and documents at a path.

    `documents`: the kinds of document that it understands, as `sniff.document_kind` names them; a document of another
    kind is refused as a whole. `parse_document` gives the outcomes of an open document, and raises only what
    `OpenLog.read` raises.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        path: Path,
        names: re.Pattern[str] | None,
        make_parser: Callable[[], EndingParser],
        documents: frozenset[str],
        parse_document: Callable[[OpenLog], Iterator[Outcome]],
        complete_since: int | None = None,
        rotated_to: Collection[Path] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self._all = LogReader(path, names, rotated_to)
        self._logs = LineSource(name, kind, _Logs(path, names, rotated_to), make_parser, complete_since=complete_since)
        self._documents = documents
        self._parse_document = parse_document

    def complete_since(self) -> int | None:
        """The configured time: saved output does not show what was before it."""
        return self._logs.complete_since()

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """Pages of the logs, then of the documents; see `Source.pages`."""
        documents = [file for file in map(Path, self._all.files()) if is_document(file)]
        here: dict[str, Any] = {key: value for key, value in cursor.items() if key not in {_BEGUN, FILE_MARKS}}
        of_logs = cursor.get("log", {})
        if FILE_MARKS in cursor:
            of_logs = {**of_logs, FILE_MARKS: cursor[FILE_MARKS]}
        begun = _begun(cursor) if window is None else []
        problem: SourceError | None = None
        try:
            for page in self._logs.pages(of_logs, window):
                here["log"] = page.cursor
                here[WAITING] = list(waiting_in(page.cursor))
                last = page.at_end and not documents
                yield msgspec.structs.replace(page, cursor=cursor if window else dict(here), at_end=last)
        except SourceError as error:
            problem = error
        for part in self._all_documents(documents, here, begun, window):
            if isinstance(part, Page):
                last = part.at_end and problem is None
                yield msgspec.structs.replace(part, cursor=cursor if window else part.cursor, at_end=last)
            else:
                problem = problem or part
        if problem is not None:
            raise problem

    def _all_documents(
        self, files: list[Path], here: Cursor, begun: list[int], window: Window | None
    ) -> Iterator[Page | SourceError]:
        """Pages of the documents that are new or changed, and errors of those that cannot be read.

        `begun`: the stamp of the document in which an earlier reading stopped, and how many jobs of it were given.
        """
        known = [] if window is not None else _stamps(here)
        seen: list[Stamp] = []
        for file in files:
            try:
                with open_log(file) as log:
                    self._refuse_others(file, log)
                    stamp = [log.device, log.inode, log.size, log.mtime_ns]
                    given = begun[-1] if begun[:-1] == stamp else 0
                    for number, page in () if stamp in known else self._document_pages(file, log, window, given):
                        left = [other for other in known if other not in seen]
                        cursor = {**here, "documents": [*seen, *left], _BEGUN: [*stamp, number]}
                        yield msgspec.structs.replace(page, cursor=cursor)
                seen.append(stamp)
            except SourceError as error:
                yield error
            except DamagedError as error:
                yield SourceError(f"{file}: the compressed file is cut short or damaged ({error})")
            except OSError as error:
                yield SourceError(f"{file}: {error.strerror or error}")
        if files:
            yield Page((), {**here, "documents": seen}, 0, at_end=True)

    def check(self) -> list[Finding]:
        """Check the log, and whether each document can be understood."""
        try:
            documents = [file for file in map(Path, self._all.files()) if is_document(file)]
        except SourceError as error:
            return [Finding(self.name, "red", error.message, error.hint)]
        findings: list[Finding] = []
        if self._logs.reader.files() or not documents:
            findings += self._check_logs()
        for file in documents:
            try:
                with open_log(file) as log:
                    self._refuse_others(file, log)
                    first = next(self._parse_document(log), None)
            except (SourceError, DamagedError, OSError) as error:
                findings.append(Finding(self.name, "red", f"{file}: {error}"))
                continue
            if first is None:
                findings.append(Finding(self.name, "yellow", f"{file}: the document contains no job"))
            elif isinstance(first, UnreadableLine):
                findings.append(Finding(self.name, "red", f"{file}: the first job is not understood: {first.reason}"))
            else:
                findings.append(Finding(self.name, "green", f"{file}: the document is understood"))
        return findings

    def _check_logs(self) -> list[Finding]:
        """Check the log; if no run ends at the beginning of a file, give the findings of the first page."""
        findings = self._logs.check()
        if any(finding.level != "yellow" for finding in findings):
            return findings
        page = next(self._logs.pages({}, None), None)
        if page is None or not page.jobs:
            return findings
        return [Finding(self.name, "green", f"{len(self._logs.reader.files())} files; jobs are understood")]

    def _refuse_others(self, file: Path, log: OpenLog) -> None:
        """Raises `SourceFormatError` for a document of another batch system."""
        head = log.read(_SNIFF)
        log.unread(head)
        kind = document_kind(head)
        if kind is not None and kind not in self._documents:
            raise SourceFormatError(f"{file}: this looks like {KINDS[kind]}", hint="Correct `path` or `type`")

    def _document_pages(
        self, file: Path, log: OpenLog, window: Window | None, given: int
    ) -> Iterator[tuple[int, Page]]:
        """Pages of a document without its first `given` jobs, each with the number of its last job."""
        number = given
        page = PageBuilder(window)
        for number, outcome in enumerate(self._parse_document(log), 1):
            if number <= given:
                continue
            page.add(outcome, partial(_with_number, file, number))
            if page.read >= PAGE_RECORDS:
                yield number, page.page({})
        yield number, page.page({})


def _with_number(file: Path, number: int, refused: UnreadableLine) -> Unreadable:
    numbered = refused.of_file(str(file), number)
    return msgspec.structs.replace(numbered, reason=f"job {number} of the document: {refused.reason}")


class _Logs(LogReader):
    """The files of a path that are not documents."""

    def files(self) -> list[str]:
        return [file for file in super().files() if not is_document(Path(file))]


def is_document(file: Path) -> bool:
    """Whether a file begins as JSON or XML do. False for one that cannot be opened: reading it as a log gives the
    reason.
    """
    try:
        with open_log(file) as log:
            return log.read(_SNIFF).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"{", b"[", b"<"}
    except (SourceError, DamagedError, OSError):
        return False


def _begun(cursor: Cursor) -> list[int]:
    try:
        begun = msgspec.convert(cursor.get(_BEGUN, []), list[int])
    except msgspec.ValidationError:
        return []
    return begun if len(begun) == _BEGUN_NUMBERS else []


def _stamps(cursor: Cursor) -> list[Stamp]:
    try:
        return msgspec.convert(cursor.get("documents", []), list[Stamp])
    except msgspec.ValidationError:
        return []
