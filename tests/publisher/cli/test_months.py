"""A closed month by the command, as the page on it says."""

from __future__ import annotations

from tests.publisher.cli.program import WHOLE, Program

CHARGES = '[charges]\ntimezone = "{}"\n[[charges.prices]]\nresource = "cores"\nprice = "0.5"\n'


def test_a_month_is_closed_and_its_statements_are_written(collected: Program) -> None:
    rows = collected("--json", "report", "totals", "--by", "month", "--since", "2026-09-01").object["totals"]
    month = max(rows, key=lambda row: row["core_h"])["month"]
    collected.configure(WHOLE + CHARGES.format("UTC") + 'type = "none"\n')
    closed = collected("month", "close", month).err
    assert "have no price and are not charged" in closed, "what the statements lack is said before they are final"
    collected.configure(WHOLE + CHARGES.format("UTC").replace("[charges]", '[charges]\ncurrency = "EUR"'))
    closed = collected("month", "close", month).err
    assert "this needs confirmation" in closed
    collected("month", "close", month, "--yes").ok()
    words = ("report", "statements", "--month", month, "--output", "statements", "--format", "text")
    shown = collected(*words).ok()
    assert "EUR\n" in shown.err  # without the total of the year, of which other months are open
    assert "since" not in shown.err
    found = collected("--json", *words).ok().object
    assert found["all_of_year"] is None
    assert {one["of_year"] for one in found["statements"]} == {None}
    assert sum(float(one["amount"]) for one in found["statements"]) > 0


def test_a_month_in_another_zone_names_the_instant_from_which_it_needs_all_jobs(collected: Program) -> None:
    collected.configure(WHOLE + CHARGES.format("Europe/Oslo"))
    refused = collected("month", "close", "2026-09", "--yes")
    assert refused.code == 2
    setting = 'complete_since = "2026-08-31T22:00:00Z"'
    assert f"every job from 2026-09 (2026-08-31T22:00:00Z) on. If it has, set sources.ce1.{setting}" in refused.err
    collected.configure(WHOLE.replace('complete_since = "2026-09-01"', setting) + CHARGES.format("Europe/Oslo"))
    assert "every job from" not in collected("month", "close", "2026-09", "--yes").err
