"""The run of an HTCondor job ad, and the run of a line of APEL's own HTCondor log.

HTCondor writes one ad when a job leaves the queue, however often it ran. So a job is one record: its wall time is that
of all its runs (RemoteWallClockTime), its CPU time too if the ad has it (CumulativeRemote*Cpu), and `extras` has the
number of its starts and the attributes that were used. (The facts on sources, 7.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from formats.identity import run_record_id
from formats.job import Benchmark, Host, Job, Status
from publisher.grid_identity import GridLogEntry
from publisher.sources.fields import LineError

Value = str | int | float | bool | dict[str, Any] | None

KEPT: Final = (
    "NumJobStarts", "NumShadowStarts", "NumJobCompletions", "NumRestarts", "JobStatus", "JobUniverse", "CommittedTime",
    "CommittedSlotTime", "CommittedSuspensionTime", "CumulativeSuspensionTime", "CumulativeSlotTime",
    "LastRemoteWallClockTime", "RemoteUserCpu", "RemoteSysCpu", "CumulativeRemoteUserCpu", "CumulativeRemoteSysCpu",
    "JobCurrentStartDate", "RequestCpus", "RequestGPUs", "RequestMemory", "MemoryProvisioned", "DiskUsage_RAW",
    "RemoveReason", "VacateReason", "RoutedFromJobId", "RoutedToJobId", "AcctGroupUser", "AuthTokenGroups",
    "AuthTokenScopes", "AuthTokenId", "BatchProject", "BytesSent", "BytesRecvd",
)  # fmt: skip
"""Attributes kept in `extras`. Commands, arguments, and environments are not kept: they may contain secrets."""

_READ: Final = (
    "GlobalJobId", "ClusterId", "ProcId", "Owner", "QDate", "JobStartDate", "CompletionDate", "EnteredCurrentStatus",
    "RemoteWallClockTime", "ResidentSetSize_RAW", "ResidentSetSize", "ImageSize_RAW", "ImageSize", "CpusProvisioned",
    "GPUsProvisioned", "AssignedGPUs", "ExitCode", "ExitBySignal", "ExitSignal", "LastRemoteHost", "RemoteHost",
    "AccountingGroup", "AcctGroup", "ProjectName", "BatchQueue", "x509userproxysubject", "x509UserProxyVOName",
    "x509UserProxyFirstFQAN", "x509UserProxyFQAN", "AuthTokenSubject", "AuthTokenIssuer", "CurrentHosts", "MaxHosts",
    "JobBatchName", "GridJobId",
)  # fmt: skip
READ_NAMES: Final = frozenset(name.lower() for name in (*_READ, *KEPT))
"""The attributes that are read, in lower case: HTCondor ignores case."""

AS_WRITTEN: Final = {name.encode(): name.lower() for name in (*_READ, *KEPT)}
"""The same in HTCondor's own spelling."""

SCALING: Final = ("machineattr", "match_exp_")
"""The prefixes of the names of machine attributes, in lower case."""

_KEPT_AS: Final = {name.lower(): name for name in KEPT}
_SCALING: Final = re.compile(r"(?:machineattr|match_exp_)\w{1,64}", re.ASCII)
_MOST_SCALING: Final = 64
_LARGEST: Final = 1 << 53
_ID: Final = re.compile(
    r"(?:(?P<schedd>[^\x00-\x20\x7f]+)#)?(?P<job>\d{1,12}\.\d{1,12})(?:#(?P<queued>\d{1,12}))?", re.ASCII
)
_NUMBER: Final = re.compile(r"-?\d{1,18}(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_PAIR: Final = re.compile(r"(\w{1,64})\s*=\s*(\d{1,9}(?:\.\d{1,9})?)\s*(?:;|\])", re.ASCII)
_BENCHMARKS: Final = {"hepspec": "HEPSPEC", "hepspec06": "HEPSPEC", "hepscore23": "HEPscore23", "si2k": "Si2k"}
_COMPLETED, _REMOVED = 4, 3
_GRID_JOB_WORDS: Final = 3
_DIGITS: Final = 18
_PARALLEL: Final = 11


def is_read(name: str) -> bool:
    """Whether an attribute, in lower case, is read."""
    return name in READ_NAMES or (name.startswith(SCALING) and _SCALING.fullmatch(name) is not None)


