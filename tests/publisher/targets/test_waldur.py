"""The target of Waldur against a double: months, states, other writers, and bad answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from formats.calendar import SECONDS_A_DAY, Month
from publisher.cli.publish_cmd import dry_run_of
from publisher.cli.status_cmd import show_status
from publisher.config.operation import Notices
from publisher.messages.recipient import Recipient
from publisher.messages.totals import grouped_runs
from publisher.observe.mail import problems
from publisher.publish.publish import Delivery
from publisher.sources.base import Window
from publisher.status import check_host
from publisher.store.schema import State
from publisher.targets.base import EvidenceUnavailable
from publisher.targets.identity import TargetContext
from publisher.targets.waldur import WaldurTarget
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job
from tests.publisher.waldur import LIMIT, WaldurDouble, settings_of

OCT, NOV, DEC = Month(2026, 10), Month(2026, 11), Month(2026, 12)
DECEMBER = NOVEMBER + 30 * SECONDS_A_DAY
HOURS = {"gpu_hours": {"amount": "core-hours"}}


@pytest.fixture
def double() -> Iterator[WaldurDouble]:
    with WaldurDouble("physics", "bio").running() as running:
        yield running


class Reporter:
    """A site that reports hours of jobs with one core to the double."""

    def __init__(self, folder: Path, double: WaldurDouble, token: str = "staff", **settings: Any) -> None:
        self.source = ListSource("ce1")
        self.site = Site(folder, [self.source], [])
        self.site.now = NOVEMBER + 20 * SECONDS_A_DAY
        self.double = double
        self.site.table["targets"]["waldur"] = settings_of(
            double, folder, token, **{"attempts": 1, "components": HOURS} | settings
        )
        self.site.make_target = lambda name, given, context: WaldurTarget(
            name, given, TargetContext(context.credentials, lambda: self.site.now)
        )
        double.now = lambda: self.site.now

    def job(self, number: int, hours: int = 1, **facts: Any) -> None:
        usual = {"account": "physics", "local_user": "ada", "wall_s": 3600 * hours}
        self.source.add(make_job(number, **usual | facts))

    def run(self) -> Delivery:
        self.site.collect()
        return self.site.publish_to("waldur")

    def only_reason(self) -> str:
        (reason,) = {each for each in self.site.reasons("waldur").values() if each}
        return reason

    def total(self, account: str = "physics", month: Month = NOV, user: str = "") -> Decimal | None:
        component = next(iter(self.site.table["targets"]["waldur"]["components"]))
        return self.double.amounts(month).get((account, component, user))

    def shown(self) -> bytes:
        """What a preview shows."""
        shown = self.site.publisher.rendering("waldur-usage", "waldur", Window())
        return b"".join(each.payload for each in shown.messages())

    def writes(self) -> list[Any]:
        return [body for method, _, body in self.double.requests if method == "POST"]


def test_values_that_fall_are_sent_and_a_user_who_vanished_gets_zero(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1, 3)
    site.job(2, 2, local_user="bob")
    site.run()
    assert double.amounts(NOV) == {
        ("physics", "gpu_hours", ""): 5, ("physics", "gpu_hours", "ada"): 3, ("physics", "gpu_hours", "bob"): 2,
    }  # fmt: skip
    site.job(1, 1)
    site.job(2, 2, account="bio", local_user="bob")
    site.run()
    assert double.amounts(NOV) == {
        ("physics", "gpu_hours", ""): 1, ("physics", "gpu_hours", "ada"): 1, ("bio", "gpu_hours", ""): 2,
        ("bio", "gpu_hours", "bob"): 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "later", "reason"),
    [
        ({}, {"components": HOURS | {"cpu_k_hours": {"amount": "memory-gib-hours"}}}, "Memory"),
        ({"users": False}, {"users": True}, "local user"),
    ],
)
def test_a_job_that_lacks_what_later_settings_need_is_held_when_its_total_is_sent_without_it(
    before: dict[str, Any], later: dict[str, Any], reason: str, tmp_path: Path, double: WaldurDouble
) -> None:
    site = Reporter(tmp_path, double, **before)
    site.job(1, 3, local_user=None if before else "ada")
    site.job(2, 2, memory_rss_kib=1 << 20)
    site.run()
    assert site.total() == 5
    site.site.configure("waldur", **later)
    site.run()
    assert (site.total(), site.site.counted("waldur")) == (5, {State.ACCEPTED: 2})  # nothing is due
    site.job(3, 1, memory_rss_kib=1 << 20)
    site.run()
    assert site.total() == 3
    assert site.site.in_state("waldur", State.HELD) == {make_job(1).record_id}
    assert reason in site.only_reason()
    site.site.configure("waldur", components=HOURS, users=False)
    site.run()
    assert (site.total(), site.site.counted("waldur")) == (6, {State.ACCEPTED: 3})


@pytest.mark.parametrize("later", [{"components": {"cpu_k_hours": {"amount": "jobs"}}}, {"users": False}])
def test_what_later_settings_do_not_report_is_not_compared(
    later: dict[str, Any], tmp_path: Path, double: WaldurDouble
) -> None:
    both = HOURS | {"cpu_k_hours": {"amount": "jobs"}}
    site = Reporter(tmp_path, double, components=both)
    site.job(1, 3)
    site.run()
    site.site.configure("waldur", **later)
    site.run()
    with site.site.publisher.reconcile(["waldur"], [NOV]) as found:
        assert list(found.differences("waldur")) == []
    (row,) = [row for row in double.rows if row[1] == "cpu_k_hours"]
    double.rows[row] += 1
    with site.site.publisher.reconcile(["waldur"], [NOV]) as found:
        assert [each.detail for each in found.differences("waldur")] == ["cpu_k_hours 2.00, sent 1.00"]


def test_a_total_of_which_nothing_is_reported_any_more_is_not_confirmed(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1, 3)
    site.run()
    site.site.configure("waldur", components={"cpu_k_hours": {"amount": "jobs"}})
    with site.site.publisher.reconcile(["waldur"], [NOV]) as found:
        assert list(found.differences("waldur")) == []
    assert site.site.publisher.status().targets["waldur"].confirmed == 0


def test_a_component_that_is_removed_becomes_zero_and_that_is_said(
    tmp_path: Path, double: WaldurDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Reporter(tmp_path, double)
    site.job(1, 3)
    site.run()
    before = site.site.table["targets"]["waldur"]["components"]
    site.site.configure("waldur", components={"cpu_k_hours": {"amount": "jobs"}})
    site.job(2, 3)
    site.site.collect()
    changed, zeroed = (each for each in site.site.publisher.audit() if each.action == "settings")
    if "removed" in changed.detail:  # both have one time
        changed, zeroed = zeroed, changed
    assert "gpu_hours" in changed.detail
    assert "cpu_k_hours" in changed.detail
    assert zeroed.detail == "gpu_hours is removed: zero is sent for it with the next version of 1 total"
    status = site.site.publisher.status()
    assert status.targets["waldur"].removed_amounts == {"gpu_hours": 1}
    show_status(status)
    text = " ".join(capsys.readouterr().out.split())
    assert "waldur: gpu_hours is not in the settings any more; zero is sent with the next version of 1 total" in text
    assert [each.note.field for each in dry_run_of(site.site.publisher, "waldur").notes] == ["gpu_hours"]
    shown = site.site.publisher.rendering("waldur-usage", "waldur", Window())
    list(shown.messages())
    (noted,) = shown.notes
    note = noted.note
    assert (note.field, note.before, note.after) == ("gpu_hours", "3.00", "0.00")
    assert "no longer among the components" in note.rule
    assert site.site.publish_to("waldur").sent.groups == 1
    assert double.amounts(NOV).get(("physics", "gpu_hours", ""), 0) == 0
    assert site.site.publisher.status().targets["waldur"].removed_amounts == {}
    site.job(3, 3)
    site.run()
    shown = site.site.publisher.rendering("waldur-usage", "waldur", Window())
    assert b"gpu_hours" not in b"".join(each.payload for each in shown.messages()), "it is not reported for ever"
    site.site.configure("waldur", components=before)
    site.job(4, 3)
    site.run()
    assert site.total() == 12


def test_a_total_is_explained(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1, 3)
    site.job(2, 2, local_user="bob")
    site.run()
    (explained,) = site.site.publisher.explanations("waldur-usage", "waldur", make_job(1).record_id)
    values = {each.field: each.value for each in explained.values}
    assert values["account"] == "physics"
    assert values["components[gpu_hours]/amount"] == "5.00"
    assert values["components[gpu_hours]/users[ada]/usage"] == "3.00"
    assert "no rule is known" not in {each.rule for each in explained.values}
    assert explained.group is not None
    assert explained.group.jobs == 2


def test_a_mistyped_component_leaves_nothing(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    right = site.site.table["targets"]["waldur"]["components"]
    site.site.configure("waldur", components={"gpu_huors": {"amount": "gpu-hours"}})
    site.job(1, 3)
    site.run()
    site.site.configure("waldur", components=right)
    for number in (2, 3):
        site.job(number, 3)
        site.run()
    assert site.total() == 9
    assert b"huors" not in site.shown()


def test_a_mistyped_component_is_not_shown_for_ever(tmp_path: Path, double: WaldurDouble) -> None:
    """Also while Waldur does not take the account: nothing of it was ever sent."""
    site = Reporter(tmp_path, double)
    right = site.site.table["targets"]["waldur"]["components"]
    site.site.configure("waldur", components={"gpu_huors": {"amount": "core-hours"}})
    site.job(1, 3)
    site.job(2, 3, account="none")
    site.run()
    assert site.writes() == []
    site.site.configure("waldur", components=right)
    for _ in range(2):
        site.run()
        assert site.site.counted("waldur") == {State.ACCEPTED: 1, State.HELD: 1}
        assert b"huors" not in site.shown()
        assert site.site.publisher.status().targets["waldur"].removed_amounts == {}


def test_nothing_is_written_again_that_is_there(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1)
    site.run()
    written = len(site.writes())
    site.site.republish("waldur", NOVEMBER, DECEMBER)
    assert len(site.writes()) == written == 2
    assert site.site.counted("waldur") == {State.ACCEPTED: 1}


def _open(double: WaldurDouble) -> None:
    double.resources["bio"]["state"] = "OK"


def _create(double: WaldurDouble) -> None:
    double.resources["none"] = {"uuid": "00" * 16, "backend_id": "none", "state": "OK"}


@pytest.mark.parametrize(
    ("account", "words", "change"),
    [("none", "no resource with the backend_id none", _create), ("bio", "Resource is not in valid state.", _open)],
)
def test_what_cannot_be_reported_is_held_until_it_changes(
    account: str, words: str, change: Callable[[WaldurDouble], None], tmp_path: Path, double: WaldurDouble
) -> None:
    double.resources["bio"]["state"] = "Erred"
    site = Reporter(tmp_path, double)
    site.job(1)
    site.job(2, 2, account=account)
    assert site.run().sent.held == 1
    assert site.site.counted("waldur") == {State.ACCEPTED: 1, State.HELD: 1}
    assert words in site.only_reason()
    site.job(3, 4, account=account)
    assert site.run().sent.held == 1, "only the new one is newly held"
    assert site.site.counted("waldur") == {State.ACCEPTED: 1, State.HELD: 2}
    change(double)
    sent = site.run().sent
    assert (sent.accepted, sent.held) == (2, 0)
    assert site.total(account) == 6


def test_over_the_limit_the_earlier_amount_stays_and_all_is_sent_when_there_is_room(
    tmp_path: Path, double: WaldurDouble
) -> None:
    site = Reporter(tmp_path, double, components={"capped": {"amount": "core-hours"}})
    site.job(1, 30)
    site.run()
    site.job(2, 60)
    site.run()
    assert f"Total amount exceeds limit. Total amount: 120.00, limit: {LIMIT}" in site.only_reason()
    assert site.site.counted("waldur") == {State.ACCEPTED: 1, State.HELD: 1}
    assert site.total() == 30
    site.job(2, 5)
    site.run()
    assert (site.total(), site.site.counted("waldur")) == (35, {State.ACCEPTED: 2})


def test_an_amount_that_fell_is_not_forgotten_where_no_job_is_left(
    tmp_path: Path, double: WaldurDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account is closed while its only job moves to another: no delivery of it waits, and its total does."""
    site = Reporter(tmp_path, double)
    site.job(1)
    site.run()
    double.resources["physics"]["state"] = "Terminated"
    site.job(1, account="bio")
    delivered = site.run()
    assert (site.total("physics"), site.total("bio")) == (1, 1)
    assert delivered.sent.held == 1, "nothing else says in this run that both have the job"
    assert site.run().sent.held == 0, "it is not new"
    status = site.site.publisher.status()
    waldur = status.targets["waldur"]
    assert (waldur.held, waldur.totals_held, status.delivered) == (0, 1, False)
    assert [each.key for each in problems(status, Notices(), site.site.now)] == ["target waldur: totals held"]
    said = [each.message for each in check_host.targets(site.site.config, site.site.publisher.store, site.site.now)]
    assert 'held: 1 total, of which the service has other values: [2026,11,"physics"]' in said
    show_status(status)
    assert "1 total held" in capsys.readouterr().out
    with site.site.publisher.reconcile(["waldur"], [NOV]) as found:
        assert not found.agrees
        assert found.targets["waldur"].months[0].totals_open == 1
    double.resources["physics"]["state"] = "OK"
    site.run()
    assert (site.total("physics"), site.total("bio")) == (None, 1)
    assert site.site.publisher.status().delivered


