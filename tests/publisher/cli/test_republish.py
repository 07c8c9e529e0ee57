"""republish: the window as a month or by its ends, and the plan in sentences."""

from __future__ import annotations

import pytest

from tests.publisher.cli.program import BASE, FILES, SOURCE, Program

pytestmark = pytest.mark.inside


def test_a_month_is_the_window_between_its_ends(published: Program) -> None:
    by_month = published("republish", "files", "--month", "2026-10", "--dry-run", "--json").ok().object
    by_ends = published("republish", "files", "--since", "2026-10", "--until", "2026-11", "--dry-run", "--json").ok()
    assert by_month == by_ends.object
    assert by_month["plan"]["to_send"] > 0


def test_the_reasons_to_hold_are_sentences_for_people_and_codes_for_programs(published: Program) -> None:
    published.configure(BASE + SOURCE + FILES + 'unknown_vo = "hold"\n')
    window = ("republish", "files", "--since", "2026-09", "--until", "2026-12", "--dry-run")
    held = published(*window, "--json").ok().object["plan"]["to_hold"]
    assert list(held) == ["no-vo"]
    shown = published(*window).ok().err
    assert f"    {held['no-vo']}, for example: " in shown
    assert "unknown, and this target needs it. Add a rule [[sources.ce1.map]]" in shown
    assert "no-vo" not in shown
