"""What a release promises to keep, one line for each thing: commands, settings, exit codes, `--json`, the library, the
interface of add-ons, versions of the store.

After a colon a line has the type of what it names, its limits, and its default; each value that it takes by name is a
line of its own, since values may be added.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

import publisher
import publisher.testing
from formats.base import Format
from formats.totals import TotalsKind
from formats.view import View
from publisher.cli import exit_code
from publisher.config.target_kind import SumsKind, TargetKind
from publisher.former_names import FORMER, FormerNames
from publisher.observe.allocations import families
from publisher.observe.metrics import PREFIX, StatusCollector
from publisher.page.app import PageContent, application
from publisher.report.archive import COLUMNS
from publisher.report.view_kind import VIEW_KINDS
from publisher.sources import base as sources
from publisher.status.status import Status
from publisher.targets import base as targets
from tests.conftest import ROOT
from tests.docs import commands, reference

FILE = ROOT / "fixtures" / "interface.txt"
SCHEMAS = ROOT / "docs" / "reference" / "schemas"
REVISIONS = ROOT / "publisher" / "store" / "migrations" / "versions"
DESCRIPTORS = (Format, TotalsKind, View, TargetKind, SumsKind)


def lines() -> list[str]:
    """All of it, sorted."""
    now = {
        *_commands(), *_settings(), *_exit_codes(), *_json(), *_library(), *_add_ons(), *_archive(), *_store(),
        *_metrics(), *_page(),
    }  # fmt: skip
    return sorted({*now, *_former(now)})


def name_of(line: str) -> str:
    """A line without its type."""
    return line.partition(": ")[0]


def _commands() -> Iterator[str]:
    for path, command in commands.commands():
        yield f"command {' '.join(path)}"
        for option in commands.options_of(command):
            for name in option.opts:
                yield from _typed(f"command {' '.join(path)} {name}", *_parameter_type(option))
        for number, argument in enumerate(commands.arguments_of(command), 1):
            yield from _typed(f"command {' '.join(path)} argument {number}", *_parameter_type(argument))


def _parameter_type(parameter: commands.Command) -> tuple[str, list[Any]]:
    """The type of an option or argument, with how often it is given, its limits, and its default; its values."""
    hint = parameter.type_descriptor.annotation
    inner = get_args(hint)[0] if get_origin(hint) is list else hint
    values = list(get_args(inner)) if get_origin(inner) is Literal else []
    is_repeated = get_origin(hint) is list
    parts = ["flag" if getattr(parameter, "is_flag", False) else "value" if values else reference.value_kind(inner)]
    parts += ["repeated"] if is_repeated else []
    parts += ["required"] if parameter.required else []
    parts += [f"at least {parameter.min}"] if parameter.min is not None else []
    parts += [f"at most {parameter.max}"] if parameter.max is not None else []
    default = parameter.default
    parts += [f"default {json.dumps(default, default=str)}"] if default not in (None, False, "", ()) else []
    return ", ".join(parts), values


def _typed(name: str, kind: str, values: Iterable[Any] = ()) -> Iterator[str]:
    yield f"{name}: {kind}"
    yield from (f"{name} value {json.dumps(value)}" for value in values)


def _settings() -> Iterator[str]:
    for heading, model in reference.TABLES.items():
        hints = get_type_hints(model, include_extras=True)
        for name, field in reference.own_fields(model):
            kind = reference.value_kind(hints[name])
            values = re.findall(r"`([^`]*)`", kind)
            kind = re.sub(r"`[^`]*`(, `[^`]*`)*", "value", kind) + reference.limits(field)
            default = reference.default_text(field, kind).replace("`", "")
            yield from _typed(
                f"setting {heading} {name}", f"{kind}, {default}".removesuffix(", "), map(json.loads, values)
            )


def _exit_codes() -> Iterator[str]:
    for name, code in vars(exit_code).items():
        if name.isupper() and isinstance(code, int):
            yield f"exit code {code}"


def _json() -> Iterator[str]:
    for file in SCHEMAS.glob("*.json"):
        yield from (f"json {file.stem} {path}" for path in _paths(json.loads(file.read_text(encoding="utf-8"))))


def _paths(schema: Any, before: str = "") -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        kinds = inner.get("type", "any")
        yield f"{before}{name}: {kinds if isinstance(kinds, str) else '|'.join(kinds)}"
        yield from _paths(inner, f"{before}{name}.")
    for key, mark in (("additionalProperties", "*."), ("items", "[].")):
        if isinstance(schema.get(key), dict):
            yield from _paths(schema[key], before + mark)
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _paths(inner, before)


def _library() -> Iterator[str]:
    for name in publisher.__all__:
        yield f"library {name}"
        yield from _fields(f"library {name}", getattr(publisher, name))
    for name, method in inspect.getmembers(publisher.Publisher, callable):
        if not name.startswith("_"):
            yield from (f"library Publisher.{name} {given}" for given in _parameters(method))


def _parameters(called: Any) -> Iterator[str]:
    signature = inspect.signature(called)
    yield f"is called: {_hint(signature.return_annotation)}"
    for name, parameter in signature.parameters.items():
        if name != "self":
            place = ", by name" if parameter.kind is parameter.KEYWORD_ONLY else ""
            yield f"takes {name}: {_hint(parameter.annotation)}{_default(parameter.default)}{place}"


def _fields(name: str, kind: Any) -> Iterator[str]:
    """The fields of a struct."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = {
            field: hint for base in reversed(kind.__mro__) for field, hint in inspect.get_annotations(base).items()
        }
        required = (msgspec.NODEFAULT,) * (len(kind.__struct_fields__) - len(kind.__struct_defaults__))
        for field, default in zip(kind.__struct_fields__, (*required, *kind.__struct_defaults__), strict=True):
            yield f"{name}.{field}: {_hint(hints[field])}{_default(default)}"


