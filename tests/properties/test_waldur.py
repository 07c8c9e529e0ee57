"""Waldur: whatever happens, each account and user has the sums of the runs that the ledger says, and evidence finds all
else.

Runs are late, change, move to another account, month, or user, and are no longer selected; requests are refused, cut,
or stored without an answer; resources close and open; the power fails at any event. The judge is what the double has.
"""

from __future__ import annotations

import random
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from formats.calendar import SECONDS_A_DAY, Month, month_of
from formats.job import Job
from publisher.store.schema import State
from publisher.targets.base import Message, Outcome
from publisher.targets.identity import TargetContext
from publisher.targets.waldur import WaldurTarget
from tests.extent import short_or_whole
from tests.properties.dry_run import assert_publishes_what_is_shown
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs
from tests.publisher.waldur import WaldurDouble, settings_of

STEPS: Final = 10
FAULTS: Final = ("400", "401", "403", "413", "429", "500", "503", "cut", "stored", "<p>log in</p>")
MONTHS: Final = (Month(2026, 10), Month(2026, 11))
ACCOUNTS: Final = ("physics", "Chemie", "bio&x")
COMPONENTS: Final = {"cpu_k_hours": {"amount": "core-hours", "divisor": 7}, "gpu_hours": {"amount": "gpu-hours"}}


class WaldurSite:
    """A site with Waldur as its one target, and a random history."""

    def __init__(self, folder: Path, seed: int, double: WaldurDouble, token: str = "staff") -> None:
        self.random = random.Random(seed)
        self.double = double
        self.source = ListSource("ce1", page=3)
        self.jobs: dict[int, Job] = {}
        self.site = Site(folder, [self.source], [])
        self.site.table["targets"]["waldur"] = settings_of(
            double, folder, token, attempts=self.random.randint(1, 2), workers=self.random.randint(1, 3), vo=["atlas"],
            components=COMPONENTS,
        )  # fmt: skip
        self.site.now = NOVEMBER + 20 * SECONDS_A_DAY
        double.now = lambda: self.site.now
        double.fault = self.fault
        self.site.make_target = self.make_target
        self.faults: list[str] = []
        self._quiet = threading.Lock()

    def make_target(self, name: str, settings: Any, context: TargetContext) -> WaldurTarget:
        return WaldurTarget(name, settings, TargetContext(context.credentials, lambda: self.site.now))

    def fault(self, _method: str, _path: str) -> str:
        with self._quiet:
            return self.faults.pop(0) if self.faults else ""

    def step(self) -> None:
        chance = self.random
        for _ in range(chance.randint(0, 4)):
            self.change()
        self.double.resources["physics"]["state"] = chance.choice(("OK", "OK", "Terminated", "Erred"))
        self.faults += chance.choices(("", "", *FAULTS), k=chance.randint(0, 6))
        action: Any = chance.choice([self.site.publisher.run, self.site.publish, self.collect_and_publish])
        if chance.random() < 0.5:
            self.site.killed_at(chance.randint(0, 12), action)
        else:
            action()
        self.site.now += chance.choice((60, 90_000))

    def collect_and_publish(self) -> None:
        self.site.collect()
        self.site.publish()

    def change(self) -> None:
        """A new run, also a late one, or a new version of one, which may be the first one again."""
        chance = self.random
        number = chance.randint(1, 12)
        facts: dict[str, Any] = {
            "end": chance.choice((OCTOBER, NOVEMBER)) + 3600 * number, "wall_s": 1000 + 77 * number,
            "account": ACCOUNTS[number % 3], "local_user": f"user{number % 4}", "cores": number, "gpus": number % 2,
        }  # fmt: skip
        if number in self.jobs:
            facts |= chance.choice(
                (
                    {}, {"cores": 1}, {"gpus": 3}, {"vo": "cms"}, {"account": "physics"}, {"local_user": "other"},
                    {"local_user": None}, {"wall_s": 1},
                )
            )  # fmt: skip
        self.jobs[number] = make_job(number, **facts)
        self.source.add(self.jobs[number])

    def settle(self) -> None:
        """Everything works, and all that is due is sent."""
        self.faults.clear()
        self.double.resources["physics"]["state"] = "OK"
        for _ in range(3):
            self.collect_and_publish()
        if self.site.in_state("waldur", State.REJECTED):  # a 413 is about the total, as far as is known
            self.site.republish("waldur", OCTOBER, NOVEMBER + 30 * SECONDS_A_DAY)

    def judge(self) -> None:
        """What Waldur has is what the ledger says, exactly."""
        states = self.site.states("waldur")
        hours: dict[tuple[Month, str, str], dict[str, Fraction]] = {}
        for job in self.jobs.values():
            if states.get(job.record_id) is not State.ACCEPTED:
                assert job.vo == "cms" or (states[job.record_id], job.local_user) == (State.HELD, None)
                continue
            assert job.end is not None
            assert job.wall_ms is not None
            assert job.account
            assert job.local_user
            for name, used in (("cpu_k_hours", Fraction(job.cores or 0, 7)), ("gpu_hours", Fraction(job.gpus or 0))):
                users = hours.setdefault((month_of(job.end), job.account, name), {})
                users[job.local_user] = users.get(job.local_user, Fraction(0)) + used * job.wall_ms / 3_600_000
        for month in MONTHS:
            has = self.double.amounts(month)
            for account in ACCOUNTS:
                for name in COMPONENTS:
                    users = hours.get((month, account, name), {})
                    total = Fraction(has.get((account, name, ""), Decimal(0)))
                    assert abs(total - sum(users.values())) <= Fraction(1, 200), "nothing is lost, double, or stale"
                    shares = {user: each for (of, type_, user), each in has.items() if (of, type_) == (account, name)}
                    shares.pop("", None)
                    assert sum(map(Fraction, shares.values())) == total, "users add up to the total"
                    for user in {*shares, *users}:
                        share = Fraction(shares.get(user, Decimal(0)))
                        assert abs(share - users.get(user, Fraction(0))) <= Fraction(1, 100)
        self.site.assert_counters_right()

    def assert_reconciled(self, differences: int) -> None:
        with self.site.publisher.reconcile(["waldur"], MONTHS) as found:
            one = found.targets["waldur"]
            assert (one.unavailable, one.evidence) == (None, "totals")
            listed = list(found.differences("waldur"))
            assert len(listed) == differences, listed
            if not differences:
                assert sum(month.confirmed for month in one.months) == self.site.counted("waldur").get(
                    State.ACCEPTED, 0
                )

    def alter(self) -> int:
        """Change a value behind Waldur's back; return how many differences there are then."""
        where = [(month, key) for month in MONTHS for key in self.double.amounts(month)]
        if not where:
            return 0
        month, (account, name, user) = self.random.choice(sorted(where))
        usage = self.double.amounts(month)[account, name, user]
        self.double.write(account, name, month, str(usage + self.random.choice((Decimal("0.01"), -usage))), user)
        return 1


