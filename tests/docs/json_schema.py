"""A JSON Schema made from objects that the program printed: types, which keys are always there, and descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from publisher.report.report import Column
from publisher.report.view_kind import VIEW_KINDS, ViewKind

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
BY_NAME: Final = frozenset({
    "sources", "targets", "months", "facts", "not_selected", "times_in_future", "reconciled", "to_hold",
    "last_registration", "receipt", "taken_over", "objects", "tables", "totals", "left", "job", "messages",
    "removed_sources", "removed_targets", "resent", "removed_amounts", "fields",
})  # fmt: skip
"""Keys whose value is an object by name: of a source, a target, a month, and so on."""
NUMBERS: Final = frozenset(
    {"certificate_days_left", "unconfirmed_days", "resting_rounds", "assumed", "cpu_s", "wall_s", "to_hold"}
)
"""Keys with a number or null, or with numbers by name; another key that was only seen as null has a text or null."""
OBJECTS: Final = frozenset({"own", "tool"})
"""Keys with an object or null: the sums of a batch system's own program, which is not asked here."""
OR_NULL: Final = frozenset({"ours", "theirs", "run_id"})
"""Keys of a comparison: a value, or null for what one side lacks."""
DESCRIPTIONS: Final = {
    "accepted": "jobs that the service took; of publish and run: in this run",
    "agrees": "true: the service has what was sent, and no total is open",
    "totals_open": "totals of which the service did not take the last version, or may not have it",
    "assumed": "of the accepted jobs: delivered by an earlier publisher",
    "batches": "messages sent in this run",
    "busy": "another run is at work; nothing was done",
    "bytes": "size of the messages",
    "changed": "jobs or groups that have other values than before",
    "emptied": "groups that no longer exist: they are sent with zero jobs",
    "complete": "every source was read to its end, and nothing waits or is in flight",
    "complete_until": "the service has every job that ended before",
    "confirmed": "of the accepted jobs: seen at the service as they were sent",
    "cpu_doubtful": "jobs whose CPU time is probably too small, since Slurm recorded none of their steps",
    "cpu_sampled": "jobs with the CPU time that Slurm sampled, since its total is too small",
    "damaged_jobs": "stored jobs that runs found damaged",
    "delivered": "complete, and nothing is held, rejected, or known to be damaged",
    "due_at": "runs send nothing before then, because of `every`",
    "evidence": "how it is known what the service has; none: it is not",
    "exit_code": "the exit code",
    "groups": "of summary targets: the same counts of groups instead of jobs",
    "held": "jobs that lack something; nothing was sent",
    "in_flight": "jobs that were sent, without a recorded answer",
    "interrupted": "the source was not read to its end: the next collect continues",
    "last_run": "the newest run of the program in the history, also one at work; null: none",
    "last_sent_end_time": "latest end of a job that the service has",
    "merged": "parts of jobs that have a record of their own, such as slaves and steps",
    "new": "jobs that were not in the store; of republish: jobs or groups that the service lacks",
    "not_due": "of the waiting jobs: their report is sent when its period is over",
    "not_latest": "why nothing is sent: the store was restored",
    "not_selected": "jobs that are not to be sent; of one job: why, by target",
    "oldest_waiting_end_time": "end of the oldest waiting job",
    "readable": "false: the record of the run is damaged, and what it did is unknown",
    "reason": "a sentence for people; it may change",
    "reason_code": "a code; it never changes its meaning",
    "removed_amounts": "amounts that the settings lost: in how many totals the service has them; zero follows",
    "removed_sources": "sources with stored jobs that the configuration does not name any more",
    "removed_targets": "targets with jobs that the configuration does not name any more: nothing is sent there",
    "rejected": "jobs that the service refused",
    "shadow": "nothing is sent to this target",
    "shown": "how many entries are in records",
    "skipped": "jobs that are not published: they never ran, or still run",
    "superseded": "jobs that changed after the service took them; it keeps the first version",
    "times_in_future": "times that were noted when a clock was wrong, by key",
    "total": "how many entries there are",
    "unconfirmed_since": "when the oldest unconfirmed job was accepted",
    "suspect": "jobs that a user may have made, which are held; of a piece of input: its job",
    "unreadable": "pieces of input that could not be read",
    "waiting": "jobs that wait; of a source: what is incomplete in it",
    "waived": "jobs that an administrator decided not to deliver",
}


CELLS: Final = ("integer", "null", "number", "string")
"""The types of the cells of a report's rows, whose columns differ by view."""


