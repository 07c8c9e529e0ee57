"""Rejecting: is it a record that is bad, or the service? A record refused alone is not rejected until that is clear.

Promises kept here: a record is rejected only if it was refused for itself, again after the service had accepted another
one that was new to it, and the service is well after that; in any other trouble everything waits.

Pure: the policy gets what was observed and says what to do next, by the steps that it yields. It sends nothing and
knows no store.

SGAS has the same answer for bad data and for its own trouble, and while its disk is full it refuses what is new and
answers well to what it has. So one refusal proves nothing. Two do, if the service accepted a new record between them,
and if all else that was refused with this record was accepted at some time and is good: the service would have to fail
twice in a run, both times for the same record, and to be well in between.

A message whose records were all accepted at some time was refused for nothing: then the service was not well. For each
time that this is known of, one refusal more is asked for.

A group (a summary, a sync count, a report) replaces the one of the same key, so that the service has to store it each
time. A refusal of it is taken to be about the group if the service accepted another one before, in the same run; and
that it accepts one again which it accepted before shows that it is well. A month may have nothing but a bad group to
send: what is refused before anything is accepted is decided on after a later month, by the rules for records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from formats.rule_codes import Reason
from publisher.messages.item import Item
from publisher.reason import ReasonCode

_PROOF: Final = 2
"""Refusals of a record, with new records accepted in between, that show it to be bad."""


class Refusal(msgspec.Struct, eq=False):
    """A message that was refused.

    `knew`: the last batch with new records that was known to be accepted when the message left. `left`: the last batch
    that had left when the refusal was known; only one that left later says something about the service as it was after
    that, for those beside it on their way may have been accepted before. `unexplained`: the items in it that were not
    accepted since.
    """

    knew: int
    left: int
    unexplained: set[str]


class Refusals:
    """Of one run."""

    def __init__(self) -> None:
        self._groundless: list[Refusal] = []
        """Of each time that the service was not well, one."""
        self._of: dict[str, list[Refusal]] = defaultdict(list)
        """In the order in which they were known, by the item."""

    def add(self, items: Collection[Item], knew: int, left: int) -> None:
        """A message with these was refused."""
        refusal = Refusal(knew, left, {item.key for item in items})
        for key in refusal.unexplained:
            self._of[key].append(refusal)

    def accepted(self, items: Iterable[Item]) -> None:
        """These were accepted: they were not what earlier messages were refused for, or the service was not well."""
        if not self._of:
            return
        for item in items:
            for refusal in self._of.pop(item.key, ()):
                refusal.unexplained.discard(item.key)
                if not refusal.unexplained:
                    self._groundless = _with_acceptance_between([*self._groundless, refusal])

    def rejected(self, key: str) -> None:
        """A record is bad, which explains all messages in which it was."""
        for refusal in list(self._of.get(key, ())):
            for other in refusal.unexplained:
                self._of[other].remove(refusal)
        self._of.pop(key, None)

    def has_later_acceptance(self, key: str, last_new: int) -> bool:
        """Whether the service accepted a new record after all refusals of this one; `last_new`: the last batch with
        one that it accepted."""
        return all(refusal.left < last_new for refusal in self._of.get(key, ()))

    def is_conclusive(self, key: str) -> bool:
        """Whether the refusals show that the record is bad."""
        for_itself = [refusal for refusal in self._of.get(key, ()) if len(refusal.unexplained) == 1]
        return len(_with_acceptance_between(for_itself)) >= _PROOF + len(self._groundless)


def _with_acceptance_between(refusals: Iterable[Refusal]) -> list[Refusal]:
    """As many of these as have new records accepted between each and the next."""
    found: list[Refusal] = []
    for refusal in sorted(refusals, key=lambda refusal: refusal.left):
        if not found or refusal.knew > found[-1].left:
            found.append(refusal)
    return found


_MOST_REFUSED: Final = 200
"""Records refused alone that are kept in mind."""
_REFUSALS_BEFORE_DOUBT: Final = 20
"""More than it takes to find one bad record in a batch of a few thousand by halving."""
_PROBES: Final = 5
_TRIES: Final = 5
"""Of a refused record when it is decided on; more than one only where others were accepted in between."""
_ACCEPTED_NONE: Final = "%s (the service took no record at all in this run; everything waits)"
_INCONCLUSIVE: Final = "%s (the service took no new record after it refused %d of them alone; they wait)"


class RefusedRecord(msgspec.Struct, frozen=True):
    """An item that was refused alone in a batch, or with others that are refused as it is, with the answer: bad, or
    sent at a bad moment.

    `certain`: the answer is about the item, so that trying it again shows nothing. The service may still be at fault
    (a limit or a name configured wrongly, there or here), and then refuses every item alike.
    """

    item: Item
    batch_id: int
    answer: str
    certain: bool

    @property
    def reason(self) -> Reason:
        """Why it is rejected, once it is."""
        return Reason.of(ReasonCode.REFUSED, answer=self.answer)


class ProbeResult(Enum):
    """What became of a probe; `KNOWN`: it was accepted, and the service may have had it."""

    NOTHING_LEFT = "nothing left"
    NOT_ACCEPTED = "not accepted"
    KNOWN = "known"
    NEW = "new"


class Probe(msgspec.Struct, frozen=True):
    """Send one item from anywhere in what is left, the newest if asked. Answered with a `ProbeResult`."""

    newest: bool


class ResendAccepted(msgspec.Struct, frozen=True):
    """Send an item again that was accepted in this run. Answered with whether it was accepted again."""

    item: Item


class TryAgain(msgspec.Struct, frozen=True):
    """Send a refused record alone once more. What is observed is reported to the policy; there is no answer."""

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
"""What is to be done, one after the other; the answer to each is sent back."""


class RejectionPolicy:
    """What was observed of the items of one format in a run, and what follows. `replaces`: they are groups."""

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
        """The last batch with items that are new to the service that is known to be accepted."""

    def accepted(self, batch_id: int, named: Sequence[Item], items: Sequence[Item]) -> None:
        """The service accepted a batch of these items, and its answer named these of them."""
        if named:
            self._refusals_since_accept = 0
            self._proof = named[0]
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
        knew: int,
        left: int,
        since: int,
    ) -> Steps[None]:
        """The service refused a batch of these items, first at `since`. `as_a_whole`: each of them would be refused
        alone as well; otherwise it may be for others. `knew` and `left` as in `Refusal`."""
        self._refusals.add(items, knew, left)
        if as_a_whole:
            certain = certain or (self._replaces and self._proof is not None)
            for item in items:
                self._refused[item.key] = RefusedRecord(item, batch_id, answer, certain)
            self._last_answer = answer
        if self._replaces:
            return  # what is refused is decided on when the rest of the section was sent
        self._refusals_since_accept += 1
        if self._refusals_since_accept >= _REFUSALS_BEFORE_DOUBT:
            yield from self._doubt(answer, since)
        if len(self._refused) >= _MOST_REFUSED and not self._deciding:
            yield from self._decide_all()
            yield from self._stop_at(_MOST_REFUSED // 2)

    def refused_again(self, record: RefusedRecord, batch_id: int, answer: str, *, knew: int, left: int) -> None:
        """The service refused a record that was tried again."""
        self._refusals.add([record.item], knew, left)
        self._refused[record.item.key] = msgspec.structs.replace(record, batch_id=batch_id, answer=answer)

    @property
    def is_settled(self) -> bool:
        """Whether all of the sections so far was sent and decided on."""
        return not self._refused and not self._left_out

    def admit_section(self) -> Steps[bool]:
        """Whether another section is to be sent: not if the service accepted nothing in this run, refused many, and
        refuses a few of this one, from anywhere in it, as well."""
        if not self._replaces or self._proof is not None or len(self._refused) < _MOST_REFUSED:
            return True
        yield from self._accepts_new()
        self._left_out = self._left_out or self._proof is None
        return self._proof is not None

    def conclude(self, *, is_last: bool) -> Steps[None]:
        """All of a section is sent: reject what is bad, and stop if of some nothing shows whether they are.

        Groups wait for a later section to show it, unless this one `is_last`.
        """
        may_wait = self._replaces and not is_last
        if may_wait and self._proof is None:
            return
        yield from self._decide_all()
        if not may_wait:
            yield from self._stop_at(1)

    def _doubt(self, answer: str, since: int) -> Steps[None]:
        """Nothing was accepted for a while: is it the records or the service? Show it one that it has; then try others,
        unless it accepted new ones since it first refused these."""
        self._refusals_since_accept = 0
        if self._proof is None:
            if self._probed:
                return
            self._probed = True
            if not (yield from self._accepts_new()) and self._proof is None:
                yield Stop(_ACCEPTED_NONE % answer)
            return
        if not (yield ResendAccepted(self._proof)):
            yield Stop(f"{answer} (the service does not take even a record that it holds; everything waits)")
        if since >= self.last_new and (yield from self._accepts_new()) is False:
            yield from self._decide([one for one in self._refused.values() if not self._is_doubtful(one)])
            yield Stop(f"{answer} (the service takes no new record any more; everything waits)")

    def _accepts_new(self) -> Steps[bool | None]:
        """Whether the service accepts a new record, out of a few from anywhere; None where nothing else shows it.

        The newest first: what has waited for long may have been refused before.
        """
        found: bool | None = None
        for number in range(_PROBES):
            result: ProbeResult = yield Probe(newest=number == 0)
            if result is ProbeResult.NOTHING_LEFT:
                return found
            if result is ProbeResult.NEW:
                return True
            if result is ProbeResult.NOT_ACCEPTED:
                found = False
        return found

    def _decide_all(self) -> Steps[None]:
        """Records refused alone get another try where that can help; those that their refusals show to be bad are
        rejected if the service is well after it.

        That it accepts a record which it has is not enough: SGAS ignores such a one, though it could store none.
        """
        if not self._refused:
            return
        self._deciding = True
        if self._proof is None and not self._probed and not self._replaces:  # many may be refused by one answer
            self._probed = True
            yield from self._accepts_new()
        if self._proof is None:
            yield Stop(_ACCEPTED_NONE % self._last_answer)
        is_any_doubtful = any(map(self._is_doubtful, self._refused.values()))
        accepts_new = (yield from self._accepts_new()) if is_any_doubtful else True
        refused = list(self._refused.values())
        if accepts_new is False:
            yield from self._decide([one for one in refused if not self._is_doubtful(one)])
            yield from self._stop_at(0)
        yield from self._decide(refused)
        self._deciding = False

    def _stop_at(self, refused: int) -> Steps[None]:
        """Stop if so many are left of which nothing shows whether they are bad."""
        if len(self._refused) >= refused:
            yield Stop(_INCONCLUSIVE % (self._last_answer, len(self._refused)))

    def _is_doubtful(self, record: RefusedRecord) -> bool:
        """Whether the service accepted no new record after it refused this one, and did not say what is wrong."""
        return not record.certain and not self._refusals.has_later_acceptance(record.item.key, self.last_new)

    def _decide(self, refused: Sequence[RefusedRecord]) -> Steps[None]:
        """Try these once more, and again those that others were accepted after; reject what is bad."""
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
        assert self._proof is not None  # nothing is decided before an acceptance
        if not (yield ResendAccepted(self._proof)):
            yield Stop(f"{bad[0].answer} (the service is not well; everything waits)")
        yield Reject(bad)
        for record in bad:
            del self._refused[record.item.key]
            self._refusals.rejected(record.item.key)

    def _is_bad(self, record: RefusedRecord) -> bool:
        return self._refusals.is_conclusive(record.item.key)
