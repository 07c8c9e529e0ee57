"""Runs in the form in which they are stored: encoded, compressed, with their digest and the values of their columns.

The process that reads a run encodes it, which may be a worker process. The bytes are compared and stored as they are,
and decoded only where the facts are needed: for a grid log, an erased person, a message, a report.

The first byte says which form follows:

    1  PLAIN   MessagePack of all facts (`formats.identity`): facts of classes, and runs that are probably known
    2  WHOLE   the same, compressed with dictionary 1: earlier versions, and runs whose class is not as they were read
    3  OWN     compressed with dictionary 1, with default values for the facts that its class has: nearly all runs

A dictionary is shipped with the program and trained on invented records of all sources
(`tests.generators.dictionary`): one trained on a site's own records would hold the names of its users, and nobody could
be erased from it. A new dictionary gets new numbers, and this one stays, because stored runs need it.

The facts of a class are those that may decide what a run is for a target: what `publisher.collect.enrich` looks at.
Both are defined here, so that a class and its runs get the same identity. A class does not have the end of a run: only
benchmarks may depend on it, and target filters and sync counts do not depend on benchmarks.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from functools import cache, lru_cache
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from threading import local
from typing import Any, Final

import msgspec

from formats.benchmark import has_usable_benchmark
from formats.identity import (
    ENCODING_VERSION,
    HEAD_BYTES,
    UnknownEncodingError,
    decode,
    digest,
    encode,
    index_key,
    packed_digest,
    record_key,
)
from formats.job import Job, Status
from publisher.errors import SourceError
from publisher.job_ids import other_id

PLAIN: Final = ENCODING_VERSION
WHOLE: Final = 2
OWN: Final = 3
FORMS: Final = (PLAIN, WHOLE, OWN)
_COMPRESSED: Final = frozenset((WHOLE, OWN))
MOST_RECORD_BYTES: Final = 64 << 20
"""The largest record before compression: a larger size is a sign of damage, and is not decompressed."""
DICTIONARY: Final = Path(__file__).with_name("encoded_run_1.zdict")
_LEVEL: Final = 3
"""Level 6 saves 3 % of the bytes and takes four times as long."""
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of every zstd frame; the byte of the form replaces them."""

LOCAL: Final = ("local_user", "local_group", "project", "account", "department")
"""The facts from which mapping rules may derive a grid identity, if `class_needs_local_user`."""


class UsageNote(IntEnum):
    """What a source knows about the usage of a run, beside its values: in the run's `extras`, by `NOTE`."""

    CPU_SAMPLED = 1
    """The CPU time is what the batch system sampled, since its total is too small."""
    CPU_DOUBTFUL = 2
    """The CPU time is probably too small, and the source has no other value."""

    @property
    def word(self) -> str:
        """The code in `extras`."""
        return self.name.lower()


NOTE: Final = "usage_note"
_NOTES: Final = {note.word: note for note in UsageNote}


def class_needs_local_user(job: Job) -> bool:
    """Whether the local facts of a run may decide something: not if the source gives both user and VO."""
    return not (job.vo and job.user_dn)


def local_user_of(job: Job) -> bytes:
    """The local user and group of a run, as `publisher.store.class_users.LocalUser` decodes them."""
    return _encode((job.local_user, job.local_group))


def class_needs_hosts(job: Job) -> bool:
    """Whether the hosts of a run may decide something: its benchmark, if the source has no usable one."""
    return not has_usable_benchmark(job)


SHARED: Final = (
    "system",
    "status",
    "slave",
    "user_dn",
    "token_subject",
    "token_issuer",
    "vo",
    "vo_issuer",
    "fqans",
    "cluster",
    "queue",
    "endpoint_url",
    "endpoint_type",
    "nodes",
    "cores",
    "slots",
    "infrastructure",
    "lrms",
    "middleware",
    "middleware_version",
    "benchmarks",
)
"""The facts that many runs share: what makes their class."""
_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_decode: Final = msgspec.msgpack.Decoder(Job).decode
_shared: Final = attrgetter(*SHARED)
_local: Final = attrgetter(*LOCAL)
_KEY_BYTES: Final = 16
_RUN_KEY_BYTES: Final = 15
_GLOBAL_KEY_BYTES: Final = 7
"""With the byte of its length, each fills whole words of an entry of PostgreSQL's index."""
_MOST_REMEMBERED: Final = 5_000
"""How many classes are cached, at about a kilobyte each."""


def class_fields(facts: Job) -> tuple[str, ...]:
    """The names of the facts that the class of a run has; `facts`: the run's, or those of its class."""
    local = LOCAL if class_needs_local_user(facts) else ()
    return (*SHARED, *local, *(("hosts",) if class_needs_hosts(facts) else ()))


