"""Send the messages in SSM's outgoing queue unchanged, oldest first, and record each receipt.

A message leaves the queue only after the service's receipt is committed; then it is kept in a folder beside the queue.
A message whose receipt is committed is never sent again. A message that the service would refuse stays in the queue,
and the reason is shown. Summaries and sync counts of months that were sent from here, or taken over, are not sent: they
would replace newer ones, or have keys that nothing replaces. They do not stay in the queue either, where SSM may find
them later: of a message with other months too, the records of those are sent, and the whole message is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from formats.apel.summary import read_count, read_group
from formats.apel.text import parse
from formats.calendar import Month
from formats.check.message import Inspection, inspect_message
from formats.registry import FORMATS
from formats.rule_codes import UNSIGNABLE
from formats.signed_text import why_not_signable
from publisher.config.schema import Target as TargetSettings
from publisher.errors import PublisherError
from publisher.events import BatchAnswered, BatchInFlight
from publisher.publish.context import Tools
from publisher.publish.retry import RetryBudget, answer_of, post
from publisher.store import batches, groups, sent_mark
from publisher.store.database import Store
from publisher.store.schema import BatchState, State
from publisher.targets.base import Accepted, Message, Outcome, Target, Unauthorised
from publisher.targets.message_files import elements_of, locked, read_element, set_aside

_SEPARATOR: Final = b"%%\n"
_MONTHS: Final = 12

Fate = Literal["send", "part", "older", "empty", "leave"]
"""`older`: its months were sent from here since; `empty`: it has no records. Both leave the queue unsent. `part`: some
of its months were sent from here since; the records of the others are sent."""


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message in the queue, what is done with it, and the reason if it is not sent as it is.

    `records`: how many are sent, or would be if the message were.
    """

    name: str
    format: str
    records: int
    fate: Fate
    why: str = ""


class _Checked(msgspec.Struct, frozen=True):
    """A message with what is sent of it."""

    message: QueuedMessage
    payload: bytes


class Taken(msgspec.Struct):
    """Numbers of messages by what was done. `busy`: locked by SSM; `answer`: why sending ended early; `unauthorised`:
    the service refused the credentials."""

    sent: int = 0
    records: int = 0
    set_aside: int = 0
    left: int = 0
    busy: int = 0
    answer: str | None = None
    unauthorised: bool = False


