"""Runs as they are stored: everything that a source gives is read back unchanged, and damaged data are refused."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import msgspec
import pytest
import zstandard
from hypothesis import assume, given

from formats.identity import UnknownEncodingError, decode, digest, encode
from formats.job import Benchmark, Host, Job
from publisher.encoded_run import (
    DICTIONARY,
    LOCAL,
    MOST_RECORD_BYTES,
    OWN,
    PLAIN,
    SHARED,
    WHOLE,
    class_facts,
    class_key,
    decode_run,
    encode_run,
    encode_whole,
    own_facts,
    run_key,
    unpack,
)
from publisher.errors import StoreCorruptError, StoreNewerError
from publisher.store.classes import decode as decode_stored
from tests.generators.dictionary import jobs as invented_jobs
from tests.generators.dictionary import samples
from tests.publisher.site import make_job
from tests.strategies import jobs, often, plain_jobs

DICTIONARY_DIGEST = "f3d94d7bef97e8cf8718b28b383115ea70dc93ca5486b349fcdecff56b06c86a"
STORED_OWN = bytes.fromhex(
    "032096550200f3820a63e7f5debd5e1896a9b9c9142274e26f27844ebd103ad13874cee9ebbdf72a5faaf47018cce90788bc140a"
    "fc1921c3a14544740e918f42cbd704910c473dde970d2db741a86809"
)
STORED_WHOLE = bytes.fromhex(
    "026012003d030083030d63e7f5debd5e1896a9b9c9142274e26f27844ebd103ad13874cee9ebbdf72a5faaf47018e019a95cd9c1"
    "c0911e77e6f403445e0a10fc952186018b80cc39c44d622d7e1b44e27e0885d2137af56b2e3f056ffb8ea170448086fcd7efcb4e"
    "cdedf42a2f03"
)
_PIECE = 8
_HEAD = 161
"""Of a dictionary: its number, and tables of how often bytes come. Pieces of what it was trained on follow."""


@cache
def invented() -> list[Job]:
    """Some records of every source."""
    return list(invented_jobs(60))


def assert_comes_back(job: Job) -> None:
    run, unclassed = encode_run(job), encode_run(job, classed=False)
    assert (run.stored[0], unclassed.stored[0], encode_whole(job)[0]) == (OWN, PLAIN, WHOLE)
    kept = run.job()
    assert encode(kept) == encode(msgspec.structs.replace(job, record_id=run.record_id))
    assert encode(unclassed.job()) == encode(unclassed.classed().job()) == encode(kept)
    assert unclassed.classed() == run
    assert encode(decode_run(run.stored, run.facts)) == encode(kept)
    assert encode(decode_run(encode_whole(kept), b"")) == encode(kept)
    assert (run.digest, run.key) == (digest(kept), run_key(kept.record_id))
    assert (run.class_key, run.facts) == (class_key(kept), encode(class_facts(kept)))
    assert unpack(run.stored) == (True, encode(own_facts(kept))[1:])


@often
@given(jobs() | plain_jobs())
def test_any_run_comes_back_whole(job: Job) -> None:
    try:
        job = decode(encode(job))  # as sources give them: floats are floats
    except (UnicodeEncodeError, OverflowError, msgspec.ValidationError):
        assume(False)
    assert_comes_back(job)


def test_runs_of_every_source_come_back_whole() -> None:
    found = invented()
    assert len({job.system for job in found}) == 8
    for job in found:
        assert_comes_back(job)


@pytest.mark.parametrize(
    "facts",
    [
        {"local_user": "bob", "project": "p"},
        {"local_user": "bob", "vo": None},
        {"local_user": "bob", "user_dn": None, "token_subject": "s"},
        {"hosts": (Host("n1", 2),), "benchmarks": ()},
        {"hosts": (Host("n1", 2),), "benchmarks": (Benchmark("CloudMark", 5.0),), "vo": None},
        {"status": "running", "end": None, "slave": True},
        {"benchmarks": (Benchmark("HEPSPEC", -0.0),)},
    ],
)
def test_what_the_class_has_is_left_out_and_put_back(facts: dict[str, object]) -> None:
    job = make_job(1, **facts)
    assert_comes_back(job)
    left_out, packed = unpack(encode_run(job).stored)
    assert left_out
    own, in_class = msgspec.msgpack.decode(packed, type=Job).known(), class_facts(job).known()
    assert (own.keys() & in_class.keys()) - {"record_id", "system", "status"} <= ({*LOCAL} if job.benchmarks else set())


def test_local_facts_that_do_not_follow_those_of_the_class_stay_in_the_run() -> None:
    """Its hosts are between them. Classes with hosts have no part of the run but its name, source and status."""
    alone = make_job(1, vo=None, local_user="bob", hosts=(Host("n1"),))
    both = msgspec.structs.replace(alone, benchmarks=())
    for job, names in ((alone, {"hosts", "local_user"}), (both, set())):
        run = encode_run(job)
        own = msgspec.msgpack.decode(unpack(run.stored)[1], type=Job)
        assert {name for name in ("hosts", "local_user") if getattr(own, name)} == names
        assert run.job() == job


@pytest.mark.parametrize("values", [(10.0, 10), (10, 10.0)])
def test_equal_facts_that_are_encoded_differently_make_two_classes(values: tuple[float, float]) -> None:
    for value in values:
        job = make_job(1, queue=f"of {values[0]!r}", benchmarks=(Benchmark("HEPSPEC", value),))
        run = encode_run(job)
        assert (run.facts, run.class_key) == (encode(class_facts(job)), class_key(job))


def test_the_facts_of_a_class_are_together_in_a_run() -> None:
    """They are cut out of the encoded run as one piece."""
    names = ("record_id", *SHARED, "hosts", *LOCAL)
    assert Job.__struct_fields__[: len(names)] == names


def test_runs_of_another_class_are_read_with_its_facts() -> None:
    """`store check` finds this by the digest."""
    run, other = encode_run(make_job(1)), encode_run(make_job(2, queue="short"))
    assert digest(decode_run(run.stored, other.facts)) != run.digest


def test_threads_do_not_get_in_each_others_way() -> None:
    found = invented() * 4
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(encode_run, found))
        assert list(pool.map(lambda run: run.job(), runs)) == found


def test_what_is_stored_once_is_read_for_ever() -> None:
    job = make_job(1, local_user="bob", hosts=(Host("n1", 2),))
    facts = encode(class_facts(job))
    assert decode_run(STORED_OWN, facts) == job
    assert decode_run(STORED_WHOLE, b"") == job
    assert decode_run(encode(job), b"") == job


# --- damage


def frame_of(content: bytes, *, tells_size: bool = True) -> bytes:
    """A stored run of any content."""
    made = zstandard.ZstdCompressor(write_content_size=tells_size).compress(content)
    return bytes([WHOLE]) + made[4:]


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"", "it is empty"),
        (encode_whole(make_job(1))[:-1], "decompressed"),
        (encode_whole(make_job(1))[:9], "decompressed"),
        (bytes([WHOLE]), "decompressed"),
        (bytes([OWN]) + b"nothing like a frame", "decompressed"),
        (encode(make_job(1))[:-1], "truncated"),
        (frame_of(b"\xff" * 30), "Expected"),
        (frame_of(b"x" * 100, tells_size=False), "bytes when decompressed"),
        (frame_of(bytes(MOST_RECORD_BYTES + 1)), "67,108,865 bytes when decompressed"),
    ],
)
def test_a_damaged_run_is_refused_by_its_name(damaged: bytes, why: str) -> None:
    with pytest.raises(StoreCorruptError, match=f"job ur-1 cannot be read: .*({why})") as raised:
        decode_stored(damaged, encode_run(make_job(1)).facts, "ur-1")
    assert "backup" in (raised.value.hint or "")


def test_a_bomb_that_claims_to_be_small_is_refused() -> None:
    bomb = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 20)))
    size = (1 << 20).to_bytes(4, "little")
    place = bomb.index(size)
    bomb[place : place + 4] = (1000).to_bytes(4, "little")
    assert zstandard.frame_content_size(bytes(bomb)) == 1000
    with pytest.raises(msgspec.DecodeError, match="decompressed"):
        unpack(bytes([WHOLE]) + bytes(bomb[4:]))


def test_a_run_of_a_later_program_is_refused_by_its_name() -> None:
    with pytest.raises(StoreNewerError, match="job ur-1: it has encoding 99"):
        decode_stored(b"\x63" + encode_run(make_job(1)).stored[1:], b"", "ur-1")
    with pytest.raises(UnknownEncodingError):
        unpack(b"\x00")


# --- the dictionary


def test_the_dictionary_is_the_one_that_stores_use() -> None:
    """Another one under the same number would make every store unreadable."""
    assert hashlib.sha256(DICTIONARY.read_bytes()).hexdigest() == DICTIONARY_DIGEST


def _as_trained(record: bytes) -> bytes:
    """A record as it was when the dictionary was trained: without the last of today's fields."""
    assert (record[:2], record[-1:]) == (b"\xdc\x00", b"\xc0"), "a list whose last field is nil"
    return record[:2] + bytes((record[2] - 1,)) + record[3:-1]


def test_the_dictionary_is_made_of_invented_records_only() -> None:
    """What is in it can be erased from no store. Every piece of it is one of a record that the generators invent."""
    content = DICTIONARY.read_bytes()
    pieces = {content[at : at + _PIECE] for at in range(len(content) - _PIECE + 1)}
    invented_pieces = {
        piece
        for sample in samples()
        for record in (sample, _as_trained(sample))
        for at in range(len(record) - _PIECE + 1)
        if (piece := record[at : at + _PIECE]) in pieces
    }
    known = bytearray(len(content))
    for at in range(len(content) - _PIECE + 1):
        if content[at : at + _PIECE] in invented_pieces:
            known[at : at + _PIECE] = b"1" * _PIECE
    assert known[_HEAD:] == b"1" * (len(content) - _HEAD)


def test_it_makes_records_of_every_source_small() -> None:
    for system in sorted({job.system for job in invented()}):
        found = [encode_run(job) for job in invented() if job.system == system]
        plain = sum(len(encode(run.job())) for run in found)
        assert sum(len(run.stored) for run in found) * 2.5 < plain, system
