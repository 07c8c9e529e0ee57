"""The fields of a record, for comparing two renderings, and the origin of each: facts of the run, and the rule.

The rules are the mapping tables of the formats' pages as data. A rule for a name without brackets is for all fields
with this name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from lxml import etree

from formats.apel.text import parse as parse_text
from formats.job import Job
from formats.registry import FORMATS
from formats.xdmod import slurm
from formats.xml.read import parse as parse_xml
from formats.xml.read import record_elements

Fields = dict[str, tuple[str, ...]]

_NAMES_IN_JSON: Final = ("name", "type", "username")
_PARTS_OF_NAMES = frozenset({"type", "metric", "storageUnit", "phaseUnit", "usageType"})


def fields_of(format_name: str, message: bytes) -> Fields:
    """The fields of a message's only record, as `each_fields_of` gives them."""
    (fields,) = each_fields_of(format_name, message)
    return fields


def each_fields_of(format_name: str, message: bytes) -> Iterator[Fields]:
    """The fields of each record of a message, each with its values in order.

    An XML field is named by its path and the attributes that distinguish it (`Memory[KB,max,physical]`). Any other
    attribute, and each attribute of an empty element, is a separate field (`Host@primary`). createTime is omitted,
    because it changes with every version. A value in JSON is named by its path (`components[Cores]/amount`).
    """
    form = FORMATS.get(format_name)
    if form is None:  # of an add-on: its fields are not known
        yield {"message": (message.decode("utf-8", "backslashreplace"),)}
    elif form.is_xml:
        for element in record_elements(parse_xml(message)):
            fields = _gathered(_walk(element, ""))
            fields.pop("RecordIdentity@createTime", None)
            yield fields
    elif form.content_type == "application/json":
        yield from (_gathered(_json_pairs(record, "")) for record in msgspec.json.decode(message, type=list[Any]))
    elif form.content_type == slurm.CONTENT_TYPE:
        for line in message.decode().removesuffix("\n").split("\n"):
            yield _gathered((slurm.read_fields(line) or {}).items())
    else:
        yield from (_gathered(record.pairs) for record in parse_text(message.decode("ascii")).records)


