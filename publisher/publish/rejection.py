"""Judging: is it a record that is bad, or the service? Records refused alone are suspects until that is clear.

Promises kept here: a record is rejected only if it was refused for itself, again after the service had taken another
one that was new to it, and the service is well after that; in any other trouble everything waits.

Refusals: what each of them says of the records in the message. Pure.

SGAS has the same answer for bad data and for its own trouble, and while its disk is full it refuses what is new and
answers well to what it has. So one refusal proves nothing. Two do, if the service took a new record between them, and
if all else that was refused with this record was taken at some time and is good: the service would have to fall ill
twice in a run, both times for the same record, and to be well in between.

A message whose records were all taken at some time was refused for nothing: then the service was ill. For each time
that this is known of, one refusal more is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from formats.reason import Reason
from publisher.events import RecordSettled
from publisher.messages.item import Item
from publisher.publish.context import StopSending
from publisher.publish.dispatch import DeliveryContext, Dispatcher, InFlightBatch, Receipts
from publisher.publish.queue import Batch, SendQueue
from publisher.reason import ReasonCode
from publisher.store import deliveries
from publisher.store.schema import State
from publisher.targets.base import Accepted, Outcome, Oversized, Refused

_PROOF: Final = 2
"""Refusals of a record, with new records taken in between, that show it to be bad."""


class Refusal(msgspec.Struct, eq=False):
    """A message that was refused.

    `knew`: the last batch with new records that was known to be taken when the message left. `seen`: the last batch
    that had left when the refusal was known; only one that left later tells something about the service as it was after
    that, for those beside it on their way may have been taken before. `unexplained`: the runs in it that were not taken
    since.
    """

    knew: int
    seen: int
    unexplained: set[str]


class Refusals:
    """Of one run."""

    def __init__(self) -> None:
        self._groundless: list[Refusal] = []
        """Of each time that the service was ill, one."""
        self._of: dict[str, list[Refusal]] = defaultdict(list)
        """In the order in which they were known, by the run."""

    def add(self, items: Collection[Item], knew: int, seen: int) -> None:
        """A message with these was refused."""
        refusal = Refusal(knew, seen, {item.key for item in items})
        for key in refusal.unexplained:
            self._of[key].append(refusal)

    def taken(self, items: Iterable[Item]) -> None:
        """These were taken: they were not what earlier messages were refused for, or the service was ill."""
        for item in items:
            for refusal in self._of.pop(item.key, ()):
                refusal.unexplained.discard(item.key)
                if not refusal.unexplained:
                    self._groundless = _apart([*self._groundless, refusal])

    def rejected(self, key: str) -> None:
        """A record is bad, which explains all messages in which it was."""
        for refusal in list(self._of.get(key, ())):
            for other in refusal.unexplained:
                self._of[other].remove(refusal)
        self._of.pop(key, None)

    def has_later_acceptance(self, key: str, taken: int) -> bool:
        """Whether the service took a new record after all refusals of this one; `taken`: the last batch of such."""
        return all(refusal.seen < taken for refusal in self._of.get(key, ()))

    def is_conclusive(self, key: str) -> bool:
        """Whether the refusals show that the record is bad."""
        for_itself = [refusal for refusal in self._of.get(key, ()) if len(refusal.unexplained) == 1]
        return len(_apart(for_itself)) >= _PROOF + len(self._groundless)


def _apart(refusals: Iterable[Refusal]) -> list[Refusal]:
    """As many of these as have new records taken between each and the next."""
    found: list[Refusal] = []
    for refusal in sorted(refusals, key=lambda refusal: refusal.seen):
        if not found or refusal.knew > found[-1].seen:
            found.append(refusal)
    return found


_MOST_SUSPECTS: Final = 200
_REFUSALS_BEFORE_DOUBT: Final = 20
"""More than it takes to find one bad record in a batch of a few thousand by halving."""
_SCOUTS: Final = 5
_TRIES: Final = 5
"""Of a suspect when it is judged; more than one only where others were taken in between."""
_TOOK_NONE: Final = "%s (the service took no record at all in this run; everything waits)"
_NOTHING_TELLS: Final = "%s (the service took no new record after it refused %d of them alone; they wait)"


class RefusedRecord(msgspec.Struct, frozen=True):
    """A record that was refused alone, with the answer: bad, or sent in a bad moment.

    `certain`: the answer is about the record, so that trying it again tells nothing. The service may still be at fault
    (a limit or a name configured wrongly, there or here), and then refuses every record alike.
    """

    item: Item
    answer: str
    certain: bool

    @property
    def reason(self) -> Reason:
        """Why it is rejected, once it is."""
        return Reason.of(ReasonCode.REFUSED, answer=self.answer)


class RejectionPolicy:
    """Of one run. `fly` sends a flight and sees to what became of it; it gives whether it was taken; `stop` makes of
    the outcome of a flight the exception that ends the run."""

    def __init__(
        self,
        lane: DeliveryContext,
        runway: Dispatcher,
        receipts: Receipts,
        backlog: SendQueue,
        fly: Callable[[Batch], bool],
        stop: Callable[[Outcome], StopSending],
    ) -> None:
        self._lane = lane
        self._runway = runway
        self._receipts = receipts
        self._backlog = backlog
        self._fly = fly
        self._stop = stop
        self._refusals = Refusals()
        self._suspects: dict[str, RefusedRecord] = {}
        self._refusals_since_accept = 0
        self._scouted = False
        self._judging = False
        self._last_answer = ""
        self._proof: Item | None = None

    def taken(self, launched: InFlightBatch, named: Sequence[Item]) -> None:
        """The service took a flight; of these records it said so."""
        if named:
            self._refusals_since_accept = 0
            self._proof = named[0]
            if not all(item.may_be_there for item in named):
                self._runway.taken_new = max(self._runway.taken_new, launched.batch_id)
        self._refusals.taken(named)
        for item in launched.flight.items:
            self._suspects.pop(item.key, None)

    def refused(self, launched: InFlightBatch, outcome: Oversized | Refused, since: int) -> None:
        """The service refused a flight, first at `since`, alone or with others. Raises `StopSending`."""
        items = launched.flight.items
        self._refusals.add(items, launched.knew, self._runway.left[-1])
        if len(items) == 1:
            certain = isinstance(outcome, Oversized) or outcome.certain
            self._suspects[items[0].key] = RefusedRecord(items[0], outcome.answer, certain)
            self._last_answer = outcome.answer
        self._refusals_since_accept += 1
        if self._refusals_since_accept >= _REFUSALS_BEFORE_DOUBT:
            self._doubt(outcome.answer, since)
        if len(self._suspects) >= _MOST_SUSPECTS and not self._judging:
            self._judge_all()
            self._stop_at(_MOST_SUSPECTS // 2)

    def _doubt(self, answer: str, since: int) -> None:
        """Nothing was taken for a while: is it the records or the service? Show it one that it has; then try others,
        unless it took new ones since it first refused these."""
        self._refusals_since_accept = 0
        if self._proof is None:
            if self._scouted:
                return
            self._scouted = True
            if not self._takes_a_scout() and self._proof is None:
                raise StopSending(_TOOK_NONE % answer)
            return
        if not self._service_is_well():
            raise StopSending(f"{answer} (the service does not take even a record that it holds; everything waits)")
        if since >= self._runway.taken_new and self._takes_a_scout() is False:
            self._judge([suspect for suspect in self._suspects.values() if not self._is_doubtful(suspect)])
            raise StopSending(f"{answer} (the service takes no new record any more; everything waits)")

    def _takes_a_scout(self) -> bool | None:
        """Whether the service takes a new record, out of a few from anywhere; None where nothing else tells.

        The newest first: what has waited for long may have been refused before.
        """
        found: bool | None = None
        for number in range(_SCOUTS):
            scout = self._backlog.draw(newest=number == 0)
            if scout is None:
                return found
            if not self._fly(scout):
                found = False
            elif scout.tells:
                return True
        return found

    def _service_is_well(self) -> bool:
        """Whether the service takes a record again that it took before in this run."""
        proof = self._proof
        assert proof is not None  # asked only after an acceptance
        launched, outcome = self._runway.there_and_back(Batch([proof], State.ACCEPTED))
        self._receipts.not_accepted(launched.flight, launched.batch_id, outcome)
        return isinstance(outcome, Accepted)

    def judge_suspects(self) -> None:
        """All is sent: reject what is bad. Raises `StopSending`: of some nothing tells."""
        self._judge_all()
        self._stop_at(1)

    def _judge_all(self) -> None:
        """Records refused alone get another try where that can help; those that their refusals show to be bad are
        rejected if the service is well after it.

        That it takes a record which it has is not enough: SGAS ignores such a one, though it could store none.
        """
        if not self._suspects:
            return
        if self._proof is None:
            raise StopSending(_TOOK_NONE % self._last_answer)
        self._judging = True
        takes_new = not any(map(self._is_doubtful, self._suspects.values())) or self._takes_a_scout()
        suspects = list(self._suspects.values())
        if takes_new is False:
            self._judge([suspect for suspect in suspects if not self._is_doubtful(suspect)])
            self._stop_at(0)
        self._judge(suspects)
        self._judging = False

    def _stop_at(self, suspects: int) -> None:
        """End the run if so many are left of which nothing tells."""
        if len(self._suspects) >= suspects:
            raise StopSending(_NOTHING_TELLS % (self._last_answer, len(self._suspects)))

    def _is_doubtful(self, suspect: RefusedRecord) -> bool:
        """Whether it took no new record after it refused this one, and did not say what is wrong."""
        return not suspect.certain and not self._refusals.has_later_acceptance(suspect.item.key, self._runway.taken_new)

    def _judge(self, suspects: Sequence[RefusedRecord]) -> None:
        """Try these once more, and again those that others were taken after; reject what is bad."""
        bad = [suspect for suspect in suspects if suspect.certain]
        again = left = [suspect for suspect in suspects if not suspect.certain]
        for _ in range(_TRIES):
            for suspect in again:
                self._try_again(suspect)
            left = [self._suspects[key] for key in _keys(left) if key in self._suspects]
            again = [suspect for suspect in left if not self._is_bad(suspect) and not self._is_doubtful(suspect)]
        bad += filter(self._is_bad, left)
        if not bad:
            return
        if not self._service_is_well():
            raise StopSending(f"{bad[0].answer} (the service is not well; everything waits)")
        self._reject(bad)

    def _is_bad(self, suspect: RefusedRecord) -> bool:
        return self._refusals.is_conclusive(suspect.item.key)

    def _try_again(self, suspect: RefusedRecord) -> None:
        launched, outcome = self._runway.there_and_back(Batch([suspect.item], State.IN_FLIGHT))
        if isinstance(outcome, Accepted):
            self.taken(launched, self._receipts.accepted(launched.flight, launched.batch_id, outcome))
            return
        self._receipts.not_accepted(launched.flight, launched.batch_id, outcome)
        if not isinstance(outcome, Refused | Oversized):
            raise self._stop(outcome)
        self._refusals.add([suspect.item], launched.knew, self._runway.left[-1])
        self._suspects[suspect.item.key] = msgspec.structs.replace(suspect, answer=outcome.answer)

    def _reject(self, suspects: Sequence[RefusedRecord]) -> None:
        lane = self._lane
        self._receipts.settle()
        with lane.store.write() as connection:
            moves = [
                (suspect.item.members.run_ids[0], State.IN_FLIGHT, State.REJECTED, suspect.reason)
                for suspect in suspects
            ]
            deliveries.move(connection, lane.target_id, moves, lane.clock())
        lane.sent.rejected += len(suspects)
        for suspect in suspects:
            del self._suspects[suspect.item.key]
            self._refusals.rejected(suspect.item.key)
            record_id = suspect.item.key
            lane.observer(RecordSettled(lane.target, record_id, State.REJECTED.word, suspect.reason))


def _keys(suspects: Sequence[RefusedRecord]) -> list[str]:
    return [suspect.item.key for suspect in suspects]
