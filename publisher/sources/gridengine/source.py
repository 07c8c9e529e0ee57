"""Source `gridengine`: finished jobs of any Grid Engine, from its accounting file in either format.

Every record of a run becomes one job; jobs that never ran are counted. Slave records of a tightly integrated parallel
job, which are written before their master's, are added to it: CPU, memory integral, and transfers as sums, memory as
the largest of any task, hosts as their union; times, slots, and exit code are the master's own.

The same run has the same record id from both formats. The cluster in it is `cluster` of the settings, else the cell of
the path (`<cell>/common/accounting`), else `default`, Grid Engine's own name for the only cell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.job import Host, Job
from publisher.config.sources import SourceSettings
from publisher.errors import ConfigError
from publisher.sources.base import Line, Outcome, UnreadableLine, Window
from publisher.sources.fields import JSON_BYTES, LineError, decoded
from publisher.sources.gridengine import colon, jsonl
from publisher.sources.gridengine.jobs import Cluster, PeTask, Slave, with_measures
from publisher.sources.gridengine.qacct import qacct_sums
from publisher.sources.limits import LimitError
from publisher.sources.logs.broken_record import RecordJoiner
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.pending_slaves import PendingSlaves
from publisher.sources.logs.reader import LogReader
from publisher.sources.tool import ToolSums

_COPY: Final = r"(?:[._-](?:\d[\d._T-]*|old))?"
_NAMES: Final = re.compile(rf"accounting{_COPY}(?:\.jsonl{_COPY})?", re.ASCII)
_HASH: Final = ord("#")
_BLANK: Final = ord(" ")
_COMMENT: Final = "a comment that ends as a record does: it is probably the end of a user's text"
_MAY_BE_TEXT: Final = "may be text of a user"
_IN_NAME: Final = 4
"""Colons before the job name."""
_IN_ACCOUNT: Final = 6
_IN_CATEGORY: Final = 39
_HELD: Final = "held"
_WAITING: Final = "waiting"
_TASKS_SHOWN: Final = 1_024
# Job numbers begin again: slaves of an earlier job with this number must not be added. Clocks of nodes differ, and with
# less an own slave of a short job could be left out.
_CLOCK_SLACK_S: Final = 60


class GridEngineParser:
    """Lines of both formats, in any mixture."""

    reads: frozenset[str] = frozenset({"gridengine", "gridengine-jsonl"})
    joins_lines = False
    has_header = False

    def __init__(self, cluster: str) -> None:
        self._cluster = Cluster(cluster)
        self._waiting = PendingSlaves(PeTask)
        self._joiner = RecordJoiner(
            self.parse,
            self._completes,
            _is_rest,
            self.alone,
            ends_any=_ends_any,
            is_open=_is_open,
            doubt=self.doubt,
        )
        self.release = self._joiner.release

    def file_begins(self, file: str) -> None:
        """Slaves and their master may be in different files."""

    def state(self) -> Any:
        """The slave records without a master so far, and the lines of a broken record, if there is one."""
        waiting, held = self._waiting.state(), self._joiner.state()
        return waiting if held is None else {_HELD: held, _WAITING: waiting}

    def resume(self, state: Any) -> None:
        """Continue to wait for the masters of an earlier reading."""
        held = isinstance(state, dict) and state.keys() == {_HELD, _WAITING}
        self._joiner.resume(state[_HELD] if held else None)
        self._waiting.resume(state[_WAITING] if held else state)

    def waiting(self) -> str | None:
        """The number of slave records that wait, as a sentence."""
        return self._waiting.waiting()

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineParser`."""
        if self._joiner.holds:
            return self._joiner.take(line)
        if len(line) <= 1 or line[0] == _HASH or (line[0] <= _BLANK and line.isspace()):
            # Comments are at the top of a file: one that ends as a record does is the end of a user's text.
            return UnreadableLine(_COMMENT, is_rest=True) if _is_rest(line) else Line.IGNORED
        try:
            text = line.decode() if b"\0" not in line else decoded(line)
        except UnicodeDecodeError:
            text = line.decode(errors=JSON_BYTES if line[:1] == b"{" else "backslashreplace")
        except LineError as error:
            return self._joiner.refused(line, str(error), cut=False)
        try:
            parse = jsonl.parse_record if text[0] == "{" else colon.parse_record
            record = parse(text, self._cluster)
        except (colon.ColonError, jsonl.JsonlError, LimitError) as error:
            whole = isinstance(error, colon.ColonValueError | LimitError)
            cut = isinstance(error, colon.CutColonError)
            if isinstance(error, colon.ColonError) and not whole:
                cut = cut or not _is_rest(line)
            return self._joiner.refused(line, str(error), cut=cut, whole=whole)
        if isinstance(record, Slave):
            return self._slave(record)
        return self._master(record) if record and self._waiting.groups else record or Line.SKIPPED

    def alone(self, line: bytes) -> Job | None:
        """See `publisher.sources.logs.line_parser.RunParser`: without slaves."""
        record = self._record_of(line)
        return record if isinstance(record, Job) else None

    def after_too_long(self, first: bytes, last: bytes) -> list[Outcome] | None:
        """See `publisher.sources.logs.line_parser.RunParser`: JSON escapes line feeds."""
        is_json = first[:1] == b"{" and last.rstrip()[-1:] == b"}"
        return None if is_json else self._joiner.give_up()

    def _record_of(self, line: bytes) -> Job | Slave | None:
        """What a line of the colon format has by itself; None: nothing."""
        if line[:1] in {b"{", b"#"}:
            return None
        try:
            return colon.parse_record(line.decode(errors="backslashreplace"), self._cluster)
        except (colon.ColonError, LimitError):
            return None

    def _completes(self, first: bytes, line: bytes) -> bool:
        """Whether a line ends the record that begins with the first: it is not a record, and both together are one."""
        if line.count(b":") + 1 >= colon.FEWEST_FIELDS:
            return False
        try:
            colon.parse_record((first + line).decode(errors="backslashreplace"), self._cluster)
        except colon.ColonError:
            return False
        return True

    def _master(self, job: Job) -> Outcome | list[Outcome]:
        key, start = job.local_id or "", job.start or 0
        slaves = self._waiting.take(key)
        own = [slave for slave in slaves if slave.end >= start - _CLOCK_SLACK_S]
        run = folded(job, own) if own else job
        outcomes: list[Outcome] = [run]
        if doubtful := sum(slave.is_doubtful for slave in own):
            without = [slave for slave in own if not slave.is_doubtful]
            outcomes = [  # only a person can know which is right
                UnreadableLine(f"{doubtful} slave records of this job {_MAY_BE_TEXT}; with them", suspect=run),
                UnreadableLine(
                    f"{doubtful} slave records of this job {_MAY_BE_TEXT}; without them",
                    suspect=folded(job, without) if without else job,
                ),
            ]
        if len(own) < len(slaves):
            outcomes.append(_given_up(key, [slave for slave in slaves if slave not in own]))
        return outcomes if len(outcomes) > 1 else outcomes[0]

    def doubt(self, line: bytes) -> UnreadableLine | None:
        """See `publisher.sources.logs.line_parser.MergingParser`."""
        record = self._record_of(line)
        if not isinstance(record, Slave):
            return None
        doubtful = msgspec.structs.replace(record.task, is_doubtful=True)
        if not self._waiting.replace(record.job, record.task, doubtful):
            return None
        return UnreadableLine(f"a slave record of job {record.job}, which {_MAY_BE_TEXT}: that job is suspect too")

    def _slave(self, slave: Slave) -> Outcome | list[Outcome]:
        given_up = self._waiting.add(slave.job, slave.task)
        if not given_up:
            return Line.MERGED
        return [Line.MERGED, *(_given_up(job, slaves) for job, slaves in given_up)]


