"""Read the records and groups from the messages in a directory, also signed and compressed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from formats.apel.job import job_columns
from formats.apel.summary import read_count, read_group
from formats.apel.text import NotApelTextError, parse
from formats.rules import type_of
from formats.xml.columns import read_columns
from formats.xml.read import NotAMessageError, begins_as_xml
from publisher.inspect.unwrap import DecryptionKeys, unwrap
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceGroup, EvidenceRecord
from publisher.targets.base import KeepsMessages

_MOST_NOTES: Final = 100


class _UnreadableError(ValueError):
    """A message of an unknown kind."""


AsSent = Callable[[bytes], "list[EvidenceRecord] | None"]
"""The records of a message that are byte by byte as they were sent; None: the message is parsed."""


def read_messages(
    target: str, spool: KeepsMessages, database: EvidenceDatabase, now: int, as_sent: AsSent
) -> tuple[list[EvidenceGroup], Sequence[str]]:
    """Add the records to the temporary database; return the groups, and notes on what could not be read.

    Memory contains one message and the groups. Raises `TargetError` if the directory cannot be read.
    """
    found: dict[tuple[str, str], EvidenceGroup] = {}
    notes: list[str] = []
    for kept in spool.kept():
        if isinstance(kept.content, str):
            notes.append(f"{kept.name}: {kept.content}")
            continue
        for inner in unwrap(kept.name, kept.content, DecryptionKeys(), now):
            try:
                if inner.payload is None:
                    notes.append(f"{inner.label}: {'; '.join(violation.rule for violation in inner.violations)}")
                elif begins_as_xml(inner.payload):
                    known = as_sent(inner.payload)
                    if known is None:
                        known = [*map(EvidenceRecord.of_columns, read_columns(inner.payload))]
                    database.add_records(target, known)
                else:
                    records, groups = _text(inner.payload)
                    database.add_records(target, records)
                    found.update(groups)
            except (_UnreadableError, NotAMessageError, NotApelTextError) as error:
                notes.append(f"{inner.label}: {error}")
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"... and {len(notes) - _MOST_NOTES} more that cannot be read"]
    return list(found.values()), notes


def _text(payload: bytes) -> tuple[list[EvidenceRecord], dict[tuple[str, str], EvidenceGroup]]:
    """The records of an APEL text message, and its groups by kind and key; of several with one key the last."""
    try:
        message = parse(payload.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _UnreadableError("not text in UTF-8") from error
    kind = type_of(message.header, message.kind, message.version)
    if kind is None:
        raise _UnreadableError(f"not a message of a known kind: {message.header[:80]}")
    if kind.shape == "record":
        return [EvidenceRecord.of_columns(job_columns(record)) for record in message.records], {}
    groups = {}
    for record in message.records:
        if kind.shape == "sync":
            count = read_count(record)
            groups[kind.name, count.key.text] = EvidenceGroup.of_sync(count)
        else:
            group = read_group(record)
            groups[kind.name, group.key.text] = EvidenceGroup.of_summary(group)
    return [], groups
