"""The record of a run: what others rely on."""

from __future__ import annotations

from typing import Final

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from formats.identity import decode, digest, encode
from formats.job import Benchmark, Events, Host, Job, Transfer
from tests.strategies import jobs, often, plain_jobs

FIELDS: Final = """
    record_id system status slave user_dn token_subject token_issuer vo vo_issuer fqans cluster queue endpoint_url
    endpoint_type nodes cores slots infrastructure lrms middleware middleware_version benchmarks hosts local_user
    local_group project account department global_id local_id name run array_id array_task parallel_environment
    client_host gpus service_class system_software runtime_environments submit eligible lrms_submit start end
    execution_start execution_end events wall_ms cpu_ms cpu_user_ms cpu_system_ms memory_rss_kib memory_virtual_kib
    swap_kib scratch_bytes energy_j stage_in_ms stage_out_ms stage_in_bytes stage_out_bytes transfers charge
    process_ids exit_code exit_signal end_reason extras site core_numbers token_groups
"""


def test_fields_are_only_added_at_the_end() -> None:
    """A run is encoded by position, and sources that read millions of runs give them so."""
    known = tuple(FIELDS.split())
    assert Job.__struct_fields__[: len(known)] == known


ENCODED = bytes.fromhex(
    "01dc0046a475722d31a3617263a9636f6d706c65746564c2c0c0c0a561746c6173c091a62f61746c6173c0c0c0c0c008c0c0c0c0"
    "c09182a474797065aa48455073636f72653233a576616c7565cb402d0000000000009182a46e616d65a3776e31a5736c6f747308"
    "c0c0c0c0c0c0c0c002c0c0c0c0c0c0c090c0c0c0c0ce6ae6b1d4c0c092a55120535f78920507cd03e8c0c0c0c0c0c0c0cb3fe000"
    "0000000000c0c0c0c09183a9646972656374696f6ea675706c6f6164a375726ca175aa73697a655f6279746573cf000001000000"
    "0000c09201fec0c0c082a161a178a16201c090"
)
"""A run with a value of every kind. Stores have such bytes, and their digests."""
DIGEST = "dfa8842875125c0a16fdb8ce8ece8888"


def test_the_encoding_is_the_one_of_stored_runs() -> None:
    job = Job(
        "ur-1", "arc", "completed", vo="atlas", fqans=("/atlas",), cores=8, benchmarks=(Benchmark("HEPscore23", 14.5),),
        hosts=(Host("wn1", slots=8),), run=2, end=1_793_503_700, events=Events.of([(5, "Q"), (7, "S x")]), wall_ms=1000,
        energy_j=0.5, transfers=(Transfer("upload", "u", 2**40),), process_ids=(1, -2), extras={"b": 1, "a": "x"},
    )  # fmt: skip
    fields = len(Job.__struct_fields__)
    added = b"\xc0" * (fields - 0x46)  # by later versions
    assert encode(job).hex() == (ENCODED[:3] + bytes([fields]) + ENCODED[4:] + added).hex()
    assert digest(job).hex() == DIGEST
    assert decode(ENCODED) == job


class LaterJob(Job, frozen=True, array_like=True, gc=False):
    """A run of a later version, which has one more field."""

    later: int | None = None


@often
@given(jobs() | plain_jobs(), st.none() | st.just(1))
def test_a_field_that_is_added_changes_no_digest(job: Job, value: int | None) -> None:
    try:
        encoded = encode(job)
    except (UnicodeEncodeError, OverflowError):
        assume(False)
    later = LaterJob(*msgspec.structs.astuple(job), value)
    assert (digest(later) == digest(job)) == (value is None)
    read = msgspec.msgpack.decode(encoded[1:], type=LaterJob)
    assert (digest(read), read.later) == (digest(job), None)


def test_the_end_of_the_last_value_may_equal_nil() -> None:
    """The digest omits the nils at the end. What is before them still differs."""
    values = (None, 0xC0, 0xC0C0, 0x01C0, 0xC0C0C0, 0xC0C0C0C0, 0xCC, 0xCD)
    found = [LaterJob("r", "arc", "completed", later=value) for value in values]
    assert len({digest(job) for job in found}) == len(values)


def test_events_are_one_text_of_kinds_and_their_times() -> None:
    found = Events.of([(5, "Q"), (7, "S x"), (9, "E")])
    assert found == Events("Q S_x E", (5, 7, 9))
    assert list(found.pairs()) == [(5, "Q"), (7, "S_x"), (9, "E")]
    assert Events.of([]) is None
