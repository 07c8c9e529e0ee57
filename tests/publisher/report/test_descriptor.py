"""What the descriptor of a view says of its columns and pictures is what its reports have; so does its schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from formats.utilization.measure import KEYS
from publisher.api import Publisher
from publisher.report.output import json_object
from publisher.report.report import Column, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import VIEW_KINDS, ViewKind
from publisher.report.view_option import PERIODS
from publisher.report.views import make
from tests.docs.json_schema import view_schema, violations
from tests.publisher.cli.program import BASE, Inside
from tests.publisher.report.conftest import SOURCES
from tests.publisher.report.test_explain import SETTINGS

SINCE, UNTIL = 1_546_300_800, 1_796_000_000
KEYS_OF_VIEWS = set().union(*(kind.keys for kind in VIEW_KINDS.values())) | {*KEYS, *PERIODS}
MORE = {
    "totals": [{"compare": "year", "by": ("user",)}],
    "occupation": [
        {"resource": "gpus"}, {"resource": "memory"}, {"by": ("node", "core"), "filters": {"host": "node1"}},
    ],
    "utilization": [{"measure": "cpu"}, {"measure": "cpu", "by": ("queue",)}],
    "paths": [{"filters": {"job": "*"}}],
    "job": [{"filters": {"job": "*"}}],
    "sql": [{"statement": "SELECT * FROM runs"}],
}  # fmt: skip
"""Options with which a view has other columns or pictures."""
DAYS = {"utilization": {"bins": 3}, "load": {"bins": 3}, "occupation": {"period": "all"}}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Iterator[ReportContext]:
    site = Inside(tmp_path_factory.mktemp("descriptor"), BASE + SOURCES.replace("{0}", str(fixtures)) + SETTINGS)
    site("collect")
    with Publisher.from_file(site.config) as publisher:
        yield ReportContext(publisher.store, publisher.config, UNTIL)


def reports(context: ReportContext, kind: ViewKind, fixtures: Path) -> Iterator[Report]:
    """The reports of a view by each key, and with what changes its columns."""
    usual = {"start": SINCE, "stop": UNTIL, "stat_file": fixtures / "dqs" / "stat_file", **DAYS.get(kind.name, {})}
    if kind.interval == "month":
        usual |= {"start": 1_790_812_800, "stop": 1_793_491_200}
    by = [{"by": (key,)} for key in kind.keys if key != "core"] if kind.keys else []
    plain = [] if kind.required or "statement" in kind.options else [{}]
    for options in chain(plain, by, MORE.get(kind.name, ())):
        yield make(kind.name, context, ReportRequest(**(usual | options)))  # type: ignore[arg-type]


def is_key(column: Column) -> bool:
    return column.name.removeprefix("of_") in KEYS_OF_VIEWS and (column.kind, column.unit) == ("text", "")


def is_of(unit: str, declared: str) -> bool:
    return re.fullmatch(re.sub(r"\\{\w+\\}", ".+", re.escape(declared)), unit) is not None


@pytest.mark.parametrize("name", list(VIEW_KINDS))
def test_columns_and_pictures_are_those_of_the_descriptor(context: ReportContext, fixtures: Path, name: str) -> None:
    kind = VIEW_KINDS[name]
    declared = {column.name: column for column in (*kind.columns, *kind.more_columns)}
    schema = view_schema(kind)["properties"][kind.rows_named]
    seen: set[str] = set()
    pictures: set[str] = set()
    for report in reports(context, kind, fixtures):
        for column in report.columns if declared else ():
            own = declared.get(column.name)
            if own is None or (own.kind != "text" and is_key(column)):
                assert is_key(column), column
                continue
            assert column.kind == own.kind, column
            assert is_of(column.unit, own.unit), column
            seen.add(column.name)
        assert {*report.shown} <= {column.name for column in report.columns}
        for plot in report.plots:
            (named, *_) = [
                key
                for key, one in kind.pictures.items()
                if re.fullmatch(f"{re.escape(one.title)}( by .*)?", plot.title)
            ]
            assert is_of(plot.unit, kind.pictures[named].axis)
            pictures.add(named)
        assert violations(schema, json_object(report)[kind.rows_named]) == []
    assert seen == declared.keys()
    assert pictures >= kind.pictures.keys() - {"staged", "vmem"}