class Queue:
    """SSM's queue, for one target. `limit_bytes`: the maximum payload of a message."""

    def __init__(
        self, path: Path, store: Store, target_id: int, settings: TargetSettings, limit_bytes: int | None, now: int
    ) -> None:
        self._path = path
        self._store = store
        self._target_id = target_id
        self._settings = settings
        self._limit_bytes = limit_bytes
        self._now = now

    def messages(self) -> Iterator[QueuedMessage]:
        """The messages in it, oldest first. Raises `UsageError` if there is no queue."""
        for name in elements_of(self._path):
            try:
                yield self._checked(name, read_element(self._path, name)).message
            except PublisherError as error:
                yield QueuedMessage(name, "", 0, "leave", str(error))

    def send(self, target: Target, tools: Tools) -> Taken:
        """Send the messages and remove those that are not needed; stop when the service accepts no more."""
        self._store.require_latest()
        with self._store.read() as connection:  # one with another `uid` would be sent a second time
            batches.require_recorded(connection)
        taken = Taken()
        retries = RetryBudget(self._settings)
        for name in elements_of(self._path):
            if tools.stopping():
                taken.answer = "interrupted"
                break
            with locked(self._path, name) as ours:
                if not ours:
                    taken.busy += 1
                    continue
                if not self._send_one(name, target, tools, retries, taken):
                    break
        return taken

    def _send_one(self, name: str, target: Target, tools: Tools, retries: RetryBudget, taken: Taken) -> bool:
        """Handle one message; return whether to continue."""
        try:
            payload = read_element(self._path, name)
        except PublisherError:
            taken.left += 1
            return True
        checked = self._checked(name, payload)
        message = checked.message
        if message.fate == "leave":
            taken.left += 1
            return True
        if message.fate in {"send", "part"}:
            for part in self._cut(message.format, checked.payload):
                # of its content: with another `batch_bytes` the same message is cut differently
                uid = f"ssm-{name}-{blake2b(part, digest_size=8).hexdigest()}"
                outcome = self._post(message, part, uid, target, tools, retries)
                if not isinstance(outcome, Accepted):
                    taken.answer = answer_of(outcome)
                    taken.unauthorised = isinstance(outcome, Unauthorised) and not outcome.misdirected
                    return False
            taken.sent += 1
            taken.records += message.records
        else:
            taken.set_aside += 1
        set_aside(self._path, name)
        return True

    def _post(
        self, message: QueuedMessage, payload: bytes, uid: str, target: Target, tools: Tools, retries: RetryBudget
    ) -> Outcome:
        self._store.require_room(batches.ROOM_BYTES)
        with self._store.write() as connection:
            known = batches.receipt_of(connection, self._target_id, uid)
            if known is not None:
                return Accepted(known)  # the program ended before the message was taken out of the queue
            batch_id = batches.open_batch(
                connection, self._target_id, uid, message.format, message.records, len(payload), None, tools.clock()
            )
            mark = sent_mark.count_messages(connection, 1, tools.clock())
        self._store.mark_sent(mark)
        tools.observer(BatchInFlight(target.name, batch_id, message.records))
        content_type = FORMATS[message.format].content_type
        posted = Message(uid, message.format, content_type, payload)
        outcome = post(target, posted, batch_id, retries, tools.observer, tools.sleep, tools.stopping)
        tools.observer(BatchAnswered(target.name, batch_id, type(outcome).__name__))
        with self._store.write() as connection:
            if isinstance(outcome, Accepted):
                batches.close(connection, batch_id, BatchState.ACCEPTED, tools.clock(), receipt=outcome.receipt)
            else:
                answer = answer_of(outcome)
                batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, tools.clock(), answer=answer)
        return outcome

    # --- what is done with a message

    def _checked(self, name: str, payload: bytes) -> _Checked:
        inspection = inspect_message(payload, self._now)
        message = QueuedMessage(name, inspection.format, len(inspection.records), "send")
        why = self._why_not(inspection, payload)
        if why is not None:
            return _Checked(msgspec.structs.replace(message, fate="leave", why=why), payload)
        if not inspection.records:
            return _Checked(msgspec.structs.replace(message, fate="empty", why="it has no records"), payload)
        return self._unless_older(message, payload)

    def _why_not(self, found: Inspection, payload: bytes) -> str | None:
        """Return why a message cannot be sent unchanged; None if it can."""
        ours, theirs = self._settings.records, found.format
        if found.service != "APEL":
            return f"{found.title}: not a message for APEL"
        if not found.taken:
            rules = [
                f"{violation.field} {violation.rule}".strip()
                for violation in found.violations
                if violation.level == "error"
            ]
            return f"APEL would refuse the whole message: {'; '.join(rules[:3])}"
        unsignable = why_not_signable(payload)
        if unsignable is not None:
            return UNSIGNABLE[unsignable]
        if {self._settings.format.shape, FORMATS[theirs].shape} >= {"record", "totals"}:
            return f"the target sends {ours}; APEL counts neither if a site sends both job records and summaries"
        if self._limit_bytes is not None and max(map(len, self._cut(theirs, payload))) > self._limit_bytes:
            return f"{len(payload)} bytes are more than the target's `batch_bytes` allow"
        return None

    def _unless_older(self, message: QueuedMessage, payload: bytes) -> _Checked:
        pieces = _pieces_by_month(message.format, payload)
        totals = FORMATS[message.format].totals
        kind = totals.kind if totals is not None else ""  # no month of job records was sent as groups
        with self._store.read() as connection:
            sent = {
                month
                for month in pieces
                if any(
                    row.state is State.ACCEPTED
                    for row in groups.of_month(connection, self._target_id, kind, month.number).values()
                )
            }
        if not sent:
            return _Checked(message, payload)
        listed = ", ".join(str(month) for month in sorted(sent))
        since = f"sent from here or taken over since: {listed}"
        if sent == pieces.keys():
            why = f"{since}. It would replace newer summaries, or add to them"
            return _Checked(msgspec.structs.replace(message, fate="older", why=why), payload)
        rest = [piece for month in sorted(pieces.keys() - sent) for piece in pieces[month]]
        why = f"{since}. Only its other months are sent"
        return _Checked(
            msgspec.structs.replace(message, fate="part", why=why, records=len(rest)),
            _message_of(_header_of(payload), rest),
        )

    # --- messages that are too large

    def _cut(self, format_name: str, payload: bytes) -> Iterator[bytes]:
        """The message, or pieces of whole records if a text message is larger than the limit."""
        limit = self._limit_bytes
        if limit is None or len(payload) <= limit or FORMATS[format_name].is_xml:
            yield payload
            return
        header = _header_of(payload)
        part: list[bytes] = []
        size = len(header) + 1
        for piece in _pieces_of(payload):
            grown = size + len(piece) + len(_SEPARATOR)
            if part and grown > limit:
                yield _message_of(header, part)
                part, grown = [], len(header) + 1 + len(piece) + len(_SEPARATOR)
            part.append(piece)
            size = grown
        yield _message_of(header, part)


def _header_of(payload: bytes) -> bytes:
    """The first line of a text message."""
    return payload.strip().partition(b"\n")[0]


def _pieces_of(payload: bytes) -> list[bytes]:
    """The records of a text message, as they are in it."""
    rest = payload.strip().partition(b"\n")[2]
    return [piece.strip() + b"\n" for piece in rest.split(b"%%") if piece.strip()]


def _message_of(header: bytes, pieces: Sequence[bytes]) -> bytes:
    return header + b"\n" + _SEPARATOR.join(pieces)


def _pieces_by_month(format_name: str, payload: bytes) -> dict[Month, list[bytes]]:
    """The records of a message of summaries or sync counts; none of other messages."""
    shape = FORMATS[format_name].shape
    by_month: dict[Month, list[bytes]] = {}
    for piece in [] if shape == "record" else _pieces_of(payload):
        for record in parse(_message_of(_header_of(payload), [piece]).decode("ascii")).records:
            key: Any = read_count(record).key if shape == "sync" else read_group(record).key
            if 1 <= key.month <= _MONTHS:
                by_month.setdefault(Month(key.year, key.month), []).append(piece)
    return by_month