def job(ad: Mapping[str, Value], cluster: str | None, *, has_token_groups: bool = False) -> Job | None:
    """The run of an ad (names in lower case); None: the job never started or has not left the queue.

    `cluster` is used for the name of the schedd if there is no GlobalJobId. `has_token_groups`: the history is that of
    a computing element. Raises `LineError`.
    """
    global_id, schedd, local_id, queued = _identity(ad)
    state = _whole(ad, "jobstatus")
    completed = _whole(ad, "completiondate") or None
    if state is None:
        state = _COMPLETED if completed else None
    if state not in {_COMPLETED, _REMOVED}:
        if state is None:
            raise LineError("the ad has neither JobStatus nor CompletionDate")
        return None
    wall_ms = _milliseconds(ad, "remotewallclocktime")
    start = _whole(ad, "jobstartdate") or _whole(ad, "jobcurrentstartdate") or None
    if start is None:
        # Taken as never started, its usage would be lost without a word.
        if wall_ms:
            raise LineError("the job has wall time but no start")
        return None
    end = completed or _whole(ad, "enteredcurrentstatus") or None
    if end is None or wall_ms is None:
        raise LineError("the ad has no end, or no RemoteWallClockTime")
    if end < start:
        raise LineError(f"ends at {end}, before its start at {start}")
    where = schedd or cluster or ""
    cpu_from, user_ms, system_ms = _cpu(ad)
    signal = _whole(ad, "exitsignal") if ad.get("exitbysignal") is True else None
    code = _whole(ad, "exitcode") if signal is None else None
    cores, cores_from = _cores(ad)
    scaling = _scaling(ad)
    extras = _extras(ad, scaling)
    if cpu_from:
        extras["cpu_from"] = cpu_from
    if cores_from:
        extras["cores_from"] = cores_from
    universe = _whole(ad, "jobuniverse")
    nodes = None if universe is None else 1
    if universe == _PARALLEL:
        nodes = _whole(ad, "currenthosts") or _whole(ad, "maxhosts")
    host = _text(ad, "lastremotehost") or _text(ad, "remotehost")
    removed = _text(ad, "removereason")
    vo, fqans = _vo(ad)
    return Job(
        record_id=run_record_id("htcondor", where, local_id, start),
        system="htcondor",
        status=_status(state, code, signal, removed),
        global_id=global_id,
        local_id=local_id,
        name=_text(ad, "jobbatchname"),
        user_dn=_text(ad, "x509userproxysubject"),
        token_subject=_text(ad, "authtokensubject"),
        token_issuer=_text(ad, "authtokenissuer"),
        local_user=_text(ad, "owner"),
        vo=vo,
        fqans=fqans,
        project=_text(ad, "projectname"),
        account=_text(ad, "acctgroup") or _text(ad, "accountinggroup"),
        cluster=where or None,
        queue=_text(ad, "batchqueue"),
        hosts=(Host(host.rpartition("@")[2], cores if nodes == 1 else None),) if host else (),
        nodes=nodes,
        cores=cores,
        slots=cores,
        gpus=_gpus(ad),
        submit=_whole(ad, "qdate") or queued,
        start=start,
        end=end,
        wall_ms=wall_ms,
        cpu_ms=None if user_ms is None or system_ms is None else user_ms + system_ms,
        cpu_user_ms=user_ms,
        cpu_system_ms=system_ms,
        memory_rss_kib=_whole(ad, "residentsetsize_raw") or _whole(ad, "residentsetsize"),
        memory_virtual_kib=_whole(ad, "imagesize_raw") or _whole(ad, "imagesize"),
        exit_code=code,
        exit_signal=signal,
        end_reason=removed,
        benchmarks=_benchmarks(scaling),
        extras=extras,
        token_groups=token_groups(ad) if has_token_groups else None,
    )


def grid_entry(ad: Mapping[str, Value]) -> GridLogEntry | None:
    """The entry of a job that a computing element gave to its batch system, from the ad of the routed copy in its
    history. It may have no user: see `publisher.sources.htcondor.routed`.

    GridJobId has its id there: `batch slurm ce_9619_ce#12.0#1790000000 slurm/20261101/4711`, `condor schedd pool 77.0`.
    None: the ad has no job of a batch system. RoutedToJobId is not used: if the batch system is not HTCondor, it is an
    id of the computing element itself, and could be taken for another job's. Raises `LineError`.
    """
    words = (_text(ad, "gridjobid") or "").split()
    dn, fqans = _text(ad, "x509userproxysubject"), tuple(each for each in _vo(ad)[1] if each.startswith("/"))
    subject, issuer = _text(ad, "authtokensubject"), _text(ad, "authtokenissuer")
    if len(words) < _GRID_JOB_WORDS or not (dn or fqans or subject or _text(ad, "routedfromjobid")):
        return None
    at = _whole(ad, "jobcurrentstartdate") or _whole(ad, "jobstartdate") or _whole(ad, "qdate")
    if not at:
        raise LineError("the ad has neither a start nor QDate")
    lrms_id = f"{words[1]}#{words[-1]}#" if words[0] == "condor" else words[-1]
    return GridLogEntry(at, lrms_id, dn, fqans, _identity(ad)[1], subject, issuer, token_groups(ad))


