"""inspect: a message's format, signer, content, and whether the service would accept it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from publisher.cli.exit_code import DONE, REJECTED
from publisher.cli.output import data, json_object, result_json, say
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.text import counted, iso, safe

if TYPE_CHECKING:
    from formats.base import InspectedRecord, Violation
    from formats.check.message import Inspection
    from formats.job import Job
    from publisher.inspect.inspect import Inspected
    from publisher.inspect.unwrap import MessageLayer

_LARGEST_JSON_INTEGER = 2**63 - 1
_JOB_COLUMNS = ["#", "record", "user", "VO", "queue", "cores", "start", "end", "wall s", "CPU s"]
_GROUP_COLUMNS = ["#", "month", "submit host", "user", "VO", "VO group", "VO role", "jobs", "wall s", "CPU s"]
_NUMBERS = {"#", "cores", "wall s", "CPU s", "jobs"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect")(inspect)


def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Messages, folders of them, or - for standard input.")
    ],
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE|DIR", help="Certificate authorities for checking the signer."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="To decrypt: certificate of the receiver."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="To decrypt: RSA key of the receiver.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Show at most N records and N broken rules.")
    ] = 100,
) -> None:
    """Show what messages contain, who signed them, and every rule of the services that they break.

    Exit code 0: the services would accept all messages; 3: they would refuse one. Nothing is sent or changed.
    """
    from publisher.inspect.inspect import inspect_files  # noqa: PLC0415
    from publisher.inspect.unwrap import load_keys  # noqa: PLC0415

    taken = True
    answers: list[dict[str, Any]] = []
    for inspected in inspect_files(files, load_keys(certificate, key, ca), int(time.time())):
        taken &= inspected.inspection.taken
        if session.json:
            answers.append(_json(inspected))
        else:
            _show(inspected, limit)
    if session.json:
        json_object({"taken": taken, "messages": answers})
    elif not taken:
        say("a service would refuse the messages with errors")
    raise typer.Exit(DONE if taken else REJECTED)


def _show(inspected: Inspected, limit: int) -> None:
    inspection = inspected.inspection
    data(safe(f"{inspected.label}: {inspection.title}"))
    for layer in inspected.layers:
        data("  " + safe(_layer_text(layer)))
    if inspection.records and limit:
        show_table("", *_columns_and_rows(inspection, limit), right=_NUMBERS)
    _more(len(inspection.records), limit, "record")
    for violation in sorted(inspection.violations, key=lambda one: one.level)[:limit]:  # errors before warnings
        data("  " + safe(_violation_text(violation, inspection)))
    _more(len(inspection.violations), limit, "broken rule")
    data("  " + safe(_verdict(inspection)))


def _more(count: int, limit: int, what: str) -> None:
    if count > limit:
        data(f"  ({counted(count - limit, f'more {what}')}; --json lists all)")


def _layer_text(layer: MessageLayer) -> str:
    if layer.kind == "signed":
        trust = {None: "not checked", True: "trusted", False: "not trusted"}[layer.trusted]
        return f"signed by {layer.signer}; the signature is valid; the signer's certificate is {trust}"
    if layer.attributes:
        return f"{layer.kind}: " + ", ".join(f"{name} {value}" for name, value in sorted(layer.attributes.items()))
    return layer.kind


def _violation_text(violation: Violation, inspection: Inspection) -> str:
    where = ""
    if violation.record:
        record = inspection.records[violation.record - 1] if violation.record <= len(inspection.records) else None
        where = f"record {violation.record}" + (f" ({record.id})" if record is not None and record.id else "") + ": "
    field = f"{violation.field}: " if violation.field else ""
    source = f" [{violation.source}]" if violation.source else ""
    return f"{violation.level}: {where}{field}{violation.rule}{source}"


def _verdict(inspection: Inspection) -> str:
    who = inspection.service or "a service"
    errors = sum(violation.level == "error" for violation in inspection.violations)
    warnings = len(inspection.violations) - errors
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    does = "accept" if inspection.taken else "refuse"
    return f"{counted(len(inspection.records), 'record')}; {counts}; {who} would {does} it"


def _columns_and_rows(inspection: Inspection, limit: int) -> tuple[list[str], list[list[object]]]:
    from formats.registry import FORMATS  # noqa: PLC0415 - after the files were read

    records = inspection.records[:limit]
    if records and records[0].job is not None:
        rows = [_job_row(record, record.job) for record in records if record.job is not None]
        return _JOB_COLUMNS, rows
    if (form := FORMATS.get(inspection.format)) is not None and form.shape == "report":
        bins: list[list[object]] = [[record.number, *record.fields.values()] for record in records]
        return ["#", *(records[0].fields if records else ())], bins
    groups = [_group_row(record) for record in records]
    filled = [at for at in range(len(_GROUP_COLUMNS)) if any(row[at] is not None for row in groups)]
    return [_GROUP_COLUMNS[at] for at in filled], [[row[at] for at in filled] for row in groups]


def _job_row(record: InspectedRecord, job: Job) -> list[object]:
    return [
        record.number, record.id, job.user_dn or job.local_user, job.vo, job.queue, job.cores, _instant(job.start),
        _instant(job.end), _seconds(job.wall_ms), _seconds(job.cpu_ms),
    ]  # fmt: skip


def _group_row(record: InspectedRecord) -> list[object]:
    get = record.fields.get
    return [
        record.number, f"{get('Year', '?')}-{get('Month', '?'):>02}", get("SubmitHost"), get("GlobalUserName"),
        get("VO"), get("VOGroup"), get("VORole"), get("NumberOfJobs"), get("WallDuration"), get("CpuDuration"),
    ]  # fmt: skip


def _instant(at: int | None) -> str | None:
    try:
        return None if at is None else iso(at)
    except (ValueError, OverflowError, OSError):
        return f"@{at}"


def _seconds(duration_ms: int | None) -> float | int | None:
    return None if duration_ms is None else duration_ms // 1000 if duration_ms % 1000 == 0 else duration_ms / 1000


def _json(inspected: Inspected) -> dict[str, Any]:
    inspection = inspected.inspection
    return {
        "file": inspected.label,
        "layers": msgspec.to_builtins(inspected.layers),
        **_known(inspection),
        "taken": inspection.taken,
        "valid": inspection.valid,
        "records": [_record_json(record) for record in inspection.records],
        "violations": [_known(violation) for violation in inspection.violations],
    }


def _known(result: Inspection | Violation) -> dict[str, Any]:
    """Its fields; what is not known, and empty there, is null."""
    return {name: value or None for name, value in result_json(result).items()}


def _record_json(record: InspectedRecord) -> dict[str, Any]:
    more: dict[str, Any] = {"fields": record.fields} if record.fields else {}
    if record.job is not None:
        more["job"] = _harmless(msgspec.to_builtins(record.job.known()))
    return result_json(record, "job", "fields") | more


def _harmless(value: Any) -> Any:
    """A value as JSON can hold it: numbers beyond 64 bits, infinities, and NaN become text."""
    if isinstance(value, dict):
        return {name: _harmless(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_JSON_INTEGER:
        return f"a number of {value.bit_length()} bits"
    return value