def test_a_total_that_was_never_taken_is_forgotten_with_its_jobs(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1)
    site.job(2, account="nosuch")
    site.run()
    assert "no resource with the backend_id nosuch" in site.only_reason()
    assert site.site.publisher.waive(State.HELD, "waldur", [make_job(2).record_id], "not ours") == 1
    double.requests.clear()
    assert site.run().sent.held == 0
    assert double.requests == [], "there is nothing to report"
    assert site.site.publisher.status().delivered


def test_a_first_total_that_was_written_in_part_is_not_forgotten(tmp_path: Path, double: WaldurDouble) -> None:
    """The amount is there, and those of the users were refused: if the jobs are waived, it must become zero."""
    site = Reporter(tmp_path, double)
    site.job(1)
    answer = double.answer

    def without_users(method: str, path: str, query: Any, body: Any, token: str) -> tuple[int, Any]:
        if "set_user_usages" in path:
            return 400, {"detail": "The billing period is closed."}
        return answer(method, path, query, body, token)

    double.answer = without_users  # type: ignore[method-assign]
    site.run()
    assert (site.total(), site.site.counted("waldur")) == (1, {State.HELD: 1})
    assert site.site.publisher.status().targets["waldur"].totals_held == 1
    double.answer = answer  # type: ignore[method-assign]
    site.site.publisher.waive(State.HELD, "waldur", [make_job(1).record_id], "not ours")
    site.run()
    assert not site.total()
    assert site.site.publisher.status().delivered


