"""Any job that can exist, for hypothesis: ordinary ones and hostile ones, shared by the tests of all formats."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from formats.job import Benchmark, Events, Host, Job, Transfer
from publisher.testing.jobs import HOSTILE
from tests.extent import short_or_whole

often = settings(max_examples=max(short_or_whole(100, 500), settings().max_examples))
"""For what every job that can exist must do: more examples than hypothesis tries elsewhere."""

SPECIAL_NUMBERS = (
    0, 1, -1, 32_767, 32_768, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 10**40,
    -62_135_596_800, -59_011_459_201, -59_011_459_200, 253_402_300_799, 253_402_300_800, -2_208_988_800,
)  # fmt: skip
"""Ends of ranges, on both sides, and the years 1, 100, 1900, 9999 and beyond."""

any_text = st.sampled_from(HOSTILE) | st.text(max_size=40)
"""Any Python string: `st.text` leaves surrogates out, the hostile ones have them."""

hostile_text = any_text | st.text(st.characters(exclude_categories=()), max_size=12)
any_int = st.sampled_from(SPECIAL_NUMBERS) | st.integers(-(2**63), 2**64 - 1)
any_float = st.floats() | st.sampled_from((0.0, 1e-9, 3.5e38, 1e308))
instants = st.integers(1_700_000_000, 1_790_000_000)
amounts = st.integers(0, 10**9)
host_names = st.sampled_from(("wn001.example.org", "wn002.example.org", "gpu-7.example.org", "localhost"))
fqans = st.sampled_from(
    (
        "/atlas",
        "/atlas/Role=production",
        "/atlas/no/Role=NULL/Capability=NULL",
        "/cms/Role=pilot",
        "/atlas/no",
        "/ops.ndgf.org",
        "/Role=x",
        "/",
        "atlas",
        "/atlas;/cms",
        "/atlas/Role=",
        "/a&b/Role=<c>",
    )
)
benchmarks = st.sampled_from(
    (
        Benchmark("HEPscore23", 14.2),
        Benchmark("hepspec", 10.25),
        Benchmark("SI2K", 2500.0),
        Benchmark("custom", 1.0),
    )
)
any_benchmarks = benchmarks | st.builds(Benchmark, type=hostile_text, value=any_float)

_STATUSES = ("completed", "failed", "aborted", "cancelled", "running", "never_started")


def _field(usual: st.SearchStrategy[object], hostile: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | usual | hostile


@st.composite
def plain_jobs(draw: st.DrawFn) -> Job:
    """A finished job that every format can render: everything in range, end after start, a known benchmark."""
    start = draw(instants)
    user_s, system_s = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**4))
    serial = draw(st.integers(1, 10**9))
    return Job(
        record_id=f"ur-ce1.example.org-{serial:x}",
        system="arc",
        status=draw(st.sampled_from(("completed", "failed", "aborted"))),
        global_id=f"{serial:x}",
        local_id=str(serial),
        name=draw(st.sampled_from(("sim & reco", "r\u00e9sum\u00e9", "x<y", "plain"))),
        user_dn=draw(st.sampled_from(("/DC=org/O=Grid/CN=Ada", "/DC=org/O=Grid/CN=Bj\u00f8rn"))),
        local_user="atlas092",
        local_group="atlas",
        vo="atlas",
        fqans=tuple(draw(st.lists(st.sampled_from(("/atlas", "/atlas/Role=production", "/atlas/no")), max_size=3))),
        project=draw(st.none() | st.just("proj-7")),
        queue="main",
        endpoint_url="https://ce1.example.org:443/arex",
        endpoint_type="org.nordugrid.arcrest",
        client_host="130.236.233.101",
        hosts=tuple(Host(name) for name in draw(st.lists(host_names, max_size=3, unique=True))),
        nodes=draw(st.integers(1, 100)),
        cores=draw(st.integers(1, 1000)),
        infrastructure="grid",
        lrms="slurm",
        middleware="arc",
        runtime_environments=tuple(draw(st.lists(st.sampled_from(("ENV/PROXY", "ENV/RTE")), max_size=2, unique=True))),
        submit=start,
        start=start,
        end=start + draw(st.integers(0, 10**6)),
        wall_ms=draw(st.integers(0, 10**6)) * 1000,
        cpu_ms=(user_s + system_s) * 1000,
        cpu_user_ms=user_s * 1000,
        cpu_system_ms=system_s * 1000,
        memory_rss_kib=draw(amounts),
        memory_virtual_kib=draw(amounts),
        scratch_bytes=draw(amounts),
        stage_in_bytes=draw(amounts),
        stage_out_bytes=draw(amounts),
        exit_code=draw(st.integers(0, 255)),
        benchmarks=(Benchmark("HEPSPEC", 17.5),),
    )


def jobs() -> st.SearchStrategy[Job]:
    """Any job that can exist: each field absent, ordinary or hostile, independently of the others."""
    text = _field(st.sampled_from(("atlas", "main", "ce1.example.org", "42")), hostile_text)
    instant = _field(instants, any_int)
    amount = _field(amounts, any_int)
    transfers = st.builds(
        Transfer,
        direction=st.sampled_from(("download", "upload")),
        url=st.just("https://se1.example.org/f") | hostile_text,
        size_bytes=amount,
        start=instant,
        end=instant,
        from_cache=st.booleans(),
    )
    hosts = st.builds(Host, name=host_names | hostile_text, slots=amount, cores=amount, gpus=amount)
    return st.builds(
        Job,
        record_id=st.just("ur-ce1.example.org-1") | hostile_text,
        system=st.sampled_from(("arc", "slurm", "gridengine")),
        status=st.sampled_from(("completed", *_STATUSES)),
        **dict.fromkeys(
            (
                "global_id", "local_id", "name", "array_id", "user_dn", "token_subject", "token_issuer", "local_user",
                "local_group", "vo", "vo_issuer", "project", "account", "department", "cluster", "queue",
                "parallel_environment", "endpoint_url", "endpoint_type", "client_host", "lrms", "middleware",
                "middleware_version", "service_class", "system_software", "end_reason",
            ),
            text,
        ),
        **dict.fromkeys(
            ("submit", "eligible", "lrms_submit", "start", "end", "execution_start", "execution_end"), instant
        ),
        **dict.fromkeys(
            (
                "nodes", "cores", "slots", "gpus", "wall_ms", "cpu_ms", "cpu_user_ms", "cpu_system_ms",
                "memory_rss_kib", "memory_virtual_kib", "swap_kib", "scratch_bytes", "stage_in_ms", "stage_out_ms",
                "stage_in_bytes", "stage_out_bytes", "exit_code", "exit_signal", "array_task",
            ),
            amount,
        ),
        run=st.integers(0, 5),
        infrastructure=st.sampled_from((None, "grid", "local")),
        fqans=st.lists(fqans | hostile_text, max_size=3).map(tuple),
        hosts=st.lists(hosts, max_size=2).map(tuple),
        transfers=st.lists(transfers, max_size=2).map(tuple),
        events=st.lists(st.tuples(any_int, any_text), max_size=2).map(Events.of),
        benchmarks=st.lists(any_benchmarks, max_size=3).map(tuple),
        runtime_environments=st.lists(hostile_text, max_size=2).map(tuple),
        process_ids=st.lists(any_int, max_size=2).map(tuple),
        energy_j=st.none() | any_float,
        charge=st.none() | any_float,
        extras=st.dictionaries(hostile_text, any_int | any_float | any_text, max_size=2),
    )  # fmt: skip
