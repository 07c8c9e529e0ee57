"""What render and --diff show of summaries and sync counts is folded as publishing folds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.apel.text import parse
from publisher.reason import sentence
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.messages.test_totals import site_of, user_job
from tests.publisher.site import NOVEMBER, OCTOBER, Site, make_job

WINDOWS = (Window(), Window(OCTOBER, NOVEMBER + 86_400), Window(NOVEMBER + 7, None))
DECEMBER = NOVEMBER + 30 * 86_400


def rendered(site: Site, name: str, window: Window) -> int:
    """NumberOfJobs of all records that are rendered."""
    texts = [message.payload.decode() for message in site.publisher.rendering(name, "apel", window).messages()]
    return sum(int(record.get("NumberOfJobs") or 0) for text in texts for record in parse(text).records)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_waived_job_is_in_neither(tmp_path: Path, window: Window) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Ada", benchmarks=()))
    site.publish()
    assert list(service.sync.values()) == [2]
    site.publisher.waive(State.HELD, "apel", [make_job(2).record_id], "a test job")
    assert rendered(site, "apel-sync", window) == 1
    changes = list(site.publisher.comparison("apel-sync", "apel", window).changes())
    assert [(change.kind, change.fields[0].after) for change in changes] == [("changed", "1")]
    (kept,) = site.publisher.comparison("apel-summary", "apel", window).changes()
    assert kept.kind == "unchanged"
    site.publish()
    assert list(service.sync.values()) == [1]
    assert rendered(site, "apel-sync", Window()) == 0


@pytest.mark.parametrize("window", [Window(), Window(OCTOBER, DECEMBER + 86_400)])
def test_a_month_that_is_not_known_whole_is_held(tmp_path: Path, window: Window) -> None:
    old, new = user_job(1, "Ada", end=OCTOBER + 5), user_job(2, "Ada", end=DECEMBER + 5)
    site, service = site_of(tmp_path, old, new, complete_since=NOVEMBER + 7)
    assert rendered(site, "apel-summary", window) == 1
    comparison = site.publisher.comparison("apel-summary", "apel", window)
    assert [change.kind for change in comparison.changes()] == ["new"]
    assert [held.record_id for held in comparison.held] == [old.record_id]
    assert "may be incomplete" in sentence(comparison.held[0].reason)
    site.publish()
    assert service.total()[0] == 1


def test_before_anything_was_planned_a_plain_fold_is_shown(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, user_job(1, "Ada"))
    site.table["targets"]["other"] = {"type": "directory", "path": "other", "records": "apel-summary"}
    site.reopen()
    texts = [
        message.payload
        for message in site.publisher.rendering("apel-summary", "other", Window(OCTOBER, None)).messages()
    ]
    assert b"NumberOfJobs: 1" in b"".join(texts)
