"""The reason why a target does not select a run names the setting that decided it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.store.schema import State
from publisher.text import iso
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOW, ListSource, Site, make_job

pytestmark = pytest.mark.either_store

LOCAL: dict[str, Any] = {"user_dn": None, "vo": None, "fqans": ()}


def site_of(folder: Path, *, settings: dict[str, Any], facts: dict[str, Any]) -> Site:
    """A run of ce1, a target `neic` with settings and one that wants everything."""
    source = ListSource("ce1")
    source.add(make_job(1, **facts))
    site = Site(folder, [source, ListSource("ce2")], [RecordReceiver("neic"), RecordReceiver("other")])
    site.configure("neic", **settings)
    site.collect()
    return site


@pytest.mark.parametrize(
    ("facts", "settings", "said"),
    [
        (LOCAL, {"local_jobs": "skip"}, '`local_jobs` of the target is not "send"'),
        ({"vo": None, "fqans": ()}, {"unknown_vo": "skip"}, '`unknown_vo` of the target is "skip"'),
        ({"fqans": ()}, {"vo": ["alice"]}, ") is not in `vo`"),
        (
            {"status": "failed"},
            {"statuses": ["completed"]},
            "its status (failed) is not in `statuses` of the target (completed)",
        ),
        ({}, {"sources": ["ce2"]}, "its source (ce1) is not in `sources`"),
        ({}, {"jobs": {"user": "!/DC=*"}}, "`jobs.user` of the target does not select its user (/DC="),
        (LOCAL | {"local_user": "test1"}, {"jobs": {"user": ["!test*"]}}, "does not select its user (test1)"),
        (LOCAL | {"local_user": "ada"}, {"jobs": {"user": ["bob", "a*", "!ada"]}}, "does not select its user (ada)"),
        (LOCAL | {"local_user": None}, {"jobs": {"user": "a*"}}, "does not select its user (unknown)"),
        ({"queue": "test"}, {"jobs": {"queue": ["main", "long"]}}, "does not select its queue (test)"),
        (LOCAL | {"project": "p1"}, {"jobs": {"project": "!p?"}}, "does not select its project (p1)"),
        ({}, {"since": iso(NOW)}, f"it ended before `since` of the target, {iso(NOW)}"),
        ({"slave": True}, {}, "it is a slave record"),
        ({"status": "running", "end": None}, {}, "its status (running)"),
    ],
)
def test_a_run_that_a_target_does_not_want(
    tmp_path: Path, facts: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    site = site_of(tmp_path, settings=settings, facts=facts)
    (known,) = site.publisher.job(make_job(1).record_id)
    assert said in known.not_selected["neic"]
    assert "neic" not in {place.target for place in known.whereabouts}
    everybody = "slave" in facts or facts.get("status") == "running"
    assert ("other" in known.not_selected, "other" in {place.target for place in known.whereabouts}) == (
        everybody,
        not everybody,
    )
    if "slave" not in facts:
        (reported,) = site.publisher.explanations("ogf-ur", "neic", make_job(1).record_id)
        assert reported.not_selected == known.not_selected["neic"]
        (reported,) = site.publisher.explanations("ogf-ur", None, make_job(1).record_id)
        assert reported.not_selected is None


@pytest.mark.parametrize(
    ("facts", "settings"),
    [
        ({"local_user": "pool01"}, {"jobs": {"user": "!pool*"}}),
        (LOCAL | {"local_user": "alice"}, {"jobs": {"user": ["a*", "!b*"]}}),
        (LOCAL | {"local_user": None}, {"jobs": {"user": "!b*"}}),
        ({"queue": "main"}, {"jobs": {"queue": "m[a-b]in"}}),
    ],
)
def test_a_run_that_a_target_selects_by_name(tmp_path: Path, facts: dict[str, Any], settings: dict[str, Any]) -> None:
    """A job with DN and VO is selected by these, whatever account of a pool it ran under."""
    site = site_of(tmp_path, settings=settings, facts=facts)
    (known,) = site.publisher.job(make_job(1).record_id)
    assert known.not_selected == {}
    assert "neic" in {place.target for place in known.whereabouts}


def test_it_is_the_rules_of_the_configuration_that_decide(tmp_path: Path) -> None:
    """A run whose VO is from a rule counts as of that VO, here as in planning."""
    site = site_of(tmp_path, settings={"vo": ["alice"]}, facts={"vo": None, "fqans": ()})
    (known,) = site.publisher.job("1")
    assert known.not_selected == {}, "unknown VOs are held"
    site.table["map"] = [{"when": {"queue": "main"}, "vo": "lhcb"}]
    site.reopen()
    assert ") is not in `vo`" in site.publisher.job("1")[0].not_selected["neic"]
    site.table["map"] = [{"when": {"queue": "main"}, "vo": "alice"}]
    site.reopen()
    assert site.publisher.job("1")[0].not_selected == {}


def test_what_was_sent_and_is_no_longer_selected_has_both(tmp_path: Path) -> None:
    site = site_of(tmp_path, settings={}, facts={})
    site.publish()
    site.sources["ce1"].add(make_job(1, status="aborted"))
    site.collect()
    (known,) = site.publisher.job("1")
    assert {place.target: place.state for place in known.whereabouts}["neic"] is State.SUPERSEDED
    assert known.not_selected["neic"].startswith("its status (")
