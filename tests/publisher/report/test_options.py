"""Every view says which options it takes, as the documents have it; what it would not look at is refused."""

from __future__ import annotations

from typing import Final

import pytest

from formats.utilization.measure import KEYS
from publisher.report.view_kind import VIEW_KINDS
from publisher.report.view_option import OPTIONS
from tests.publisher.cli.program import BASE, Inside, Program

GIVEN: Final = {
    "statement": ("SELECT 1",),
    "by": ("--by", "queue"),
    "compare": ("--compare", "year"),
    "bin": ("--bin", "1h"),
    "bins": ("--bins", "4"),
    "measure": ("--measure", "queue"),
    "counted": ("--counted", "ended"),
    "period": ("--period", "day"),
    "timezone": ("--timezone", "Europe/Oslo"),
    "resource": ("--resource", "gpus"),
    "archive": ("--archive", "nowhere"),
    "dask": ("--dask", "tcp://127.0.0.1:1"),
    "stat-file": ("--stat-file", "nowhere"),
    "sort": ("--sort", "jobs"),
    "top": ("--top", "3"),
    **{key: (f"--{key}", "x*") for key in KEYS},
}
"""Every option that not all views take, as it may be given."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Inside(tmp_path_factory.mktemp("taken"), BASE)


def test_every_view_and_option_is_there() -> None:
    assert set().union(*(kind.options for kind in VIEW_KINDS.values())) == GIVEN.keys() == OPTIONS.keys()


@pytest.mark.parametrize("view", list(VIEW_KINDS))
def test_the_command_of_a_view_has_the_options_that_it_takes_and_no_others(empty: Program, view: str) -> None:
    """Given all that it takes, a view goes as far as to find no store; each other option is unknown."""
    taken = [word for option in sorted(VIEW_KINDS[view].options - {"archive", "dask"}) for word in GIVEN[option]]
    assert "No such option" not in empty("report", view, *taken).err
    offered = empty("report", view, "--help").out.split()
    for option in sorted(GIVEN.keys() - VIEW_KINDS[view].options - {"statement"}):
        done = empty("report", view, *GIVEN[option])
        assert (done.code, done.out) == (2, ""), option
        assert f"No such option: --{option}" in done.err
        assert f"--{option}" not in offered


def test_a_zone_needs_something_that_begins_at_midnight(empty: Program) -> None:
    for view in ("totals", "waiting"):
        done = empty("report", view, "--timezone", "Europe/Oslo", "--by", "queue")
        assert (done.code, "add --by day" in done.err) == (2, True)
        assert "add --by day" not in empty("report", view, "--timezone", "Europe/Oslo", "--by", "queue,day").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--style", "bar"), "--style is for pictures and pages, and the format table is text"),
        (("--grid", "--format", "csv"), "--grid is for pictures"),
        (("--no-legend", "--format", "json"), "--legend is for pictures"),
        (("--title", "x", "--format", "md"), "--title is for pictures"),
        (("--plot", "1"), "--plot is for pictures"),
        (("--plot", "2", "--format", "html"), "a page has all of them"),
    ],
)
def test_options_of_pictures_where_there_is_none(empty: Program, arguments: tuple[str, ...], said: str) -> None:
    done = empty("report", "utilization", *arguments)
    assert (done.code, said in done.err) == (2, True)
