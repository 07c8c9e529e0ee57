"""A target of an add-on: an error in it is a problem of this target alone.

Promise kept here: an exception does not show whether the service accepted a message. So the outcome is unknown, and the
message is sent again with the same ids, as after a cut connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, get_args

import msgspec

from publisher.errors import CredentialError, PublisherError, TargetError
from publisher.finding import Finding
from publisher.plugins import blamed
from publisher.targets.base import (
    Accepted,
    DaySum,
    EvidenceUnavailable,
    GivesSums,
    KeepsMessages,
    KeptMessage,
    Message,
    Outcome,
    Target,
    Unknown,
)
from publisher.targets.identity import TargetContext


def added_target(kind: str, make: Callable[..., Any], name: str, settings: Any, context: TargetContext) -> Target:
    """Make the target that an add-on provides under the name `kind`. Raises as the add-on does, or `TargetError`."""
    with blamed("target", kind, TargetError):
        made = make(name, settings, context)
    gives_sums, has_messages = isinstance(made, GivesSums), isinstance(made, KeepsMessages)
    if gives_sums and has_messages:
        return _WithSumsAndMessages(name, kind, made)
    return (_WithSums if gives_sums else _WithMessages if has_messages else AddedTarget)(name, kind, made)


class AddedTarget:
    """A `Target` that raises only errors of ours."""

    def __init__(self, name: str, added_as: str, made: Any) -> None:
        self.name = name
        self.kind = str(getattr(made, "kind", added_as))
        self._added_as = added_as
        self._made = made

    def payload_limit_bytes(self) -> int | None:
        """See `publisher.targets.base.Target`."""
        with self._explained():
            return msgspec.convert(self._made.payload_limit_bytes(), int | None)

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
        return blamed("target", self._added_as, TargetError)


class _WithSums(AddedTarget):
    @property
    def sums_lag(self) -> bool:
        with self._explained():
            return bool(getattr(self._made, "sums_lag", False))

    def usage(self, machine: str, first_day: int, until_day: int) -> list[DaySum] | EvidenceUnavailable:
        with self._explained():
            given: list[DaySum] | EvidenceUnavailable = self._made.usage(machine, first_day, until_day)
            return given if isinstance(given, EvidenceUnavailable) else msgspec.convert(list(given), list[DaySum])

    def last_registration_s(self, machine: str) -> float | EvidenceUnavailable | None:
        with self._explained():
            given: float | EvidenceUnavailable | None = self._made.last_registration_s(machine)
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


class _WithSumsAndMessages(_WithSums, _WithMessages):
    pass


def _sound(outcome: Any) -> Outcome:
    """An outcome as the ledger can store it. Raises `TypeError` for anything else."""
    if isinstance(outcome, Accepted):
        receipt, rewritten = (
            {str(key): str(value) for key, value in dict(each).items()} for each in (outcome.receipt, outcome.rewritten)
        )
        return Accepted(receipt, tuple(map(str, outcome.missing)), rewritten)
    if not isinstance(outcome, get_args(Outcome)):
        raise TypeError(f"post gave a {type(outcome).__name__}, which is not an outcome")
    sound: Outcome = msgspec.convert(msgspec.to_builtins(outcome), type(outcome))
    return sound
