"""status on the screen: what is wrong, and what to do next, in every condition that a site can be in."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from publisher.cli.publish_cmd import show_delivered
from publisher.cli.status_cmd import show_status, status_json
from publisher.page.overview import overview_page, problems
from publisher.publish.context import DeliveryStats
from publisher.publish.publish import Delivery
from publisher.status.status import SourceStatus, Status, TargetStatus
from publisher.text import iso

NOW = 1_795_000_000
SOURCE = SourceStatus(
    jobs=7, unreadable=0, skipped=0, last_collected=NOW - 60, last_job_end=NOW - 3600, read_to_end=True, silent=False,
    error=None,
)  # fmt: skip
TARGET = TargetStatus(
    accepted=7, confirmed=0, waiting=0, in_flight=0, rejected=0, held=0, waived=0, superseded=0,
    last_sent_end_time=NOW - 3600, complete_until=NOW - 60, oldest_waiting_end_time=None, last_attempt=NOW - 60,
    last_success=NOW - 60, last_error=None, certificate_days_left=100, groups=None,
)  # fmt: skip


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which every row is one line."""
    monkeypatch.setenv("COLUMNS", "500")


def screen(capsys: pytest.CaptureFixture[str], source: dict[str, Any], target: dict[str, Any]) -> str:
    status = Status(
        complete=False,
        sources={"ce1": msgspec.structs.replace(SOURCE, **source)},
        targets={"neic": msgspec.structs.replace(TARGET, **target)},
    )
    show_status(status)
    return capsys.readouterr().out


def test_where_all_is_well_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    out = screen(capsys, {}, {})
    assert "all delivered" in out
    assert "usage-publisher" not in out


def test_a_source_that_was_not_read_to_its_end_is_not_green(capsys: pytest.CaptureFixture[str]) -> None:
    out = screen(capsys, {"read_to_end": False}, {})
    assert "not read to its end" in out
    assert "usage-publisher collect reads the rest" in out


def test_jobs_with_other_cpu_times_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    out = screen(capsys, {"cpu_sampled": 1_200, "cpu_doubtful": 3}, {})
    assert "ce1: 1,200 jobs: Slurm's TotalCPU is too small" in out
    assert "ce1: 3 jobs: steps of srun have no CPU time" in out
    assert "some CPU times are doubtful" in out


@pytest.mark.parametrize("left", [{"held": 8_076}, {"rejected": 1}, {"complete_until": None}], ids=str)
def test_all_is_delivered_only_where_nothing_is_left(capsys: pytest.CaptureFixture[str], left: dict[str, Any]) -> None:
    assert "all delivered" not in screen(capsys, {}, left)


def done(capsys: pytest.CaptureFixture[str], total: dict[str, Any], sent: DeliveryStats) -> str:
    """The last column of what `run` and `publish` show."""
    target = msgspec.structs.replace(TARGET, **total)
    show_delivered({"neic": Delivery(sent)}, Status(complete=True, sources={}, targets={"neic": target}))
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "neic" in line)
    return re.split(r"[│|]|\s{2,}", row.strip(" │|"))[-1].strip()


def test_a_run_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert done(capsys, {}, DeliveryStats(accepted=5)) == "done"
    assert done(capsys, {"held": 8_076}, DeliveryStats()) == "done; 8,076 held"
    assert done(capsys, {"held": 1, "rejected": 2}, DeliveryStats()) == "done; 2 rejected, 1 held"


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    ("target", "delivered"),
    [
        ({}, True),
        ({"held": 1}, False),
        ({"rejected": 1}, False),
        ({"held": 1, "shadow": True}, True),
        ({"superseded": 1}, True),
    ],
)
def test_only_what_is_delivered_is_good(target: dict[str, Any], delivered: bool, complete: bool) -> None:
    targets = {"neic": msgspec.structs.replace(TARGET, **target)}
    found = Status(complete=complete, sources={"ce1": SOURCE}, targets=targets)
    assert found.delivered == (delivered and complete)
    assert status_json(found)["delivered"] == found.delivered
    shown = overview_page(found, None, {"site": "S"})
    assert ("Everything that was read is delivered" in shown) == found.delivered


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ({"last_collected": None}, {}, "usage-publisher check, then usage-publisher run"),
        ({"error": "gone"}, {}, "Problems:           usage-publisher check"),
        ({"unreadable": 1}, {}, "usage-publisher collect --unreadable"),
        ({}, {"last_error": "refused"}, "Problems:           usage-publisher check"),
        ({}, {"rejected": 1}, "usage-publisher records list --state rejected"),
        ({}, {"held": 1}, "usage-publisher records list --state held"),
        ({}, {"superseded": 1}, "usage-publisher records list --state superseded"),
        ({}, {"waiting": 1}, "usage-publisher publish"),
        ({}, {"waiting": 1, "due_at": NOW}, f"waiting until {iso(NOW)}"),
        ({}, {"waiting": 1, "shadow": True}, "usage-publisher shadow neic"),
        ({}, {"assumed": 7}, "neic: accepted, but delivered before and not sent from this store: 7 jobs"),
        ({}, {"assumed": 1}, "neic: accepted, but delivered before and not sent from this store: 1 job"),
        ({}, {"accepted": 0}, "neic selects no job: usage-publisher check"),
        ({}, {"certificate_days_left": 1}, "certificate ends in 1 day"),
    ],
)
def test_what_to_do_next(
    capsys: pytest.CaptureFixture[str], source: dict[str, Any], target: dict[str, Any], said: str
) -> None:
    assert said in screen(capsys, source, target)


