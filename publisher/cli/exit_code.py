"""The exit code of a command: the first that applies of 5, 2, 4, 130, 1, 3, 0.

6 is an internal error, 130 an interruption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from publisher.errors import CredentialError, StoreError, UsageError

if TYPE_CHECKING:
    from publisher.collect.collect import Collected
    from publisher.publish.publish import Delivery
    from publisher.status.status import Status

STORE, USAGE, CREDENTIALS, WAITING, REJECTED, DONE = 5, 2, 4, 1, 3, 0
INTERNAL = 6
INTERRUPTED = 130


def of_run(
    collected: Iterable[Collected],
    delivered: Mapping[str, Delivery],
    status: Status | None,
    *,
    busy: bool = False,
    only: Collection[str] = (),
    contexts: Collection[str] = (),
    held_before: int = 0,
    with_evidence: bool = False,
) -> int:
    """The exit code of a collect, a publish, or both. `delivered` by target; `status` after the run, None after a
    collect alone.

    `busy`: another run was collecting and will send what waits by now. `only`: the targets that were named; none: all.
    `contexts`: the spooling contexts that could not be written. `held_before`: how many of the held records
    were held before and tried again. `with_evidence`: what the services' evidence says counts as well: records that are
    missing, that differ, or that are unconfirmed for too long.
    """
    deliveries, collected = list(delivered.values()), list(collected)
    errors = [delivery.error for delivery in deliveries if delivery.error is not None]
    if any(isinstance(error, StoreError) for error in errors):
        return STORE
    if any(isinstance(error, UsageError) for error in errors):
        return USAGE
    if any(isinstance(error, CredentialError) for error in errors) or any(
        item.sent.unauthorised for item in deliveries
    ):
        return CREDENTIALS
    if any(source.interrupted for source in collected):
        return INTERRUPTED
    unread = any(source.error is not None for source in collected)
    stopped = any(delivery.error is not None or delivery.sent.paused is not None for delivery in deliveries)
    targets = status.targets.values() if with_evidence and status is not None else ()
    contradicted = any(target.is_contradicted for target in targets)
    waits = status is not None and not busy and _waits(status, delivered, only)
    if unread or stopped or contexts or waits or contradicted:
        return WAITING
    newly_held = sum(item.sent.held for item in deliveries) > held_before or any(item.suspect for item in collected)
    return REJECTED if newly_held or any(item.sent.rejected for item in deliveries) else DONE


def _waits(status: Status, delivered: Mapping[str, Delivery], only: Collection[str]) -> bool:
    """Whether something waits for a named service, and is due, and no other run sends it."""
    return any(
        not target.shadow and target.has_work
        for name, target in status.targets.items()
        if (name in only or not only) and (name not in delivered or not _is_left_for_later(delivered[name]))
    )


def _is_left_for_later(item: Delivery) -> bool:
    return item.busy or item.shared or item.early or item.resting is not None
