"""Publish to targets: lock each one, send what waits, and record the result. Targets are independent of each other."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from publisher.collect.collect import TargetPlan
from publisher.config.schema import MOST_PUBLISHERS, Config
from publisher.errors import PublisherError, ResourceLimitError, StoreError
from publisher.events import DeliveryBegun, TargetPaused
from publisher.messages import due
from publisher.messages.recipient import Recipient
from publisher.messages.steps import DUE, Scope
from publisher.publish.circuit import Circuit, Circuits
from publisher.publish.context import DeliveryStats, Tools, together
from publisher.publish.sender import Sender
from publisher.store import batches, deliveries, ledger_checks, registry
from publisher.store.database import Store
from publisher.store.deliveries import WHOLE, Shard
from publisher.store.schema import State
from publisher.targets.identity import TargetContext

if TYPE_CHECKING:
    from publisher.publish.rehearse import Rehearsed


class Delivery(msgspec.Struct, frozen=True):
    """What a run did for one target.

    `error`: what stopped it. `busy`: another run has the lock. `early`: not due yet. `shared`: this run did its part,
    other publishers do the rest. `resting`: the service failed repeatedly and is skipped for this many more rounds.
    `rehearsed`: the target is a shadow; nothing was sent.
    """

    sent: DeliveryStats
    error: PublisherError | None = None
    busy: bool = False
    early: bool = False
    shared: bool = False
    resting: int | None = None
    rehearsed: Rehearsed | None = None


def deliver_all(
    store: Store,
    config: Config,
    plans: Mapping[str, TargetPlan],
    tools: Tools,
    *,
    only_due: bool,
    circuits: Circuits | None = None,
) -> dict[str, Delivery]:
    """Publish to these targets in parallel. Raises `StoreError`: a run that cannot write its state sends nothing."""
    if not plans:
        return {}
    with ThreadPoolExecutor(max_workers=len(plans), thread_name_prefix="target") as pool:
        futures = {
            name: pool.submit(
                deliver,
                store,
                config,
                name,
                plan,
                tools,
                only_due=only_due,
                circuit=circuits.of(name) if circuits is not None else None,
            )
            for name, plan in plans.items()
        }
    return {name: future.result() for name, future in futures.items()}


def deliver(
    store: Store,
    config: Config,
    name: str,
    plan: TargetPlan,
    tools: Tools,
    *,
    only_due: bool = False,
    circuit: Circuit | None = None,
    scope: Scope = DUE,
) -> Delivery:
    """Publish to one target all that it lacks, or the part of that in a scope.

    Raises `StoreError`; any other problem is in the result.
    """
    if only_due and not _is_due(store, config, name, tools.clock()):
        return Delivery(DeliveryStats(), early=True)
    if circuit is not None and not circuit.admits():
        return Delivery(DeliveryStats(), resting=circuit.rounds_left)
    if circuit is not None and circuit.half_open:
        config = _with_one_try(config, name)
    done = _deliver_alone_or_shared(store, config, name, plan, tools, scope)
    # A run that found another one at work, or was interrupted, shows nothing about the service.
    if circuit is not None and not done.busy and not tools.stopping():
        # A service that accepted anything works: records that it refuses besides must not make it rest.
        circuit.record(succeeded=done.sent.accepted > 0 or (done.error is None and done.sent.paused is None))
    return done


def _busy(name: str, tools: Tools) -> Delivery:
    tools.observer(TargetPaused(name, "another run is sending to this target"))
    return Delivery(DeliveryStats(), busy=True)


_WORTH_SHARING: Final = 10
"""Messages in each part. With fewer, one publisher would finish before another has begun."""


def _deliver_alone_or_shared(
    store: Store, config: Config, name: str, plan: TargetPlan, tools: Tools, scope: Scope
) -> Delivery:
    """Send a large backlog in a store that several hosts share in parts, until nothing is left: a publisher that
    joins takes a part that no other one is sending."""
    settings = config.targets[name]
    parts = settings.publishers
    # A total of a part of the runs would replace that of the whole month at the service.
    if store.file is not None or settings.shadow or settings.format.is_snapshot:
        parts = 1
    if parts == 1 or not _is_worth_sharing(store, plan, parts * settings.batch_records):
        with store.lock(f"target-{name}") as held:
            if held:
                return _deliver_locked(store, config, name, plan, tools, scope)
        if parts == 1:
            return _busy(name, tools)
    return _deliver_parts(store, config, name, plan, tools, parts, scope)


def _is_worth_sharing(store: Store, plan: TargetPlan, at_a_time: int) -> bool:
    with store.read() as connection:
        waiting = deliveries.of_target(connection, plan.target_id)[State.WAITING]
    return waiting >= at_a_time * _WORTH_SHARING


def _deliver_parts(
    store: Store, config: Config, name: str, plan: TargetPlan, tools: Tools, parts: int, scope: Scope
) -> Delivery:
    """Send part after part that no other publisher is sending, in random order so that publishers seldom meet.

    What needs the whole target (sync counts) is left to the publisher that has the target alone at the end.
    """
    done: list[Delivery] = []
    with _shared(store, name, parts) as held:
        if not held:
            return _busy(name, tools)
        order = list(range(parts))
        random.shuffle(order)
        for index in order:
            with store.lock(f"target-{name}-{index}") as ours:
                if ours:
                    part = structs.replace(scope, part=Shard(index, parts))
                    done.append(_deliver_locked(store, config, name, plan, tools, part))
            if tools.stopping() or (done and (done[-1].error is not None or done[-1].sent.paused is not None)):
                break
    if not done:
        return _busy(name, tools)
    whole = Delivery(together([each.sent for each in done]), done[-1].error)
    if whole.error is None and whole.sent.paused is None and not tools.stopping():
        with store.lock(f"target-{name}") as alone:
            if alone:
                return _and_sync(store, config, name, plan, tools, scope, whole)
        return structs.replace(whole, shared=True)
    return whole


@contextmanager
def _shared(store: Store, name: str, parts: int) -> Iterator[bool]:
    """Share a target with the publishers that divide its backlog into the same number of parts; False if another run
    has it.

    A host with another value of `publishers` divides differently, and its parts would overlap with ours.
    """
    with ExitStack() as stack:
        yield (
            stack.enter_context(store.lock(f"target-{name}", shared=True))
            and stack.enter_context(store.lock(f"target-{name}-of-{parts}", shared=True))
            and _nobody_cuts_otherwise(store, name, parts)
        )


def _nobody_cuts_otherwise(store: Store, name: str, parts: int) -> bool:
    with store.write():  # one publisher looks at a time: looking takes the lock for a moment
        return all(_is_free(store, f"target-{name}-of-{n}") for n in range(2, MOST_PUBLISHERS + 1) if n != parts)


def _is_free(store: Store, lock: str) -> bool:
    with store.lock(lock) as held:
        return held


def _and_sync(
    store: Store,
    config: Config,
    name: str,
    plan: TargetPlan,
    tools: Tools,
    scope: Scope,
    done: Delivery,
) -> Delivery:
    rest = _deliver_locked(store, config, name, plan, tools, scope)
    return Delivery(together([done.sent, rest.sent]), rest.error)


def _with_one_try(config: Config, name: str) -> Config:
    once = config.targets[name].model_copy(update={"attempts": 1})
    return config.model_copy(update={"targets": {**config.targets, name: once}})


def _is_due(store: Store, config: Config, name: str, now: int) -> bool:
    with store.read() as connection:
        return due.due_at(config.targets[name], registry.get_target(connection, name), now) is None


def _deliver_locked(
    store: Store,
    config: Config,
    name: str,
    plan: TargetPlan,
    tools: Tools,
    scope: Scope,
) -> Delivery:
    settings = config.targets[name]
    if settings.shadow:
        return _rehearse(store, config, name, plan, tools)
    # A restored store does not know what left since its backup, and would send it as if for the first time.
    store.require_latest()
    with store.read() as connection:
        waiting = deliveries.of_target(connection, plan.target_id)[State.WAITING]
    tools.observer(DeliveryBegun(name, waiting))
    error: PublisherError | None = None
    sent = DeliveryStats()
    try:
        context = TargetContext(config.credentials, time.time, tools.stopping)
        targets = [tools.make_target(name, settings, context)]
        try:
            if not settings.format.is_snapshot:
                targets += [tools.make_target(name, settings, context) for _ in range(settings.workers - 1)]
            sender = Sender(Recipient(store, config, name), targets, tools, scope)
            sent = sender.sent
            sender.run()
        finally:
            for target in targets:
                target.close()
    except StoreError:
        raise
    except PublisherError as caught:
        error = ResourceLimitError.instead_of(caught)
        tools.observer(TargetPaused(name, str(error)))
    said = str(error) if error is not None else sent.paused
    with store.write() as connection:
        is_served = said is None and scope.window == DUE.window  # a run of a part must not postpone the rest by `every`
        registry.record_attempt(connection, plan.target_id, success=is_served, error=said, now=tools.clock())
        # With a part of the deliveries done, others of the request are left.
        if said is None and scope.part == WHOLE:
            batches.end_resend_if_done(connection, plan.target_id)
    if said is None:
        with store.read() as connection:
            # A delivery that a damaged index does not show would never be sent, and the run would end as if all was.
            ledger_checks.require_counted(connection, plan.target_id)
    return Delivery(sent, error)


def _rehearse(store: Store, config: Config, name: str, plan: TargetPlan, tools: Tools) -> Delivery:
    from publisher.publish.rehearse import Rehearsed, rehearse  # noqa: PLC0415 - loads what reads messages back

    error: PublisherError | None = None
    rehearsed: Rehearsed | None = None
    try:
        rehearsed = rehearse(store, config, name, tools)
    except StoreError:
        raise
    except PublisherError as caught:
        error = caught
        tools.observer(TargetPaused(name, str(caught)))
    with store.write() as connection:
        said = str(error) if error is not None else None
        registry.record_attempt(connection, plan.target_id, success=False, error=said, now=tools.clock())
    return Delivery(DeliveryStats(), error, rehearsed=rehearsed or Rehearsed(0, 0, 0, 0))
