"""A target of an add-on: what goes wrong in it is the trouble of this target alone.

Promise kept here: an exception says nothing of whether the service took a message. So its outcome is unknown, and it is
sent again under the same ids, as after a connection that was cut.
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
    KeepsMessages,
    KeptMessage,
    Message,
    Outcome,
    Target,
    TellsSums,
    Unknown,
)
from publisher.targets.identity import TargetContext


def added_target(kind: str, make: Callable[..., Any], name: str, settings: Any, context: TargetContext) -> Target:
    """The target that an add-on brings under the name `kind`. Raises as the add-on does, or `TargetError`."""
    with blamed("target", kind, TargetError):
        made = make(name, settings, context)
    tells, keeps = isinstance(made, TellsSums), isinstance(made, KeepsMessages)
    if tells and keeps:
        return _TellerAndKeeper(name, kind, made)
    return (_Teller if tells else _Keeper if keeps else AddedTarget)(name, kind, made)


class AddedTarget:
    """A `Target` that raises nothing but errors of ours."""

    def __init__(self, name: str, added_as: str, made: Any) -> None:
        self.name = name
        self.kind = str(getattr(made, "kind", added_as))
        self._added_as = added_as
        self._made = made

    def payload_limit_bytes(self) -> int | None:
        """See `publisher.targets.base.Target`."""
        with self._trouble():
            return msgspec.convert(self._made.payload_limit_bytes(), int | None)

    def post(self, message: Message) -> Outcome:
        """See `publisher.targets.base.Target`."""
        try:
            with self._trouble():
                return _sound(self._made.post(message))
        except CredentialError:
            raise
        except PublisherError as error:
            return Unknown(str(error))

    def check(self) -> list[Finding]:
        """See `publisher.targets.base.Target`."""
        with self._trouble():
            return msgspec.convert(list(self._made.check()), list[Finding])

    def close(self) -> None:
        """See `publisher.targets.base.Target`."""
        with self._trouble():
            self._made.close()

    def _trouble(self) -> AbstractContextManager[None]:
        return blamed("target", self._added_as, TargetError)


class _Teller(AddedTarget):
    def usage(self, machine: str, first_day: int, behind_day: int) -> list[DaySum] | EvidenceUnavailable:
        with self._trouble():
            told: list[DaySum] | EvidenceUnavailable = self._made.usage(machine, first_day, behind_day)
            return told if isinstance(told, EvidenceUnavailable) else msgspec.convert(list(told), list[DaySum])

    def last_registration_s(self, machine: str) -> float | EvidenceUnavailable | None:
        with self._trouble():
            told: float | EvidenceUnavailable | None = self._made.last_registration_s(machine)
            return told if isinstance(told, EvidenceUnavailable) else msgspec.convert(told, float | None)


class _Keeper(AddedTarget):
    @property
    def taken_away(self) -> bool:
        with self._trouble():
            return bool(self._made.taken_away)

    def kept(self) -> Iterator[KeptMessage]:
        messages: Iterator[KeptMessage] | None = None
        while True:
            with self._trouble():
                messages = iter(self._made.kept()) if messages is None else messages
                message = next(messages, None)
            if message is None:
                return
            yield message

    def keeps(self, name: str) -> bool:
        with self._trouble():
            return bool(self._made.keeps(name))


class _TellerAndKeeper(_Teller, _Keeper):
    pass


def _sound(outcome: Any) -> Outcome:
    """An outcome as the ledger can keep it. Raises `TypeError` for what is none."""
    if isinstance(outcome, Accepted):
        receipt, rewritten = (
            {str(key): str(value) for key, value in dict(each).items()} for each in (outcome.receipt, outcome.rewritten)
        )
        return Accepted(receipt, tuple(map(str, outcome.missing)), rewritten)
    if not isinstance(outcome, get_args(Outcome)):
        raise TypeError(f"post gave a {type(outcome).__name__}, which is no outcome")
    sound: Outcome = msgspec.convert(msgspec.to_builtins(outcome), type(outcome))
    return sound