def routed_ids(ad: Mapping[str, Value]) -> tuple[str, str | None, str | None]:
    """The id of a job in its schedd, that of the job whose routed copy it is, and that of its own routed copy. Raises
    `LineError`."""
    return _identity(ad)[2], _text(ad, "routedfromjobid"), _text(ad, "routedtojobid")


def token_groups(ad: Mapping[str, Value]) -> tuple[str, ...] | None:
    """The groups of the token with which a job was submitted, which only the schedd writes; None: it has none."""
    groups = (group.strip() for group in (_text(ad, "authtokengroups") or "").split(","))
    return tuple(dict.fromkeys(filter(None, groups))) or None


def token_of(ad: Mapping[str, Value]) -> tuple[str, str | None, tuple[str, ...] | None] | None:
    """Subject, issuer, and groups of the token with which a job was submitted; None: without a token."""
    subject = _text(ad, "authtokensubject")
    return (subject, _text(ad, "authtokenissuer"), token_groups(ad)) if subject else None


def apel_job(text: str, cluster: str | None) -> Job | None:
    """The run of a line `GlobalJobId|Owner|wall|user|system|start|end|rss|image|cpus|scale|`; None: it never started.

    The line does not have the job's result. Raises `LineError`.
    """
    parts = text.rstrip("\r").split("|")
    if len(parts) == 12 and not parts[11]:
        del parts[11]
    if not 10 <= len(parts) <= 11:
        raise LineError(f"{len(parts)} fields, but APEL's line for HTCondor has 11")
    names = (
        "globaljobid", "owner", "remotewallclocktime", "remoteusercpu", "remotesyscpu", "jobstartdate",
        "completiondate", "residentsetsize_raw", "imagesize_raw", "cpusprovisioned", "scale",
    )  # fmt: skip
    ad: dict[str, Value] = dict(zip(names, (_plain(part) for part in parts), strict=False))
    for name in names[2:10]:
        if isinstance(ad[name], str):
            raise LineError("a figure is not a number")
    for name in names[:2]:
        ad[name] = parts[names.index(name)]
    scale = ad.pop("scale", None)
    if not ad["completiondate"] and ad["jobstartdate"]:
        raise LineError("a job that started has no end")
    found = job({**ad, "jobstatus": _COMPLETED}, cluster)
    if found is not None and isinstance(scale, int | float):
        found.extras["scale"] = scale
    if found is not None:
        del found.extras["JobStatus"]
    return found


def value_of(text: str) -> Value:
    """The value of an attribute as history files write it; an expression stays text."""
    if text.startswith('"'):
        return _unquoted(text)
    return _plain(text)


def _plain(text: str) -> Value:
    if len(text) <= _DIGITS and text.isdecimal() and text.isascii():  # mostly
        return int(text)
    lower = text.lower()
    if lower in {"undefined", "error", ""}:
        return None
    if lower in {"true", "false"}:
        return lower == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if not text.lstrip("-").isdecimal() else int(text)
    return text


def _unquoted(text: str) -> str:
    inner = text[1:-1] if len(text) > 1 and text.endswith('"') else text[1:]
    return re.sub(r'\\(["\\])', r"\1", inner) if "\\" in inner else inner


def _identity(ad: Mapping[str, Value]) -> tuple[str | None, str | None, str, int | None]:
    """GlobalJobId, schedd, `cluster.process`, time of submission."""
    shown = _text(ad, "globaljobid")
    if shown is not None:
        match = _ID.fullmatch(shown)
        if match is None:
            raise LineError("GlobalJobId is not of the form schedd#cluster.process#time")
        return shown, match["schedd"], match["job"], int(match["queued"]) if match["queued"] else None
    cluster, process = _whole(ad, "clusterid"), _whole(ad, "procid")
    if cluster is None or process is None:
        raise LineError("the ad has neither GlobalJobId nor ClusterId and ProcId")
    return None, None, f"{cluster}.{process}", None