def class_facts(job: Job, **more: Any) -> Job:
    """The facts of a run that its class has, as a run with an empty record id; `more` of them beside those."""
    facts: dict[str, Any] = dict(zip(SHARED, _shared(job), strict=True)) | more
    if class_needs_local_user(job):
        facts.update(zip(LOCAL, _local(job), strict=True))
    if class_needs_hosts(job):
        facts["hosts"] = job.hosts
    return Job(record_id="", token_groups=job.token_groups, **facts)


def class_key(job: Job, mark: str | None = None) -> bytes:
    """A digest of what makes a run's class: small enough to cache very many. `mark`: the state of its grid log."""
    return blake2b(_deciding(job, mark), digest_size=_KEY_BYTES).digest()


def _deciding(job: Job, mark: str | None = None) -> bytes:
    """What makes a run's class: shared facts, and its local facts and hosts if these may decide something."""
    local_user = _local(job) if class_needs_local_user(job) else None
    hosts = job.hosts if class_needs_hosts(job) else None
    if job.token_groups is None:  # the key of a class is that of earlier versions
        return _encode((_shared(job), local_user, hosts, mark))
    return _encode((_shared(job), local_user, hosts, mark, job.token_groups))


class KnownClass(msgspec.Struct, frozen=True, gc=False):
    """What every run of a class needs: the key of the class, and its facts, plain.

    `block`: the facts that are cut out of the plain form of a run, where they follow its record id; `blank`: what takes
    their place, their default values.
    """

    key: bytes
    facts: bytes
    block: bytes
    blank: bytes


_known_classes: Final[dict[Any, KnownClass]] = {}
"""Of runs that were encoded here, by what makes their class: to compute one takes as long as the rest of a run."""


def _class_of(job: Job) -> KnownClass:
    local_user = _local(job) if class_needs_local_user(job) else None
    deciding = (_shared(job), local_user, job.hosts if class_needs_hosts(job) else None, job.token_groups)
    known = _known_classes.get(deciding)
    if known is None:
        if len(_known_classes) >= _MOST_REMEMBERED:
            _known_classes.clear()
        known = _known_classes[deciding] = _new_class(job)
    return known


def _new_class(job: Job) -> KnownClass:
    names = _cut_out(class_needs_local_user(job), class_needs_hosts(job))
    facts = class_facts(job)
    return KnownClass(class_key(job), encode(facts), _items(facts, names), _items(own_facts(job), names))


def _cut_out(local_user: bool, hosts: bool) -> tuple[str, ...]:
    """The facts that the runs of a class do not have themselves, in the order of the fields of a run.

    They follow one another there, so a class that has the local facts without the hosts, which are before them, leaves
    the local facts to its runs too.
    """
    return (*SHARED, *(("hosts",) if hosts else ()), *(LOCAL if hosts and local_user else ()))


def _items(job: Job, names: tuple[str, ...]) -> bytes:
    """These facts one after another, without the head of an array."""
    return _encode([getattr(job, name) for name in names])[_ARRAY_HEAD_BYTES:]


_ARRAY_HEAD_BYTES: Final = HEAD_BYTES - 1


def run_key(record_id: str) -> bytes:
    """The key of a run: a digest of its record id, whose index takes a fifth of the space."""
    return blake2b(record_id.encode("utf-8", "surrogatepass"), digest_size=_RUN_KEY_BYTES).digest()


def global_key(global_id: str) -> bytes:
    """The key of runs that may have a global id, or `other_id`: a short digest, which two ids may share."""
    return blake2b(global_id.encode("utf-8", "surrogatepass"), digest_size=_GLOBAL_KEY_BYTES).digest()


# --- a run encoded


