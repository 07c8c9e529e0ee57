"""What `render --diff` shows: records that are new, changed field by field, or gone; the others are counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from publisher.cli.alterations import held_lines
from publisher.cli.output import data, json_object, safe, say
from publisher.cli.session import session
from publisher.errors import UsageError
from publisher.reason import sentence

if TYPE_CHECKING:
    from publisher.preview.diff import Change, DiffRendering

_COUNTED = ("new", "changed", "unchanged", "gone", "unknown")


def show_changes(comparison: DiffRendering) -> None:
    """Show them as they come, or all as one object. Raises `UsageError` for a format that is not known."""
    counts: Counter[str] = Counter()
    listed: list[dict[str, Any]] = []
    try:
        for change in comparison.changes():
            counts[change.kind] += 1
            if change.kind == "unchanged":
                continue
            if session.json:
                listed.append({"record": change.record, "kind": change.kind, "fields": list(change.fields)})
            else:
                _show(change)
    except (LookupError, ValueError) as error:
        raise UsageError(str(error)) from error
    totals = {kind: counts[kind] for kind in _COUNTED}
    if session.json:
        held = [
            {"record_id": item.record_id, "reason": sentence(item.reason), "reason_code": item.reason.code}
            for item in comparison.held
        ]
        json_object({**totals, "held": len(held), "records": listed, "held_records": held})
        return
    say(*held_lines(comparison.held))
    say(", ".join(f"{count} {kind}" for kind, count in totals.items()) + f", {len(comparison.held)} held")


def _show(change: Change) -> None:
    data(safe(f"{change.kind}: {change.record}"))
    for field in change.fields:
        before = "nothing" if field.before is None else repr(field.before)
        after = "nothing" if field.after is None else repr(field.after)
        data(safe(f"  {field.field}: {before} -> {after}"))
