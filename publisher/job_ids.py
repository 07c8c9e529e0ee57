"""Ids of jobs: in all spellings of batch systems and their logs, and what a job is asked for by.

Pure. `23` asks for every task of the array 23 (`23.1`, `23[1]`, `23_1`) and every process of HTCondor's cluster 23, as
`qacct -j`, `qstat -t`, `sacct -j`, `bhist` and `condor_history` do; `1012.head` for TORQUE's job 1012 of the server
`head` or `head.example.org`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from formats.identity import index_key
from formats.job import Job

_ID: Final = re.compile(r"(\d{1,18})(?:[._](\d{1,18})|\[(\d{1,18})\])?(?:[._@]([A-Za-z][\w.-]*))?", re.ASCII)
_WITH_PREFIX: Final = re.compile(rf"(\D(?:.*?\D)?)??({_ID.pattern})", re.ASCII | re.DOTALL)
_CONDOR: Final = re.compile(r"([^#]+)#(\d{1,18})\.(\d{1,18})#.*", re.ASCII | re.DOTALL)
_WILDCARD: Final = re.compile(r"[*?\[]")
_WHOLE_ARRAY: Final = "[]"
"""After the id of a whole array, in TORQUE and PBS: `1012[].head`."""


class LocalId(msgspec.Struct, frozen=True):
    """A batch system's job id taken apart: `key` to look it up by; part (array index, proc) and host if it has them.

    `condor`: the whole id, if it is HTCondor's GlobalJobId: the same in every log.
    """

    key: str
    part: str | None = None
    host: str | None = None
    condor: str | None = None

    def may_be(self, other: LocalId) -> bool:
        """Whether both can be the same job: a part that only one of them has does not make them different.

        The host after another spelling of HTCondor's id is the computing element's, which need not be the schedd's.
        """
        pairs = [(self.part, other.part), (self.condor, other.condor)]
        if (self.condor is None) == (other.condor is None):
            pairs.append((self.host, other.host))
        return self.key == other.key and all(one is None or there is None or one == there for one, there in pairs)


@lru_cache(maxsize=20_000)
def local_id(text: str) -> LocalId:
    """Take apart `9575064`, `9575064.lrms1`, `1.0`, `12[3].server`, `12_3`, `1_ce.example.org`, `lsf/20060308/3639.h`
    and `schedd#1.0#1556754961`. Any other text is its own key (`index_key`).
    """
    text = index_key(text)
    if condor := _CONDOR.fullmatch(text):
        return LocalId(condor[2], condor[3], _short(condor[1]), text.lower())
    match = _ID.fullmatch(text.rpartition("/")[2])
    if match is None:
        return LocalId(text)
    return LocalId(match[1].lstrip("0") or "0", match[2] or match[3], _short(match[4]))


def _short(host: str | None) -> str | None:
    return (host.rpartition("@")[2].partition(".")[0].lower() or None) if host else None


def id_with_schedd(job: Job) -> str | None:
    """A run's local id; with HTCondor the GlobalJobId, which names the schedd: two schedds have jobs of one number."""
    return job.global_id if job.global_id and _CONDOR.fullmatch(job.global_id) else job.local_id


# --- look-up of jobs


class JobIds(NamedTuple):
    """The ids by which a job can be found. `local_id`: with the prefix of its source in the configuration."""

    local_id: str | None
    name: str | None = None
    global_id: str | None = None
    array_id: str | None = None
    array_task: int | None = None
    cluster: str | None = None
    dqs_job_name: str | None = None

    @property
    def shown(self) -> str:
        """The id by which people know the job."""
        return self.local_id or self.name or self.global_id or ""


def ids_of(job: Job) -> JobIds:
    """The ids by which a run can be found."""
    dqs_job_name = str(job.extras.get("dqs_job_name", "")) or None
    return JobIds(job.local_id, job.name, job.global_id, job.array_id, job.array_task, job.cluster, dqs_job_name)