def schema_of(title: str, samples: Iterable[dict[str, Any]], *, columns_differ: bool = False) -> dict[str, Any]:
    """The schema that all of these objects follow. `columns_differ`: objects in them may have any keys."""
    whole = _schema("", list(samples))
    if columns_differ:
        whole["properties"] = {name: _with_any_columns(found) for name, found in whole["properties"].items()}
    return {"$schema": DRAFT, "title": title, **whole}


def report_schema(title: str, samples: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The schema of the reports: what all of them may have, and by view the columns of its rows, of its descriptor."""
    whole = schema_of(title, samples, columns_differ=True)
    whole["allOf"] = [
        {"if": {"properties": {"view": {"const": name}}}, "then": {"$ref": f"#/$defs/{name}"}} for name in VIEW_KINDS
    ]
    return {**whole, "$defs": {name: view_schema(kind) for name, kind in VIEW_KINDS.items()}}


def view_schema(kind: ViewKind) -> dict[str, Any]:
    """The schema of the rows of a view. The columns of a statement are not known."""
    columns = {column.name: _cell_schema(column) for column in (*kind.columns, *kind.more_columns)}
    keys = {f"of_{key}" if key in columns else key: {"type": "string"} for key in kind.keys}
    row = {"type": "object", "properties": keys | columns} if columns else {"type": "object"}
    others = {} if columns else {"additionalProperties": {"type": list(CELLS)}}
    rows = {"type": "array", "items": row | others}
    return {"description": kind.summary, "type": "object", "properties": {kind.rows_named: rows}}


def _cell_schema(column: Column) -> dict[str, Any]:
    type_name = _TYPES.get(column.kind, "number")
    about = {"ratio": "fraction of 1", "instant": "ISO 8601, UTC"}.get(column.kind, column.unit)
    return {**({"description": about} if about else {}), "type": [type_name, "null"]}


_TYPES: Final = {"text": "string", "instant": "string", "money": "string", "decimal": "string", "count": "integer"}


def _with_any_columns(found: dict[str, Any]) -> dict[str, Any]:
    """A schema without the names of keys."""
    kept = {key: value for key, value in found.items() if key in {"description", "type"}}
    if "items" in found:
        kept["items"] = _with_any_columns(found["items"])
    if "object" in found.get("type", ()):
        kept["additionalProperties"] = {"type": list(CELLS)}
    return kept


def violations(schema: dict[str, Any], value: Any, where: str = "$") -> list[str]:
    """Where a value does not follow a schema as `schema_of` makes it, and in which way."""
    if not schema.keys() - {"description", "$schema", "title"}:
        return []
    allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = _type(value)
    if kind not in allowed and not (kind == "integer" and "number" in allowed):
        return [f"{where}: {kind}, not {' or '.join(allowed)}"]
    found: list[str] = []
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        found += [f"{where}: lacks {name}" for name in schema.get("required", ()) if name not in value]
        for name, part in value.items():
            if name in known or others is not None:
                found += violations(known.get(name) or others, part, f"{where}.{name}")
            else:
                found.append(f"{where}: {name} is not described")
    if isinstance(value, list):
        for number, part in enumerate(value):
            found += violations(schema.get("items", {}), part, f"{where}[{number}]")
    return found


def _schema(key: str, samples: list[Any]) -> dict[str, Any]:
    """The common schema of all these values of a key; any value if there is no sample."""
    types = sorted({_type(value) for value in samples})
    if "integer" in types and "number" in types:
        types.remove("integer")
    if types == ["null"]:
        types = sorted(["null", _unseen(key)])
    if key in OR_NULL:
        types = sorted({*types, "null"})
    found: dict[str, Any] = {"description": DESCRIPTIONS[key]} if key in DESCRIPTIONS else {}
    if types:
        found["type"] = types[0] if len(types) == 1 else types
    objects = [value for value in samples if isinstance(value, dict)]
    if objects and key in BY_NAME:
        values = [value for each in objects for value in each.values()]
        found["additionalProperties"] = _schema("", values) if values else {"type": _unseen(key)}
    elif objects:
        names = sorted({name for each in objects for name in each})
        found["properties"] = {name: _schema(name, [each[name] for each in objects if name in each]) for name in names}
        found["required"] = [name for name in names if all(name in each for each in objects)]
    lists = [value for value in samples if isinstance(value, list)]
    if lists:
        found["items"] = _schema("", [value for each in lists for value in each])
    return found


def _unseen(key: str) -> str:
    return "integer" if key in NUMBERS else "object" if key in OBJECTS else "string"


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", dict: "object", list: "array", type(None): "null"}
    return names[type(value)]
