"""init with AUDITOR as the source: its URL, what writes its records, and its own program that publishes them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from publisher.cli.questions import first_day_after
from publisher.errors import UsageError
from publisher.simulator.pki import Pki
from tests.publisher.cli.program import Program
from tests.publisher.cli.test_init import answers
from tests.publisher.sources.auditor.auditor_records import record
from tests.publisher.sources.auditor.auditor_server import AuditorServer, auditor_server


@pytest.fixture
def auditor() -> Iterator[AuditorServer]:
    with auditor_server() as server:
        server.add(record("k8s-1"))
        yield server


def written(fresh: Program) -> dict[str, Any]:
    return tomllib.loads((fresh.folder / "new.toml").read_text())


def test_by_options(fresh: Program, pki: Pki, auditor: AuditorServer) -> None:
    given = answers(fresh, pki, source=auditor.url, collector="slurm", records="ogf-ur")
    done = fresh("--config", "new.toml", "init", "--json", *given).ok()
    assert done.object["problems"] == []
    assert written(fresh)["sources"] == {
        "auditor": {"type": "auditor", "auditor": {"url": auditor.url, "collector": "slurm"}}
    }
    assert fresh("--config", "new.toml", "collect", "--json").object["sources"]["auditor"]["new"] == 1


def test_its_own_publisher_is_taken_over_in_whole_months(fresh: Program, pki: Pki, auditor: AuditorServer) -> None:
    more = {"records": "apel-normalised-summary", "complete-since": "2026-01-01", "earlier-publisher": "2026-12"}
    done = fresh("--config", "new.toml", "init", "--json", *answers(fresh, pki, source=auditor.url, **more)).ok()
    assert done.object["problems"] == []
    assert written(fresh)["targets"]["directory"]["since"] == "2027-01-01"


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ({"earlier-publisher": "2026-10"}, 2, "sends apel-normalised-summary, and the service counts them in addition"),
        ({"earlier-publisher": "October"}, 2, "'October' is not a month"),
        ({"earlier-publisher": "never"}, 0, ""),
        ({}, 1, "whether auditor-apel-plugin published for this site is unknown (--earlier-publisher)"),
        ({"earlier-publisher": "never", "collector": "pbs"}, 2, "collector"),
    ],
)
def test_what_it_does_not_take(
    fresh: Program, pki: Pki, auditor: AuditorServer, more: dict[str, str], code: int, said: str
) -> None:
    given = {"records": "apel-summary", "complete-since": "2026-01-01"} | more
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, source=auditor.url, **given))
    assert done.code == code
    assert said in done.err
    assert (fresh.folder / "new.toml").exists() == (code != 2)


def test_plain_http_to_another_host_is_refused(fresh: Program, pki: Pki) -> None:
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, source="http://auditor.example.org:8000"))
    assert done.code == 2
    assert "plain_http" in done.err


def test_the_day_after_a_month() -> None:
    assert [first_day_after(each) for each in ("2026-01", "2026-12")] == ["2026-02-01", "2027-01-01"]
    with pytest.raises(UsageError):
        first_day_after("2026-13")