def other_id(job: Job) -> str | None:
    """An id of a run without a global id that its local id does not begin with: of Slurm's array, or DQS' job name."""
    if job.array_id is not None:
        return None if (job.local_id or "").startswith(job.array_id) else job.array_id
    return str(job.extras.get("dqs_job_name", "")) or None


class _Numbered(NamedTuple):
    prefix: str
    id: LocalId


@lru_cache(maxsize=20_000)
def _numbered(text: str) -> _Numbered | None:
    match = _WITH_PREFIX.fullmatch(text)
    return match and _Numbered(match[1] or "", local_id(match[2]))


class JobPattern:
    """Whether a job is asked for by a text: an id (see the module), a name, or a pattern of these, as for file names.

    An id is no pattern: `1012[3]` is a task of an array. Both the local id and what is in it after a prefix, such as
    `ge-` of `ge-23.1`, are ids of a job.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._asked = _numbered(text.replace(_WHOLE_ARRAY, "", 1))
        self._key = "" if self._asked is None else self._asked.id.key
        self._match: Callable[[str], object] | None = None
        if self._asked is None and _WILDCARD.search(text):
            self._match = re.compile(translate(text)).match

    @property
    def has_wildcards(self) -> bool:
        """Whether it is a pattern, and not an id or a name."""
        return self._match is not None

    @property
    def literal(self) -> str:
        """A text that an id or name of each job that matches contains: what to look for first."""
        if self._asked is not None:
            return self._key
        if self._match is None:
            return self._text
        return "" if "[" in self._text else max(re.split(r"[*?]", self._text), key=len)

    def __call__(self, ids: JobIds) -> bool:
        """Whether this job matches."""
        own, name, global_id, array_id, task, cluster, dqs_job_name = ids
        if self._match is not None:
            stripped = (
                own[len(numbered.prefix) :] if own and not own[0].isdigit() and (numbered := _numbered(own)) else None
            )
            words = (own, stripped, name, global_id, array_id, dqs_job_name)
            return any(self._match(word) for word in words if word)
        if self._text in (own, name, global_id, array_id, dqs_job_name):
            return True
        if self._asked is None or not ((own and self._key in own) or (array_id and self._key in array_id)):
            return False  # a quick test that decides most cases
        return _is_asked(self._asked, own or "", array_id, task, cluster)


def _is_asked(asked: _Numbered, own: str, array_id: str | None, task: int | None, cluster: str | None) -> bool:
    prefix, key, part, host = asked.prefix, asked.id.key, asked.id.part, asked.id.host
    own_prefix, own_id = _numbered(own) or ("", local_id(own))
    if prefix not in {"", own_prefix} or (host is not None and host != (own_id.host or _short(cluster))):
        return False
    if own_id.key == key and part in {None, own_id.part}:
        return True
    return array_id == key and part in {None, None if task is None else str(task)}


class Spellings(NamedTuple):
    """How the local ids may be spelt of jobs that a text asks for: `whole`, or what they may begin with.

    `others`: see `other_id`. There may be other jobs of such ids: `JobPattern` says which are asked for.
    """

    whole: frozenset[str]
    beginnings: frozenset[str]
    others: frozenset[str]


def spellings(text: str) -> Spellings:
    """How the ids of the jobs that an id without a prefix asks for are spelt in the store."""
    asked = _numbered(text.replace(_WHOLE_ARRAY, "", 1))
    if asked is None or asked.prefix:
        return Spellings(frozenset({text}), frozenset(), frozenset({text}))
    number, part = asked.id.key, asked.id.part
    others = frozenset({text, number})
    if part is None:
        return Spellings(others, frozenset(f"{number}{mark}" for mark in ".[-"), others)
    tasks = frozenset({f"{number}.{part}", f"{number}[{part}]"})
    return Spellings(tasks | {text}, frozenset(f"{task}." for task in tasks), others)
