"""Random histories in which settings change too: nothing is lost, and evidence agrees with what was sent by then."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from formats.job import Job
from publisher.simulator import Simulator
from publisher.store.schema import State
from publisher.testing import Service
from publisher.testing.delivery import NAME, DeliverySite, RandomHistory
from tests.extent import short_or_whole
from tests.publisher.auditor import AuditorDouble
from tests.publisher.targets.doubles import DailyDouble, FolderDouble, SgasDouble, TroubledWaldur

Settings = Mapping[str, Any]
CHANGES: Mapping[str, Sequence[Settings]] = {
    "auditor": (
        {"components": {"Cores": {"amount": "cores", "scores": {"a": "HEPscore23"}}}},
        {"components": {"Cpu": {"amount": "cpu-ms"}, "Cores": {"amount": "cores"}}},
        {"components": {"Energy": {"amount": "energy-j"}}},
        {"start_from": "start"},
    ),
    "sgas": ({"local_id_prefix": "a-"}, {"ur_extensions": ["vo"]}, {"ur_extensions": ["exit-code"]}),
    "files": ({"machine_name": "m1"}, {"local_id_prefix": "a-"}, {"ur_extensions": ["exit-code"]}),
    "xdmod": ({"start_from": "start"}, {"start_from": "wall"}),
    "waldur": (
        {"users": False},
        {"users": True},
        {"components": {"cpu_k_hours": {"amount": "memory-gib-hours"}, "gpu_hours": {"amount": "jobs"}}},
        {"components": {"cpu_k_hours": {"amount": "energy-kwh", "divisor": "0.00001"}}},
        {"components": {"cpu_k_hours": {"amount": "core-hours", "divisor": "0.007"}}},
    ),
}
COMMON: Sequence[Settings] = ({"dn": "withhold"}, {"dn": "send"}, {"since": "2026-11-01"}, {"since": "2026-10-01"})
OF_SOURCE: Sequence[Settings] = (
    {"map": [{"fqans": ["/atlas/x"], "vo": "atlas"}]},
    {"map": [{"dn": "/CN=Other"}]},
    {"map": []},
    {"benchmarks": [{"type": "HEPscore23", "value": 17.5}]},
    {"site": "SECOND-SITE"},
    {"site": "THIRD-SITE"},
)


def _with_account(job: Job) -> Job:
    number = int(job.local_id or 0)
    memory_kib = (1 << 20) * number if number % 3 else None
    return msgspec.structs.replace(
        job, account="physics" if number % 2 else "bio&x", local_user=f"user{number % 4}", memory_rss_kib=memory_kib
    )


def _of_nobody(job: Job) -> Job:
    """Without a local user and account, the names in a line are of the grid, which settings change."""
    return msgspec.structs.replace(job, account=None, local_user=None)


@pytest.fixture
def make_service(tmp_path: Path, simulator: Simulator) -> Iterator[Callable[[str, int], Service]]:
    with ExitStack() as running:

        def make(kind: str, seed: int) -> Service:
            if kind == "files":
                return FolderDouble(tmp_path / "spool", layout="files", records="ogf-ur")
            if kind == "xdmod":
                return DailyDouble(tmp_path / "xdmod", records="xdmod-slurm")
            if kind == "sgas":
                return SgasDouble(simulator)
            double = AuditorDouble() if kind == "auditor" else TroubledWaldur(tmp_path, seed)
            return running.enter_context(double.running())

        yield make


@pytest.mark.parametrize("seed", range(short_or_whole(3, 60)))
@pytest.mark.parametrize("kind", CHANGES)
def test_a_history_of_settings(
    kind: str, seed: int, make_service: Callable[[str, int], Service], tmp_path: Path
) -> None:
    """Settings also change while it is unknown whether a service took a message, which is then sent again by others."""
    chance = random.Random(seed)
    complete = _with_account if kind != "xdmod" else _of_nobody
    site = DeliverySite(tmp_path, make_service(kind, seed), lambda body: body, None, complete)
    site.table["energy"] = {"power": [{"watts_core": 36}]}
    history = RandomHistory(site, seed)
    for _ in range(6):
        history.step()
        if chance.random() < 0.5:
            site.settle()
        match chance.randrange(4):
            case 0:
                site.table["sources"]["ce1"].update(chance.choice(OF_SOURCE))
                site.reopen()
            case 1:
                site.table["energy"]["power"] = chance.choice(([], [{"watts_core": 36}], [{"watts_core": 12}]))
                site.reopen()
            case _:
                site.configure(NAME, **chance.choice((*CHANGES[kind], *COMMON)))
    site.settle()
    site.assert_counters_right()
    assert site.differences() == []
    counted = site.counted(NAME)
    assert counted.keys() <= {State.ACCEPTED, State.HELD, State.SUPERSEDED}
    if site.target_settings.format.shape == "totals":
        assert site.rows("SELECT COALESCE(SUM(jobs), 0) FROM groups") == [(counted.get(State.ACCEPTED, 0),)]
    site.reopen()
