"""What all that only looks says of a target, held against what the next `publish` does."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from formats.calendar import Period, month_of
from publisher.messages.item import Item
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import DUE, NotDue, Scope, Section
from publisher.preview.diff import DiffRendering
from publisher.preview.render import Rendering
from publisher.publish.rehearse import Rehearsed, rehearse
from publisher.reason import ONLY_A_PERSON_RELEASES, TRIED_AGAIN, ReasonCode, sentence
from publisher.reconcile.ledger import Ledger, RecordKeys
from publisher.reconcile.sent_settings import SentSettings
from publisher.sources.base import Window
from publisher.store.batches import Resend
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import Site


def assert_publishes_what_is_shown(site: Site, receiver: RecordReceiver) -> None:
    """Publish to a service that accepts everything, and compare: ids and bodies of the messages of every format, the
    runs that are held with their reasons, the rehearsal, `--diff`, `--explain`, and the keys that `reconcile` looks
    for. Nothing may be in flight; the target may be new."""
    name = receiver.name
    settings = site.config.targets[name]
    formats = [settings.records, *(["apel-sync"] if settings.sends_sync else [])]
    renderings = {one: _rendering(site, one, name) for one in formats}
    shown = {one: sorted((each.uid, each.payload) for each in made.messages()) for one, made in renderings.items()}
    own = renderings[settings.records]
    known = {record_id for (record_id,) in site.rows("SELECT record_id FROM runs")}
    named = {held.record_id: sentence(held.reason) for held in own.held if held.record_id in known}
    rehearsed = None
    if not settings.signs:  # there is no certificate
        rehearsed = rehearse(site.publisher.store, site.config, name, site.publisher.tools)
    differing = site.publisher.comparison(settings.records, name, Window())
    assert isinstance(differing, DiffRendering)
    kinds = [change.kind for change in differing.changes()]
    is_record = settings.format.shape == "record"
    explained = {}
    if is_record:
        first = sorted(named)[:2]
        explained = {one: site.publisher.explanations(settings.records, name, one)[0].held for one in first}
    due = _items(site, name, DUE) if is_record else []
    before, posts = site.in_state(name, State.HELD), receiver.posts

    site.publish(name)

    sent = {
        one: sorted((each.batch_id, each.payload) for each in receiver.messages[posts:] if each.format == one)
        for one in formats
    }
    assert shown == sent, name
    after, reasons = site.in_state(name, State.HELD), site.reasons(name)
    assert after - before <= named.keys() <= after, name
    assert named == {record_id: reasons[record_id] for record_id in named}, name
    ledger = _ledger(site, name)
    assert {key for key, row in ledger.items() if row.state is State.HELD and row.reason in TRIED_AGAIN} <= named.keys()
    waiting = {key: row.end for key, row in ledger.items() if row.state is State.WAITING}
    not_due = _not_due(site, name)
    assert all(any(period.start <= end < period.stop for period in not_due) for end in waiting.values()), name
    assert explained == {record_id: named[record_id] for record_id in explained}, name
    assert {held.record_id: sentence(held.reason) for held in differing.held if held.record_id in named} == named, name
    if rehearsed is not None:
        payloads = [payload for messages in sent.values() for _, payload in messages]
        assert rehearsed == Rehearsed(own.records, len(payloads), sum(map(len, payloads)), len(own.held)), name
    if settings.format.shape != "report":
        assert sum(kind != "unchanged" or is_record for kind in kinds) == own.records, name
    if is_record:
        assert _keys_looked_for(site, name, due) == {item.members.run_ids[0]: item.key for item in due}, name
    assert [list(_rendering(site, one, name).messages()) for one in formats] == [[] for _ in formats], name


def assert_rehearses_what_is_shown(site: Site, receiver: RecordReceiver) -> None:
    """Publish to the target as a shadow, and compare; nothing is sent, and nothing changes."""
    name = receiver.name
    site.configure(name, shadow=True)
    settings = site.config.targets[name]
    own = _rendering(site, settings.records, name)
    sizes = [len(message.payload) for message in own.messages()]
    if settings.sends_sync:
        sizes += [len(message.payload) for message in _rendering(site, "apel-sync", name).messages()]
    posts = receiver.posts
    rehearsed = site.publish_to(name).rehearsed
    before = _ledger(site, name)
    assert rehearsed == Rehearsed(own.records, len(sizes), sum(sizes), len(own.held)), name
    assert site.publish_to(name).rehearsed == rehearsed, name
    assert (receiver.posts, _ledger(site, name)) == (posts, before), name
    site.configure(name, shadow=False)


def _items(site: Site, name: str, scope: Scope) -> list[Item]:
    recipient = Recipient(site.publisher.store, site.config, name)
    steps = items(recipient, scope, now=site.now)
    return [
        item
        for step in steps
        if isinstance(step, Section) and step.form.name == recipient.format_name
        for page in step.pages
        for item in page.items
    ]


def _not_due(site: Site, name: str) -> list[Period]:
    """The periods that are not over."""
    steps = items(Recipient(site.publisher.store, site.config, name), DUE, now=site.now)
    return [step.period for step in steps if isinstance(step, NotDue)]


def _keys_looked_for(site: Site, name: str, due: list[Item]) -> dict[int, str]:
    recipient = Recipient(site.publisher.store, site.config, name)
    assert recipient.target_id is not None
    runs = {item.members.run_ids[0] for item in due}
    settings = SentSettings(recipient)
    ledger = Ledger(settings)
    months = sorted({month_of(item.latest_end) for item in due if item.latest_end is not None})
    entries = [each.run for month in months for page in ledger.pages(month) for each in page]
    return RecordKeys(settings).of([entry for entry in entries if entry.run_id in runs])


def assert_republishes_what_is_announced(
    site: Site, receiver: RecordReceiver, window: tuple[int, int], *, only_missing: bool
) -> None:
    """Republish a window to a service that accepts everything: what was announced is sent and held, with the reasons,
    and nothing outside the window is. Nothing may be in flight."""
    name = receiver.name
    form = site.config.targets[name].format
    plan = site.publisher.plan_republish(name, Window(*window), only_missing=only_missing)
    before, groups_before, posts = _ledger(site, name), _groups_outside(site, name, plan.asked), receiver.posts
    accepted_before = _accepted_groups(site, name)

    sent = site.republish(name, *window, only_missing=only_missing).sent

    after = _ledger(site, name)
    assert (sent.accepted, sent.held) == (plan.to_send, sum(plan.to_hold.values())), name
    inside = {key for key, row in after.items() if plan.asked.begins <= row.end < plan.asked.ends}
    held = {key for key, row in after.items() if row.state is State.HELD}
    held_before = {key for key, row in before.items() if row.state is State.HELD}
    if form.shape != "report":
        assert {key: after[key] for key in after.keys() - inside} == {
            key: before[key] for key in before.keys() - inside
        }, name
        assert _groups_outside(site, name, plan.asked) == groups_before, name
        stay = [key for key in held_before & inside if before[key].reason in RELEASED_BY_NAME]
        assert Counter(after[key].reason for key in held & inside) == Counter(plan.to_hold) + Counter(
            before[key].reason for key in stay
        ), name
        assert len((held - held_before) & inside) <= sent.held - plan.held_again, name
    posted = [message for message in receiver.messages[posts:] if message.format == form.name]
    bodies = {item.key: item.body for item in _items(site, name, Scope(Window(*window)))}
    if form.shape == "record":
        assert set().union(*(message.record_ids for message in posted)) <= inside, name
        assert all(bodies[record_id] in message.payload for message in posted for record_id in message.record_ids)
    elif only_missing:
        accepted = _accepted_groups(site, name)
        unchanged = [key for key, group in accepted_before.items() if accepted.get(key, group).digest == group.digest]
        assert {key: accepted_before[key] for key in unchanged} == {key: accepted.get(key) for key in unchanged}, name
    elif plan.to_send and plan.resumes is None:
        payloads = b"".join(message.payload for message in posted)
        assert all(body in payloads for body in bodies.values()), name


class Delivered(NamedTuple):
    """A delivery in the ledger."""

    end: int
    state: State
    reason: str | None


RELEASED_BY_NAME = {*ONLY_A_PERSON_RELEASES, ReasonCode.KEY_CHANGED}


def _ledger(site: Site, name: str) -> dict[str, Delivered]:
    query = (
        "SELECT record_id, deliveries.end_time, state, reason FROM deliveries JOIN runs ON runs.id = run_id "
        "JOIN targets ON targets.id = target_id WHERE targets.name = ?"
    )
    return {key: Delivered(end, State(state), reason) for key, end, state, reason in site.rows(query, name)}


def _groups_outside(site: Site, name: str, asked: Resend) -> list[tuple[object, ...]]:
    """The summaries and sync counts of months that a window does not touch."""
    first, last = month_of(asked.begins).number, month_of(asked.ends - 1).number
    query = (
        "SELECT groups.kind, month, key, groups.state, digest, batch_id FROM groups "
        "JOIN targets ON targets.id = target_id WHERE targets.name = ? AND NOT month BETWEEN ? AND ? "
        "ORDER BY groups.kind, month, key"
    )
    return [tuple(map(str, row)) for row in site.rows(query, name, first, last)]


class AcceptedGroup(NamedTuple):
    """A summary, sync count, or report as it was last sent, and the batch in which it was."""

    digest: bytes
    batch_id: int | None


def _accepted_groups(site: Site, name: str) -> dict[tuple[str, int, str], AcceptedGroup]:
    """The accepted groups by kind, number of the period, and key."""
    query = (
        "SELECT groups.kind, month, key, digest, batch_id FROM groups JOIN targets ON targets.id = target_id "
        "WHERE targets.name = ? AND groups.state = ?"
    )
    rows = site.rows(query, name, int(State.ACCEPTED))
    return {(kind, month, key): AcceptedGroup(bytes(digest), batch) for kind, month, key, digest, batch in rows}


def _rendering(site: Site, format_name: str, name: str) -> Rendering:
    rendering = site.publisher.rendering(format_name, name, Window())
    assert isinstance(rendering, Rendering)
    return rendering
