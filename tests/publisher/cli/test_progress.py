"""Progress: a bar on a terminal for what takes longer than a second, out of the way before anything is printed."""

from __future__ import annotations

import io
import sys

import pytest

from publisher.cli import output, progress
from publisher.observe.events import BatchSettled, DeliveryBegun, PageStored, RetryPlanned, TargetPaused


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error, for the rest of a test."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(output, "_watchers", [])
    return shown


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be set: its last element is now."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[-1])
    return now


def test_nothing_is_drawn_within_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    now = clock(monkeypatch)
    watch = progress.observer(verbose=False, quiet=False, terminal=True)
    now.append(0.9)
    watch(PageStored("ce1", 1000, 1000, 0))
    assert terminal.getvalue() == ""


def test_a_bar_for_each_target_that_gives_way_to_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    now = clock(monkeypatch)
    watch = progress.observer(verbose=False, quiet=False, terminal=True)
    watch(PageStored("ce1", 1000, 1000, 0))
    watch(DeliveryBegun("neic", 400))
    now.append(2.0)
    watch(BatchSettled("neic", 1, "Accepted", 100, 5000))
    assert terminal.getvalue() == "\rread 1000  neic [#####...............] 100/400"
    output.data("done")
    assert terminal.getvalue().endswith("\r")
    assert printed.getvalue() == "done\n"
    output.say("a message")
    assert terminal.getvalue().endswith("\ra message\n")


@pytest.mark.parametrize(
    ("verbose", "quiet", "is_terminal"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_no_bar_where_none_belongs(
    monkeypatch: pytest.MonkeyPatch, verbose: bool, quiet: bool, is_terminal: bool
) -> None:
    terminal = on_terminal(monkeypatch)
    now = clock(monkeypatch)
    watch = progress.observer(verbose=verbose, quiet=quiet, terminal=is_terminal)
    watch(DeliveryBegun("neic", 400))
    now.append(5.0)
    watch(BatchSettled("neic", 1, "Accepted", 100, 5000))
    assert "[" not in terminal.getvalue()


def test_the_same_answer_is_not_told_at_length_again(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.observer(verbose=False, quiet=False, terminal=False)
    answer = "no connection. Check the firewall"
    for attempt in (2, 3):
        watch(RetryPlanned("neic", 1, attempt, 1.0, answer))
    watch(RetryPlanned("other", 1, 2, 1.0, answer))
    watch(TargetPaused("neic", answer))
    assert capsys.readouterr().err.splitlines() == [
        "neic: no connection; trying again in 1.0 s",
        "neic: the same; trying again in 1.0 s",
        "other: no connection; trying again in 1.0 s",
        f"neic: stopped: {answer}",
    ]