class EncodedRun(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A run as it is stored.

    `packed` is the run in one of the forms before its compression, the rest is taken from it. `class_key` None: not
    worked out, since most runs of a window that is read again are known; the run is plain then. `facts`: those of its
    class, plain.
    `has_core_numbers`: these are not in the digest. `note`: that in its `extras`. `mark`: that of what the source has
    of it, where the source gives marks. `local_id`, `global_key`: as they are looked up by (`index_key`,
    `global_key`); the latter of a run without a global id is that of its other id (`publisher.job_ids`).
    `local_user`: that of `local_user_of`; None: its class has it.
    """

    record_id: str
    key: bytes
    finished: bool
    end: int | None
    wall_ms: int
    cpu_ms: int
    incomplete_usage: int
    local_id: str | None
    global_key: bytes | None
    digest: bytes
    packed: bytes
    has_core_numbers: bool
    class_key: bytes | None = None
    facts: bytes = b""
    mark: bytes | None = None
    note: UsageNote | None = None
    local_user: bytes | None = None

    @property
    def stored(self) -> bytes:
        """The run as it is stored. It is compressed by the process that stores it, which has less to do than the one
        that reads."""
        return _compressed(self.packed)

    def job(self) -> Job:
        """The run with all its facts."""
        return _job_of(memoryview(self.packed)[1:], _shared_by_class(self.facts) if self.packed[0] == OWN else None)

    def classed(self) -> EncodedRun:
        """The run with the key of its class."""
        return self if self.class_key is not None else encode_run(self.job(), mark=self.mark)


def encode_run(job: Job, *, classed: bool = True, mark: bytes | None = None) -> EncodedRun:
    """A run as it is stored; `classed`: with the key of its class. `mark`: see `EncodedRun`.

    Raises `SourceError` for a record of more than `MOST_RECORD_BYTES`.
    """
    record_id = record_key(job.record_id)
    if record_id is not job.record_id:
        job = msgspec.structs.replace(job, record_id=record_id)
    plain = encode(job)
    known, packed = None, plain
    if classed:
        known, own = in_class(job, plain)
        packed = _packed(OWN, own, record_id)
    also_known_as = job.global_id if job.global_id is not None else other_id(job)
    return EncodedRun(
        record_id,
        run_key(record_id),
        job.finished,
        job.end,
        job.wall_ms or 0,
        cpu_total_ms(job),
        incomplete_usage(job),
        job.local_id and index_key(job.local_id),
        None if also_known_as is None else global_key(also_known_as),
        digest(job, plain),
        packed,
        bool(job.core_numbers),
        None if known is None else known.key,
        b"" if known is None else known.facts,
        mark,
        usage_note(job),
        None if class_needs_local_user(job) else local_user_of(job),
    )


def in_class(job: Job, plain: bytes) -> tuple[KnownClass, bytes]:
    """The class of a run, and the run without the facts of its class, before compression. `plain`: the encoded run."""
    known = _class_of(job)
    at = HEAD_BYTES + len(_encode(job.record_id))
    if not plain.startswith(known.block, at):  # equal facts may be encoded differently: 1.0 and 1
        known = _new_class(job)
    return known, plain[1:at] + known.blank + plain[at + len(known.block) :]


def cpu_total_ms(job: Job) -> int:
    """CPU time of all cores: the source's total, else user plus system, else zero."""
    if job.cpu_ms is not None:
        return job.cpu_ms
    return (job.cpu_user_ms or 0) + (job.cpu_system_ms or 0)


def incomplete_usage(job: Job) -> int:
    """1 if a run lacks its wall time, or its CPU time in total and one of its parts, so that the columns contain
    zero or only a part; 0: they are what a receiver of summaries adds up."""
    has_cpu_time = job.cpu_ms is not None or (job.cpu_user_ms is not None and job.cpu_system_ms is not None)
    return int(job.wall_ms is None or not has_cpu_time)


def usage_note(job: Job) -> UsageNote | None:
    """What the source noted about the usage of a run."""
    return _NOTES.get(str(job.extras[NOTE])) if NOTE in job.extras else None


# --- the forms


class _Contexts(local):
    """Compression and decompression of this thread: zstd's contexts are not thread-safe."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 - some milliseconds, for commands that look at no run

        dictionary = zstandard.ZstdCompressionDict(DICTIONARY.read_bytes())
        dictionary.precompute_compress(level=_LEVEL)
        self.compress = zstandard.ZstdCompressor(
            level=_LEVEL, dict_data=dictionary, write_content_size=True, write_checksum=False, write_dict_id=False
        ).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=dictionary).decompress
        self.size_of = zstandard.frame_content_size
        self.error: type[Exception] = zstandard.ZstdError


@cache
def _contexts() -> _Contexts:
    return _Contexts()


def _packed(form: int, facts: bytes, record_id: str) -> bytes:
    if len(facts) > MOST_RECORD_BYTES:
        raise SourceError(
            f"the record of job {record_id[:200]} has {len(facts):,} bytes; at most {MOST_RECORD_BYTES:,} are stored",
            hint="Find out in the batch system why the record is so large",
        )
    return bytes((form,)) + facts


def _compressed(packed: bytes) -> bytes:
    if packed[0] == PLAIN:
        return packed
    return packed[:1] + _contexts().compress(memoryview(packed)[1:])[len(_MAGIC) :]


def own_facts(job: Job) -> Job:
    """A run with default values for the facts of its class (`_cut_out`), except kind of source and status, which have
    none."""
    return msgspec.structs.replace(job, **_class_defaults(class_needs_local_user(job), class_needs_hosts(job)))


@cache
def _class_defaults(local_user: bool, hosts: bool) -> dict[str, Any]:
    names = _cut_out(local_user, hosts)
    fields = (field for field in msgspec.structs.fields(Job) if field.name in names and not field.required)
    return {field.name: field.default for field in fields}


def pack_whole(job: Job) -> bytes:
    """A run in a form without a class, before its compression. Raises as `encode_run`."""
    return _packed(WHOLE, _encode(job), job.record_id)


def encode_whole(job: Job) -> bytes:
    """A run as it is stored without a class. Raises as `encode_run`."""
    return _compressed(pack_whole(job))


def unpack(stored: bytes) -> tuple[bool, bytes]:
    """Whether the facts of its class are left out of a stored run; and its facts as MessagePack: an array.

    Raises `UnknownEncodingError` for a form of a later program, `msgspec.DecodeError` for what is damaged.
    """
    if not stored:
        raise msgspec.DecodeError("it is empty")
    form = stored[0]
    if form == PLAIN:
        return False, stored[1:]
    if form not in _COMPRESSED:
        raise UnknownEncodingError(form)
    frame, contexts = _MAGIC + stored[1:], _contexts()
    try:
        if not 0 <= (size := contexts.size_of(frame)) <= MOST_RECORD_BYTES:
            raise msgspec.DecodeError(f"it claims {size:,} bytes when decompressed; the limit is {MOST_RECORD_BYTES:,}")
        return form == OWN, contexts.decompress(frame)
    except contexts.error as error:
        raise msgspec.DecodeError(f"it cannot be decompressed: {error}") from None


def decode_run(stored: bytes, facts: bytes, known_digest: bytes | None = None) -> Job:
    """The run of a stored form; `facts`: those of its class as stored. `known_digest`: compared with that of the run.

    Raises `UnknownEncodingError` for a form of a later program, and `UNREADABLE` for what is damaged.
    """
    without_class, own = unpack(stored)
    shared = _shared_by_class(facts) if without_class else None
    job = _job_of(own, shared)
    if known_digest is None or _digest_of(own, shared, job) == known_digest:
        return job
    if digest(job) != known_digest:  # else an equal fact was read in another encoding
        raise msgspec.DecodeError("its digest is not that of its record with the facts of its class")
    return job


def _digest_of(own: bytes, shared: _SharedByClass | None, job: Job) -> bytes:
    """The digest of a decoded run, from its bytes and those of its class: to encode it again takes three times as
    long.

    It covers the class to which a run refers, since the facts of that class are a part of it.
    """
    if job.core_numbers:  # in no digest; the field after it is missing in runs that an earlier version stored
        cores, groups = _encode(job.core_numbers), _encode(job.token_groups)
        last = groups if own.endswith(cores + groups) else b""
        own = own[: len(own) - len(cores + last)] + _NO_CORE_NUMBERS + last
    if shared is None:
        return packed_digest(own[_ARRAY_HEAD_BYTES:])
    at = own.find(shared.blank, _ARRAY_HEAD_BYTES)  # after the record id, which is a text and has no such bytes
    if at < 0:
        return b""
    return packed_digest(own[_ARRAY_HEAD_BYTES:at] + shared.block + own[at + len(shared.blank) :])


_NO_CORE_NUMBERS: Final = _encode(())


UNREADABLE: Final = (ValueError, msgspec.MsgspecError, RecursionError, OverflowError)
"""What decoding raises for bytes that are damaged."""


def _job_of(own: bytes | memoryview, shared: _SharedByClass | None) -> Job:
    job = _decode(own)
    return job if shared is None else msgspec.structs.replace(job, **shared.values)


class _SharedByClass(msgspec.Struct, frozen=True):
    """What the runs of a class share: values by field, but for defaults; their bytes in a run as it was read; and what
    takes the place of these bytes in a run as it is stored (`KnownClass`)."""

    values: dict[str, Any]
    block: bytes
    blank: bytes


@lru_cache(maxsize=_MOST_REMEMBERED)
def _shared_by_class(facts: bytes) -> _SharedByClass:
    """Thousands of classes are remembered, most of them with the same few queues, hosts, and groups: a text is one
    object."""
    known = decode(facts)
    cut = class_needs_local_user(known), class_needs_hosts(known)
    values = {
        name: sys.intern(value) if isinstance(value, str) else value
        for name, default in _class_defaults(*cut).items()
        if (value := getattr(known, name)) != default
    }
    return _SharedByClass(values, _items(known, _cut_out(*cut)), _blank(known.system, known.status, *cut))


@cache
def _blank(system: str, status: Status, local_user: bool, hosts: bool) -> bytes:
    none = Job("", system, status)
    return _items(none, _cut_out(local_user, hosts))


def class_values(facts: bytes) -> dict[str, Any]:
    """What the runs of a class with these facts share, by field, but for defaults. Raises as `decode_run`."""
    return _shared_by_class(facts).values