def folded(job: Job, slaves: list[PeTask]) -> Job:
    """The master's run with the usage of its slaves. The first 1024 slaves are kept in `extras["pe_tasks"]`."""
    hosts = {host.name: host for host in job.hosts}
    for slave in slaves:
        hosts.setdefault(slave.host, Host(slave.host))
    extras = with_measures(job.extras, (slave.measures for slave in slaves))
    extras["mem"] = _sum(extras, "mem", (slave.mem_gb_s for slave in slaves))
    extras["io"] = _sum(extras, "io", (slave.io_gb for slave in slaves))
    extras["pe_task_count"] = len(slaves)
    extras["pe_tasks"] = _as_shown(slaves).decode()
    ran = job.status != "lost"
    return msgspec.structs.replace(
        job,
        hosts=tuple(hosts.values()),
        nodes=len(hosts),
        cpu_ms=_known_sum(job.cpu_ms if ran else 0, [slave.cpu_ms for slave in slaves]),
        cpu_user_ms=_known_sum(job.cpu_user_ms if ran else 0, [slave.user_ms for slave in slaves]),
        cpu_system_ms=_known_sum(job.cpu_system_ms if ran else 0, [slave.system_ms for slave in slaves]),
        memory_rss_kib=max(job.memory_rss_kib or 0, *(slave.rss_kib for slave in slaves)) or None,
        memory_virtual_kib=max(job.memory_virtual_kib or 0, *(slave.virtual_kib for slave in slaves)) or None,
        extras=extras,
    )