def _hint(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(default: Any) -> str:
    """A default as it would be written; only that there is one, where it is made or has no short text."""
    if default in (inspect.Parameter.empty, msgspec.NODEFAULT):
        return ""
    default = default.value if isinstance(default, Enum) else default
    if isinstance(default, str | int | float | type(None)) or default in ((), frozenset()):
        return f", default {default!r}"
    return ", has a default"


def _add_ons() -> Iterator[str]:
    for kind in DESCRIPTORS:
        yield from _fields(f"add-on {kind.__name__}", kind)
    yield from (f"add-on publisher.testing.{name}" for name in publisher.testing.__all__)
    for module in (sources, targets):
        for name, item in vars(module).items():
            if inspect.isclass(item) and item.__module__ == module.__name__ and not name.startswith("_"):
                yield f"add-on {module.__name__}.{name}"


def _archive() -> Iterator[str]:
    yield from (f"archive {name}" for name in COLUMNS)


def _metrics() -> Iterator[str]:
    nothing = Status(complete=True, sources={}, targets={})
    collector = StatusCollector(lambda: nothing, dict, lambda: 0)
    collector.exit_code = collector.last_run = 0
    for family in (*collector.collect(), *families([], 0, f"{PREFIX}allocation_")):
        yield f"metric {' '.join((family.name, *family._labelnames))}"


def _page() -> Iterator[str]:
    app: Any = application(cast("PageContent", None), ())
    for route in app._app.routes:
        yield f"page {route.path}"
    yield from (f"page /{view}" for view in VIEW_KINDS)


def _former(now: set[str], former: FormerNames = FORMER) -> Iterator[str]:
    """What is accepted besides, with a message."""
    for pattern, name in former.settings.items():
        former_name = pattern.rpartition(".")[2]
        yield from (
            re.sub(rf" {name}(?=:|$)", f" {former_name}", line) for line in now if name_of(line).endswith(f" {name}")
        )
    for command, name in former.commands.items():
        start = f"command {name}"
        yield from (
            line.replace(start, f"command {command}", 1) for line in now if f"{name_of(line)} ".startswith(f"{start} ")
        )
    for option, name in former.options.items():
        present = f"command {option.rpartition(' ')[0]} {name}"
        yield from (line.replace(present, f"command {option}", 1) for line in now if name_of(line) == present)
    yield from (f"library {name}" for name in former.library)


def _store() -> Iterator[str]:
    for file in REVISIONS.glob("[0-9]*.py"):
        yield f"store version {Path(file).stem.partition('_')[0]}"
