"""Completion in the shell: names of the configuration, and nothing printed where there are none."""

from __future__ import annotations

import re

import pytest

from publisher.cli.completion import STATES
from publisher.store.schema import State
from tests.publisher.cli.program import Program


def completed(program: Program, line: str, **variables: str) -> list[str]:
    """What bash is offered at the end of a line."""
    done = program(
        _USAGE_PUBLISHER_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")), **variables
    )
    assert (done.code, done.err) == (0, "")
    return done.out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("usage-publisher publish ", ["files", "summaries"]),
        ("usage-publisher publish files su", ["summaries"]),
        ("usage-publisher collect ", ["ce1"]),
        ("usage-publisher jobs --source c", ["ce1"]),
        ("usage-publisher jobs --state w", ["waiting", "waived"]),
        ("usage-publisher records list --target f", ["files"]),
        ("usage-publisher records list --state s", ["superseded"]),
        ("usage-publisher render apel-s", ["apel-summary", "apel-sync"]),
        ("usage-publisher reconcile nosuch", []),
        ("usage-publisher republish s", ["summaries"]),
    ],
)  # fmt: skip
def test_names_are_offered(fresh: Program, line: str, offered: list[str]) -> None:
    assert completed(fresh, line) == offered


def test_the_last_months_are_offered(fresh: Program) -> None:
    months = completed(fresh, "usage-publisher reconcile --month ")
    assert len(months) == 24
    assert months == sorted(months, reverse=True)
    assert all(re.fullmatch(r"\d{4}-\d{2}", month) for month in months)


@pytest.mark.parametrize("text", ["[site", "targets = 7", "", "\x00"])
def test_a_broken_configuration_offers_nothing(fresh: Program, text: str) -> None:
    fresh.configure(text)
    assert completed(fresh, "usage-publisher publish ") == []
    fresh.config.unlink()
    assert completed(fresh, "usage-publisher publish ") == []


def test_the_configuration_of_the_command_line_is_used(fresh: Program) -> None:
    (fresh.folder / "other.toml").write_text("[targets.elsewhere]\n")
    assert completed(fresh, "usage-publisher --config other.toml publish ") == ["elsewhere"]


def test_no_store_is_opened(fresh: Program) -> None:
    completed(fresh, "usage-publisher publish ")
    assert not (fresh.folder / "store.db").exists()


def test_the_states_are_those_of_deliveries() -> None:
    assert [state.word for state in State] == list(STATES)
