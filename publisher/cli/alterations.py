"""What rendering held and altered, for people: what is alike in many records is told once, with the first of them.

`--json` has every one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from publisher.cli.output import counted
from publisher.reason import sentence

if TYPE_CHECKING:
    from publisher.preview.render import HeldPreview, Noted


def held_lines(held: Iterable[HeldPreview]) -> Iterator[str]:
    """A line for each reason, in the order in which they came up."""
    alike: dict[str, list[str]] = {}
    for one in held:
        alike.setdefault(sentence(one.reason), []).append(one.record_id)
    for reason, record_ids in alike.items():
        yield f"held: {_whose(record_ids)}: {reason}"


def note_lines(notes: Iterable[Noted]) -> Iterator[str]:
    """A line for each field and rule, with the first value that was altered."""
    alike: dict[tuple[str, str, bool], list[Noted]] = {}
    for one in notes:
        alike.setdefault((one.note.field, one.note.rule, one.note.after is None), []).append(one)
    for (field, rule, left_out), same in alike.items():
        first = same[0].note
        after = "left out" if left_out else f"sent as {first.after!r}"
        yield f"note: {_whose([one.record_id for one in same])}: {field} {first.before!r} {after}: {rule}"


def _whose(record_ids: list[str]) -> str:
    """The record, or how many there are and the first. A summary has no id: the note is one of its jobs'."""
    named = record_ids[0] or "a summary"
    return named if len(record_ids) == 1 else f"{counted(len(record_ids), 'record')}, the first {named}"
