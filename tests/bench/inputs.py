"""Inputs, the same for the same size; kept between runs, because making them takes longer than reading them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from formats.job import Job
from publisher.config import schema
from publisher.sources import make_source
from tests.bench.measure import Bench
from tests.generators.arc_copies import COPIES, write_copies
from tests.generators.arc_database import create, jobs_of, write
from tests.generators.arc_jobs import QUEUES, VOS, ArcJob

SEED = 1
FIRST = 1_790_812_800
"""2026-10-01T00:00:00Z."""
DAY_S = 86_400
MONTH_S = 30 * DAY_S
TWO_YEARS = (1_730_419_200, 1_793_491_200)
"""From 2024-11-01 until 2026-11-01: 24 months."""

_MOST_MADE = 1_000_000
_SACCT = (
    "Cluster|JobIDRaw|JobID|User|UID|Group|GID|Account|Partition|QOS|JobName|State|Submit|Eligible|Start|End|"
    "ElapsedRaw|TotalCPU|UserCPU|SystemCPU|MaxRSS|MaxVMSize|NCPUS|NNodes|NodeList|AllocTRES|ReqMem|"
    "ConsumedEnergyRaw|ExitCode|DerivedExitCode"
)
JobFacts = tuple[int, str, int, int, int]
"""Number, user, start, seconds, slots of a job."""


def kept(bench: Bench, name: str, make: Callable[[Path], None]) -> Path:
    """The input with that name and the bench's size, made now if it is missing, and always complete."""
    bench.inputs.mkdir(parents=True, exist_ok=True)
    path = bench.inputs / f"{name}-{bench.size}"
    if not path.exists():
        partial = path.with_name(f"{path.name}.partial")
        make(partial)
        partial.replace(path)
    return path