def test_the_jobs_of_a_total_that_waits_are_explained(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1)
    site.run()
    double.resources["physics"]["state"] = "Terminated"
    site.job(2)
    site.run()
    recipient = Recipient(site.site.publisher.store, site.site.config, "waldur")
    names = [make_job(number).record_id for number in (1, 2)]
    assert [each.run.record_id for each in grouped_runs(recipient, NOV)] == names


# --- months


def test_a_past_month_is_written_with_its_date(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1, end=OCTOBER + 5)
    site.job(2, 2)
    site.run()
    assert (site.total(month=OCT), site.total(month=NOV)) == (1, 2)


def test_a_server_that_ignores_dates_gets_no_past_month(tmp_path: Path, double: WaldurDouble) -> None:
    double.reads_date = False
    site = Reporter(tmp_path, double)
    site.job(1)
    site.run()
    site.job(2, 2, end=OCTOBER + 5)
    site.run()
    assert "ignores `date`" in site.only_reason()
    assert (site.total(month=OCT), site.total(month=NOV)) == (None, 1)
    double.reads_date = True
    site.run()
    assert (site.total(month=OCT), site.total(month=NOV)) == (2, 1)


def test_a_provider_may_not_fill_a_past_month(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double, "provider")
    site.job(1, end=OCTOBER + 5)
    site.job(2, 2)
    site.run()
    assert "backfilling" in site.only_reason()
    assert "Only a token of Waldur's staff" in site.only_reason()
    assert (site.total(month=OCT), site.total(month=NOV)) == (None, 2)
    site.job(3, 4, end=OCTOBER + 6)
    site.run()
    assert (site.total(month=OCT), site.total(month=NOV)) == (None, 2), "it never moves to another month"
    assert site.site.counted("waldur") == {State.ACCEPTED: 1, State.HELD: 2}


