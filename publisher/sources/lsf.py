"""Source `lsf`: runs from LSF's lsb.acct and its archived copies lsb.acct.1, lsb.acct.2 ...

A record whose quoted text holds line feeds is put together from its lines. A record that never ends costs itself: the
next one is known by its beginning.
"""

from __future__ import annotations

import re
from typing import Any, Final

from publisher import config
from publisher.finding import Finding
from publisher.sources import lsf_lines
from publisher.sources.base import required_path
from publisher.sources.fields import LineError
from publisher.sources.lines import Line, LineSource, Outcome, Refused
from publisher.sources.logfile import LogReader

MAX_RECORD_BYTES: Final = 131_072

_NAMES: Final = re.compile(r"lsb\.acct(?:[._-][\w.-]+)?", re.ASCII)


class LsfParser:
    """A `LineParser` of lsb.acct."""

    reads = frozenset({"lsf"})

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._begun = b""

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """The run of a record that ends in this line, or why there is none."""
        kind = lsf_lines.record_type(line)
        begun, self._begun = self._begun, b""
        if not begun:
            return self._record(line, kind) if line.strip() else Line.IGNORED
        if kind is not None:
            given_up = Refused("a quoted text in it is never closed", raw=begun[:MAX_RECORD_BYTES])
            return [given_up, self._record(line, kind)]
        joined = begun + b"\n" + line
        if len(joined) > MAX_RECORD_BYTES:
            return Refused("a quoted text in it is never closed", raw=joined[:MAX_RECORD_BYTES])
        return self._record(joined, lsf_lines.record_type(joined))

    def file_begins(self, file: str) -> None:
        """Nothing depends on the file."""

    def state(self) -> str | None:
        """The record that is not complete, one character a byte."""
        return self._begun.decode("latin-1") if self._begun else None

    def resume(self, state: Any) -> None:
        """Go on with a record that was not complete."""
        try:
            self._begun = state.encode("latin-1") if isinstance(state, str) else b""
        except UnicodeEncodeError:
            self._begun = b""

    def waiting(self) -> str | None:
        """Whether a record is not complete."""
        return "a record whose quoted text is not closed yet" if self._begun else None

    def _record(self, raw: bytes, kind: str | None) -> Outcome:
        if kind is None:
            return Refused("does not begin with the type of a record and a version")
        if lsf_lines.goes_on(raw):
            self._begun = raw
            return Line.MORE
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
