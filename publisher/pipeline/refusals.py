"""Refusals: what each of them says of the records in the message. Pure.

SGAS has the same answer for bad data and for its own trouble, and while its disk is full it refuses what is new and
answers well to what it has. So one refusal proves nothing. Two do, if the service took a new record between them, and
if all else that was refused with this record was taken at some time and is good: the service would have to fall ill
twice in a run, both times for the same record, and to be well in between.

A message whose records were all taken at some time was refused for nothing: then the service was ill. For each time
that this is known of, one refusal more is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from publisher.pipeline.batch import Item

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
    unexplained: set[int]


class Refusals:
    """Of one run."""

    def __init__(self) -> None:
        self._groundless: list[Refusal] = []
        """Of each time that the service was ill, one."""
        self._of: dict[int, list[Refusal]] = defaultdict(list)
        """In the order in which they were known, by the run."""

    def add(self, items: Collection[Item], knew: int, seen: int) -> None:
        """A message with these was refused."""
        refusal = Refusal(knew, seen, {item.run_id for item in items})
        for run_id in refusal.unexplained:
            self._of[run_id].append(refusal)

    def taken(self, items: Iterable[Item]) -> None:
        """These were taken: they were not what earlier messages were refused for, or the service was ill."""
        for item in items:
            for refusal in self._of.pop(item.run_id, ()):
                refusal.unexplained.discard(item.run_id)
                if not refusal.unexplained:
                    self._groundless = _apart([*self._groundless, refusal])

    def rejected(self, run_id: int) -> None:
        """A record is bad, which explains all messages in which it was."""
        for refusal in list(self._of.get(run_id, ())):
            for other in refusal.unexplained:
                self._of[other].remove(refusal)
        self._of.pop(run_id, None)

    def are_ripe(self, run_id: int, taken: int) -> bool:
        """Whether the service took a new record after all refusals of this one; `taken`: the last batch of such."""
        return all(refusal.seen < taken for refusal in self._of.get(run_id, ()))

    def prove(self, run_id: int) -> bool:
        """Whether the refusals show that the record is bad."""
        for_itself = [refusal for refusal in self._of.get(run_id, ()) if len(refusal.unexplained) == 1]
        return len(_apart(for_itself)) >= _PROOF + len(self._groundless)


def _apart(refusals: Iterable[Refusal]) -> list[Refusal]:
    """As many of these as have new records taken between each and the next."""
    found: list[Refusal] = []
    for refusal in sorted(refusals, key=lambda refusal: refusal.seen):
        if not found or refusal.knew > found[-1].seen:
            found.append(refusal)
    return found
