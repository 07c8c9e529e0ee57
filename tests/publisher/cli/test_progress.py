"""Progress: a bar on a terminal for what takes longer than a second, out of the way before anything is printed."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from formats.rule_codes import Reason
from publisher.cli import output, progress
from publisher.events import (
    BatchSettled,
    ContextFilled,
    DeliveryBegun,
    Observer,
    PageStored,
    RecordSettled,
    RetryPlanned,
    TargetPaused,
    WorkAdvanced,
)
from publisher.reason import ReasonCode


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error, for the rest of a test."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


@pytest.fixture(autouse=True)
def _nothing_left_on_the_terminal() -> Iterator[None]:
    yield
    output.say()


class ManualClock:
    """Seconds, set by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_drawn_within_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    clock = ManualClock()
    watch = progress.observer(verbose=False, quiet=False, terminal=True, clock=clock)
    clock.now = 0.9
    watch(PageStored("ce1", 1000, 1000, 0))
    assert terminal.getvalue() == ""


def test_reading_has_the_remaining_time_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ce1, of which 0.4 was read before, 0.1 more takes 10 s: so 0.5 takes 50 s."""
    terminal = on_terminal(monkeypatch)
    clock = ManualClock()
    watch = progress.observer(verbose=False, quiet=False, terminal=True, clock=clock)
    watch(PageStored("ce1", 1000, 1000, 0, 0.4))
    clock.now = 10.0
    watch(PageStored("ce1", 1000, 1000, 0, 0.5))
    assert terminal.getvalue() == "\rread 2,000, 200/s, 50 s left of ce1"
    clock.now = 20.0
    watch(PageStored("sacct", 1000, 1000, 0))
    assert terminal.getvalue().rstrip().endswith("\rread 3,000, 150/s"), "its size is unknown"


def test_a_bar_for_each_target_that_gives_way_to_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    clock = ManualClock()
    watch = progress.observer(verbose=False, quiet=False, terminal=True, clock=clock)
    clock.now = 2.0
    watch(PageStored("ce1", 1000, 1000, 0))
    assert terminal.getvalue() == "\rread 1,000, 500/s"
    terminal.truncate(0)
    terminal.seek(0)
    watch(DeliveryBegun("neic", 4000))
    clock.now = 202.0
    watch(BatchSettled("neic", 1, "Accepted", 1000, 5000))
    assert terminal.getvalue() == "\rneic [#####...............] 1,000/4,000, 5.0/s, 10 min left"
    output.data("done")
    assert terminal.getvalue().endswith("\r")
    assert printed.getvalue() == "done\n"
    output.say("a message")
    assert terminal.getvalue().endswith("\ra message\n")


def test_work_without_a_total_has_a_rate_and_with_one_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    clock = ManualClock()
    watch = progress.observer(verbose=False, quiet=False, terminal=True, clock=clock)
    clock.now = 10.0
    watch(WorkAdvanced("report", 4000))
    assert terminal.getvalue() == "\rreport 4,000, 400/s"
    clock.now = 20.0
    watch(WorkAdvanced("report", 8000, 32_000))
    assert terminal.getvalue().endswith("\rreport [#####...............] 8,000/32,000, 400/s, 1 min left")


@pytest.mark.parametrize(
    ("verbose", "quiet", "is_terminal"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_no_bar_where_none_belongs(
    monkeypatch: pytest.MonkeyPatch, verbose: bool, quiet: bool, is_terminal: bool
) -> None:
    terminal = on_terminal(monkeypatch)
    clock = ManualClock()
    watch = progress.observer(verbose=verbose, quiet=quiet, terminal=is_terminal, clock=clock)
    watch(DeliveryBegun("neic", 400))
    clock.now = 5.0
    watch(BatchSettled("neic", 1, "Accepted", 100, 5000))
    assert "[" not in terminal.getvalue()


def test_the_same_answer_is_not_reported_at_length_again(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.observer(verbose=False, quiet=False, terminal=False)
    answer = "no connection. Check the firewall"
    for attempt in (2, 3):
        watch(RetryPlanned("neic", 1, attempt, 1.0, answer))
    watch(RetryPlanned("other", 1, 2, 1.0, answer))
    watch(TargetPaused("neic", answer))
    assert capsys.readouterr().err.splitlines() == [
        "neic: no connection; trying again in 1.0 s",
        "neic: no connection, as before; trying again in 1.0 s",
        "other: no connection; trying again in 1.0 s",
        f"neic: stopped: {answer}",
    ]


def settled(watch: Observer, count: int, reason: str, state: str = "held", target: str = "neic") -> None:
    for number in range(1, count + 1):
        watch(RecordSettled(target, f"ur-{number}", state, Reason.of(ReasonCode.REFUSED, answer=reason)))


def test_many_held_records_are_reported_by_reason_before_anything_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.observer(verbose=False, quiet=False, terminal=False)
    settled(watch, 10_000, "no benchmark")
    settled(watch, 1, "HTTP 406: no such user", "rejected")
    watch(RetryPlanned("other", 1, 2, 1.0, "HTTP 503"))
    assert capsys.readouterr().err == "other: HTTP 503; trying again in 1.0 s\n", "the run goes on"
    output.say("done")
    output.say("and done")
    assert capsys.readouterr().err.splitlines() == [
        "neic: 10,000 records are held: no benchmark (such as ur-1)",
        "neic: `usage-publisher records list --each --state held --target neic` lists them",
        "neic: ur-1 is rejected: HTTP 406: no such user",
        "done",
        "and done",
    ]


def test_what_a_round_held_is_reported_when_the_next_begins(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.observer(verbose=False, quiet=False, terminal=False)
    settled(watch, 2, "no VO")
    watch(DeliveryBegun("neic", 5))
    assert capsys.readouterr().err.startswith("neic: 2 records are held: no VO (such as ur-1)\n")


def test_reasons_that_differ_record_by_record_do_not_fill_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.observer(verbose=False, quiet=False, terminal=False)
    for number in range(500):
        settled(watch, 1, f"answer {number}", "rejected")
    output.say("done")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 23
    assert lines[-3] == "neic: 480 records more, rejected for other reasons"


def test_with_verbose_each_record_has_its_line_and_with_quiet_none(capsys: pytest.CaptureFixture[str]) -> None:
    settled(progress.observer(verbose=True, quiet=False, terminal=False), 3, "no VO")
    assert capsys.readouterr().err.splitlines() == [f"neic: ur-{number} is held: no VO" for number in (1, 2, 3)]
    settled(progress.observer(verbose=False, quiet=True, terminal=False), 3, "no VO")
    output.say("done")
    assert capsys.readouterr().err == "done\n"


def test_a_context_that_lost_something_is_reported_even_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        watch = progress.observer(verbose=False, quiet=quiet, terminal=False)
        watch(ContextFilled("billing", was_incomplete=False))
        watch(ContextFilled("billing", was_incomplete=True))
    lost = "spool billing: filled with all that is stored: something had been removed from it, or altered"
    assert capsys.readouterr().err.splitlines() == ["spool billing: filled with all that is stored", lost, lost]