def _json_pairs(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The values of an object by their paths; an object of a list is named by the first of `_NAMES_IN_JSON`."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _json_pairs(each, f"{path}/{name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            names = [each.pop(key) for key in _NAMES_IN_JSON if key in each] if isinstance(each, dict) else []
            named = names[0] if names else ""
            yield from _json_pairs(each, f"{path}[{named}]" if named else path)
    else:
        yield path, str(value)


def _gathered(pairs: Iterable[tuple[str, str]]) -> Fields:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def changed_fields(before: Fields, after: Fields) -> Iterator[tuple[str, str | None, str | None]]:
    """The fields that differ: name, value before, value after; None for a missing field."""
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield name, _shown(old), _shown(new)


def _shown(values: tuple[str, ...] | None) -> str | None:
    return None if values is None else ", ".join(values)


def _walk(parent: etree._Element, path: str) -> Iterator[tuple[str, str]]:
    for child in parent.iterchildren(tag=etree.Element):
        attributes = {etree.QName(name).localname: str(value) for name, value in child.attrib.items()}
        identifying = sorted(value for name, value in attributes.items() if name in _PARTS_OF_NAMES)
        name = path + etree.QName(child).localname
        says_something = bool(len(child) or child.text)
        for at, value in attributes.items():
            if at not in _PARTS_OF_NAMES or not says_something:
                yield f"{name}@{at}", value
        name += f"[{','.join(identifying)}]" if identifying else ""
        if len(child):
            yield from _walk(child, f"{name}/")
        elif child.text:
            yield name, child.text


class Rule(msgspec.Struct, frozen=True):
    """The origin of a field: facts of the run (fields of `formats.job.Job`), settings of the target, and how they are
    used."""

    facts: tuple[str, ...]
    how: str = "as it is"
    settings: tuple[str, ...] = ()


class Explained(msgspec.Struct, frozen=True):
    """A field of a record: its value, the facts from which it was made, with values, the settings, and the rule."""

    field: str
    value: str
    facts: dict[str, Any]
    rule: str
    settings: tuple[str, ...] = ()


class NoExplanationError(KeyError):
    """The records of this format have no rules: they are not made from single jobs."""


def _r(*facts: str, how: str = "as it is", settings: tuple[str, ...] = ()) -> Rule:
    return Rule(facts, how, settings)


_SECONDS: Final = "whole seconds, half a second up"
_CONSTANT: Final = "the same in every record"
_MACHINE: Final = _r(
    "endpoint_url",
    "cluster",
    how="the setting, else the host of the endpoint, else the cluster",
    settings=("machine_name",),
)
_RECORD_ID: Final = _r("record_id", how="blanks and forbidden characters become %XX", settings=("record_id_prefix",))
_GLOBAL_ID: Final = _r("global_id", "record_id", how="the global id, else the record id")
_USER_NAME: Final = _r("user_dn", how="in slash form; sent, hashed, or withheld", settings=("dn", "dn_key"))
_CORES: Final = _r("cores", "slots", how="cores, else slots")
_FITTED: Final = "unfit characters become _, at most 255 bytes; Unknown if there is none"
_EMPTY: Final = _r(how="always empty")
_PROJECT: Final = _r("project", "account", how="the project, else the account")
_BENCHMARK: Final = _r(
    "benchmarks", how="the preferred one, else HEPscore23, HEPSPEC, Si2k; three decimals", settings=("benchmark_type",)
)
_VO_NAME: Final = _r("vo", "fqans", how="the VO, else that of the first VOMS attribute")
_SUBMIT_HOST: Final = _r(
    "endpoint_url", "endpoint_type", "cluster", how="the endpoint in the configured spelling, else the cluster",
    settings=("submit_host",),
)  # fmt: skip
_GRID: Final = _r(
    "infrastructure", "endpoint_url", "user_dn", "token_subject", "fqans",
    how="as the source says, else grid for a run with an endpoint or a grid identity",
)  # fmt: skip
_DESCRIPTION: Final = _r("middleware", "lrms", "system", how="USAGE-PUBLISHER, middleware or system, batch system")
_RESOURCE: Final = _r("gpus", "energy_j", "extras", how="devices, joules, and numbers by the source's own names")
_WALL: Final = _r("wall_ms", how=_SECONDS)
_CPU_ALL: Final = _r("cpu_ms", "cpu_user_ms", "cpu_system_ms", how=f"the total, else user and system; {_SECONDS}")
_USER_PART: Final = _r("cpu_user_ms", how=_SECONDS)
_SYSTEM_PART: Final = _r("cpu_system_ms", how=_SECONDS)
_HOSTS: Final = _r("hosts", how="host names, the first as primary; other texts are omitted")

_BOTH: Final[dict[str, Rule]] = {
    "RecordIdentity@recordId": _RECORD_ID,
    "JobIdentity/GlobalJobId": _GLOBAL_ID,
    "JobIdentity/ProcessId": _r("process_ids"),
    "UserIdentity/GlobalUserName": _USER_NAME,
    "JobName": _r("name", how="shortened to 1000 characters"),
    "Charge": _r("charge"),
    "Status": _r("status", how="a cancelled run is aborted"),
    "WallDuration": _WALL,
    "CpuDuration[user]": _USER_PART,
    "CpuDuration[system]": _SYSTEM_PART,
    "Swap": _r("swap_kib"),
    "NodeCount": _r("nodes"),
    "Processors": _CORES,
    "EndTime": _r("end"),
    "StartTime": _r("start"),
    "MachineName": _MACHINE,
    "Queue": _r("queue"),
    "Host": _HOSTS,
    "Host@primary": _HOSTS,
    "ServiceLevel": _BENCHMARK,
    "ConsumableResource": _RESOURCE,
    "ConsumableResource@description": _RESOURCE,
    "ConsumableResource@units": _RESOURCE,
}

RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "ogf-ur": _BOTH
    | {
        "JobIdentity/LocalJobId": _r(
            "local_id",
            how="omitted if longer than 120 characters or beginning with a slash",
            settings=("local_id_prefix",),
        ),
        "UserIdentity/LocalUserId": _r("local_user", "local_group", how="for ARC user:group, else the user"),
        "UserIdentity/VO[voms]/Name": _VO_NAME,
        "UserIdentity/VO[voms]/Issuer": _r("vo_issuer"),
        "UserIdentity/VO[voms]/Attribute/Group": _r("fqans", how="each group and role once, without the first slash"),
        "UserIdentity/VO[voms]/Attribute/Role": _r("fqans", how="without `Role=`"),
        "Disk": _r("scratch_bytes"),
        "Memory[KB,max,physical]": _r("memory_rss_kib"),
        "Memory[KB,max,shared]": _r("memory_virtual_kib"),
        "Network": _r("stage_in_bytes", "stage_out_bytes", how="the sum of what was staged in and out"),
        "TimeDuration[stageIn]": _r("stage_in_ms", how=_SECONDS),
        "TimeDuration[stageOut]": _r("stage_out_ms", how=_SECONDS),
        "TimeInstant[submit]": _r("submit"),
        "TimeInstant[queued]": _r("lrms_submit"),
        "TimeInstant[eligible]": _r("eligible"),
        "TimeInstant[executionStart]": _r("execution_start"),
        "TimeInstant[executionEnd]": _r("execution_end"),
        "CpuDuration": _CPU_ALL,
        "ProjectName": _PROJECT,
        "SubmitHost": _r("client_host", how="a host name, else omitted"),
        "SubmitTime": _r("submit", settings=("ur_extensions",)),
        "UserTime": _r("cpu_user_ms", how=_SECONDS, settings=("ur_extensions",)),
        "KernelTime": _r("cpu_system_ms", how=_SECONDS, settings=("ur_extensions",)),
        "ExitCode": _r("exit_code", settings=("ur_extensions",)),
        "RuntimeEnvironment": _r("runtime_environments", settings=("ur_extensions",)),
        **{
            f"FileTransfers/{kind}/{part}": _r("transfers", settings=("ur_extensions",))
            for kind in ("FileUpload", "FileDownload")
            for part in ("URL", "Size", "StartTime", "EndTime", "RetrievedFromCache")
        },
    },
    "emi-car": _BOTH
    | {
        "UserIdentity/GlobalUserName": msgspec.structs.replace(_USER_NAME, settings=("dn", "dn_key", "ascii_names")),
        "JobIdentity/LocalJobId": _r(
            "local_id", "global_id", "record_id", how="the local id, else the global id", settings=("local_id_prefix",)
        ),
        "UserIdentity/Group": msgspec.structs.replace(_VO_NAME, settings=("vo_spelling", "ascii_names")),
        "UserIdentity/GroupAttribute[FQAN]": _r(
            "fqans",
            how="the primary one first; omitted if APEL would read another VO from it",
            settings=("ascii_names",),
        ),
        "UserIdentity/GroupAttribute[vo-group]": _r(
            "fqans", how="of the primary one, as the specification names it", settings=("vo_spelling",)
        ),
        "UserIdentity/GroupAttribute[vo-role]": _r(
            "fqans", how="of the primary one, as the specification names it", settings=("vo_spelling",)
        ),
        "UserIdentity/GroupAttribute[group]": _r(
            "fqans", how="of the primary one, as APEL's server names it", settings=("vo_spelling",)
        ),
        "UserIdentity/GroupAttribute[role]": _r(
            "fqans", how="of the primary one, as APEL's server names it", settings=("vo_spelling",)
        ),
        "UserIdentity/GroupAttribute[ProjectName]": _PROJECT,
        "UserIdentity/LocalUserId": _r("local_user", how="the local user, else the server's word None"),
        "UserIdentity/LocalGroup": _r("local_group"),
        "ExitStatus": _r("exit_code"),
        "Infrastructure@type": _GRID,
        "Infrastructure@description": _DESCRIPTION,
        "Middleware@name": _r("middleware", "system", how="the middleware, else the batch system"),
        "Middleware@version": _r("middleware_version"),
        "CpuDuration[all]": _CPU_ALL,
        "Memory[KB,Physical,max]": _r("memory_rss_kib"),
        "Memory[KB,Shared,max]": _r("memory_virtual_kib"),
        "TimeInstant[Ctime]": _r("submit"),
        "TimeInstant[Qtime]": _r("lrms_submit"),
        "TimeInstant[Etime]": _r("eligible"),
        "SubmitHost": _SUBMIT_HOST,
        "Queue@description": _r(how=_CONSTANT),
        "Site": _r(how="the name of the site in the configuration"),
    },
    "apel-job": {
        "Site": _r(how="the name of the site in the configuration"),
        "SubmitHost": _SUBMIT_HOST,
        "MachineName": _MACHINE,
        "Queue": _r("queue"),
        "LocalJobId": _r(
            "local_id", "global_id", how="the local id, else the global id", settings=("local_id_prefix",)
        ),
        "LocalUserId": _r("local_user"),
        "GlobalUserName": _USER_NAME,
        "VO": msgspec.structs.replace(_VO_NAME, settings=("vo_spelling",)),
        "VOGroup": _r("fqans", how="of the primary one", settings=("vo_spelling",)),
        "VORole": _r("fqans", how="of the primary one", settings=("vo_spelling",)),
        "WallDuration": _WALL,
        "CpuDuration": _CPU_ALL,
        "Processors": _r("cores", "slots", how="cores, else slots, else 0, APEL's word for unknown"),
        "NodeCount": _r("nodes", how="else 0, APEL's word for unknown"),
        "StartTime": _r("start"),
        "EndTime": _r("end"),
        "InfrastructureDescription": _DESCRIPTION,
        "InfrastructureType": _GRID,
        "MemoryReal": _r("memory_rss_kib"),
        "MemoryVirtual": _r("memory_virtual_kib"),
        "ServiceLevelType": _BENCHMARK,
        "ServiceLevel": _BENCHMARK,
    },
    "auditor-record": {
        "record_id": msgspec.structs.replace(_RECORD_ID, settings=("record_id", "record_id_prefix")),
        "meta/site_id": _r("site", how="the site of the run, else [site] of the configuration"),
        "meta/voms": _r("vo", "fqans", how="the first VOMS attribute, or the VO if the attribute has another one"),
        "meta/headnode": _SUBMIT_HOST,
        "meta/subject": _USER_NAME,
        "meta/publisher": _r(how="always usage-publisher: our source leaves out what we wrote"),
        "meta/started_at": _r("start", how="if it is not start_time"),
        "components/amount": _r(
            "cores",
            "slots",
            "nodes",
            "gpus",
            "cpu_ms",
            "cpu_user_ms",
            "cpu_system_ms",
            "wall_ms",
            "memory_rss_kib",
            how="the amount of the component; durations rounded to whole seconds, half up",
            settings=("components",),
        ),
        "components/scores/value": _r("benchmarks", how="rounded to three decimals", settings=("components",)),
        "start_time": _r("end", "wall_ms", "start", how="end - wall time, or the start", settings=("start_from",)),
        "stop_time": _r("end", how="RFC 3339, UTC"),
    },
    "xdmod-slurm": {
        "JobID": _r(
            "array_id", "array_task", "local_id", how="the number, and the index of an array or HTCondor's process"
        ),
        "JobIDRaw": _r("local_id", how="the number alone"),
        "Cluster": _r(
            "endpoint_url", "cluster", how="the host of the endpoint, else the cluster", settings=("machine_name",)
        ),
        "Partition": _r("queue", how=_FITTED),
        "QOS": _EMPTY,
        "Account": _r("account", "project", "vo", how=f"the first that is known; {_FITTED}"),
        "Group": _r("local_group", "vo", how=f"the first that is known, else Account; {_FITTED}"),
        "GID": _EMPTY,
        "User": _r(
            "local_user", "user_dn", how=f"the local user, else the grid user; {_FITTED}", settings=("dn", "dn_key")
        ),
        "UID": _EMPTY,
        "Submit": _r("submit", "start", how="the submission, else the start"),
        "Eligible": _r("eligible"),
        "Start": _r("start", "end", "wall_ms", how="the start, or end - wall time", settings=("start_from",)),
        "End": _r("end"),
        "Elapsed": _r("wall_ms", how="whole seconds, half up; Open XDMoD uses End - Start"),
        "ExitCode": _r("exit_code", "exit_signal"),
        "State": _r("end_reason", "status", how="the end if it is a state of Slurm, else by the status"),
        "NNodes": _r("nodes", "hosts", how="nodes, else the number of hosts, else 1"),
        "NCPUS": _CORES,
        "ReqCPUS": _CORES,
        "ReqMem": _EMPTY,
        "ReqTRES": msgspec.structs.replace(_RECORD_ID, how="the record id, by which a line is found again"),
        "AllocTRES": _r("cores", "slots", "nodes", "gpus"),
        "Timelimit": _EMPTY,
        "NodeList": _r("hosts", how="their names, characters that cannot be in one become _"),
        "JobName": _r("name", how=_FITTED),
    },
}
"""By format and field."""

_JOB: Final = RULES["apel-job"]
_MONTH: Final = _r("end", how="the UTC month of the end")
_LEAST_SPELLING: Final = "; of several spellings that the service treats as equal, the first in sort order"
_GROUP: Final[dict[str, Rule]] = {
    "InfrastructureDescription": _r(how="as configured; omitted if it is not", settings=("summary_description",)),
    "Month": _MONTH,
    "Year": _MONTH,
    "NodeCount": _JOB["NodeCount"],
    "Processors": _JOB["Processors"],
    "EarliestEndTime": _r("end", how="the earliest of its jobs"),
    "LatestEndTime": _r("end", how="the latest of its jobs"),
    "WallDuration": _r("wall_ms", how=f"the sum of its jobs, exact; then {_SECONDS}"),
    "CpuDuration": _r("cpu_ms", "cpu_user_ms", "cpu_system_ms", how=f"the sum of its jobs, exact; then {_SECONDS}"),
    "NumberOfJobs": _r(how="the number of its jobs"),
    **{
        name: msgspec.structs.replace(_JOB[name], how=_JOB[name].how + _LEAST_SPELLING)
        for name in ("Site", "SubmitHost", "GlobalUserName", "VO", "VOGroup", "VORole")
    },
}
_TIMES_SCORE: Final = "the sum over its jobs of duration times score (of Si2k a 250th), exact; then whole seconds"

GROUP_RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "apel-summary": _GROUP | {"InfrastructureType": _GRID, "ServiceLevelType": _BENCHMARK, "ServiceLevel": _BENCHMARK},
    "apel-normalised-summary": _GROUP
    | {
        "Infrastructure": _GRID,
        "NormalisedWallDuration": _r("wall_ms", "benchmarks", how=_TIMES_SCORE, settings=("benchmark_type",)),
        "NormalisedCpuDuration": _r("cpu_ms", "benchmarks", how=_TIMES_SCORE, settings=("benchmark_type",)),
    },
    "waldur-usage": {
        "account": _r("account", "project", "vo", "local_group", how="as `by` says", settings=("by",)),
        "month": _MONTH,
        "components/amount": _r(
            "wall_ms",
            "cores",
            "slots",
            "cpu_ms",
            "gpus",
            "nodes",
            "memory_rss_kib",
            how="the sum over its jobs, exact; then two decimals",
            settings=("components",),
        ),
        "components/users/usage": _r(
            "local_user", how="the user's share; shares add up to the amount", settings=("users",)
        ),
        "components/before": _r(how="what Waldur may have of us instead; it is not sent"),
    },
}
"""Rules by format of groups and by field; the facts are those of each job of the group."""


def explain(format_name: str, fields: Fields, job: Job) -> Iterator[Explained]:
    """Every field of a record of `job`, or of a group that it is in, in the record's order.

    The facts are those of this job, also if a value is a sum. Raises `NoExplanationError`.
    """
    rules = RULES.get(format_name) or GROUP_RULES.get(format_name)
    if rules is None:
        raise NoExplanationError(format_name)
    for name, values in fields.items():
        rule = rules.get(name) or rules.get(_bare(name))
        if rule is None:
            yield Explained(name, ", ".join(values), {}, "no rule is known")
            continue
        facts = {fact: value for fact in rule.facts if (value := getattr(job, fact)) not in (None, (), {})}
        yield Explained(name, ", ".join(values), msgspec.to_builtins(facts), rule.how, rule.settings)


def _bare(name: str) -> str:
    """The name without the brackets and their content."""
    return re.sub(r"\[[^\]]*\]", "", name)
