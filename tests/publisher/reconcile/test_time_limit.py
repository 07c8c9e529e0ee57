"""The time that a run spends on reconciling: a slow service is asked for the other months in the next runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from formats.calendar import Month, month_of
from publisher.reconcile.schedule import LONGEST_S
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.targets.sgas import SgasTarget
from tests.publisher.reconcile.reconciled_site import (
    DAY,
    confirmed,
    only,
    ran,
    sgas,
    site_of,
)
from tests.publisher.site import NOVEMBER, OCTOBER, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


def asked_months(site: Site, slow: Callable[[Month], bool]) -> list[Month]:
    """The months for which SGAS is queried from now on. The answer for a slow month takes all the time of a run."""
    asked_for: list[Month] = []

    class Slow:
        def __init__(self, *arguments: object) -> None:

            self._made = SgasTarget(*arguments)  # type: ignore[arg-type]

        def __getattr__(self, name: str) -> object:
            return getattr(self._made, name)

        def usage(self, machine: str, first_day: int, until_day: int) -> object:
            asked_for.append(month_of(first_day * DAY))
            found = self._made.usage(machine, first_day, until_day)
            if slow(asked_for[-1]):
                site.now += LONGEST_S
            return found

        def last_registration_s(self, machine: str) -> object:
            return self._made.last_registration_s(machine)

    site.make_target = Slow  # type: ignore[assignment]
    site.reopen()
    return asked_for


def be_slow(site: Site, answers: int) -> None:
    """Let this number of answers of SGAS take longer than the time limit of a run."""
    asked_for = asked_months(site, lambda _month: len(asked_for) <= answers)


def test_what_takes_too_long_goes_on_in_the_next_run(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, [*make_jobs(2), make_job(3, end=OCTOBER + 5)], neic=sgas(simulator))
    be_slow(site, 1)
    first = site.publisher.run().reconciled["neic"]
    assert (first.unfinished, first.problem) == (True, None)
    second = site.publisher.run().reconciled["neic"]
    assert (second.unfinished, second.confirmed) == (False, 3)


SEP, OCT, NOV = Month(2026, 9), Month(2026, 10), Month(2026, 11)


def site_of_three_months(simulator: Simulator, pki: Pki, folder: Path) -> Site:
    """A site with an SGAS that has jobs of three months."""
    ends = (NOVEMBER + 5, OCTOBER + 5, OCTOBER - 5 * DAY)
    return site_of(folder, pki, [make_job(number, end=end) for number, end in enumerate(ends)], neic=sgas(simulator))


def test_a_run_goes_on_with_the_month_at_which_the_time_of_the_last_one_was_over(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of_three_months(simulator, pki, tmp_path)
    asked_for = asked_months(site, lambda month: month == OCT and asked_for.count(OCT) == 1)
    unfinished = [site.publisher.run().reconciled["neic"].unfinished for _ in range(2)]
    assert (unfinished, asked_for) == ([True, False], [NOV, OCT, OCT, SEP])
    assert confirmed(site) == 3
    assert ran(site) == set(), "nothing is due before tomorrow"
    site.now += DAY
    assert ran(site) == {"neic"}
    assert asked_for[4:] == [NOV, OCT]


def test_a_month_that_takes_all_the_time_twice_is_left_out_until_the_next_day(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of_three_months(simulator, pki, tmp_path)
    asked_for = asked_months(site, lambda month: month == OCT)
    unfinished = [site.publisher.run().reconciled["neic"].unfinished for _ in range(3)]
    assert (unfinished, asked_for) == ([True, True, False], [NOV, OCT, OCT, SEP])
    assert ran(site) == set()
    assert confirmed(site) == 2
    site.now += DAY
    assert ran(site) == {"neic"}
    assert asked_for[4:] == [NOV, OCT]


def test_differences_of_a_reconciliation_in_several_runs_are_added_up(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of_three_months(simulator, pki, tmp_path)
    simulator.sgas.forget([make_job(0).record_id, make_job(2).record_id])
    asked_for = asked_months(site, lambda month: month == OCT and asked_for.count(OCT) == 1)
    results = [site.publisher.run().reconciled["neic"] for _ in range(2)]
    assert [one.differences for one in results] == [1, 2]
    assert only(site).differences == 2


def test_several_slow_services_delay_a_run_no_longer_than_one_and_take_turns(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    jobs = [*make_jobs(2), make_job(3, end=OCTOBER + 5)]
    site = site_of(tmp_path, pki, jobs, one=sgas(simulator), two=sgas(simulator))
    be_slow(site, 2)
    assert [list(site.publisher.run().reconciled) for _ in range(3)] == [["one"], ["two"], ["one", "two"]]
