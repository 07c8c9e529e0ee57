"""Judging: is it a record that is bad, or the service? Records refused alone are suspects until that is clear.

Promises kept here: a record is rejected only if the service took another record after it; in any other trouble
everything waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from publisher.observe.events import RecordSettled
from publisher.pipeline.backlog import Backlog, Flight
from publisher.pipeline.batch import Item
from publisher.pipeline.lane import Lane
from publisher.pipeline.receipts import Receipts
from publisher.pipeline.runway import Runway
from publisher.pipeline.tools import StopSending
from publisher.store import deliveries
from publisher.store.states import State
from publisher.targets.base import Accepted, Outcome, Oversized, Refused

_MOST_SUSPECTS: Final = 200
_REFUSALS_BEFORE_DOUBT: Final = 20
"""More than it takes to find one bad record in a batch of a few thousand by halving."""
_SCOUTS: Final = 5
_TOOK_NONE: Final = "%s (the service took no record at all in this run; everything waits)"


class Suspect(msgspec.Struct, frozen=True):
    """A record that was refused alone, with the answer: bad, or sent in a bad moment.

    `since`: the last batch that had left when it was first refused, alone or with others. Only one that left later
    tells something about the service as it was after that; those beside it on their way may have been taken before.
    `certain`: the answer is about the record, so that trying it again tells nothing. The service may still be at fault
    (a limit or a name configured wrongly, there or here), and then refuses every record alike.
    """

    item: Item
    answer: str
    certain: bool
    since: int


class Judge:
    """Of one run. `fly` sends a flight and sees to what became of it; it gives whether it was taken; `stop` makes of
    the outcome of a flight the exception that ends the run."""

    def __init__(
        self,
        lane: Lane,
        runway: Runway,
        receipts: Receipts,
        backlog: Backlog,
        fly: Callable[[Flight], bool],
        stop: Callable[[Outcome], StopSending],
    ) -> None:
        self._lane = lane
        self._runway = runway
        self._receipts = receipts
        self._backlog = backlog
        self._fly = fly
        self._stop = stop
        self._suspects: dict[int, Suspect] = {}
        self._refusals_since_accept = 0
        self._scouted = False
        self._proof: Item | None = None
        self._taken = 0
        """The last batch with records that are new to the service that it took."""

    def taken(self, flight: Flight, batch_id: int, named: Sequence[Item]) -> None:
        """The service took a flight; of these records it said so."""
        if named:
            self._refusals_since_accept = 0
            self._proof = named[0]
            if flight.tells:
                self._taken = max(self._taken, batch_id)
        for item in flight.items:
            self._suspects.pop(item.run_id, None)

    def refused(self, flight: Flight, outcome: Oversized | Refused, since: int) -> None:
        """The service refused a flight. Raises `StopSending`."""
        if len(flight.items) == 1:
            certain = isinstance(outcome, Oversized) or outcome.certain
            self._suspects[flight.items[0].run_id] = Suspect(flight.items[0], outcome.answer, certain, since)
        self._refusals_since_accept += 1
        if self._refusals_since_accept >= _REFUSALS_BEFORE_DOUBT:
            self._doubt(outcome.answer, since)
        if len(self._suspects) >= _MOST_SUSPECTS:
            self.judge_suspects()

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
        if since >= self._taken and self._takes_a_scout() is False:
            self._judge([suspect for suspect in self._suspects.values() if not self._is_doubtful(suspect)])
            raise StopSending(f"{answer} (the service takes no new record any more; everything waits)")

    def _takes_a_scout(self) -> bool | None:
        """Whether the service takes a new record, out of a few from anywhere; None where nothing else tells."""
        found: bool | None = None
        for _ in range(_SCOUTS):
            scout = self._backlog.draw()
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
        flight = Flight([proof], State.ACCEPTED)
        outcome, batch_id = self._runway.there_and_back(flight)
        self._receipts.not_accepted(flight, batch_id, outcome)
        return isinstance(outcome, Accepted)

    def judge_suspects(self) -> None:
        """Records refused alone get a second try where that can help; those refused are rejected if the service is
        well after it. Raises `StopSending`.

        That it takes a record which it has is not enough for many: SGAS ignores such a one, though it could store none.
        """
        suspects = list(self._suspects.values())
        if suspects and self._proof is None:
            raise StopSending(_TOOK_NONE % suspects[-1].answer)
        doubtful = sum(map(self._is_doubtful, suspects))
        if doubtful >= _REFUSALS_BEFORE_DOUBT and self._takes_a_scout() is not True:
            self._judge([suspect for suspect in suspects if not self._is_doubtful(suspect)])
            raise StopSending(f"{suspects[-1].answer} (the service took no new record after {doubtful}; they wait)")
        self._judge(suspects)

    def _is_doubtful(self, suspect: Suspect) -> bool:
        """Whether it took no new record that left after this one was first refused, and did not say what is wrong."""
        return not suspect.certain and suspect.since >= self._taken

    def _judge(self, suspects: Sequence[Suspect]) -> None:
        if not suspects:
            return
        refused: list[Suspect] = []
        for suspect in suspects:
            self._suspects.pop(suspect.item.run_id, None)
            if suspect.certain:
                refused.append(suspect)
                continue
            flight = Flight([suspect.item], State.IN_FLIGHT)
            outcome, batch_id = self._runway.there_and_back(flight)
            if isinstance(outcome, Accepted):
                self.taken(flight, batch_id, self._receipts.accepted(flight, batch_id, outcome))
                continue
            self._receipts.not_accepted(flight, batch_id, outcome)
            if not isinstance(outcome, Refused | Oversized):
                raise self._stop(outcome)
            refused.append(msgspec.structs.replace(suspect, answer=outcome.answer))
        if refused and not self._service_is_well():
            raise StopSending(f"{refused[0].answer} (the service is not well; everything waits)")
        self._reject(refused)

    def _reject(self, suspects: Sequence[Suspect]) -> None:
        lane = self._lane
        self._receipts.settle()
        with lane.store.write() as connection:
            moves = [(suspect.item.run_id, State.IN_FLIGHT, State.REJECTED, suspect.answer) for suspect in suspects]
            deliveries.move(connection, lane.target_id, moves, lane.clock())
        lane.sent.rejected += len(suspects)
        for suspect in suspects:
            record_id = suspect.item.record_id
            lane.observer(RecordSettled(lane.target, record_id, State.REJECTED.word, suspect.answer))
