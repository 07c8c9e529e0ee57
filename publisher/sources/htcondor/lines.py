"""Lines of HTCondor's history as jobs, and of the log that APEL lets HTCondor write.

An ad has one attribute in each line. It ends with a banner (`*** Offset = ...`), in `condor_history -long` with an
empty line, and in a file of a per-job history directory (`history.C.P`) with the file. If a banner is damaged, the next
ad is recognised by an attribute that occurs a second time.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, Final

import msgspec

from publisher.grid_identity import GridLogEntry
from publisher.sources.base import Line, Outcome, UnreadableLine
from publisher.sources.fields import LineError, decoded
from publisher.sources.htcondor import ad as htcondor_ad
from publisher.sources.htcondor.routed import RoutedJobs
from publisher.sources.limits import EXTRA_CHARACTERS

_NAME: Final = re.compile(rb"[A-Za-z_][\w.]*")
_APEL: Final = re.compile(rb"(?:[^|=\s]*#)?\d{1,12}\.\d{1,12}(?:#\d*)?\|")
_BANNER_ID: Final = re.compile(rb"ClusterId = (\d{1,12}) ProcId = (\d{1,12})")
_PER_JOB: Final = re.compile(r"history\.\d+\.\d+(?:\.(?:gz|bz2|xz|zst))?", re.ASCII)
_LONGEST: Final = 4 * EXTRA_CHARACTERS + 64
"""Bytes of an attribute that are read: enough to recognise a text that is too long."""
_MOST_ATTRIBUTES: Final = 512
_ROUTED: Final = "routed"
_INCOMPLETE: Final = "incomplete"


class AdState(msgspec.Struct):
    """The incomplete ad and whether it was reported, and complete ones of files that ended."""

    ad: dict[str, str] = {}
    whole: list[dict[str, str]] = []
    is_reported: bool = False


class HTCondorParser:
    """A `LineParser` of history files and of APEL's log, in any mixture. `file` is the one that is being read."""

    reads: frozenset[str] = frozenset({"htcondor", "apel-condor"})
    has_header = False

    def __init__(self, cluster: str | None, *, has_token_groups: bool = False) -> None:
        self._cluster = cluster
        self._has_token_groups = has_token_groups
        self._ad: dict[str, str] = {}
        self._whole: list[dict[str, str]] = []
        self._is_reported = False
        self.file = ""

    def file_begins(self, file: str) -> None:
        """A file with one job is one ad."""
        if self._ad and self.file != file and _PER_JOB.fullmatch(PurePath(self.file).name):
            self._whole.append(self._ad)
            self._ad = {}
        self.file = file

    def state(self) -> Any:
        """The incomplete ad."""
        return (
            msgspec.to_builtins(AdState(self._ad, self._whole, self._is_reported)) if self._ad or self._whole else None
        )

    def resume(self, state: Any) -> None:
        """Continue with an incomplete ad."""
        try:
            state_of_ad = AdState() if state is None else msgspec.convert(state, AdState)
        except msgspec.ValidationError:
            state_of_ad = AdState()
        self._ad, self._whole, self._is_reported = state_of_ad.ad, state_of_ad.whole, state_of_ad.is_reported

    def waiting(self) -> str | None:
        """The incomplete ad, if there is one."""
        if not self._ad or _PER_JOB.fullmatch(PurePath(self.file).name):
            return None
        return f"{self.file}: the last ad is incomplete; it is read when it is complete"

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineParser`."""
        if self._whole:
            return [*self._close_whole(), *self._outcomes(line)]
        outcome = self._attribute(line) if self._ad else None  # nearly always
        if outcome is not None:
            return outcome
        outcomes = self._outcomes(line)
        return outcomes[0] if len(outcomes) == 1 else outcomes

    def finish(self) -> list[Outcome]:
        """At the end of the input: give the ad of a file with one job, and report an ad that is incomplete."""
        ready = self._close_whole()
        if not self._ad:
            return ready
        if _PER_JOB.fullmatch(PurePath(self.file).name):
            return [*ready, *self._close()]
        if self._is_reported:
            return ready
        self._is_reported = True
        return [*ready, UnreadableLine("the last ad is incomplete; it is read when it is complete", raw=_raw(self._ad))]

    def _close_whole(self) -> list[Outcome]:
        """The runs of files with one ad each that have ended."""
        whole, self._whole = [*self._whole, self._ad], []
        outcomes: list[Outcome] = []
        for self._ad in whole[:-1]:
            outcomes += self._close()
        self._ad = whole[-1]
        return outcomes

    def _outcomes(self, line: bytes) -> list[Outcome]:
        if line.startswith(b"***"):
            return self._close(line)
        if not line.strip():
            return self._close() if self._ad else [Line.IGNORED]
        if _APEL.match(line):
            return [self._apel(line)]
        name, equals, value = line[:_LONGEST].partition(b"=")
        name = name.strip()
        if not equals or _NAME.fullmatch(name) is None:
            return [UnreadableLine("is not an attribute of an ad")]
        key = name.decode("ascii", "replace").lower()
        return self._put(key, value.strip()) if htcondor_ad.is_read(key) else [Line.IGNORED]

    def _put(self, key: str, value: bytes) -> list[Outcome]:
        """Keep an attribute. One that occurs again belongs to another ad: the banner between them is damaged."""
        closed = self._close() if key in self._ad else []
        if b"\0" in value or len(self._ad) >= _MOST_ATTRIBUTES:
            return [*closed, UnreadableLine("contains NUL bytes, or the ad has too many attributes")]
        self._ad[key] = _shown(value)
        return closed or [Line.MORE]

    def _attribute(self, line: bytes) -> Outcome | None:
        """The outcome of an ordinary attribute of the present ad; None for everything else."""
        name, separator, value = line.partition(b" = ")
        key = htcondor_ad.AS_WRITTEN.get(name) or name.decode("latin-1").lower()
        if key in htcondor_ad.READ_NAMES:
            if key in self._ad or len(value) >= _LONGEST or b"\0" in value:
                return None
            self._ad[key] = _shown(value.rstrip())
            return Line.MORE
        ordinary = separator and key.isidentifier() and not key.startswith(htcondor_ad.SCALING)
        return Line.IGNORED if ordinary else None

    def _apel(self, line: bytes) -> Outcome:
        try:
            return htcondor_ad.apel_job(decoded(line), self._cluster) or Line.SKIPPED
        except LineError as error:
            return UnreadableLine(str(error))

    def made_of(self, ad: dict[str, htcondor_ad.Value]) -> Outcome:
        """The run of a complete ad, or why there is none."""
        return from_ad(ad, self._cluster, has_token_groups=self._has_token_groups)

    def _close(self, banner: bytes = b"") -> list[Outcome]:
        """Take the end of an ad: give its run or other outcome."""
        texts, self._ad, self._is_reported = self._ad, {}, False
        if not texts:
            return [UnreadableLine("a banner without an ad before it")]
        ad = {name: htcondor_ad.value_of(value) for name, value in texts.items()}
        if (named := _BANNER_ID.search(banner)) and (
            ad.setdefault("clusterid", int(named[1])) != int(named[1])
            or ad.setdefault("procid", int(named[2])) != int(named[2])
        ):
            return [UnreadableLine("the banner after the ad names another job", raw=_raw(texts) + banner)]
        outcome = self.made_of(ad)
        return [
            UnreadableLine(outcome.reason, raw=_raw(texts) + banner) if isinstance(outcome, UnreadableLine) else outcome
        ]


class GridEntryParser(HTCondorParser):
    """Takes from the ads in a computing element's history only the users of jobs: `entries`."""

    def __init__(self) -> None:
        super().__init__(None)
        self.entries: list[GridLogEntry] = []
        self._routed = RoutedJobs()

    def state(self) -> Any:
        """The incomplete ad, and the jobs and routed copies whose other ad has not come."""
        ad = super().state()
        if not (self._routed.copies or self._routed.tokens):
            return ad
        return {_ROUTED: msgspec.to_builtins(self._routed), _INCOMPLETE: ad}

    def resume(self, state: Any) -> None:
        """Continue from `state()`; anything else counts as empty."""
        has_routed = isinstance(state, dict) and state.keys() == {_ROUTED, _INCOMPLETE}
        super().resume(state[_INCOMPLETE] if has_routed else state)
        try:
            self._routed = msgspec.convert(state[_ROUTED] if has_routed else {}, RoutedJobs)
        except msgspec.ValidationError:
            self._routed = RoutedJobs()

    def made_of(self, ad: dict[str, htcondor_ad.Value]) -> Outcome:
        """Keep the entry of an ad, if it has one."""
        try:
            entry = self._routed.entry(ad)
        except LineError as error:
            return UnreadableLine(str(error))
        if entry is not None:
            self.entries.append(entry)
        return Line.SKIPPED


def _raw(ad: dict[str, str]) -> bytes:
    return "".join([f"{name} = {value}\n" for name, value in ad.items()]).encode(errors="replace")


def _shown(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("utf-8", "backslashreplace")


def from_json(element: dict[str, Any], cluster: str | None, *, has_token_groups: bool = False) -> Outcome:
    """The run of an ad of `condor_history -json`, where expressions are in `/Expr(...)/`."""
    ad = {name.lower(): _json_value(value) for name, value in element.items() if htcondor_ad.is_read(name.lower())}
    return from_ad(ad, cluster, has_token_groups=has_token_groups)


def from_ad(ad: dict[str, htcondor_ad.Value], cluster: str | None, *, has_token_groups: bool = False) -> Outcome:
    """The run of an ad whose names are in lower case."""
    try:
        return htcondor_ad.job(ad, cluster, has_token_groups=has_token_groups) or Line.SKIPPED
    except LineError as error:
        return UnreadableLine(str(error))


def _json_value(value: Any) -> htcondor_ad.Value:
    if isinstance(value, str | int | float | bool | dict) or value is None:
        return value
    return None
