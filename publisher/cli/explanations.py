"""What `render --explain` shows: the values of a record as a table, then what was given and what was altered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from publisher.cli.output import data, json_object, make_table, safe, show
from publisher.cli.session import session

if TYPE_CHECKING:
    from formats.explain import Explained
    from publisher.pipeline.explain import Explanation


def show_explanations(explanations: list[Explanation]) -> None:
    """Show each record's."""
    if session.json:
        json_object({"records": [msgspec.to_builtins(explanation) for explanation in explanations]})
        return
    for explanation in explanations:
        _show(explanation)


def _show(explanation: Explanation) -> None:
    data(safe(f"{explanation.record_id}, from source {explanation.source}"))
    if explanation.held is not None:
        data("  " + safe(f"held: {explanation.held}"))
    else:
        rows: list[list[object]] = [
            [value.field, value.value, _facts(value, explanation.added), _rule(value)] for value in explanation.values
        ]
        show(make_table("", ["field", "value", "facts of the run", "rule"], rows))
    if explanation.rules:
        data("  " + safe(f"rules of the configuration that gave something: {', '.join(explanation.rules)}"))
    for note in explanation.notes:
        after = "left out" if note.after is None else f"sent as {note.after!r}"
        data("  " + safe(f"altered: {note.field} {note.before!r} {after}: {note.rule}"))


def _facts(value: Explained, added: tuple[str, ...]) -> str:
    return ", ".join(f"{fact}{' (configuration)' if fact in added else ''}" for fact in value.facts)


def _rule(value: Explained) -> str:
    return f"{value.rule} ({', '.join(value.settings)})" if value.settings else value.rule
