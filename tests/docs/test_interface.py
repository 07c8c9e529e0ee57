"""What was released stays: the file has the interface of the last release, and nothing of it is gone."""

from __future__ import annotations

from tests.docs import interface


def test_nothing_of_the_last_release_is_gone(*, rewrite_golden: bool) -> None:
    """The file is written again with each release: what was added since may still change, and what was there may not.
    A name that must go is accepted further, with a message that has the new one."""
    now = interface.lines()
    if rewrite_golden:
        interface.FILE.write_text("\n".join(now) + "\n", encoding="utf-8")
    released = interface.FILE.read_text(encoding="utf-8").splitlines()
    assert sorted({*released} - {*now}) == []


def test_each_promise_has_lines() -> None:
    kinds = {line.partition(" ")[0] for line in interface.lines()}
    assert kinds == {"command", "setting", "exit", "json", "library", "add-on", "archive", "store", "metric", "page"}