def test_a_month_that_was_moved_all_the_same_is_put_back(tmp_path: Path, double: WaldurDouble) -> None:
    """A server that refuses dates in the future, and ignores others."""
    site = Reporter(tmp_path, double)
    site.job(1, 7)
    site.run()
    answer = double.answer

    def without_date(method: str, path: str, query: Any, body: Any, token: str) -> tuple[int, Any]:
        if body and body.get("date", "")[:4] == "2026":
            del body["date"]
        return answer(method, path, query, body, token)

    double.answer = without_date  # type: ignore[method-assign]
    site.job(2, 2, end=OCTOBER + 5)
    sent = site.run().sent
    assert sent.paused is not None
    assert "wrote a report of 2026-10 into 2026-11. The earlier values of 2026-11 were written back" in sent.paused
    assert (site.total(month=OCT), site.total(month=NOV)) == (None, 7)


@pytest.mark.parametrize("seconds", [-60, 60])
def test_at_the_turn_of_a_month_an_old_server_gets_nothing(seconds: int, tmp_path: Path, double: WaldurDouble) -> None:
    double.reads_date = False
    site = Reporter(tmp_path, double)
    site.site.now = DECEMBER + seconds
    site.job(1, end=min(DECEMBER + seconds, DECEMBER + 30) - 5)
    site.run()
    assert (site.total(month=NOV), site.total(month=DEC)) == (None, None)
    double.reads_date = True
    site.run()
    assert {site.total(month=NOV), site.total(month=DEC)} == {1, None}


