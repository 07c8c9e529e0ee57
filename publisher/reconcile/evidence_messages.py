"""Read the records and groups from the messages in a directory, also signed and compressed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from formats.base import Format
from publisher.inspect.unwrap import DecryptionKeys, unwrap
from publisher.plugins import format_of_message
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceGroup, EvidenceRecord, GroupKind
from publisher.targets.base import KeepsMessages

_MOST_NOTES: Final = 100


AsSent = Callable[[bytes], "list[EvidenceRecord] | None"]
"""The records of a message that are byte by byte as they were sent; None: the message is parsed."""


def read_messages(
    target: str, form: Format, spool: KeepsMessages, database: EvidenceDatabase, now: int, as_sent: AsSent
) -> tuple[list[EvidenceGroup], Sequence[str]]:
    """Add the records to the temporary database; return the groups, and notes on what could not be read. `form`: the
    format that the target is sent.

    Memory contains one message and the groups. Raises `TargetError` if the directory cannot be read.
    """
    totals: dict[tuple[str, str], EvidenceGroup] = {}
    notes: list[str] = []
    opens_json = "json" not in form.content_type  # else what begins like JSON is a message, not a request of AMS
    for kept in spool.kept():
        if isinstance(kept.content, str):
            notes.append(f"{kept.name}: {kept.content}")
            continue
        for inner in unwrap(kept.name, kept.content, DecryptionKeys(), now, opens_json=opens_json):
            try:
                if inner.payload is None:
                    notes.append(f"{inner.label}: {'; '.join(violation.rule for violation in inner.violations)}")
                else:
                    records, groups = _read(format_of_message(form, inner.payload), inner.payload, as_sent)
                    database.add_records(target, records)
                    # A later message replaces the total at the receiver: added up, it would count twice.
                    totals.update(groups)
            except UnicodeDecodeError:
                notes.append(f"{inner.label}: not text in UTF-8")
            except ValueError as error:
                notes.append(f"{inner.label}: {error}")
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"... and {len(notes) - _MOST_NOTES} more that cannot be read"]
    return list(totals.values()), notes


def _read(
    form: Format, payload: bytes, as_sent: AsSent
) -> tuple[list[EvidenceRecord], dict[tuple[str, str], EvidenceGroup]]:
    """The records of a message, or its groups by format and key; of several with one key the last."""
    if form.is_xml and (known := as_sent(payload)) is not None:
        return known, {}
    if form.columns is not None:
        return [EvidenceRecord.of_columns(record) for record in form.columns(payload)], {}
    totals = form.totals
    if totals is None or totals.read is None or totals.columns is None:
        raise ValueError(f"messages of {form.name} cannot be read back")
    kind: GroupKind = "sync" if form.shape == "sync" else "jobs"
    return [], {
        (form.name, total.key.text): EvidenceGroup.of_columns(kind, totals.columns(total))
        for total in totals.read(payload)
    }
