"""The rejection policy: is a record bad, or is the service failing? A record refused alone is not rejected until that
is clear.

Promise kept here: a record is rejected only if it was refused alone, was refused again after the service had accepted
another record that was new to it, and the service accepts records after that. In all other cases everything waits.

Pure: the policy receives observations and yields the steps to take. It sends nothing and does not use the store.

SGAS gives the same answer for bad data and for its own failures, and while its disk is full it refuses new records but
accepts those that it has. So one refusal proves nothing. Two refusals prove it if the service accepted a new record
between them, and if all other records that were refused together with this one were accepted at some time: otherwise
the service would have to fail twice in a run, both times for the same record, and to work in between.

If all records of a refused message were accepted at some time, the service was failing when it refused the message. For
each known occurrence, one more refusal is required.

A group (a summary, a sync count, a report) replaces the earlier one with the same key, so the service has to store it
each time. A refusal is attributed to the group if the service had accepted another group in the same run; and if the
service accepts a group again that it accepted before, it works. A month may contain only a refused group: what is
refused before anything is accepted is decided after a later month, by the rules for records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from formats.rule_codes import Reason
from publisher.messages.item import Item
from publisher.reason import ReasonCode, sentence

_PROOF: Final = 2
"""Refusals of a record, with new records accepted in between, that prove it bad."""


class Refusal(msgspec.Struct, eq=False):
    """A refused message.

    `accepted_before`: the last batch with new records that was known to be accepted when the message was sent.
    `sent_before`: the last batch that had been sent when the refusal was known; only a batch sent later shows the state
    of the service after the refusal, since earlier ones may have been accepted before it. `unexplained`: the items of
    the message that were not accepted since.
    """

    accepted_before: int
    sent_before: int
    unexplained: set[str]


class Refusals:
    """The refusals of one run."""

    def __init__(self) -> None:
        self._groundless: list[Refusal] = []
        """One for each known occurrence of a failing service."""
        self._of: dict[str, list[Refusal]] = defaultdict(list)
        """By item, in the order in which they became known."""

    def add(self, items: Collection[Item], accepted_before: int, sent_before: int) -> None:
        """Add a refused message with these items."""
        refusal = Refusal(accepted_before, sent_before, {item.key for item in items})
        for key in refusal.unexplained:
            self._of[key].append(refusal)

    def accepted(self, items: Iterable[Item]) -> None:
        """These items were accepted: earlier messages with them were refused because of other items, or the service
        was failing."""
        if not self._of:
            return
        for item in items:
            for refusal in self._of.pop(item.key, ()):
                refusal.unexplained.discard(item.key)
                if not refusal.unexplained:
                    self._groundless = _with_acceptance_between([*self._groundless, refusal])

    def rejected(self, key: str) -> None:
        """A record is bad; that explains all refused messages that contained it."""
        for refusal in list(self._of.get(key, ())):
            for other in refusal.unexplained:
                self._of[other].remove(refusal)
        self._of.pop(key, None)

    def has_later_acceptance(self, key: str, last_new: int) -> bool:
        """Whether the service accepted a new record after all refusals of this one; `last_new`: the last batch with
        a new record that it accepted."""
        return all(refusal.sent_before < last_new for refusal in self._of.get(key, ()))

    def is_conclusive(self, key: str) -> bool:
        """Whether the refusals prove that the record is bad."""
        for_itself = [refusal for refusal in self._of.get(key, ()) if len(refusal.unexplained) == 1]
        return len(_with_acceptance_between(for_itself)) >= _PROOF + len(self._groundless)


def _with_acceptance_between(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Return the largest number of these refusals that have new records accepted between each and the next."""
    separated: list[Refusal] = []
    for refusal in sorted(refusals, key=lambda refusal: refusal.sent_before):
        if not separated or refusal.accepted_before > separated[-1].sent_before:
            separated.append(refusal)
    return separated


# Without a limit, memory would grow with the jobs while a service refuses all of them.
_MOST_REFUSED: Final = 200
"""How many records refused alone are remembered."""
_REFUSALS_BEFORE_DOUBT: Final = 20
"""More than bisecting a batch of a few thousand takes to find one bad record."""
# A single probe may be bad itself, and a working service would seem to fail.
_PROBES: Final = 5
_TRIES: Final = 5
"""Attempts with a refused record when it is decided; more than one only if others were accepted in between."""
_ACCEPTED_NONE: Final = "%s (the service accepted no record in this run; everything waits)"
_INCONCLUSIVE: Final = "%s (the service accepted no new record after it refused %d records alone; they wait)"