def test_before_there_are_jobs_none_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No job is for" not in screen(capsys, {"last_job_end": None}, {"accepted": 0})


@pytest.mark.parametrize("why", [{"shadow": True}, {"due_at": NOW}, {"not_due": 1}], ids=str)
def test_what_is_held_back_on_purpose_is_not_to_be_sent(
    capsys: pytest.CaptureFixture[str], why: dict[str, Any]
) -> None:
    assert "usage-publisher publish" not in screen(capsys, {}, {"waiting": 1, **why})


def test_the_page_says_what_is_unconfirmed_or_that_there_is_no_evidence() -> None:
    late = msgspec.structs.replace(TARGET, evidence="query", unconfirmed_days=9, evidence_problem="HTTP 500")
    found = Status(complete=True, sources={}, targets={"none": TARGET, "late": late})
    shown = overview_page(found, None, {"site": "S"})
    for said in (">no evidence<", "9 days", "no evidence of what the service has: HTTP 500"):
        assert said in shown
    by_file = msgspec.structs.replace(TARGET, confirmed=TARGET.accepted, evidence_problem="the service cannot be asked")
    shown = overview_page(msgspec.structs.replace(found, targets={"neic": by_file}), None, {"site": "S"})
    assert "no evidence" not in shown


@pytest.mark.parametrize(
    ("source", "target", "warnings"),
    [
        ({"cpu_sampled": 2}, {}, 1),
        ({"cpu_doubtful": 3}, {}, 1),
        ({}, {"removed_amounts": {"energy": 2}}, 1),
        ({}, {"accepted": 0}, 1),
        ({}, {"evidence": "query", "differences": 2, "evidence_problem": "HTTP 500"}, 2),
        ({}, {"evidence": "query", "unconfirmed_days": 9, "confirmation_overdue": True}, 1),
        ({}, {"evidence": "query", "unconfirmed_days": 1}, 0),  # the card of the target has the days
        ({}, {"groups": {"rejected": 1, "held": 2}}, 2),
    ],
    ids=str,
)
def test_the_page_shows_each_warning_of_the_command_in_its_words(
    source: dict[str, Any], target: dict[str, Any], warnings: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {"ce1": msgspec.structs.replace(SOURCE, **source)}
    targets = {"neic": msgspec.structs.replace(TARGET, **target)}
    texts = [text for _name, text in problems(Status(complete=True, sources=sources, targets=targets))]
    assert len(texts) == warnings
    shown = screen(capsys, source, target)
    assert all(text in shown for text in texts)


def test_what_is_confirmed_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    none = screen(capsys, {}, {})
    assert "no evidence" in none
    assert "neic: not confirmed: nothing shows what the service has" in none
    assert "nothing shows what the service has" in screen(capsys, {}, {"confirmed": 6})
    assert "evidence" not in screen(capsys, {}, {"confirmed": 7})  # by `reconcile --file`
    fresh = screen(capsys, {}, {"evidence": "query", "unconfirmed_days": 0})
    assert "evidence" not in fresh
    late = {"evidence": "query", "confirmed": 5, "unconfirmed_days": 9}
    out = screen(capsys, {}, late)
    assert "neic: accepted and not confirmed: 2 jobs, the oldest unconfirmed for 9 days" in out
    assert "all delivered" in out
    out = screen(capsys, {}, {**late, "confirmation_overdue": True, "differences": 2, "evidence_problem": "HTTP 500"})
    assert "all delivered" not in out
    assert "neic: no evidence of what the service has: HTTP 500" in out
    assert "neic: 2 differences to what the service has: usage-publisher reconcile neic" in out