@pytest.mark.parametrize("seed", range(short_or_whole(10, 200)))
def test_a_random_history_at_waldur(seed: int, tmp_path: Path) -> None:
    with WaldurDouble(*ACCOUNTS).running() as double:
        made = WaldurSite(tmp_path, seed, double)
        for _ in range(STEPS):
            made.step()
        made.settle()
        made.judge()
        made.assert_reconciled(0)
        made.assert_reconciled(made.alter())
        made.site.reopen()


class RecordedWaldur(RecordReceiver):
    """Notes the messages that Waldur's target gets."""

    def __init__(self, target: WaldurTarget) -> None:
        super().__init__("waldur", "waldur")
        self._target = target

    def post(self, message: Message) -> Outcome:
        """Post it to the double."""
        self.messages.append(message)
        return self._target.post(message)


def test_what_is_shown_is_sent(tmp_path: Path) -> None:
    """New and changed runs, another account, and a run that is held, since it has no user."""
    with WaldurDouble("physics", "bio").running() as double:
        made = WaldurSite(tmp_path, 0, double)
        made.site.configure("waldur", workers=1)
        target = made.make_target("waldur", made.site.config.targets["waldur"], TargetContext())
        receiver = RecordedWaldur(target)
        made.site.receivers["waldur"] = receiver
        usual = {"account": "physics", "local_user": "ada"}
        for facts in ({}, {"cores": 8}, {"account": "bio"}):
            made.source.add(*make_jobs(5, **usual), make_job(6, **usual | facts), make_job(7, account="physics"))
            made.site.collect()
            assert_publishes_what_is_shown(made.site, receiver)
        assert made.site.counted("waldur") == {State.ACCEPTED: 6, State.HELD: 1}
        target.close()
        made.site.reopen()