# --- other writers


@pytest.mark.parametrize("user", ["", "eve", "ada"])
def test_another_writer_stops_its_account_only(user: str, tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1)
    site.job(2, account="bio")
    site.run()
    double.write("physics", "gpu_hours", NOV, "77.00", user)
    site.job(3)
    site.job(4, account="bio")
    site.run()
    assert "another program writes to this resource" in site.only_reason()
    assert " is 77.0" in site.only_reason()
    assert (site.total("physics", user=user), site.total("bio")) == (77, 2)
    site.site.configure("waldur", replaces_until="2026-11-30")
    site.run()
    assert (site.total("physics"), site.total("physics", user="ada"), site.total("physics", user="eve")) == (2, 2, None)


def test_our_earlier_values_are_not_another_writers(tmp_path: Path, double: WaldurDouble) -> None:
    """Two reports are lost in doubt; which of the values is there is unknown."""
    site = Reporter(tmp_path, double)
    site.job(1)
    site.run()
    double.fault = lambda method, path: "cut" if path.endswith("set_usage/") else ""
    for number in (2, 3):
        site.job(number)
        site.run()
    double.fault = lambda _method, _path: ""
    assert site.total() == 1
    site.job(4)
    site.run()
    assert (site.total(), site.site.counted("waldur")) == (4, {State.ACCEPTED: 4})


# --- bad input


def test_an_unknown_component_is_named_before_anything_is_sent(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double, components={"cpu": {"amount": "core-hours"}, "fee": {"amount": "jobs"}})
    site.job(1)
    paused = site.run().sent.paused or ""
    assert "no component cpu, fee with the billing type usage or limit; it has capped, cpu_k_hours" in paused
    assert (site.writes(), site.site.counted("waldur")) == ([], {State.WAITING: 1})
    (finding,) = [each for each in site.site.publisher.check() if each.subject == "waldur: offering"]
    assert finding.level == "red"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("401", "The service must accept our token"), ("403", "HTTP 403"), ("404", "Check the URL of this target"),
        ("413", "413"), ("429", "429"), ("500", "500"), ("<p>Log in</p>", "is not the JSON that Waldur gives"),
        ("cut", "cut"),
    ],
)  # fmt: skip
def test_an_answer_of_a_failing_service_is_told(fault: str, words: str, tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1)
    double.fault = lambda _method, _path: fault
    assert words in (site.run().sent.paused or "")
    assert site.site.counted("waldur") == {State.WAITING: 1}
    target = site.site.make_target("waldur", site.site.config.targets["waldur"], TargetContext())
    assert isinstance(target, WaldurTarget)
    assert isinstance(target.totals(NOV), EvidenceUnavailable)
    target.close()
    double.fault = lambda _method, _path: ""
    site.run()
    assert site.total() == 1


def test_an_answer_of_100_mb_is_not_read(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double)
    site.job(1)
    double.fault = lambda method, _path: "<" + "x" * 100_000_000 if method == "GET" else ""
    assert "the answer has more than 16 MiB" in (site.run().sent.paused or "")
    assert site.site.counted("waldur") == {State.WAITING: 1}


def test_small_pages_and_single_users_are_enough(tmp_path: Path, double: WaldurDouble) -> None:
    """A server that gives pages of two rows, and takes one user a request."""
    double.page, double.bulk = 2, False
    site = Reporter(tmp_path, double)
    for number in range(1, 6):
        site.job(number, local_user=f"user{number}")
    site.run()
    site.job(6, 2)
    site.run()
    assert site.total() == 7
    with site.site.publisher.reconcile(["waldur"], [NOV]) as found:
        assert found.agrees
        assert sum(month.confirmed for month in found.targets["waldur"].months) == 6


def test_the_token_of_a_file_has_waldurs_scheme(tmp_path: Path, double: WaldurDouble) -> None:
    site = Reporter(tmp_path, double, "wrong")
    site.job(1)
    sent = site.run().sent
    assert "Invalid token." in (sent.paused or "")
    assert sent.unauthorised


def test_energy_is_sent_without_the_extra_of_reports(tmp_path: Path, double: WaldurDouble) -> None:
    reporter = Reporter(tmp_path, double, components={"gpu_hours": {"amount": "energy-kwh"}})
    reporter.site.table["energy"] = {"pue": 1.5, "power": [{"watts_core": 250}]}
    reporter.job(1, hours=2, cores=4, slots=4)
    reporter.run()
    assert reporter.total() == Decimal("3.00")
