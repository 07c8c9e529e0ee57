"""What `render --explain` shows: the values of a record as a table, then what was given and what was altered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from publisher.cli.output import data, json_object, make_table, safe, show
from publisher.cli.session import session
from publisher.text import iso

if TYPE_CHECKING:
    from formats.check.fields import Explained
    from publisher.preview.explain import ExplainedGroup, Explanation

_SHOWN = 20


def show_explanations(explanations: list[Explanation]) -> None:
    """Show each record's."""
    if session.json:
        json_object({"records": [msgspec.to_builtins(explanation) for explanation in explanations]})
        return
    for explanation in explanations:
        _show(explanation)


def _show(explanation: Explanation) -> None:
    data(safe(f"{explanation.record_id}, from source {explanation.source}"))
    if explanation.unwanted is not None:
        data("  " + safe(f"not wanted by the target: {explanation.unwanted}; what follows is what it would get"))
    if explanation.held is not None:
        data("  " + safe(f"held: {explanation.held}"))
    else:
        rows: list[list[object]] = [
            [value.field, value.value, _facts(value, explanation.added), _rule(value)] for value in explanation.values
        ]
        show(make_table("", ["field", "value", "facts of the run", "rule"], rows))
    if explanation.group is not None:
        _show_group(explanation.group)
    if explanation.rules:
        data("  " + safe(f"rules of the configuration that gave something: {', '.join(explanation.rules)}"))
    for note in explanation.notes:
        after = "left out" if note.after is None else f"sent as {note.after!r}"
        data("  " + safe(f"altered: {note.field} {note.before!r} {after}: {note.rule}"))


def _show_group(group: ExplainedGroup) -> None:
    listed = group.parts[:_SHOWN]
    rows: list[list[object]] = [
        [part.record_id, iso(part.end), f"{part.wall_ms / 1000:g}", f"{part.cpu_ms / 1000:g}"] for part in listed
    ]
    columns = ["job of this summary", "end", "wall s", "CPU s"]
    show(make_table("", columns, rows, right=set(columns[2:])))
    if group.jobs > len(listed):
        data(f"  and {group.jobs - len(listed)} more; --json lists {len(group.parts)} of them")
    counted = ", ".join(f"{count} from source {name}" for name, count in sorted(group.sources.items()))
    data("  " + safe(f"{group.jobs} job{'s' * (group.jobs != 1)}: {counted}; key {group.key}"))
    data("  " + safe(f"first ended {group.earliest}, last {group.latest}; spelled as {group.spelled_by} has it"))
    for rule, count in sorted(group.rules.items()):
        data("  " + safe(f"rule of the configuration: {rule} gave something to {count} of them"))


def _facts(value: Explained, added: tuple[str, ...]) -> str:
    return ", ".join(f"{fact}{' (configuration)' if fact in added else ''}" for fact in value.facts)


def _rule(value: Explained) -> str:
    return f"{value.rule} ({', '.join(value.settings)})" if value.settings else value.rule