def arc_database(bench: Bench) -> Path:
    """ARC's accounting database: jobs of one month. Of more than a million there are ten much like each other."""
    if bench.size <= _MOST_MADE:
        return kept(bench, "arc.db", lambda path: write(path, _arc_jobs(bench)))
    fewer = arc_database(replace(bench, size=bench.size // COPIES))
    return kept(bench, "arc.db", lambda path: write_copies(fewer, path))


def arc_database_of_two_years(bench: Bench) -> Path:
    """ARC's accounting database: as many jobs each day of `TWO_YEARS`."""
    first, end = TWO_YEARS
    return kept(bench, "arc-24-months.db", lambda path: create(path, bench.size, SEED, first=first, last=end - 86_400))


def arc_database_of_independent_jobs(bench: Bench) -> Path:
    """The jobs of `arc_database`, of users without habits: 120 users, 19 FQANs, 5 queues, 8 sizes, each drawn alone."""
    return kept(bench, "arc-independent.db", lambda path: write(path, map(_independent, _arc_jobs(bench))))


def arc_database_in_any_order(bench: Bench) -> Path:
    """The jobs of `arc_database`, in an order that has nothing to do with their ends."""

    def make(path: Path) -> None:
        found = list(_arc_jobs(bench))
        random.Random(SEED).shuffle(found)
        write(path, found)

    return kept(bench, "arc-any-order.db", make)


def _arc_jobs(bench: Bench) -> Iterator[ArcJob]:
    return jobs_of(bench.size, SEED, first=FIRST, last=FIRST + MONTH_S - DAY_S)


def _independent(job: ArcJob) -> ArcJob:
    rng = random.Random(str(job.job_id))
    user, fqan = rng.randrange(120), rng.randrange(19)
    job.user = f"/DC=org/DC=example/C=NO/O=Grid/CN=User {user:03}"
    job.vo = VOS[fqan % 4][0]
    job.attributes = [("mainfqan", f"/{job.vo}/group{fqan}"), ("vomsfqan", f"/{job.vo}/group{fqan}")]
    job.queue = QUEUES[rng.randrange(5)]
    job.cores = rng.choice((1, 2, 3, 4, 8, 12, 16, 32))
    job.extra = [(name, f"u{user:03}:{job.vo}" if name == "localuser" else value) for name, value in job.extra]
    return job


def jobs(bench: Bench) -> list[Job]:
    """Jobs as the source `arc` reads them, each with a benchmark."""
    source = make_source("ce1", schema.SourceSettings(type="arc", path=arc_database(bench)))
    found: list[Job] = []
    for page in source.pages({}):
        found += [job for job in page.jobs if job.finished and job.benchmarks]
    return found


def gridengine_colon(bench: Bench) -> Path:
    """A classic accounting file."""
    return kept(bench, "gridengine.colon", lambda path: _write(path, map(_colon, _facts(bench.size))))


def gridengine_jsonl(bench: Bench) -> Path:
    """An accounting file of JSON lines."""
    return kept(bench, "gridengine.jsonl", lambda path: _write(path, map(_jsonl, _facts(bench.size))))


def torque_day(bench: Bench) -> Path:
    """A folder with one file of E records."""

    def make(path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        _write(path / "20261001", map(_torque, _in_order_of_ends(bench.size)))

    return kept(bench, "torque", make)


def torque_days(bench: Bench) -> Path:
    """A folder with a file of E records for each day of `TWO_YEARS`."""
    first, end = TWO_YEARS
    jobs_a_day = max(1, bench.size // ((end - first) // DAY_S))

    def make(path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        for day, midnight in enumerate(range(first, end, DAY_S)):
            jobs = torque_jobs(jobs_a_day, seed=day, first=midnight, number=1 + day * jobs_a_day)
            torque_file(path, midnight, jobs)

    return kept(bench, "torque-24-months", make)


def torque_jobs(count: int, *, seed: int, first: int, number: int) -> list[JobFacts]:
    """Jobs that end within a day that begins at `first`, in the order of their ends; with numbers from `number` on."""
    rng = random.Random(seed)
    jobs = []
    for one in range(number, number + count):
        end, seconds = first + rng.randrange(DAY_S), rng.randrange(10, 80_000)
        jobs.append((one, f"user{rng.randrange(40)}", end - seconds, seconds, rng.choice((1, 4, 8))))
    return sorted(jobs, key=lambda facts: facts[2] + facts[3])


def torque_file(folder: Path, first: int, jobs: list[JobFacts]) -> Path:
    """Write a file of a day; return it."""
    path = folder / f"{datetime.fromtimestamp(first, UTC):%Y%m%d}"
    _write(path, map(_torque, jobs))
    return path


def pbs_day(bench: Bench) -> Path:
    """A folder with one file of PBS Pro's E records."""

    def make(path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        _write(path / "20261001", map(_pbs, _in_order_of_ends(bench.size)))

    return kept(bench, "pbs", make)


def lsb_acct(bench: Bench) -> Path:
    """An lsb.acct of LSF 10."""
    return kept(bench, "lsb.acct", lambda path: _write(path, map(_lsf, _facts(bench.size))))


def condor_history(bench: Bench) -> Path:
    """A history file of HTCondor: an ad a job."""
    return kept(bench, "history", lambda path: _write(path, map(_condor, _facts(bench.size))))


def act_file(bench: Bench) -> Path:
    """An act_file of DQS."""
    return kept(bench, "act_file", lambda path: _write(path, map(_dqs, _facts(bench.size))))


def blah_log(bench: Bench) -> Path:
    """A log of BLAH, which names the user of each job."""
    return kept(bench, "blah", lambda path: _write(path, map(_blah, _facts(bench.size))))


def sacct_table(bench: Bench) -> Path:
    """What sacct printed."""
    return kept(bench, "sacct", lambda path: _write(path, [_SACCT, *map(_sacct, _facts(bench.size))]))


def sacct_table_of_many_users(bench: Bench) -> Path:
    """The same of a cluster with 1,000 users, whose jobs have any number of cores up to 256."""

    def facts() -> Iterator[JobFacts]:
        rng = random.Random(SEED)
        for number, _, start, seconds, _ in _facts(bench.size):
            yield number, f"user{rng.randrange(1000)}", start, seconds, rng.randrange(1, 257)

    return kept(bench, "sacct-many-users", lambda path: _write(path, [_SACCT, *map(_sacct, facts())]))


def _write(path: Path, lines: Iterator[str] | list[str]) -> None:
    with path.open("w", encoding="ascii") as file:
        file.writelines(line + "\n" for line in lines)


def _facts(count: int) -> Iterator[JobFacts]:
    """Number, user, start, seconds, slots of each job."""
    rng = random.Random(SEED)
    for number in range(1, count + 1):
        yield number, f"user{rng.randrange(40)}", FIRST + number, rng.randrange(10, 80_000), rng.choice((1, 4, 8))


def _in_order_of_ends(count: int) -> list[JobFacts]:
    """As the servers write them: a record with an earlier time than those before it may be text of a user."""
    return sorted(_facts(count), key=lambda facts: facts[2] + facts[3])


def _colon(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    usage = f"{seconds}:{seconds * 0.9:.6f}:1.250000:5120.000000:0:0:0:0:301:0:0:0.000000:8:0:0:0:1:117"
    return (
        f"long.q:node{number % 50}.example.org:chem:{user}:job{number}:{number}:sge:0:{start - 60}:{start}:"
        f"{start + seconds}:0:0:{usage}:NONE:defaultdepartment:smp:{slots}:0:{seconds * slots * 0.9:.6f}:1.500000:"
        "0.250000:-l h_rt=3600:0.000000:NONE:10485760.000000:0:0"
    )


def _jsonl(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    record = {
        "job_number": number, "task_number": 0, "start_time": start * 1_000_000,
        "end_time": (start + seconds) * 1_000_000, "owner": user, "group": "chem", "account": "sge",
        "qname": "long.q", "hostname": f"node{number % 50}", "department": "defaultdepartment", "slots": slots,
        "job_name": f"job{number}", "priority": 0, "submission_time": (start - 60) * 1_000_000,
        "submit_cmd_line": "qsub job.sh", "failed": 0, "exit_status": 0, "granted_pe": "smp",
        "usage": {
            "rusage": {"ru_wallclock": seconds, "ru_utime": seconds * 0.9, "ru_stime": 1.25, "ru_maxrss": 5120},
            "usage": {"wallclock": seconds + 0.5, "cpu": seconds * slots * 0.9, "mem": 1.5, "io": 0.25, "iow": 0.5,
                      "maxvmem": 10485760.0, "maxrss": 6291456.0},
        },
    }  # fmt: skip
    return json.dumps(record, separators=(",", ":"))


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _torque(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    hosts = "+".join(f"n{number % 50}/{slot}" for slot in range(slots))
    return (
        f"{datetime.fromtimestamp(start + seconds, UTC):%m/%d/%Y %H:%M:%S};E;{number}.batch.example.org;user={user} "
        f"group=chem jobname=job{number} queue=long ctime={start - 60} qtime={start - 60} etime={start - 60} "
        f"start={start} owner={user}@login1.example.org exec_host={hosts} Resource_List.nodes=1:ppn={slots} "
        f"Resource_List.walltime=24:00:00 session=4711 total_execution_slots={slots} unique_node_count=1 "
        f"end={start + seconds} Exit_status=0 resources_used.cput={_clock(seconds)} resources_used.mem=1024kb "
        f"resources_used.vmem=2048kb resources_used.walltime={_clock(seconds)}"
    )


def _sacct(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    begun, ended = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in (start, start + seconds))
    days, rest = divmod(seconds, 86_400)
    used = (f"{days}-" if days else "") + _clock(rest)
    return (
        f"fixture|{number}|{number}|{user}|1001|chem|2001|chem|batch|normal|job{number}|COMPLETED|{begun}|{begun}|{begun}|"
        f"{ended}|{seconds}|{used}|{used}|00:00:00|2048K||{slots}|1|n{number % 50}|"
        f"billing={slots},cpu={slots},mem=100M,node=1|100M||0:0|0:0"
    )


def _pbs(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    node = f"n{number % 50}"
    return (
        f"{datetime.fromtimestamp(start + seconds, UTC):%m/%d/%Y %H:%M:%S};E;{number}.pbs01;user={user} group=chem "
        f'account="SCSG0001" project=_pbs_project_default jobname=job{number} queue=workq ctime={start - 60} '
        f"qtime={start - 60} etime={start - 60} start={start} exec_host={node}/{number % 8}*{slots} "
        f"exec_vnode=({node}:ncpus={slots}:mem=10485760kb) Resource_List.mem=10gb Resource_List.mps=0 "
        f"Resource_List.ncpus={slots} Resource_List.ngpus=0 Resource_List.nodect=1 Resource_List.place=scatter "
        f"Resource_List.select=1:ncpus={slots}:ompthreads=1 Resource_List.walltime=24:00:00 session={number % 32768} "
        f"end={start + seconds} Exit_status=0 resources_used.cpupercent=97 "
        f"resources_used.cput={_clock(seconds * slots)} resources_used.mem=1243224kb "
        f"resources_used.ncpus={slots} resources_used.vmem=14088720kb "
        f"resources_used.walltime={_clock(seconds)} eligible_time=00:00:48 run_count=1"
    )


def _lsf(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    hosts = f'1 "{slots}*n{number % 50}"' if slots > 1 else f'1 "n{number % 50}"'
    return (
        f'"JOB_FINISH" "10.1" {start + seconds} {number} 1017 503316482 {slots} {start - 60} 0 0 {start} "{user}" '
        f'"normal" "" "" "" "login1" "work" "" "%J.out" "%J.err" "{start - 60}.{number}" 0 {hosts} 64 60.0 '
        f'"job{number}" "#BSUB -q normal;#BSUB -J ""job{number}"";./run.sh" {seconds * 0.9:.6f} 1.250000 '
        '30016 0 -1 0 0 15827 0 0 0 0 -1 0 0 0 136 2 -1 "" "chem" 0 1 "" "" 0 18432 32768 "" "" "" "" 0 "" 0 "" -1 '
        f'"/chem/{user}" "" "" "" -1 "" "" 5136 "" {start} "" ""'
    )


def _condor(facts: JobFacts) -> str:
    number, user, start, seconds, slots = facts
    ad = {
        "Cmd": '"/home/run.sh"', "ClusterId": number, "ProcId": 0, "CompletionDate": start + seconds,
        "CpusProvisioned": slots, "CumulativeRemoteSysCpu": 1.5, "CumulativeRemoteUserCpu": float(seconds * slots),
        "EnteredCurrentStatus": start + seconds, "ExitBySignal": "false", "ExitCode": 0,
        "GlobalJobId": f'"schedd.example.org#{number}.0#{start - 60}"', "ImageSize_RAW": 204800,
        "JobCurrentStartDate": start, "JobStartDate": start, "JobStatus": 4, "JobUniverse": 5,
        "LastRemoteHost": f'"slot1_1@n{number % 50}"', "NumJobStarts": 1, "Owner": f'"{user}"', "QDate": start - 60,
        "RemoteSysCpu": 1.5, "RemoteUserCpu": float(seconds * slots), "RemoteWallClockTime": float(seconds),
        "RequestCpus": slots, "ResidentSetSize_RAW": 102400, "AcctGroup": '"group_chem"', "AcctGroupUser": f'"{user}"',
    }  # fmt: skip
    head = f'*** Offset = 0 ClusterId = {number} ProcId = 0 Owner = "{user}" CompletionDate = {start + seconds}'
    return "\n".join([*(f"{name} = {value}" for name, value in ad.items()), head])


def _dqs(facts: JobFacts) -> str:
    number, user, start, seconds, _ = facts
    return (
        f"fast.q:n{number % 50}:1:linux,memory=64:chem:{user}:job{number}:DQS.{number}:{number}:{start - 60}:{start}:"
        f"{start + seconds}:0:{seconds}:{seconds}:1:2048:0:0:0:0:10:2:0:3:4:0:0:0:5:6"
    )


def _blah(facts: JobFacts) -> str:
    number, user, start, _, _ = facts
    return (
        f'"timestamp={datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M:%S}" "userDN=/DC=org/DC=example/CN={user}" '
        '"userFQAN=/chem/Role=NULL/Capability=NULL" "ceID=ce1.example.org:9619/ce1.example.org-condor" '
        f'"jobID=ce1.example.org#{number}.0#{start}" "lrmsID={number}" "localUser=10001"'
    )