class RefusedRecord(msgspec.Struct, frozen=True):
    """An item that was refused alone in a batch, or with others that are refused for the same reason, with the answer.
    Either it is bad, or the service was failing.

    `certain`: the answer is about the item, so another attempt shows nothing new. The cause may still be a limit or
    name that is configured wrongly, here or at the service; then it refuses all items. `too_large_bytes`: the size of
    its message, if it was refused because of that.
    """

    item: Item
    batch_id: int
    answer: str
    certain: bool
    too_large_bytes: int | None = None

    @property
    def reason(self) -> Reason:
        """The reason for its rejection."""
        if self.too_large_bytes is not None:
            return Reason.of(ReasonCode.TOO_LARGE, answer=self.answer, size_bytes=self.too_large_bytes)
        return Reason.of(ReasonCode.REFUSED, answer=self.answer)


class ProbeResult(Enum):
    """The outcome of a probe; `KNOWN`: it was accepted, and the service may have had it before."""

    NOTHING_LEFT = "nothing left"
    NOT_ACCEPTED = "not accepted"
    KNOWN = "known"
    NEW = "new"


class Probe(msgspec.Struct, frozen=True):
    """Send one random item of those left, the newest if asked. The answer is a `ProbeResult`."""

    newest: bool


class ResendAccepted(msgspec.Struct, frozen=True):
    """Send an item again that was accepted in this run. The answer is whether it was accepted again."""

    item: Item


class TryAgain(msgspec.Struct, frozen=True):
    """Send a refused record alone once more. The outcome is reported to the policy; the step has no answer."""

    record: RefusedRecord


class Reject(msgspec.Struct, frozen=True):
    """Reject these."""

    records: Sequence[RefusedRecord]


class Stop(msgspec.Struct, frozen=True):
    """Send nothing more in this run, for this reason; everything waits. The last step: the policy is not resumed."""

    why: str


PolicyStep: TypeAlias = Probe | ResendAccepted | TryAgain | Reject | Stop
_T = TypeVar("_T")
Steps: TypeAlias = Generator[PolicyStep, Any, _T]
"""The steps to take, one by one; the answer to each is sent back."""


