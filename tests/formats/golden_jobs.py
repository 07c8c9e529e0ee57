"""Runs of the golden files: typical ones of several sources, and hostile ones, each named after what it shows."""

from __future__ import annotations

from typing import Final

from formats.job import Benchmark, Host, Job, Transfer

CREATED: Final = 1_795_000_000

ARC: Final = Job(
    record_id="ur-ce1.example.org-MPh3FPuR0001",
    system="arc",
    status="completed",
    global_id="MPh3FPuR0001",
    local_id="1000001",
    name="atlas-sim-1",
    user_dn="/DC=org/DC=example/O=Grid/CN=Dana Dahl",
    local_user="atlas092",
    local_group="atlas",
    vo="atlas",
    fqans=("/atlas", "/atlas/Role=production", "/atlas/no/Role=NULL/Capability=NULL"),
    project="proj-28",
    queue="main",
    endpoint_url="https://ce1.example.org:443/arex",
    endpoint_type="org.nordugrid.arcrest",
    client_host="130.236.233.101",
    hosts=(Host("wn170.example.org"), Host("wn171.example.org")),
    nodes=2,
    cores=8,
    infrastructure="grid",
    lrms="slurm",
    middleware="arc",
    middleware_version="6.17.0",
    service_class="standard",
    runtime_environments=("ENV/RTE", "APPS/HEP/ATLAS-SITE-LCG"),
    submit=1_789_741_286,
    lrms_submit=1_789_741_291,
    start=1_789_741_286,
    end=1_789_751_349,
    execution_start=1_789_742_160,
    execution_end=1_789_751_262,
    wall_ms=9_102_000,
    cpu_ms=57_410_000,
    cpu_user_ms=54_885_000,
    cpu_system_ms=2_525_000,
    memory_rss_kib=4_812_380,
    memory_virtual_kib=6_256_094,
    scratch_bytes=8_713_352_589,
    stage_in_bytes=0,
    stage_out_bytes=27_011_658,
    transfers=(
        Transfer("upload", "davs://se2.example.org:443/atlas/a.root", 7_682_211, 1_789_751_319, 1_789_751_347),
        Transfer("download", "root://se9.example.org:1094/b.root?x=1&y=2", 29_463, 1_789_741_877, 1_789_741_954, True),
    ),
    exit_code=0,
    benchmarks=(Benchmark("HEPSPEC", 17.5), Benchmark("hepscore23", 14.25)),
)

SLURM: Final = Job(
    record_id="ur-slurm/cluster1/4711_3/1790000000",
    system="slurm",
    status="failed",
    local_id="4711_3",
    array_id="4711",
    array_task=3,
    local_user="ada",
    local_group="users",
    account="chem",
    cluster="cluster1",
    queue="gpu",
    hosts=(Host("gpu-7.example.org", gpus=2),),
    nodes=1,
    cores=16,
    gpus=2,
    infrastructure="local",
    submit=1_789_990_000,
    eligible=1_789_990_001,
    start=1_790_000_000,
    end=1_790_003_600,
    wall_ms=3_600_000,
    cpu_ms=40_000_499,
    cpu_user_ms=39_000_300,
    cpu_system_ms=1_000_199,
    energy_j=1_250_000.0,
    exit_code=1,
    benchmarks=(Benchmark("HEPscore23", 12.0),),
    extras={"tres_fs_disk": 12345},
)

GRID_ENGINE: Final = Job(
    record_id="ur-gridengine/default/99/1782864000",
    system="gridengine",
    status="cancelled",
    local_id="99",
    name="leap second, month's end",
    local_user="bo",
    cluster="default",
    queue="all.q",
    slots=4,
    start=1_782_863_999,
    end=1_782_864_000,
    wall_ms=1000,
    cpu_ms=0,
    exit_code=137,
    exit_signal=9,
    benchmarks=(Benchmark("si2k", 2500.0),),
    process_ids=(4242,),
)


def _hostile(**facts: object) -> Job:
    plain = {
        "record_id": "ur-hostile", "system": "arc", "status": "completed", "local_id": "1", "local_user": "u",
        "queue": "q", "cluster": "ce1.example.org", "start": 1_790_000_000, "end": 1_790_000_001, "wall_ms": 1000,
        "cpu_ms": 1000, "benchmarks": (Benchmark("HEPSPEC", 10.0),),
    }  # fmt: skip
    return Job(**{**plain, **facts})  # type: ignore[arg-type]


HOSTILE: Final = {
    "controls-nul-surrogates": _hostile(name="a\x00b\x1bc\ud800d\ufffe", queue="q\x07"),
    "markup": _hostile(name="]]> & <b> \"x\" 'y'", user_dn="/O=A & B/CN=<C>", project="%%"),
    "newlines-in-dn": _hostile(user_dn="/O=Grid\r\n/CN=Ada\tLovelace"),
    "rfc2253-dn": _hostile(user_dn="CN=Ada Lovelace,O=Grid\\, Inc,C=NO"),
    "right-to-left-and-astral": _hostile(name="\u202e\u05e9\u05dc\u05d5\u05dd \U0001f600", project="r\u00e9sum\u00e9"),
    "name-of-10000": _hostile(name="n" * 10_000),
    "fqans-that-are-none": _hostile(fqans=("none at all", "/", "/Role=x", "/a&b/Role=<c>")),
    "numbers-out-of-range": _hostile(
        nodes=40_000, exit_code=2**40, memory_rss_kib=-1, scratch_bytes=2**70, charge=float("nan"), stage_in_ms=-5000
    ),
    "negative-wall": _hostile(wall_ms=-1),
    "wall-beyond-32-bits": _hostile(wall_ms=2**31 * 1000),
    "cpu-beyond-64-bits": _hostile(cpu_ms=2**63 * 1000, cpu_user_ms=2**63 * 1000, cpu_system_ms=0),
    "dn-of-10000": _hostile(user_dn="/CN=" + "n" * 10_000),
    "year-1900": _hostile(start=-2_208_988_800, end=-2_208_988_799),
    "year-9999": _hostile(end=253_402_300_799),
    "beyond-9999": _hostile(end=253_402_300_800),
    "end-before-start": _hostile(end=1_789_999_999),
    "no-benchmark": _hostile(benchmarks=()),
    "unknown-benchmark": _hostile(benchmarks=(Benchmark("custom", 1.0),)),
    "month-boundary": _hostile(start=1_793_491_199, end=1_793_491_200),
    "last-second-of-a-month": _hostile(start=1_793_491_198, end=1_793_491_199),
    "leap-day": _hostile(start=1_709_164_800, end=1_709_251_199),
    "no-queue-no-user-no-local-id": _hostile(queue=None, local_user=None, local_id=None),
}
"""Named after what is wrong, or odd, in them."""

GOLDEN: Final = {"arc": ARC, "slurm": SLURM, "gridengine": GRID_ENGINE, **HOSTILE}
