"""The reference of the settings as Markdown, made from the types in `publisher.config`."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from publisher.config.allocations import Allocation, AllocationFile
from publisher.config.auditor import ComponentSettings
from publisher.config.auditor_source import AuditorSourceSettings, ComponentRule, Components, MetaKeys
from publisher.config.energy import Energy, EnergyMeter, Intensity, NodeWatts, PowerRule, Pue, Watts
from publisher.config.operation import Log, Metrics, Notices, Serve
from publisher.config.reports import (
    Adjustment,
    Amount,
    Charges,
    Factor,
    Node,
    Price,
    StatementRecipient,
    StatementSettings,
)
from publisher.config.rules import SelectedNames
from publisher.config.schema import (
    TARGET_KINDS,
    AddOnSettings,
    BenchmarkRule,
    BenchmarkSettings,
    Credentials,
    FilePath,
    FormatName,
    GridLog,
    MapRule,
    ReportingSettings,
    Selected,
    Settings,
    SiteSettings,
    SourceSettings,
    SpoolContext,
    StoreSettings,
    TargetSettings,
    When,
    ZoneName,
)
from publisher.config.types import Patterns, instant
from publisher.config.waldur import UsageComponentSettings, Uuid
from publisher.text import duration_s, months_of_age

TABLES: dict[str, type[Settings]] = {
    "[site]": SiteSettings,
    "[store]": StoreSettings,
    "[credentials]": Credentials,
    "[sources.NAME]": SourceSettings,
    "benchmark": BenchmarkSettings,
    "[[sources.NAME.benchmarks]]": BenchmarkRule,
    "[[sources.NAME.map]] and [[map]]": MapRule,
    "when": When,
    "[sources.NAME.grid_log]": GridLog,
    "[sources.NAME.auditor]": AuditorSourceSettings,
    "[sources.NAME.auditor.components]": Components,
    "component": ComponentRule,
    "[sources.NAME.auditor.meta]": MetaKeys,
    "[spool.NAME]": SpoolContext,
    "[targets.NAME]": TargetSettings,
    "jobs": SelectedNames,
    '[targets.NAME] with records = "utilization"': ReportingSettings,
    "select": Selected,
    **{f'[targets.NAME] with type = "{name}"': kind.settings for name, kind in TARGET_KINDS.items()},
    "[targets.NAME] with the type of an add-on": AddOnSettings,
    "components of AUDITOR": ComponentSettings,
    "components of Waldur": UsageComponentSettings,
    "[metrics]": Metrics,
    "[notices]": Notices,
    "[log]": Log,
    "[serve]": Serve,
    "[[allocations]]": Allocation,
    "[[allocation_files]]": AllocationFile,
    "[[nodes]]": Node,
    "[energy]": Energy,
    "[[energy.measured]]": EnergyMeter,
    "[[energy.power]]": PowerRule,
    "[charges]": Charges,
    "[[charges.prices]]": Price,
    "[[charges.group_factors]] and [[charges.job_factors]]": Factor,
    "[[charges.adjustments]]": Adjustment,
    "[statements]": StatementSettings,
    "[[statements.recipients]]": StatementRecipient,
}

_VALIDATED = {
    duration_s: "duration",
    instant: "time",
    months_of_age: "age in months or years",
    get_args(FilePath)[1].func: "path",
    get_args(ZoneName)[1].func: "time zone",
    get_args(FormatName)[1].func: "name of a format",
    get_args(Patterns)[2].func: "patterns",
    get_args(Amount)[1].func: "amount",
    **{get_args(kind)[1].func: "number" for kind in (Watts, NodeWatts, Pue, Intensity)},
    get_args(Uuid)[1].func: "UUID",
}
_PLAIN = {str: "text", int: "number", float: "number", Decimal: "number", bool: "boolean", Path: "path"}


def own_fields(model: type[Settings]) -> Iterator[tuple[str, FieldInfo]]:
    """The keys of a table; of a kind of target, those that it adds to what it is built on, or has differently."""
    parent = next((base for base in model.__mro__[1:] if base in {TargetSettings, ReportingSettings}), None)
    inherited = {} if parent is None else parent.model_fields
    for name, field in model.model_fields.items():
        if not field.exclude and (name not in inherited or repr(inherited[name]) != repr(field)):
            yield name, field


def value_kind(hint: Any) -> str:
    """The kind of value that the key takes."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        named = [_VALIDATED[part.func] for part in arguments[1:] if getattr(part, "func", None) in _VALIDATED]
        return named[0] if named else value_kind(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin in {Union, types.UnionType}:
        return " or ".join(value_kind(part) for part in arguments if part is not type(None))
    if origin is dict:
        return "table"
    if origin in {tuple, frozenset}:
        return f"list of {value_kind(arguments[0])}"
    return "table" if issubclass(hint, Settings) else _PLAIN[hint]


def default_text(field: FieldInfo, kind: str) -> str:
    """ "required", or the default of the key as it would be written; empty if it has none."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value in (None, "", (), {}) or isinstance(value, Settings | dict):
        return ""
    if kind == "duration":
        return f'default `"{_duration_text(float(value))}"`'
    if isinstance(value, tuple | frozenset):
        value = sorted(value)
    return f"default `{json.dumps(value, default=int)}`"


def _duration_text(seconds: float) -> str:
    for unit, size_s in (("d", 86400), ("h", 3600)):
        if seconds >= size_s and seconds % size_s == 0:
            return f"{seconds / size_s:g}{unit}"
    return f"{seconds:g}s"


def limits(field: FieldInfo) -> str:
    """The smallest and the largest number that the key takes."""
    bounds = {
        name: bound
        for part in field.metadata
        for name in ("ge", "gt", "le")
        if (bound := getattr(part, name, None)) is not None
    }
    if {"ge", "le"} <= bounds.keys():
        return f" {bounds['ge']} to {bounds['le']}"
    return "".join(
        f" {sign} {bounds[name]}" for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤")) if name in bounds
    )


def _entry(name: str, hint: Any, field: FieldInfo) -> str:
    kind = value_kind(hint)
    default = default_text(field, kind)
    is_shown = kind == _PLAIN[str] or (kind in {_PLAIN[int], _PLAIN[bool]} and default.startswith("default"))
    parts = [("" if is_shown else kind) + limits(field), default]
    given = ", ".join(part.strip() for part in parts if part)
    return f"- `{name}`{f' ({given})' if given else ''}: {field.description or ''}"


def _entries(model: type[Settings], hints: dict[str, Any]) -> Iterator[str]:
    """A line for each key; conditions on jobs, which are named as filters are, share one line."""
    conditions = [name for name, _ in own_fields(model) if model is Selected or value_kind(hints[name]) == "patterns"]
    shared = conditions if len(conditions) > 3 else []
    fixed = [name for name, _ in own_fields(model) if name == "type" and value_kind(hints[name]).startswith("`")]
    left_out = {*shared, *fixed}  # the heading has the type
    yield from (_entry(name, hints[name], field) for name, field in own_fields(model) if name not in left_out)
    if shared:
        yield f"- {', '.join(f'`{name}`' for name in shared)} (patterns): only jobs that match all of them."


def _summary(model: type[Settings]) -> str:
    """The first line of what the table is, without the name that the heading has; empty if it says no more."""
    text = re.sub(r"^`[^`]*`(?: (?:and|with) `[^`]*`)?: ", "", (model.__doc__ or "").split("\n")[0])
    return "" if re.fullmatch(r"`[^`]*` with `[^`]*`\.", text) else text[:1].upper() + text[1:]


def render() -> str:
    """All tables."""
    lines: list[str] = []
    for heading, model in TABLES.items():
        hints = get_type_hints(model, include_extras=True)
        lines += [f"## `{heading}`", "", *([_summary(model), ""] if _summary(model) else [])]
        lines += [*_entries(model, hints), ""]
    return "\n".join(lines)