def _status(state: int, code: int | None, signal: int | None, removed: str | None) -> Status:
    if state == _REMOVED:
        return "cancelled" if removed is None or "condor_rm" in removed else "aborted"
    return "completed" if not code and not signal else "failed"


def _cpu(ad: Mapping[str, Value]) -> tuple[str, int | None, int | None]:
    """CPU time of all runs if the ad has it, else that of RemoteUserCpu; and the names of the attributes used."""
    for prefix in ("CumulativeRemote", "Remote"):
        user = _milliseconds(ad, f"{prefix}UserCpu".lower())
        system = _milliseconds(ad, f"{prefix}SysCpu".lower())
        if user is not None and system is not None and (user or system or prefix == "Remote"):
            return f"{prefix}UserCpu+{prefix}SysCpu", user, system
    return "", None, None


def _cores(ad: Mapping[str, Value]) -> tuple[int | None, str]:
    """Granted cores; if no attribute has them, the requested ones, and a note of that."""
    granted = _whole(ad, "cpusprovisioned") or _whole(ad, "machineattrcpus0")
    if granted:
        return granted, ""
    asked = _whole(ad, "requestcpus")
    return (asked, "RequestCpus") if asked else (None, "")


def _gpus(ad: Mapping[str, Value]) -> int | None:
    granted = _whole(ad, "gpusprovisioned")
    if granted is not None:
        return granted
    names = _text(ad, "assignedgpus")
    return len([name for name in names.split(",") if name.strip()]) if names else None


def _vo(ad: Mapping[str, Value]) -> tuple[str | None, tuple[str, ...]]:
    """VO and attributes of the proxy: the first FQAN, then those that follow the subject in x509UserProxyFQAN."""
    first = _text(ad, "x509userproxyfirstfqan")
    others = (_text(ad, "x509userproxyfqan") or "").split(",")
    fqans = [*([first] if first else []), *(word for word in others[1:] if word.startswith("/"))]
    return _text(ad, "x509userproxyvoname"), tuple(dict.fromkeys(fqans))


def _extras(ad: Mapping[str, Value], scaling: Mapping[str, Value]) -> dict[str, int | float | str]:
    extras: dict[str, int | float | str] = {}
    for key, value in ad.items():
        name = _KEPT_AS.get(key)
        if name is None or value is None:
            continue
        if isinstance(value, bool):
            extras[name] = str(value).lower()
        elif isinstance(value, str) or (isinstance(value, int | float) and abs(value) < _LARGEST):
            extras[name] = value
    for name, value in scaling.items():
        if isinstance(value, dict):
            value = "[ " + "; ".join(f"{key} = {item}" for key, item in sorted(value.items())) + " ]"  # noqa: PLW2901
        if isinstance(value, str):
            extras[name] = value
        elif value is not None and abs(value) < _LARGEST:
            extras[name] = int(value) if isinstance(value, bool) else value
    return extras


def _scaling(ad: Mapping[str, Value]) -> dict[str, Value]:
    """Attributes of the machine that came with the match, the first 64 in the order of their names."""
    names = sorted(name for name in ad if name.startswith(SCALING) and _SCALING.fullmatch(name))
    return {name: ad[name] for name in names[:_MOST_SCALING]}


def _benchmarks(scaling: Mapping[str, Value]) -> tuple[Benchmark, ...]:
    """Scores with their type: `MachineAttrApelSpecs0 = [ HEPSPEC = 15.2; SI2K = 2793 ]`."""
    scores: dict[str, float] = {}
    for value in scaling.values():
        pairs = value.items() if isinstance(value, dict) else _PAIR.findall(value) if isinstance(value, str) else ()
        for kind, score in pairs:
            known = _BENCHMARKS.get(kind.lower())
            try:
                number = float(score)
            except (TypeError, ValueError):
                continue
            if known and 0 < number < 1e9:
                scores.setdefault(known, number)
    return tuple([Benchmark(kind, score) for kind, score in scores.items()])


def _text(ad: Mapping[str, Value], name: str) -> str | None:
    value = ad.get(name)
    return value if isinstance(value, str) and value and value != "undefined" else None


def _whole(ad: Mapping[str, Value], name: str) -> int | None:
    """A number that is not negative; None: undefined, an expression, or out of all bounds."""
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return None
    return int(value)


def _milliseconds(ad: Mapping[str, Value], name: str) -> int | None:
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST / 1000:
        return None
    return round(value * 1000)
