"""What people decide: about records that are rejected or held, unreadable input, and what was delivered before us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from publisher.api.opened import Opened
from publisher.store.schema import State

if TYPE_CHECKING:
    from publisher.store.registry import UnreadableRow


class Deciding(Opened):
    """See the module."""

    def retry(self, state: State, target: str, record_ids: Sequence[str] = ()) -> int:
        """Let rejected, held or superseded records of a target wait again: those named, or all."""
        from publisher.publish.decide import retry  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return retry(connection, plan, target, state, record_ids, now)

    def waive(self, state: State, target: str, record_ids: Sequence[str], reason: str) -> int:
        """Decide that rejected or held records are not to be sent, and why."""
        from publisher.publish.decide import waive  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return waive(connection, plan, target, state, record_ids, reason, now)

    def settle_unreadable(self, reason: str, sources: Sequence[str] = ()) -> list[UnreadableRow]:
        """Decide that what `unreadable` lists, of these sources or of all, needs no more care, and why; gives it."""
        from publisher.publish.decide import settle  # noqa: PLC0415

        with self._collected_store().write() as connection:
            self._require_sources(connection, sources)
            return settle(connection, sources, reason, self.tools.clock())

    def take_over_until(self, target: str, until: int) -> int:
        """Put down what ended up to then, and was never sent from here, as delivered before us; gives how many jobs."""
        from publisher.publish.take_over import assume_until  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return assume_until(connection, plan.target_id, target, until, now)

    def take_over(self, target: str, run_ids: Sequence[int], told: str) -> int:
        """Put down these runs, where they were never sent from here, as delivered before us; `told`: by what."""
        from publisher.publish.take_over import assume_runs  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return assume_runs(connection, plan.target_id, target, run_ids, told, now)
