"""Invented jobs as ARC accounts for them: plain, varied (odd but readable) or broken, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeVar

ENDPOINTS: Final = (
    ("org.nordugrid.arcrest", "https://ce1.example.org:443/arex"),
    ("org.nordugrid.arcrest", "https://ce2.example.org:443/arex"),
    ("org.nordugrid.internal", "https://ce1.example.org:443/arex"),
    ("org.ogf.glue.emies.activitycreation", "https://ce1.example.org:443/arex"),
    ("org.nordugrid.gridftpjob", "gsiftp://ce1.example.org:2811/jobs"),
)
ODD_ENDPOINTS: Final = (
    ("org.nordugrid.arcrest", "ce3.example.org:443/arex"),
    ("org.nordugrid.arcrest", "https://[2001:db8::c3]:443/arex"),
    ("org.nordugrid.internal", "ce3.example.org"),
)
QUEUES: Final = ("main", "short", "long", "bigmem", "gpu")
VOS: Final = (
    ("atlas", ("/atlas/Role=production", "/atlas", "/atlas/no", "/atlas/Role=pilot")),
    ("cms", ("/cms/Role=pilot", "/cms", "/cms/ttbar/Role=production")),
    ("alice", ("/alice/Role=lcgadmin", "/alice")),
    ("bio.example.org", ("/bio.example.org",)),
    ("", ()),
)
ENVIRONMENTS: Final = ("ENV/RTE", "ENV/PROXY", "APPS/HEP/ATLAS-SITE", "APPS/CHEM/GROMACS-2026.1", "ENV/SINGULARITY")
BENCHMARKS: Final = ("HEPscore23:14.20", "HEPscore23:17.50", "HEPSPEC:10.29", "HEPSPEC:12.26")
CLASSES: Final = ("standard", "bigmem", "t2.micro")
USERS: Final = tuple(
    f"/DC=org/DC=example/C={country}/O=Grid/OU=Dep {number % 7}/CN={name} {number:03}"
    for number, (name, country) in enumerate(
        (name, country)
        for name in ("Ada Aas", "Bo Berg", "Cai Dahl", "Dina Ek", "Eli Falk", "Finn Gran", "Gro Holm", "Ivar Ihle")
        for country in ("NO", "SE", "DK", "FI", "SI", "CH")
    )
)
ODD_USERS: Final = (
    "/DC=org/DC=example/O=Bø & Søn <dev>/CN=Åse Ærlig",
    "/DC=org/DC=example/CN=Miles O%27Brien %23 7",
    "/C=CZ/O=Univerzita Karlova/CN=Jiří Dvořák",
)
STATES: Final = ("ACCEPTED", "PREPARING", "SUBMIT", "INLRMS", "LRMSSTART", "LRMSEND", "FINISHING", "FINISHED")
Option = TypeVar("Option")
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(slots=True)
class ArcJob:
    """One job as in its rows; times in epoch seconds UTC, wall and CPU in seconds, memory in KiB, sizes in bytes."""

    job_id: str | bytes
    submit: int
    local_id: str | None = None
    endpoint: tuple[str, str] = ENDPOINTS[0]
    queue: str = "main"
    user: str = USERS[0]
    vo: str = ""
    status: str = "completed"
    exit_code: int = 0
    end: int = 0
    nodes: int = 1
    cores: int = 1
    memory: int = 0
    virtual: int = 0
    wall: int = 0
    cpu_user: int = 0
    cpu_kernel: int = 0
    scratch: int = 0
    volume_in: int = 0
    volume_out: int = 0
    attributes: list[tuple[str, str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    transfers: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    extra: list[tuple[str, str | bytes]] = field(default_factory=list)


@lru_cache(maxsize=100_000)
def _minute(number: int) -> str:
    return datetime.fromtimestamp(number * 60, UTC).strftime("%Y-%m-%dT%H:%M:")


def instant(epoch_s: int) -> str:
    """The time as JobEvents has it: `2026-11-20T12:00:00Z`."""
    return f"{_minute(epoch_s // 60)}{epoch_s % 60:02}Z"


def _habit(user: int, options: Sequence[Option], draw: float, *, skew: float = 1) -> Option:
    """What a user chooses nine times of ten, for the same options always the same; else any of them."""
    if draw < 0.9:
        draw = (user * 29 + len(options) * 7) % len(USERS) / len(USERS)
    else:
        draw = (draw - 0.9) * 10
    return options[int(draw**skew * len(options))]


def plain_job(rng: random.Random, number: int, first: int, last: int) -> ArcJob:
    """A job accepted between the two times, with everything that ARC writes about it.

    Users have habits, as at sites: one VO, and mostly the same role, way in, queue and size of job.
    """
    draw = rng.random
    user_number = int(draw() ** 2 * len(USERS))
    vo, fqans = VOS[int((user_number * 11 % len(USERS) / len(USERS)) ** 2 * len(VOS))]
    submit = first + int(draw() * (last - first))
    queued, staged = int(draw() * 900), int(draw() * 120) + 1
    wall = 30 + int(draw() ** 3 * 80_000)
    start = submit + 2 + staged + queued
    lrms_end, out = start + wall, 1 + int(draw() * 90)
    end = lrms_end + 10 + out
    cores = _habit(user_number, (1, 1, 1, 2, 4, 8, 8, 16), draw())
    nodes = 2 if cores == 16 else 1
    busy = wall * cores * (0.5 + draw() / 2)
    memory = 100_000 + int(draw() * 2_000_000) * cores
    dice = draw()
    status = "completed" if dice < 0.88 else "failed" if dice < 0.97 else "aborted"
    queue = _habit(user_number, QUEUES, draw(), skew=2)
    job = ArcJob(
        job_id="".join([_LETTERS[int(draw() * 62)] for _ in range(12)]) + f"{number:08}",
        submit=submit,
        local_id=str(1_000_000 + number),
        endpoint=_habit(user_number, ENDPOINTS, draw(), skew=3),
        queue=queue,
        user=USERS[user_number],
        vo=vo,
        status=status,
        exit_code=0 if status == "completed" else 1 + int(draw() * 254),
        end=end,
        nodes=nodes,
        cores=cores,
        memory=memory,
        virtual=int(memory * 1.3),
        wall=wall,
        cpu_user=int(busy * 0.96),
        cpu_kernel=int(busy * 0.04),
        scratch=int(draw() * 9_000_000_000) if draw() < 0.4 else 0,
    )
    if fqans:
        job.attributes = [("mainfqan", _habit(user_number, fqans, draw())), *(("vomsfqan", fqan) for fqan in fqans)]
    times = (
        submit,
        submit + 1,
        submit + 1 + staged,
        submit + 2 + staged,
        start,
        lrms_end,
        lrms_end + 10,
        end,
    )
    job.events = [(state, instant(at)) for state, at in zip(STATES, times, strict=True)]
    job.environments = [ENVIRONMENTS[int(draw() * 5)]] if draw() < 0.7 else []
    _transfers(rng, job, number, submit, lrms_end)
    first_node = int(draw() * 200)
    nodenames = ":".join(f"wn{first_node + index:03}.example.org" for index in range(nodes))
    group = (vo or "local").split(".", maxsplit=1)[0]
    job.extra = [
        ("benchmark", _habit(QUEUES.index(queue), BENCHMARKS, draw())),
        ("clienthost", f"198.51.100.{int(draw() * 254)}:{32768 + int(draw() * 20000)}"),
        ("jobname", f"{group}-simulation-{number}"),
        ("localuser", f"{group}{user_number:03}:{group}"),
        ("lrms", "slurm"),
        ("nodenames", nodenames),
    ]
    if draw() < 0.3:
        job.extra.append(("projectname", f"project-{int(draw() * 20)}"))
    if draw() < 0.3:
        job.extra.append(("wninstance", CLASSES[int(draw() * 3)]))
    if draw() < 0.3:
        job.extra.append(("systemsoftware", "AlmaLinux 9.6"))
    return job


def _transfers(rng: random.Random, job: ArcJob, number: int, submit: int, lrms_end: int) -> None:
    for index in range(int(rng.random() * 4)):
        size = int(rng.random() ** 3 * 4_000_000_000)
        kind = (10, 11, 20)[int(rng.random() * 3)]
        begin = submit + 2 if kind < 20 else lrms_end + 11
        url = f"davs://se{index}.example.org:443/data/{number:08}/{index}.root"
        job.transfers.append((url, size, begin, begin + 1 + int(rng.random() * 60), kind))
        if kind == 10:
            job.volume_in += size
        elif kind == 20:
            job.volume_out += size


def unfinished(job: ArcJob) -> ArcJob:
    """The same job before its end: accepted, perhaps begun."""
    job.status, job.end, job.local_id = "in-progress", 0, None
    job.exit_code = job.nodes = job.cores = job.memory = job.virtual = 0
    job.wall = job.cpu_user = job.cpu_kernel = job.scratch = job.volume_in = job.volume_out = 0
    job.events = job.events[:5]
    job.environments, job.transfers = [], []
    job.extra = [(key, value) for key, value in job.extra if key in {"clienthost", "jobname", "lrms"}]
    return job


def _replaced(job: ArcJob, key: str, *values: str | bytes) -> None:
    job.extra = [item for item in job.extra if item[0] != key] + [(key, value) for value in values]


def vary(rng: random.Random, job: ArcJob, which: int) -> ArcJob:
    """Make the job odd, in one of the ways that ARC databases really are; it can still be read."""
    match which % 16:
        case 0:
            job.local_id = None
        case 1:
            job.endpoint = ODD_ENDPOINTS[int(rng.random() * len(ODD_ENDPOINTS))]
        case 2:
            job.user = ODD_USERS[int(rng.random() * len(ODD_USERS))]
        case 3:
            _replaced(job, "jobname", 'Blåbær & <grøt> "1" %27quoted%27 100%25')
        case 4:
            _replaced(job, "benchmark", "HEPscore23:14.20", "HEPscore23:14.20", "HEPSPEC:12.26")
        case 5:
            _replaced(job, "benchmark", ("HEPSPEC:", "HEPscore23", "HEPSPEC:fast", "HEPSPEC:-1")[which // 16 % 4])
        case 6:
            job.scratch = job.volume_in = -(2**63) + int(rng.random() * 1000)
        case 7:
            _replaced(job, "clienthost", ("[2001:db8::7]:40001", "2001:db8::7:40001", "2001:db8::7")[which // 16 % 3])
        case 8:
            _replaced(job, "nodenames", "[2001:db8::17]:wn002.example.org:wn002.example.org")
        case 9:
            _replaced(job, "nodenames")
            job.extra.append(("nodename", "wn007.example.org"))
        case 10:
            job.events = []
        case 11:
            job.events = [*job.events[:3], ("LRMSSTART", "yesterday"), job.events[-1]]
        case 12:
            job.extra = [item for item in job.extra if item[0] != "benchmark"]
        case 13:
            job.attributes = [*job.attributes, ("subject", "robot 7"), ("vomsfqan", "/atlas")]
        case 14:
            job.nodes = job.cores = job.memory = job.virtual = 0
        case _:
            job.exit_code = 4294967295
    return job


def spoil(rng: random.Random, job: ArcJob, which: int) -> ArcJob:
    """Damage the job: a reader cannot make a complete record of it, or only with care."""
    match which % 7:
        case 0:
            job.status = "vanished"
        case 1:
            job.end = 0
        case 2:
            job.wall = -5
        case 3:
            job.extra.append(("jobname2", b"caf\xe9 \xff"))
        case 4:
            job.submit = -1
        case 5:
            job.job_id = b"caf\xe9" + job.job_id.encode() if isinstance(job.job_id, str) else job.job_id
        case _:
            _replaced(job, "jobname", "x" * 100_000)
    job.volume_in = int(rng.random() * 100)
    return job
