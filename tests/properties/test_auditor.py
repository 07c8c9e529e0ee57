"""AUDITOR: whatever happens, it has each run once, in the version that the ledger says, and evidence finds all else.

Runs are late, change, and are no longer selected; requests are refused, cut, or stored without an answer; streams end
early; the power fails at any event. The judge is what the double of AUDITOR has.
"""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from formats.auditor.record import AuditorFormat
from formats.calendar import SECONDS_A_DAY, Month
from formats.job import Job
from formats.text import date_time, read_date_time
from formats.view import View
from publisher.store.schema import State
from publisher.targets.auditor import AuditorTarget
from publisher.targets.base import Message, Outcome
from publisher.targets.identity import TargetContext
from tests.extent import short_or_whole
from tests.properties.dry_run import assert_publishes_what_is_shown
from tests.publisher.auditor import AuditorDouble
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

STEPS: Final = 14
FAULTS: Final = ("400", "401", "403", "413", "429", "500", "503", "cut", "stored", "short")
MONTHS: Final = (Month(2026, 10), Month(2026, 11))
FORM: Final = AuditorFormat(View(site="EXAMPLE-SITE"))


class AuditorSite:
    """A site with AUDITOR as its one target, and a random history."""

    def __init__(self, folder: Path, seed: int, double: AuditorDouble) -> None:
        self.random = random.Random(seed)
        self.double = double
        self.source = ListSource("ce1", page=3)
        self.jobs: dict[int, Job] = {}
        self.site = Site(folder, [self.source], [])
        self.site.table["targets"]["auditor"] = {
            "type": "auditor", "url": double.url, "attempts": self.random.randint(1, 2), "vo": ["atlas"],
            "workers": self.random.randint(1, 3), "batch_records": self.random.randint(1, 5),
        }  # fmt: skip
        double.ignores_repeats = self.random.random() < 0.3
        double.fault = self.fault
        double.shortened = self.shortened
        self.faults: list[str] = []
        self._quiet = threading.Lock()

    def fault(self, _method: str, _path: str) -> str:
        with self._quiet:
            return self.faults.pop(0) if self.faults and self.faults[0] != "short" else ""

    def shortened(self, stream: list[str]) -> list[str]:
        with self._quiet:
            if self.faults[:1] == ["short"]:
                self.faults.pop(0)
                return stream[: self.random.randint(0, len(stream))]
        return stream

    def step(self) -> None:
        chance = self.random
        for _ in range(chance.randint(0, 4)):
            self.change()
        self.faults += chance.choices(("", *FAULTS), k=chance.randint(0, 4))
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
        facts: dict[str, Any] = {"end": chance.choice((OCTOBER, NOVEMBER)) + 3600 * number}
        if number in self.jobs:
            only_end = {"end": facts["end"] - 50, "wall_s": 50, "cpu_ms": 50_000}  # which AUDITOR can correct
            facts |= chance.choice(
                (
                    {},
                    only_end,
                    {"cores": 8},
                    {"cpu_ms": 7},
                    {"vo": "cms"},
                    {"wall_s": 50},
                    {"end": NOVEMBER + 77 + number},
                )
            )
        self.jobs[number] = make_job(number, **facts)
        self.source.add(self.jobs[number])

    def settle(self) -> None:
        """Everything works, and all that is due is sent."""
        self.faults.clear()
        for _ in range(3):
            self.collect_and_publish()
        if self.site.in_state("auditor", State.REJECTED):  # a 400 or 413 is about the record, as far as is known
            self.site.republish("auditor", OCTOBER, NOVEMBER + 30 * SECONDS_A_DAY)

    def judge(self) -> None:
        """What AUDITOR has is what the ledger says."""
        states = self.site.states("auditor")
        rows = dict(self.double.rows)
        for job in self.jobs.values():
            state, row = states.get(job.record_id), rows.pop(job.record_id, None)
            if state is None:
                assert (job.vo, row) == ("cms", None)
            elif state is State.ACCEPTED:
                assert row == json.loads(FORM.record(job, 0).body), "nothing is stale"
            else:
                assert state is State.SUPERSEDED
                assert row is not None or job.vo == "cms", "it may have been delivered before it was deselected"
                assert self.site.reasons("auditor")[job.record_id]
        assert rows == {}, "nothing that no run explains"
        self.site.assert_counters_right()

    def assert_reconciled(self, kinds: set[tuple[str, str]]) -> None:
        with self.site.publisher.reconcile(["auditor"], MONTHS) as found:
            one = found.targets["auditor"]
            assert one.unavailable is None
            assert {
                (each.kind, each.record) for each in found.differences("auditor") if each.kind != "superseded"
            } == kinds
            confirmed = sum(month.confirmed for month in one.months)
            accepted = sum(month.states[State.ACCEPTED] for month in one.months)
            assert accepted - confirmed == len(kinds)

    def alter(self) -> set[tuple[str, str]]:
        """Change a row behind AUDITOR's back."""
        states = self.site.states("auditor")
        accepted = sorted(name for name, state in states.items() if state is State.ACCEPTED)
        if not accepted:
            return set()
        name = self.random.choice(accepted)
        row = json.loads(json.dumps(self.double.rows[name]))
        match self.random.randint(0, 5):
            case 0:
                row["components"][self.random.randint(0, 2)]["amount"] += 1
            case 1:
                row["components"][0]["scores"][0]["value"] += 0.001
            case 2:
                row["meta"]["subject"] = ["/DC=org/CN=Eve"]
            case 3:
                row["start_time"] = "2026-10-01T00:00:00Z"
            case 4:
                row["stop_time"] = date_time(read_date_time(row["stop_time"]) + 1)
            case _:
                del self.double.rows[name]
                return {("missing", name)}
        self.double.rows[name] = row
        return {("differs", name)}


@pytest.mark.parametrize("seed", range(short_or_whole(6, 200)))
def test_a_random_history_at_auditor(seed: int, tmp_path: Path) -> None:
    with AuditorDouble().running() as double:
        made = AuditorSite(tmp_path, seed, double)
        for _ in range(STEPS):
            made.step()
        made.settle()
        made.judge()
        made.assert_reconciled(set())
        made.assert_reconciled(made.alter())
        made.site.reopen()


class Recorded(RecordReceiver):
    """Notes the messages that AUDITOR's target gets."""

    def __init__(self, target: AuditorTarget) -> None:
        super().__init__("auditor", "auditor")
        self._target = target

    def post(self, message: Message) -> Outcome:
        """Post it to the double."""
        self.messages.append(message)
        return self._target.post(message)


def test_what_is_shown_is_sent(tmp_path: Path) -> None:
    """New and changed runs, and such as are held."""
    with AuditorDouble().running() as double:
        made = AuditorSite(tmp_path, 0, double)
        made.site.configure("auditor", workers=1, batch_records=3)
        target = AuditorTarget("auditor", made.site.config.targets["auditor"], TargetContext())  # type: ignore[arg-type]
        receiver = Recorded(target)
        made.site.receivers["auditor"] = receiver
        for facts in ({}, {"cores": 8}, {"benchmarks": ()}):
            made.source.add(*make_jobs(5), make_job(6, **facts), make_job(7, vo=None))
            made.site.collect()
            assert_publishes_what_is_shown(made.site, receiver)
        assert made.site.counted("auditor") == {State.ACCEPTED: 5, State.HELD: 2}
        target.close()
        made.site.reopen()
