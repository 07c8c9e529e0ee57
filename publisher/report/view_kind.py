"""`VIEW_KINDS`: the views of `report`, and their options, keys, columns, and who may see them on the page.

What depends on the view is a field of its descriptor, never decided by its name: the command, its help and completion,
the page's menu and forms, and the reference are made from it. A new view is a module and an entry here. Nothing here
loads NumPy or DuckDB, so that the help of a command is quick and needs no extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from formats.utilization.measure import KEYS
from publisher.errors import UsageError
from publisher.report.report import EVERYONE, IDLE_NODES, UNKNOWN_NAME, Column, Kind
from publisher.report.view_option import OPTIONS, PERIODS, Interval, PeriodLength, ViewOption
from publisher.report.view_parts import Picture, RowJobs
from publisher.text import unknown_name

Role = Literal["user", "manager", "admin"]
Need = Literal["prices", "samples", "events", "allocations"]
"""What a site must have for a view: a price list, DQS' samples of the queues, a source with events, allocations."""

_JOB_KEY: Final = "job"
SIZE: Final = "size"
"""The key of classes of numbers of slots."""
GROUPED_BY: Final = tuple(key for key in KEYS if key != "job")
"""The keys of groups. A run on several hosts counts under its first, one with several resources under all together."""
BY_PERIOD: Final = (*GROUPED_BY, *PERIODS)

_FILTERS: Final = frozenset(KEYS)
_RANKED: Final = frozenset({"sort", "top"})
_OF_RUNS: Final = _FILTERS | _RANKED | {"counted", "archive"}


class ViewKind(msgspec.Struct, frozen=True, kw_only=True):
    """A view: what the command, the page, and the reference are made from."""

    name: str
    """The name of its command, and of the module of `publisher.report.views` that makes it."""
    label: str = ""
    """Its name in the page's menu; empty: `name`, with a capital."""
    heading: str = ""
    """The title of its reports, before their keys; empty: `title`."""
    summary: str
    """What it shows: the help of its command."""
    question: str
    """The question that it answers."""
    counts: Interval | None = None
    """Which runs count unless `--counted` says otherwise; None: it has no such rule."""
    options: frozenset[str]
    """Its options besides the interval, by the names in `OPTIONS`."""
    keys: tuple[str, ...] = ()
    """What rows may be grouped by."""
    most_keys: int = 1
    page_keys: tuple[str, ...] = ()
    """The keys by which the page groups if none is selected: by the first that any job has, else by the last."""
    user_key: str = ""
    """The key by which the page always groups what a user sees."""
    page_period: PeriodLength = "month"
    """The period that the page selects, if the view has periods of a selectable length."""
    interval: Literal["days", "month", "optional", "all"] = "days"
    """On the page: some days, a whole month, or some days after the filters, because most queries need none; `all`:
    it has no interval."""
    required: tuple[str, ...] = ()
    """The filters without which it shows nothing."""
    roles: frozenset[Role]
    """Who may see it on the page; empty: nobody, it is a command only."""
    needs: Need | None = None
    columns: tuple[Column, ...] = ()
    """Its columns besides those of its keys; a unit in braces, such as `{currency}`, is known when it is made."""
    more_columns: tuple[Column, ...] = ()
    """Those that it has with some options only."""
    rows_named: str = "rows"
    """The key of its rows in JSON."""
    pictures: Mapping[str, Picture] = {}
    """Its pictures by name."""
    pictured_by_key: bool = False
    """Whether it only has pictures of groups."""
    of_runs: bool = True
    """Whether it is computed from runs, so that what is held or purged is missing in it."""
    row_jobs: RowJobs = RowJobs()
    """The jobs behind a row of its table."""
    on_cluster: bool = False
    """Whether a Dask cluster computes it: sums of months can be added; other views need all runs of a job at once."""
    in_sql: bool = False
    """Whether SQL computes it, or reads the runs from which it is computed: `--explain` prints it."""
    after_sql: str = ""
    """What the program computes from the rows of that SQL; empty: nothing."""
    statements: bool = False
    """Whether the page offers statements for its payers."""

    def __post_init__(self) -> None:
        """Raises ValueError for an option that is not one."""
        if unknown := self.options - OPTIONS.keys():
            raise ValueError(f"no such option: {', '.join(sorted(unknown))}")

    @property
    def title(self) -> str:
        """Its name in menus and headings."""
        return self.label or self.name.capitalize()

    def option(self, name: str) -> ViewOption:
        """One of its options: the help of the view lists its own keys, and says which runs count by default."""
        option = OPTIONS[name]
        if name == "by" and self.keys:
            most = f"up to {self.most_keys}" if self.most_keys > 1 else "one"
            return msgspec.structs.replace(option, text=f"Group by {most} of these: {', '.join(self.keys)}.")
        if name == "counted" and self.counts:
            return msgspec.structs.replace(option, text=f"{option.text} Default: {self.counts}.")
        return option

    @property
    def filters(self) -> tuple[str, ...]:
        """The keys by which its runs are selected; those that are required first."""
        return (*self.required, *(key for key in KEYS if key in self.options and key not in self.required))

    def made_columns(self, *names: str, **units: str) -> tuple[Column, ...]:
        """Its columns of these names (none: `columns`), with the `units` that were not known."""
        known = {column.name: column for column in (*self.columns, *self.more_columns)}
        chosen = [known[name] for name in names] if names else self.columns
        return tuple(msgspec.structs.replace(column, unit=column.unit.format(**units)) for column in chosen)

    def keys_for(self, role: Role) -> tuple[str, ...]:
        """The keys by which the page groups for a role: rows by job are single jobs, as those of the view `job`."""
        return tuple(key for key in self.keys if key != _JOB_KEY or role in JOB.roles)


