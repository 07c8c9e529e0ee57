"""Why a month is held: all sources without completeness are named together, so that all can be fixed together."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.calendar import month_of
from publisher.messages.completeness import why_not_whole
from publisher.reason import TRIED_AGAIN, sentence
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOW, ListSource, Site


@pytest.mark.parametrize(
    ("unsure", "named", "setting"),
    [
        (1, "source c1 does not show that it has", "If it has, set sources.c1"),
        (2, "sources c1, c2 do not show that they have", "If they have, set sources.NAME"),
        (7, "sources c1, c2, c3, c4, c5 ... do not show that they have", "If they have, set sources.NAME"),
    ],
)
def test_sources_that_do_not_know_their_first_day(tmp_path: Path, unsure: int, named: str, setting: str) -> None:
    month = month_of(NOW)
    site = site_of(tmp_path, unsure)
    found = why_not_whole(site.publisher.store, site.config, site.config.targets["neic"], month)
    assert (
        sentence(found) == f"the month may be incomplete: {named} every job from {month} on. {setting}.complete_since"
    )


def test_sources_that_know_their_first_day(tmp_path: Path) -> None:
    site = site_of(tmp_path, 0)
    assert why_not_whole(site.publisher.store, site.config, site.config.targets["neic"], month_of(NOW)) is None


def site_of(folder: Path, unsure: int) -> Site:
    """A site with one complete source, and this number of sources whose completeness is unknown."""
    sources = [ListSource(f"c{number}", complete_since=None) for number in range(1, unsure + 1)]
    site = Site(folder, [ListSource("whole"), *sources], [RecordReceiver("neic")])
    site.collect()
    return site


def test_a_source_that_was_not_read_comes_first(tmp_path: Path) -> None:
    unread = ListSource("unread")
    unread.fails = "down"
    site = Site(tmp_path, [ListSource("unsure", complete_since=None), unread], [RecordReceiver("neic")])
    site.collect()
    found = why_not_whole(site.publisher.store, site.config, site.config.targets["neic"], month_of(NOW))
    assert found is not None
    assert found.code in TRIED_AGAIN
    assert sentence(found) == "the month may be incomplete: source unread was not yet read to its end"
