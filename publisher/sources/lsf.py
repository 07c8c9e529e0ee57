"""Source `lsf`: runs from LSF's lsb.acct and its archived copies lsb.acct.1, lsb.acct.2 ...

A record whose quoted text holds line feeds is put together from its lines. A record that never ends costs itself: the
next one is known by its beginning.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from publisher import config
from publisher.finding import Finding
from publisher.sources import lsf_lines
from publisher.sources.base import required_path
from publisher.sources.fields import LineError
from publisher.sources.lines import Line, LineSource, Outcome, Refused
from publisher.sources.logfile import LogReader

MAX_RECORD_BYTES: Final = 131_072

_TOO_LONG: Final = f"the record is longer than {MAX_RECORD_BYTES} bytes"
_NAMES: Final = re.compile(r"lsb\.acct(?:[._-][\w.-]+)?", re.ASCII)


class LsfParser:
    """A `LineParser` of lsb.acct."""

    reads = frozenset({"lsf"})

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._begun: list[bytes] = []
        self._bytes = 0
        self._passes_over = False
        """Whether the lines of a record that is too long are passed over."""

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """The run of a record that ends in this line, or why there is none."""
        kind = lsf_lines.record_type(line)
        if not self._begun and not self._passes_over:
            return self._begins(line, kind) if line.strip() else Line.IGNORED
        if kind is not None:  # in a text a quote stands twice, so no text begins a line so
            given_up = [] if self._passes_over else [self._given_up("a quoted text in it is never closed", present=0)]
            self._passes_over = False
            return [*given_up, self._begins(line, kind)]
        ends = lsf_lines.goes_on(line)
        if self._passes_over:
            self._passes_over = not ends
            return Line.IGNORED
        self._keep(line)
        if self._bytes > MAX_RECORD_BYTES:
            self._passes_over = not ends
            return self._given_up(f"{_TOO_LONG}, or a quoted text in it is never closed", present=1)
        if not ends:
            return Line.MORE
        whole, back = b"\n".join(self._begun), len(self._begun) - 1
        self._forget()
        outcome = self._record(whole, lsf_lines.record_type(whole))
        return msgspec.structs.replace(outcome, raw=whole, back=back) if isinstance(outcome, Refused) else outcome

    def file_begins(self, file: str) -> None:
        """Nothing depends on the file."""

    def state(self) -> Any:
        """The record that is not complete, one character a byte; True while one that is too long is passed over."""
        return b"\n".join(self._begun).decode("latin-1") if self._begun else self._passes_over or None

    def resume(self, state: Any) -> None:
        """Go on with a record that was not complete."""
        self._forget()
        self._passes_over = state is True
        if isinstance(state, str) and state:
            try:
                for line in state.encode("latin-1").split(b"\n"):
                    self._keep(line)
            except UnicodeEncodeError:
                self._forget()

    def waiting(self) -> str | None:
        """Whether a record is not complete."""
        return "a record whose quoted text is not closed yet" if self._begun or self._passes_over else None

    def _keep(self, line: bytes) -> None:
        self._begun.append(line)
        self._bytes += len(line) + 1

    def _forget(self) -> None:
        self._begun, self._bytes = [], 0

    def _given_up(self, reason: str, present: int) -> Refused:
        """The record that is not complete. `present`: 1 if the present line is its last, 0 if the one before is."""
        whole, back = b"\n".join(self._begun), len(self._begun) - present
        self._forget()
        return Refused(reason, raw=whole[:MAX_RECORD_BYTES], back=back)

    def _begins(self, line: bytes, kind: str | None) -> Outcome:
        if kind is not None and lsf_lines.goes_on(line):
            self._keep(line)
            return Line.MORE
        return self._record(line, kind)

    def _record(self, raw: bytes, kind: str | None) -> Outcome:
        if kind is None:
            return Refused("does not begin with the type of a record and a version")
        if kind != "JOB_FINISH":
            return Line.SKIPPED
        try:
            job = lsf_lines.run(lsf_lines.fields(raw), self._cluster)
        except LineError as error:
            return Refused(str(error))
        return Line.SKIPPED if job is None else job


class LsfSource(LineSource):
    """The lsb.acct of an LSF cluster with its archived copies, or the folder they are in."""

    def __init__(self, name: str, settings: config.Source) -> None:
        path = required_path(name, settings, "lsb.acct", "/usr/share/lsf/work/cluster1/logdir/lsb.acct")
        cluster = settings.cluster
        reader = LogReader(path, _NAMES, settings.rotated_to)
        super().__init__(name, "lsf", reader, lambda: LsfParser(cluster), complete_since=settings.complete_since)
        self._cluster = cluster

    def check(self) -> list[Finding]:
        """As every log; and whether the cluster has a name, since LSF's records do not tell it."""
        findings = super().check()
        if self._cluster is None:
            hint = "Set `cluster` to the name that lsid shows, before the first job is published"
            findings.append(Finding(self.name, "yellow", "the cluster has no name: job ids of two could collide", hint))
        return findings