class GridEngineSource(LineSource):
    """A cell's accounting file, its folder, or a pattern; without a path, that of $SGE_ROOT and $SGE_CELL."""

    def __init__(self, name: str, settings: SourceSettings, environ: Mapping[str, str] = os.environ) -> None:
        path = settings.path or default_path(name, environ)
        cluster = settings.cluster or cell_of(path)
        reader = LogReader(path, _NAMES if path.is_dir() else None, settings.rotated_to, "file named accounting")
        super().__init__(
            name, "gridengine", reader, lambda: GridEngineParser(cluster), complete_since=settings.complete_since
        )

    def tool_sums(self, window: Window, _clusters: Collection[str], /) -> ToolSums:
        """See `publisher.sources.tool.HasTool`: the sums of `qacct`."""
        return qacct_sums(list(map(Path, self.reader.files())), window)


def _is_rest(line: bytes) -> bool:
    return line.count(b":") >= colon.FEWEST_TAIL and colon.is_rest(line.decode("latin-1"))


def _ends_any(line: bytes) -> bool:
    """Whether a line that is not a record ends as one does, whatever that record is."""
    return line.count(b":") + 1 < colon.FEWEST_FIELDS and _is_rest(line)


def _is_open(first: bytes, _lines: Iterator[bytes]) -> bool:
    """Whether a line was cut off in a text of a user, so that any line may have its end: users write all but the tail.

    Texts of users are the job name to the account, and the category: a line torn elsewhere has no text that is open.
    """
    colons = first.count(b":")
    if _IN_ACCOUNT < colons < _IN_CATEGORY and first.split(b":")[_IN_ACCOUNT - 1].isdigit():
        return False
    return colons >= _IN_NAME


def default_path(name: str, environ: Mapping[str, str]) -> Path:
    """The folder of the accounting files, as Grid Engine's own commands find it. Raises `ConfigError`."""
    root = environ.get("SGE_ROOT")
    if not root:
        raise ConfigError(
            "the source has no path, and SGE_ROOT is not set",
            key=f"sources.{name}.path",
            hint="Give the accounting file, e.g. /opt/sge/default/common/accounting",
        )
    return Path(root) / environ.get("SGE_CELL", "default") / "common"


def cell_of(path: Path) -> str:
    """The cell that a path of the form `<cell>/common/...` has, else `default`."""
    parts = path.parts
    at = len(parts) - 1 - parts[::-1].index("common") if "common" in parts else 0
    return parts[at - 1] if at > 1 else "default"


def _as_shown(slaves: list[PeTask]) -> bytes:
    """The first of them as JSON, without the measures, which are only added up."""
    return msgspec.json.encode([msgspec.structs.astuple(slave)[:-2] for slave in slaves[:_TASKS_SHOWN]])


def _given_up(job: str, slaves: list[PeTask]) -> UnreadableLine:
    reason = f"{len(slaves)} slave records of parallel job {job} had no master record; they are set aside here"
    return UnreadableLine(reason, _as_shown(slaves)[:65_536])


def _known_sum(own: int | None, of_slaves: Sequence[int | None]) -> int | None:
    """The sum; None if a part of it is unknown."""
    parts = (own, *of_slaves)
    return None if None in parts else sum(part or 0 for part in parts)


def _sum(extras: Mapping[str, object], name: str, more: Any) -> float:
    own = extras.get(name)
    return (float(own) if isinstance(own, int | float) else 0.0) + float(sum(more))