_OCCUPATION: Final = "occupation (%)"
_WAITED: Final = "waiting time ({unit})"
_COMPARED: Final[tuple[tuple[str, Kind, str], ...]] = (
    ("jobs", "count", ""), ("core_h", "number", "core h"), ("gpu_h", "number", "GPU h")
)  # fmt: skip
"""Columns that have those of another interval beside them, with their kinds and units."""
_EVERYBODY: Final[frozenset[Role]] = frozenset({"user", "manager", "admin"})
_NO_USERS: Final[frozenset[Role]] = frozenset({"manager", "admin"})
_NO_MANAGERS: Final[frozenset[Role]] = frozenset({"user", "admin"})

UTILIZATION: Final = ViewKind(
    name="utilization",
    summary="How many jobs ran at once, and how many CPUs they used, in time bins.",
    question="How many jobs ran and how many CPUs were at work, hour by hour?",
    counts="overlapping",
    options=_OF_RUNS | {"by", "bin", "bins", "measure", "dask"},
    keys=GROUPED_BY,
    roles=_EVERYBODY,
    in_sql=True,
    after_sql="how long these runs ran in each bin, and their CPU time and slots there",
    row_jobs=RowJobs(runs="lasting"),
    columns=(
        Column("start", "instant", tells_apart=True), Column("inside_s", "count", "s", adds="max"),
        *(
            Column(f"{name}{mean}", "number", unit, adds="sum")
            for mean in ("", "_mean")
            for name, unit in (("queue", "jobs"), ("cpu_user", "CPUs"), ("cpu_system", "CPUs"), ("slots", "slots"))
        ),
        Column("jobs", "count", adds="sum"),
    ),
    rows_named="bins",
    pictures={
        "queue": Picture("Running jobs", "running jobs"), "cpu": Picture("CPU utilization", "CPUs in use"),
    },
    on_cluster=True,
)  # fmt: skip
TOTALS: Final = ViewKind(
    name="totals",
    heading="Usage",
    summary="Jobs, wall time, CPU time, and core hours, summed by up to two keys.",
    question="Who used how much?",
    counts="ended",
    options=_OF_RUNS | {"by", "compare", "timezone", "dask"},
    keys=BY_PERIOD,
    most_keys=2,
    page_keys=("user",),
    roles=_EVERYBODY,
    columns=(
        Column("jobs", "count", adds="sum"),
        Column("wall_s", "number", "s", adds="sum"),
        Column("cpu_user_s", "number", "s", adds="sum"),
        Column("cpu_system_s", "number", "s", adds="sum"),
        Column("cpu_s", "number", "s", adds="sum"),
        Column("core_h", "number", "core h", adds="sum"),
        Column("share", "ratio", adds="sum"),
        Column("gpu_h", "number", "GPU h", adds="sum"),
        Column("memory_max_kib", "count", "KiB", adds="max"),
        Column("virtual_max_kib", "count", "KiB", adds="max"),
        Column("wall_of_tasks_s", "number", "s", adds="sum"),
        Column("memory_gb_s", "number", "GB s", adds="sum"),
        Column("io_gb", "number", "GB", adds="sum"),
        Column("io_wait_s", "number", "s", adds="sum"),
        Column("stage_in_bytes", "count", "bytes", adds="sum"),
        Column("stage_out_bytes", "count", "bytes", adds="sum"),
        Column("cpu_unknown_jobs", "count", adds="sum"),
        Column("memory_unknown_jobs", "count", adds="sum"),
        Column("virtual_unknown_jobs", "count", adds="sum"),
        Column("staged_unknown_jobs", "count", adds="sum"),
        Column("memory_gb_s_unknown_jobs", "count", adds="sum"),
        Column("io_unknown_jobs", "count", adds="sum"),
        Column("io_wait_unknown_jobs", "count", adds="sum"),
    ),
    more_columns=tuple(
        Column(f"{name}_{when}", kind, unit, adds="sum")
        for name, kind, unit in _COMPARED
        for when in ("before", "change")
    ),
    rows_named="totals",
    pictures={"core_h": Picture("Core hours", "core h"), "staged": Picture("Staged volumes", "GiB")},
    pictured_by_key=True,
    in_sql=True,
    on_cluster=True,
)
OCCUPATION: Final = ViewKind(
    name="occupation",
    summary="The share of cores, memory, or GPUs in use in each period: the mean of the nodes, and the share of all.",
    question="How full was the site?",
    counts="overlapping",
    options=_OF_RUNS | {"by", "period", "timezone", "resource", "dask"},
    keys=("cluster", "type", "node", "core"),
    most_keys=2,
    page_period="day",
    roles=_NO_USERS,
    in_sql=True,
    after_sql="which part of each run was on which node, for how long, and the capacity of the nodes",
    row_jobs=RowJobs(by_node="any"),
    columns=(
        Column("period", "text", tells_apart=True), Column("start", "instant"), Column("nodes", "count", adds="sum"),
        Column("available", "number", "{units}", adds="sum"), Column("in_use", "number", "{units}", adds="sum"),
        Column("used_h", "number", "{unit} h", adds="sum"), Column("occupation", "ratio"),
        Column("share_of_all", "ratio"),
    ),
    more_columns=(Column("inferred_h", "number", "{unit} h", adds="sum"),),
    pictures={
        "cores": Picture("Occupation of cores", _OCCUPATION), "memory": Picture("Occupation of memory", _OCCUPATION),
        "vmem": Picture("Occupation of virtual memory", _OCCUPATION),
        "gpus": Picture("Occupation of GPUs", _OCCUPATION), "core": Picture("Occupation of each core", _OCCUPATION),
    },
    on_cluster=True,
)  # fmt: skip
WAITING: Final = ViewKind(
    name="waiting",
    label="Waiting times",
    heading="Waiting times of jobs",
    summary="How long jobs waited: mean, median, p90, and p99.",
    question="How long did jobs wait?",
    counts="started",
    options=_OF_RUNS | {"by", "timezone"},
    keys=(*BY_PERIOD, SIZE),
    most_keys=2,
    page_keys=("queue",),
    roles=_EVERYBODY,
    row_jobs=RowJobs(runs="first"),
    columns=(
        Column("jobs", "count", adds="sum"), Column("mean_s", "number", "s"), Column("median_s", "count", "s"),
        Column("p90_s", "count", "s"), Column("p99_s", "count", "s"), Column("longest_s", "count", "s", adds="max"),
        Column("eligible_mean_s", "number", "s"),
    ),
    pictures={"waits": Picture("Waiting time", _WAITED)},
    pictured_by_key=True,
    in_sql=True,
)  # fmt: skip
SCARCE: Final = ViewKind(
    name="scarce",
    label="Scarce resources",
    summary="Which resources are scarce: high occupation and long waiting times.",
    question="What should the site buy next?",
    counts="overlapping",
    options=_OF_RUNS,
    roles=_NO_USERS,
    in_sql=True,
    after_sql="which part of each run was on which node, for how long, and the capacity of the nodes",
    row_jobs=RowJobs(
        filters={"cluster": "node_cluster", "type": "type", "resource": "resource"}, runs="first", interval="started",
        by_node="first",
    ),
    columns=(
        Column("cluster", "text", tells_apart=True), Column("type", "text", tells_apart=True),
        Column("resource", "text", tells_apart=True), Column("nodes", "count"),
        Column("occupation", "ratio"), Column("jobs", "count"), Column("median_wait_s", "count", "s"),
        Column("p90_wait_s", "count", "s"), Column("scarce", "text"),
    ),
    pictures={
        "occupation": Picture("Occupation of resources", _OCCUPATION),
        "waits": Picture("Waiting time for resources (p90)", _WAITED),
    },
)  # fmt: skip
CHARGES: Final = ViewKind(
    name="charges",
    summary="The charges of users or projects for a month, from the price list.",
    question="Who owes how much?",
    counts="ended",
    options=_FILTERS | _RANKED | {"by", "archive", "dask"},
    keys=("user", "group", "project", "account", "vo"),
    user_key="user",
    interval="month",
    roles=_EVERYBODY,
    in_sql=True,
    after_sql="the price and factors of each run, the sums, and the rounding of each item",
    row_jobs=RowJobs(unknown=UNKNOWN_NAME, everyone=EVERYONE),
    needs="prices",
    columns=(
        Column("item", "text", tells_apart=True),
        Column("applies_to", "text", tells_apart=True),
        Column("quantity", "number", decimals=3),
        Column("unit", "text"),
        Column("price", "money", "{currency}", tells_apart=True),
        Column("group_factor", "decimal", tells_apart=True),
        Column("job_factor", "decimal", tells_apart=True),
        Column("amount", "money", "{currency}", adds="sum"),
    ),
    pictures={"charges": Picture("Charges", "{currency}")},
    on_cluster=True,
    statements=True,
)
PATHS: Final = ViewKind(
    name="paths",
    heading="Paths of jobs",
    summary="The sequences of events of jobs, and how often each occurred.",
    question="What happened to jobs between submission and end?",
    counts="overlapping",
    options=_OF_RUNS,
    roles=_NO_MANAGERS,
    row_jobs=RowJobs(filters={"cluster": "cluster", "job": "job"}, runs="last"),
    needs="events",
    columns=(
        Column("path", "text", key="path"), Column("jobs", "count", adds="sum"), Column("share", "ratio", adds="sum"),
        Column("example", "text"),
    ),
    more_columns=(
        Column("cluster", "text"), Column("job", "text"), Column("at", "instant"), Column("event", "text"),
        Column("meaning", "text"),
    ),
    pictures={"paths": Picture("Jobs by path", "jobs")},
    in_sql=True,
)  # fmt: skip
LOAD: Final = ViewKind(
    name="load",
    heading="Active queues and load",
    summary="Samples of DQS' stat_file: active queues, all queues, states, and load.",
    question="What did DQS itself see of its queues?",
    options=_RANKED | {"by", "bin", "bins", "stat-file", "queue", "host", "complex", "archive"},
    keys=("host", "queue", "complex", "state"),
    roles=_NO_USERS,
    row_jobs=RowJobs(none="its rows are samples of queues, which name no jobs"),
    needs="samples",
    columns=(
        Column("start", "instant", tells_apart=True), Column("looks", "count"), Column("active", "number", "queues"),
        Column("queues", "number", "queues"), Column("share", "ratio"), Column("hosts", "number"),
        Column("load", "number"),
    ),
    more_columns=(Column("queue_utilization", "number", "queues"),),
    pictures={
        "active": Picture("Active queues", "queues"), "queues": Picture("Queues", "queues"),
        "load": Picture("Load", "load average"),
    },
    of_runs=False,
)  # fmt: skip
JOB: Final = ViewKind(
    name="job",
    summary="One job in full.",
    question="What is known of this job?",
    options=frozenset({"job", "task", "user", "archive"}),
    interval="optional",
    required=("job",),
    roles=_NO_MANAGERS,
    row_jobs=RowJobs(filters={"record_id": "job"}),
    columns=(Column("record_id", "text"), Column("field", "text"), Column("value", "text")),
    rows_named="facts",
    in_sql=True,
)
EFFICIENCY: Final = ViewKind(
    name="efficiency",
    heading="Efficiency",
    summary="How much of what jobs held they used: CPU time, memory, and waiting.",
    question="Who wastes cores, and which jobs most?",
    counts="ended",
    options=_OF_RUNS | {"by", "timezone"},
    keys=(*BY_PERIOD, _JOB_KEY),
    most_keys=2,
    page_keys=("user",),
    roles=_EVERYBODY,
    row_jobs=RowJobs(runs="possible"),
    columns=(
        Column("jobs", "count", adds="sum"),
        Column("core_h", "number", "core h", adds="sum"),
        Column("gpu_h", "number", "GPU h", adds="sum"),
        Column("cpu_h", "number", "h", adds="sum"),
        Column("unused_core_h", "number", "core h", adds="sum"),
        Column("cpu_efficiency", "ratio"),
        Column("cpu_known", "ratio"),
        Column("memory_efficiency", "ratio"),
        Column("memory_known", "ratio"),
        Column("waiting_over_running", "ratio"),
        Column("waiting_known", "ratio"),
    ),
    pictures={"hours": Picture("Core hours used and not used,", "core h")},
    pictured_by_key=True,
    in_sql=True,
)
ENERGY: Final = ViewKind(
    name="energy",
    heading="Energy",
    summary="Energy of jobs and of idle nodes, measured or modelled, and its emissions.",
    question="How much energy did whose jobs use?",
    counts="ended",
    options=_OF_RUNS | {"by", "timezone"},
    keys=BY_PERIOD,
    most_keys=2,
    page_keys=("project", "account", "vo", "user"),
    roles=_EVERYBODY,
    after_sql="the energy of idle nodes",
    row_jobs=RowJobs(nobody=IDLE_NODES),
    columns=(
        Column("jobs", "count", adds="sum"),
        Column("core_h", "number", "core h", adds="sum"),
        Column("gpu_h", "number", "GPU h", adds="sum"),
        Column("measured_kwh", "number", "kWh", adds="sum"),
        Column("modelled_kwh", "number", "kWh", adds="sum"),
        Column("with_pue_kwh", "number", "kWh", adds="sum"),
        Column("co2e_kg", "number", "kg", adds="sum"),
        Column("kwh_per_core_h", "number", "kWh"),
        Column("co2e_g_per_core_h", "number", "g"),
        Column("measured_share", "ratio"),
        Column("carbon_known", "ratio"),
        Column("method", "text"),
        Column("unknown_jobs", "count", adds="sum"),
        Column("measured_mj", "count", "mJ", adds="sum"),
        Column("modelled_mj", "count", "mJ", adds="sum"),
    ),
    pictures={"energy": Picture("Energy", "kWh")},
    pictured_by_key=True,
    in_sql=True,
)
ALLOCATIONS: Final = ViewKind(
    name="allocations",
    summary="What is used and left of each allocation now, and the day on which it runs dry.",
    question="Who runs dry, and when?",
    options=frozenset({"user", "archive"}),
    interval="all",
    roles=_EVERYBODY,
    in_sql=True,
    after_sql="the pace, and the day on which an allocation runs dry",
    row_jobs=RowJobs(
        filters={"allocation": "allocation", "holder": "holder"}, runs="ended", interval="overlapping",
        times=("since", "until"),
    ),
    needs="allocations",
    columns=(
        Column("allocation", "text", tells_apart=True), Column("holder", "text", tells_apart=True),
        Column("resource", "text", tells_apart=True), Column("since", "instant"),
        Column("until", "instant"), Column("amount_h", "number", "h"), Column("used_h", "number", "h"),
        Column("left_h", "number", "h"), Column("used", "ratio"), Column("elapsed", "ratio"),
        Column("pace_h_per_day", "number", "h"), Column("dry", "text"), Column("renewed_by", "text"),
    ),
    pictures={"used": Picture("Used of each allocation, and of its time", "%")},
)  # fmt: skip
LATE: Final = ViewKind(
    name="late",
    label="Late changes",
    summary="Which months changed after a date (--since), in reports and for each target: the sums before and now.",
    question="Which months changed after the deadline?",
    options=frozenset(),
    roles=frozenset(),
    row_jobs=RowJobs(none="its rows compare sums of months at two instants, and it is not on the page"),
    of_runs=False,
    columns=(
        Column("month", "text", tells_apart=True), Column("target", "text", tells_apart=True),
        Column("late", "count"), Column("changed", "count"),
        Column("jobs_before", "count"), Column("jobs", "count"), Column("wall_before_s", "number", "s"),
        Column("wall_s", "number", "s"), Column("cpu_before_s", "number", "s"), Column("cpu_s", "number", "s"),
    ),
)  # fmt: skip
SQL: Final = ViewKind(
    name="sql",
    label="SQL",
    summary="Your own question: one SELECT over the tables runs, nodes, and deliveries.",
    question="What do you want to know?",
    options=frozenset({"statement", "archive"}),
    interval="all",
    roles=frozenset(),
    row_jobs=RowJobs(none="what a row is depends on the statement, and it is not on the page"),
    of_runs=False,
    in_sql=True,
)
VIEW_KINDS: Final[Mapping[str, ViewKind]] = {
    kind.name: kind
    for kind in (
        UTILIZATION, TOTALS, EFFICIENCY, OCCUPATION, WAITING, SCARCE, ENERGY, CHARGES, ALLOCATIONS, PATHS, LOAD, JOB,
        LATE, SQL,
    )
}  # fmt: skip
"""The views by name, in the order of menus."""


def view_kind(name: str) -> ViewKind:
    """The view of this name. Raises `UsageError` for an unknown name."""
    if name not in VIEW_KINDS:
        raise UsageError(unknown_name("view", name, VIEW_KINDS))
    return VIEW_KINDS[name]
