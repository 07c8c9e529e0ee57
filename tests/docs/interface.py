"""What a release promises to keep, one line for each thing: commands, settings, exit codes, `--json`, the library, the
interface of add-ons, versions of the store."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

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


def _commands() -> Iterator[str]:
    for path, command in commands.commands():
        yield f"command {' '.join(path)}"
        for option in commands.options_of(command):
            yield from (f"command {' '.join(path)} {name}" for name in option.opts)
        for number, _ in enumerate(commands.arguments_of(command), 1):
            yield f"command {' '.join(path)} argument {number}"


def _settings() -> Iterator[str]:
    for heading, model in reference.TABLES.items():
        yield from (f"setting {heading} {name}" for name, _ in reference.own_fields(model))


def _exit_codes() -> Iterator[str]:
    for name, code in vars(exit_code).items():
        if name.isupper() and isinstance(code, int):
            yield f"exit code {code}"


def _json() -> Iterator[str]:
    for file in SCHEMAS.glob("*.json"):
        yield from (f"json {file.stem} {path}" for path in _paths(json.loads(file.read_text(encoding="utf-8"))))


def _paths(schema: Any, before: str = "") -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{before}{name}"
        yield from _paths(inner, f"{before}{name}.")
    for key, mark in (("additionalProperties", "*."), ("items", "[].")):
        if isinstance(schema.get(key), dict):
            yield from _paths(schema[key], before + mark)
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _paths(inner, before)


def _library() -> Iterator[str]:
    for name in publisher.__all__:
        yield f"library {name}"
    for name, method in inspect.getmembers(publisher.Publisher, callable):
        if not name.startswith("_"):
            yield from (f"library Publisher.{name} {given}" for given in _parameters(method))


def _parameters(called: Any) -> Iterator[str]:
    yield "is called"
    yield from (f"takes {name}" for name in inspect.signature(called).parameters if name != "self")


def _add_ons() -> Iterator[str]:
    for kind in DESCRIPTORS:
        yield from (f"add-on {kind.__name__}.{name}" for name in kind.__struct_fields__)
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
        endings = f" {name}", f" {pattern.rpartition('.')[2]}"
        yield from (line.removesuffix(endings[0]) + endings[1] for line in now if line.endswith(endings[0]))
    for command, name in former.commands.items():
        start = f"command {name}"
        yield from (line.replace(start, f"command {command}", 1) for line in now if f"{line} ".startswith(f"{start} "))
    yield from (f"command {option}" for option in former.options)
    yield from (f"library {name}" for name in former.library)


def _store() -> Iterator[str]:
    for file in REVISIONS.glob("[0-9]*.py"):
        yield f"store version {Path(file).stem.partition('_')[0]}"