class RejectionPolicy:
    """Observes the outcomes of the items of one format in a run, and decides what follows. `replaces`: the items are
    groups."""

    def __init__(self, *, replaces: bool) -> None:
        self._replaces = replaces
        self._refusals = Refusals()
        self._refused: dict[str, RefusedRecord] = {}
        self._refusals_since_accept = 0
        self._probed = False
        self._deciding = False
        self._left_out = False
        self._last_answer = ""
        self._proof: Item | None = None
        self.last_new = 0
        """The last batch, known to be accepted, with items that are new to the service."""

    def accepted(self, batch_id: int, named: Sequence[Item], items: Sequence[Item]) -> None:
        """The service accepted a batch of these items; its answer named these."""
        if named:
            self._refusals_since_accept = 0
            self._proof = named[0]
            # SGAS accepts a record that it has even while it can store none: that shows nothing about the next new one.
            if not all(item.may_be_there for item in named):
                self.last_new = max(self.last_new, batch_id)
        self._refusals.accepted(named)
        if self._refused:
            for item in items:
                self._refused.pop(item.key, None)

    def refused(
        self,
        batch_id: int,
        items: Sequence[Item],
        answer: str,
        *,
        certain: bool,
        as_a_whole: bool,
        accepted_before: int,
        sent_before: int,
        since: int,
        too_large_bytes: int | None = None,
    ) -> Steps[None]:
        """The service refused a batch of these items, first at `since`. `as_a_whole`: each item would be refused
        alone as well; otherwise the refusal may be due to some of them. `accepted_before` and `sent_before` as in
        `Refusal`, `too_large_bytes` as in `RefusedRecord`."""
        self._refusals.add(items, accepted_before, sent_before)
        if as_a_whole:
            certain = certain or (self._replaces and self._proof is not None)
            for item in items:
                record = RefusedRecord(item, batch_id, answer, certain, too_large_bytes)
                self._refused[item.key] = record
                self._last_answer = sentence(record.reason)
        if self._replaces:
            return  # refused records are decided after the rest of the section was sent
        self._refusals_since_accept += 1
        if self._refusals_since_accept >= _REFUSALS_BEFORE_DOUBT:
            yield from self._doubt(answer, since)
        if len(self._refused) >= _MOST_REFUSED and not self._deciding:
            yield from self._decide_all()
            # With most of them undecided, each further refusal would begin the same decision again.
            yield from self._stop_at(_MOST_REFUSED // 2)

    def refused_again(
        self, record: RefusedRecord, batch_id: int, answer: str, *, accepted_before: int, sent_before: int
    ) -> None:
        """The service refused a record that was tried again."""
        self._refusals.add([record.item], accepted_before, sent_before)
        self._refused[record.item.key] = msgspec.structs.replace(record, batch_id=batch_id, answer=answer)

    @property
    def is_settled(self) -> bool:
        """Whether all of the sections so far is sent and decided."""
        return not self._refused and not self._left_out

    def admit_section(self) -> Steps[bool]:
        """Decide whether another section is sent: not if the service accepted nothing in this run, refused many
        items, and also refuses a few random ones of this section."""
        if not self._replaces or self._proof is not None or len(self._refused) < _MOST_REFUSED:
            return True
        yield from self._accepts_new()
        self._left_out = self._left_out or self._proof is None
        return self._proof is not None

    def conclude(self, *, is_last: bool) -> Steps[None]:
        """All of a section is sent: reject bad records; stop if for some of them nothing shows whether they are bad.

        Groups wait for a later section to show it, unless this section `is_last`.
        """
        may_wait = self._replaces and not is_last
        if may_wait and self._proof is None:
            return
        yield from self._decide_all()
        if not may_wait:
            yield from self._stop_at(1)

    def _doubt(self, answer: str, since: int) -> Steps[None]:
        """Nothing was accepted for a while: are the records bad, or is the service failing? Send an item again that
        it has; then try others, unless it accepted new ones since it first refused these."""
        self._refusals_since_accept = 0
        if self._proof is None:
            if self._probed:
                return
            self._probed = True
            if not (yield from self._accepts_new()) and self._proof is None:
                yield Stop(_ACCEPTED_NONE % answer)
            return
        if not (yield ResendAccepted(self._proof)):
            yield Stop(f"{answer} (the service refuses even a record that it has; everything waits)")
        if since >= self.last_new and (yield from self._accepts_new()) is False:
            yield from self._decide([record for record in self._refused.values() if not self._is_doubtful(record)])
            yield Stop(f"{answer} (the service accepts no new record any more; everything waits)")

    def _accepts_new(self) -> Steps[bool | None]:
        """Whether the service accepts a new record, out of a few random ones; None if nothing is left to try.

        The newest first: a record that has waited for long may have been refused before.
        """
        accepts: bool | None = None
        for number in range(_PROBES):
            result: ProbeResult = yield Probe(newest=number == 0)
            if result is ProbeResult.NOTHING_LEFT:
                return accepts
            if result is ProbeResult.NEW:
                return True
            if result is ProbeResult.NOT_ACCEPTED:
                accepts = False
        return accepts

    def _decide_all(self) -> Steps[None]:
        """Try records that were refused alone again where that can help; reject those that their refusals prove bad, if
        the service accepts records after them.

        Accepting a record that it has is not enough: SGAS ignores such a record, though it could not store a new one.
        """
        if not self._refused:
            return
        self._deciding = True
        if self._proof is None and not self._probed and not self._replaces:  # one answer may refuse many
            self._probed = True
            yield from self._accepts_new()
        if self._proof is None:
            yield Stop(_ACCEPTED_NONE % self._last_answer)
        is_any_doubtful = any(map(self._is_doubtful, self._refused.values()))
        accepts_new = (yield from self._accepts_new()) if is_any_doubtful else True
        refused = list(self._refused.values())
        if accepts_new is False:
            yield from self._decide([record for record in refused if not self._is_doubtful(record)])
            yield from self._stop_at(0)
        yield from self._decide(refused)
        self._deciding = False

    def _stop_at(self, refused: int) -> Steps[None]:
        """Stop if at least this many records are left for which nothing shows whether they are bad."""
        if len(self._refused) >= refused:
            yield Stop(_INCONCLUSIVE % (self._last_answer, len(self._refused)))

    def _is_doubtful(self, record: RefusedRecord) -> bool:
        """Whether the service accepted no new record after it refused this one, and did not say what is wrong."""
        return not record.certain and not self._refusals.has_later_acceptance(record.item.key, self.last_new)

    def _decide(self, refused: Sequence[RefusedRecord]) -> Steps[None]:
        """Try these once more, and again those after which others were accepted; reject what is bad."""
        bad = [record for record in refused if record.certain]
        again = left = [record for record in refused if not record.certain]
        for _ in range(_TRIES):
            for record in again:
                yield TryAgain(record)
            left = [self._refused[record.item.key] for record in left if record.item.key in self._refused]
            again = [record for record in left if not self._is_bad(record) and not self._is_doubtful(record)]
        bad += filter(self._is_bad, left)
        if not bad:
            return
        assert self._proof is not None  # nothing is decided before the first acceptance
        if not (yield ResendAccepted(self._proof)):
            yield Stop(f"{bad[0].answer} (the service is failing; everything waits)")
        yield Reject(bad)
        for record in bad:
            del self._refused[record.item.key]
            self._refusals.rejected(record.item.key)

    def _is_bad(self, record: RefusedRecord) -> bool:
        return self._refusals.is_conclusive(record.item.key)
