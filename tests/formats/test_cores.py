"""Core numbers: written shortly, read back, and in no digest."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.cores import MOST, compact, expand
from formats.identity import decode, digest, encode
from formats.job import Job
from tests.strategies import any_text, often, plain_jobs

numbers = st.lists(st.integers(0, 40), max_size=30)
core_numbers = st.lists(numbers.map(compact), max_size=20).map(tuple)


@pytest.mark.parametrize(
    ("given_numbers", "text"),
    [([0], "0"), ([3, 1, 0, 2], "0-3"), ([7, 0, 1, 5], "0-1,5,7"), ([0, 0, 1], "0,0-1"), ([], "")],
)
def test_as_they_are_written(given_numbers: list[int], text: str) -> None:
    assert compact(given_numbers) == text
    assert list(expand(text)) == sorted(given_numbers)


@given(numbers)
def test_read_back(some: list[int]) -> None:
    assert list(expand(compact(some))) == sorted(some)


@given(
    st.sampled_from(("", "-", "1-", "3-1", "0,", "a", "0-99999999", str(MOST), f"0-{MOST}", "\uff11", "0--1"))
    | any_text
)
def test_what_cannot_be_read_gives_nothing(text: str) -> None:
    found = expand(text)
    assert found == () or compact(found) == compact(map(int, found))
    assert len(found) <= MOST


def test_damaged_ones_give_nothing() -> None:
    for text in ("", "1-", "3-1", "0,", "a", "0-99999999", str(MOST), ",".join(["0-9000"] * 2)):
        assert expand(text) == ()


@often
@given(plain_jobs(), core_numbers)
def test_they_are_stored_and_in_no_digest(job: Job, cores: tuple[str, ...]) -> None:
    reported = msgspec.structs.replace(job, core_numbers=cores)
    assert decode(encode(reported)) == reported
    assert digest(reported) == digest(reported, encode(reported)) == digest(job)
    assert digest(job) == hashlib.blake2b(encode(job)[4:].rstrip(b"\xc0"), digest_size=16).digest()


def test_words_of_users_that_look_like_them_are_in_the_digest() -> None:
    job = Job("r", "torque", "completed", name="core_numbers", extras={"core_numbers": "0", "core_numberz": 1})
    reported = msgspec.structs.replace(job, core_numbers=("0-3",))
    assert digest(reported) == digest(job)
    assert digest(msgspec.structs.replace(job, extras={"core_numbers": "1", "core_numberz": 1})) != digest(job)
