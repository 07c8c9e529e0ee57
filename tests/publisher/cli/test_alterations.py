"""What rendering held and altered, as people see it."""

from __future__ import annotations

from formats.base import Note
from formats.rule_codes import Reason
from publisher.cli.render_cmd import held_lines, note_lines
from publisher.preview.render import HeldPreview, Noted
from publisher.reason import ReasonCode


def test_held_records_are_reported_by_reason() -> None:
    texts = {"a": "no benchmark", "b": "no end", "c": "no benchmark"}
    held = [HeldPreview(name, Reason.of(ReasonCode.WAIVED, text=text)) for name, text in texts.items()]
    assert list(held_lines(held)) == ["held: 2 records, the first a: no benchmark", "held: b: no end"]
    assert list(held_lines([])) == []


def test_notes_are_reported_by_field_and_rule() -> None:
    notes = [
        Noted("a", Note("Host", "no host name", "wn_1", None)),
        Noted("b", Note("Host", "no host name", "wn_2", None)),
        Noted("b", Note("Queue", "shortened", "qq", "q")),
        Noted("", Note("VO", "shortened", "vv", "v")),
        Noted("a", Note("Queue", "shortened", "rr", None)),
    ]
    assert list(note_lines(notes)) == [
        "note: 2 records, the first a: Host 'wn_1' left out: no host name",
        "note: b: Queue 'qq' sent as 'q': shortened",
        "note: a summary: VO 'vv' sent as 'v': shortened",
        "note: a: Queue 'rr' left out: shortened",
    ]
