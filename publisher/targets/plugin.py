"""A target of an add-on: an error in it is a problem of this target alone.

Promise kept here: an exception does not show whether the service accepted a message. So the outcome is unknown, and the
message is sent again with the same ids, as after a cut connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, get_args

import msgspec

from formats.calendar import Month
from formats.columns import RecordColumns, TotalColumns
from publisher.config.target_kind import EvidenceSource, TargetKind, factory_of
from publisher.errors import CredentialError, PublisherError, TargetError
from publisher.finding import Finding
from publisher.plugins import blamed
from publisher.targets.base import (
    Accepted,
    EvidenceUnavailable,
    KeptMessage,
    Message,
    Outcome,
    PeriodSum,
    Target,
    Unknown,
)
from publisher.targets.identity import TargetContext


def added_target(kind: TargetKind, name: str, settings: Any, context: TargetContext) -> Target:
    """Make a target of a kind that an add-on brings. Raises as the add-on does, or `TargetError`."""
    with blamed("target", kind.name, TargetError):
        made = factory_of(kind)(name, settings, context)
    return _BY_EVIDENCE.get(kind.evidence, AddedTarget)(name, kind, made)


class AddedTarget:
    """A `Target` that raises only errors of ours."""

    def __init__(self, name: str, described: TargetKind, made: Any) -> None:
        self.name = name
        self.kind = str(getattr(made, "kind", described.name))
        self._described = described
        self._made = made

    def payload_limit_bytes(self) -> int | None:
        """See `publisher.targets.base.Target`."""
        with self._explained():
            limit = msgspec.convert(self._made.payload_limit_bytes(), int | None)
            if limit is not None and limit < 1:
                raise ValueError(f"its limit of a payload is {limit} bytes, in which no record fits")
            return limit

    def post(self, message: Message) -> Outcome:
        """See `publisher.targets.base.Target`."""
        try:
            with self._explained():
                return _sound(self._made.post(message))
        except CredentialError:
            raise
        except PublisherError as error:
            return Unknown(str(error))

    def check(self) -> list[Finding]:
        """See `publisher.targets.base.Target`."""
        with self._explained():
            return msgspec.convert(list(self._made.check()), list[Finding])

    def close(self) -> None:
        """See `publisher.targets.base.Target`."""
        with self._explained():
            self._made.close()

    def _explained(self) -> AbstractContextManager[None]:
        return blamed("target", self._described.name, TargetError)


class _WithSums(AddedTarget):
    @property
    def sums_lag(self) -> bool:
        with self._explained():
            return bool(getattr(self._made, "sums_lag", False))

    def usage(self, of: str, first_day: int, until_day: int) -> list[PeriodSum] | EvidenceUnavailable:
        with self._explained():
            given: Sequence[PeriodSum] | EvidenceUnavailable = self._made.usage(of, first_day, until_day)
            if isinstance(given, EvidenceUnavailable):
                return given
            sums = msgspec.convert(list(given), list[PeriodSum])
            key = self._described.sums.key
            if any(len(each.values) != len(key) for each in sums):
                raise ValueError(f"its sums must have the values of {', '.join(key) or 'no column'}")
            return sums

    def last_registration_s(self, of: str) -> float | EvidenceUnavailable | None:
        with self._explained():
            given: float | EvidenceUnavailable | None = self._made.last_registration_s(of)
            return given if isinstance(given, EvidenceUnavailable) else msgspec.convert(given, float | None)


class _WithMessages(AddedTarget):
    @property
    def taken_away(self) -> bool:
        with self._explained():
            return bool(self._made.taken_away)

    def kept(self) -> Iterator[KeptMessage]:
        messages: Iterator[KeptMessage] | None = None
        while True:
            with self._explained():
                messages = iter(self._made.kept()) if messages is None else messages
                message = next(messages, None)
            if message is None:
                return
            yield message

    def keeps(self, name: str) -> bool:
        with self._explained():
            return bool(self._made.keeps(name))


class _WithRecords(AddedTarget):
    def records(self, day: int) -> Sequence[RecordColumns] | EvidenceUnavailable:
        with self._explained():
            given: Sequence[RecordColumns] | EvidenceUnavailable = self._made.records(day)
            return (
                given if isinstance(given, EvidenceUnavailable) else msgspec.convert(list(given), list[RecordColumns])
            )


class _WithTotals(AddedTarget):
    def totals(self, month: Month) -> Sequence[TotalColumns] | EvidenceUnavailable:
        with self._explained():
            given: Sequence[TotalColumns] | EvidenceUnavailable = self._made.totals(month)
            return given if isinstance(given, EvidenceUnavailable) else msgspec.convert(list(given), list[TotalColumns])


_BY_EVIDENCE: Final[Mapping[EvidenceSource, type[AddedTarget]]] = {
    "query": _WithSums,
    "records": _WithRecords,
    "totals": _WithTotals,
    "files": _WithMessages,
}


def _sound(outcome: Any) -> Outcome:
    """An outcome as the ledger can store it. Raises `TypeError` for anything else."""
    if isinstance(outcome, Accepted):
        receipt, rewritten, kept = (
            {str(key): str(value) for key, value in dict(each).items()}
            for each in (outcome.receipt, outcome.rewritten, outcome.kept)
        )
        return Accepted(receipt, tuple(map(str, outcome.missing)), rewritten, kept)
    if not isinstance(outcome, get_args(Outcome)):
        raise TypeError(f"post gave a {type(outcome).__name__}, which is not an outcome")
    sound: Outcome = msgspec.convert(msgspec.to_builtins(outcome), type(outcome))
    return sound
