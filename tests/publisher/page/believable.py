"""A site as people know it, for pictures: a Slurm cluster with five quarters of jobs, and an older one."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

_DAY_S: Final = 86_400
_HEAD: Final = (
    "JobID", "JobIDRaw", "Cluster", "User", "UID", "Group", "Account", "JobName", "Partition", "Submit", "Eligible",
    "Start", "End", "ElapsedRaw", "UserCPU", "SystemCPU", "TotalCPU", "NCPUS", "NNodes", "NodeList", "ReqMem",
    "MaxRSS", "AllocTRES", "State", "ExitCode",
)  # fmt: skip


class _Project(NamedTuple):
    users: tuple[str, ...]
    weight: int
    gpu_share: float
    hours: float
    efficiency: float
    names: tuple[str, ...]


_PROJECTS: Final = {
    "atlas": _Project(("anilsen", "bjork"), 16, 0.0, 6, 0.93, ("evgen", "reco", "athena_mp")),
    "cms": _Project(("cms003", "dahl"), 12, 0.0, 6, 0.9, ("cmsRun", "nanoaod")),
    "ocean-model": _Project(("efjeld", "fhaugen"), 5, 0.0, 9, 0.97, ("roms_800m", "era5_prep")),
    "catalysis": _Project(("gmoen", "hlund"), 8, 0.1, 9, 0.88, ("vasp_relax", "cp2k_md")),
    "protein-folding": _Project(("ialn", "jstrand"), 8, 0.8, 9, 0.35, ("af3_batch", "gromacs_ns")),
    "speech-models": _Project(("kvik", "lberg"), 6, 0.9, 14, 0.28, ("whisper_ft", "eval_wer")),
    "course-inf3380": _Project(("nsol",), 2, 0.1, 0.6, 0.2, ("exercise1", "mpi_hello")),
}


def settings() -> str:
    """The configuration besides site and store: jobs of the older cluster are held for want of a benchmark."""
    return """
[sources.fram]
type = "slurm"
path = "fram.psv"
complete_since = "2020-01-01"
benchmark = { type = "HEPscore23", value = 15.1 }
[sources.old]
type = "slurm"
path = "old.psv"
complete_since = "2020-01-01"
[[map]]
when = { account = "atlas" }
vo = "atlas"
[[map]]
when = { account = "cms" }
vo = "cms"
[[map]]
when = { account = ["protein*", "catalysis"] }
vo = "enmr.eu"
[targets.nordugrid]
type = "directory"
path = "nordugrid"
layout = "files"
records = "ogf-ur"
[targets.apel]
type = "directory"
path = "apel"
records = "apel-summary"
local_jobs = "send"
[serve]
port = 0
"""


def write_logs(folder: Path, now: int, jobs: int) -> None:
    """Write the tables of sacct of both clusters: `jobs` jobs of the larger one, the last of which ended just now."""
    chance = random.Random(26)
    rows = [row for number in range(jobs) for row in _job(chance, 480_000 + 3 * number, now, number / jobs)]
    _write(folder / "fram.psv", rows)
    _write(folder / "old.psv", [_old(chance, 900 + number, now) for number in range(jobs // 40)])


def _write(file: Path, rows: list[list[str]]) -> None:
    lines = ["|".join(_HEAD), *("|".join(row) for row in sorted(rows, key=lambda row: row[12]))]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _job(chance: random.Random, number: int, now: int, share: float) -> list[list[str]]:
    """A job and its batch step: more by day than by night, more on weekdays, more this year than last."""
    account, project = chance.choices([*_PROJECTS.items()], [one.weight for one in _PROJECTS.values()])[0]
    submit = now - int(450 * _DAY_S * (1 - share**0.82))
    submit += int(min(10.0, max(-10.0, chance.gauss(0, 4))) * 3600) - (submit % _DAY_S - _DAY_S // 2)
    if datetime.fromtimestamp(submit, UTC).weekday() > 4 and chance.random() < 0.5:
        submit -= 2 * _DAY_S
    gpu = chance.random() < project.gpu_share
    gpus = chance.choice((1, 1, 2, 4)) if gpu else 0
    nodes = chance.choice((1, 2, 4)) if account == "ocean-model" else 1
    cores = 8 * gpus or (64 * nodes if account == "ocean-model" else chance.choice((1, 2, 4, 8, 8, 16)))
    wall = int(min(6 * _DAY_S, chance.lognormvariate(math.log(project.hours * 3600), 0.8)))
    start = submit + int(chance.lognormvariate(8.6 if gpu else 7.4, 1.3))
    end = min(start + wall, now - 600 - chance.randrange(7200))
    start, submit = min(start, end - 60), min(submit, end - 120)
    cpu = (end - start) * cores * min(1.0, project.efficiency * chance.uniform(0.75, 1.05))
    state = chance.choices(("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"), (88, 7, 3, 2))[0]
    memory_mib = cores * chance.choice((2048, 3840, 3840, 7680))
    first = chance.randrange(1, 41 - nodes)
    place = (
        f"gpu-{chance.randrange(1, 7)}" if gpu else f"c1-{first}" if nodes == 1 else f"c1-[{first}-{first + nodes - 1}]"
    )
    row = _row(
        number, ("fram.example.org", chance.choice(project.users), account, chance.choice(project.names)),
        ("gpu" if gpu else "large" if nodes > 1 else "normal", place), (submit, start, end), cpu, cores, nodes,
        memory_mib, gpus, state,
    )  # fmt: skip
    step = list(row)
    step[0] = step[1] = f"{number}.batch"
    step[3] = step[4] = step[5] = step[8] = step[20] = ""
    step[7], step[21] = "batch", f"{int(memory_mib * 1024 * chance.uniform(0.1, 0.9) / nodes)}K"
    return [row, step]


def _old(chance: random.Random, number: int, now: int) -> list[str]:
    end = now - 7200 - chance.randrange(9 * _DAY_S)
    wall = int(chance.lognormvariate(9.2, 0.7))
    names = ("old.example.org", chance.choice(("anilsen", "bjork")), "atlas", chance.choice(("evgen", "reco")))
    place = ("legacy", f"old-{chance.randrange(1, 9)}")
    return _row(
        number, names, place, (end - wall - 600, end - wall, end), wall * 7.2, 8, 1, 16_384, 0, "COMPLETED"
    )  # fmt: skip


def _row(
    number: int, names: tuple[str, str, str, str], place: tuple[str, str], times: tuple[int, int, int], cpu_s: float,
    cores: int, nodes: int, memory_mib: int, gpus: int, state: str,
) -> list[str]:  # fmt: skip
    cluster, user, account, name = names
    partition, hosts = place
    submit, start, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in times)
    resources = f"billing={cores},cpu={cores},mem={memory_mib}M,node={nodes}" + (f",gres/gpu={gpus}" if gpus else "")
    return [
        str(number), str(number), cluster, user, "1001", account, account, name, partition, submit, submit, start, end,
        str(times[2] - times[1]), _clock(cpu_s * 0.96), _clock(cpu_s * 0.04), _clock(cpu_s), str(cores), str(nodes),
        hosts, f"{memory_mib}M", "", resources, state, "0:0" if state == "COMPLETED" else "1:0",
    ]  # fmt: skip


def _clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), _DAY_S)
    return f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
