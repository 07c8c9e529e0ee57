"""Large documents: the same elements whatever the pieces they are read in; damage is told, never raised."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.sources import htcondor_lines, htcondor_xml, json_elements, slurm_json
from publisher.sources.json_elements import Damaged, JsonElements
from publisher.sources.lines import Refused


def elements(content: bytes, key: str = "", size: int = 0) -> list[object]:
    stream = io.BytesIO(content)
    return list(JsonElements((lambda _: stream.read(size)) if size else stream.read, key))


@given(size=st.integers(1, 5_000))
def test_any_pieces_give_the_same(size: int, fixtures: Path) -> None:
    content = (fixtures / "slurm" / "sacct-24.05.json").read_bytes()[:20_000]
    assert elements(content, "jobs", size) == elements(content, "jobs")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ('{"meta": {"a": [1]}, "jobs": [{"x": 1}, {"x": 2}], "errors": []}', "jobs", [{"x": 1}, {"x": 2}]),
        ('[{"x": 1},\n{"x": 2}]\n', "", [{"x": 1}, {"x": 2}]),
        ('{"x": 1}\n{"x": 2}\n', "", [{"x": 1}, {"x": 2}]),
        ('[{"x": 1}]\n[{"x": 2}]\n', "", [{"x": 1}, {"x": 2}]),
        ('{"jobs": []}', "jobs", []),
        ("[]", "", []),
        ("", "", []),
        ('[{"x": "ä\\u00e4"}]', "", [{"x": "ää"}]),
    ],
)
def test_shapes(text: str, key: str, expected: list[object]) -> None:
    assert elements(text.encode(), key) == expected


@pytest.mark.parametrize(
    "text", ['{"jobs": [{"x": 1}', '{"jobs": [{"x":', '{"jobs"', "[1]", "[" * 100_000, '[{"x": ' + "9" * 10_000 + "}]"]
)
def test_damage_is_told_once(text: str) -> None:
    found = elements(text.encode(), "jobs" if text.startswith("{") else "")
    assert len([each for each in found if isinstance(each, Damaged)]) == 1


def test_an_element_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_elements, "MAX_ELEMENT", 1 << 20)
    read = 0

    def endless(size: int) -> bytes:
        nonlocal read
        read += size
        return b"x" * size if read > size else b'[{"x": "'

    reading = iter(JsonElements(endless))
    assert isinstance(next(reading), Damaged)
    assert read < 1 << 23


@pytest.mark.parametrize("name", ["slurm/sacct-22.05.json", "htcondor/history.json", "htcondor/history.xml"])
def test_fuzz(fixtures: Path, name: str) -> None:
    assert _fuzzed((fixtures / name).read_bytes()[:12_000], _reader(name), 200) > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["slurm/sacct-22.05.json", "htcondor/history.json", "htcondor/history.xml"])
def test_fuzz_long(fixtures: Path, name: str) -> None:
    assert _fuzzed((fixtures / name).read_bytes()[:12_000], _reader(name), 20_000) > 0


def _reader(name: str) -> Callable[[bytes], int]:
    """Reads a document to its end; the number of elements that were understood."""

    def slurm(content: bytes) -> int:
        return sum(
            not isinstance(each, Damaged) and not isinstance(slurm_json.outcome(each, "c1"), Refused)
            for each in JsonElements(io.BytesIO(content).read, "jobs")
        )

    def condor(content: bytes) -> int:
        return sum(
            not isinstance(each, Damaged) and not isinstance(htcondor_lines.from_json(each, None), Refused)
            for each in JsonElements(io.BytesIO(content).read)
        )

    def xml(content: bytes) -> int:
        return sum(
            not isinstance(ad, Refused) and not isinstance(htcondor_lines.from_ad(ad, None), Refused)
            for ad in htcondor_xml.ads(io.BytesIO(content).read)
        )

    return slurm if name.startswith("slurm") else xml if name.endswith("xml") else condor


def _fuzzed(content: bytes, read: Callable[[bytes], int], rounds: int) -> int:
    chance = random.Random(20261121)
    spice = (
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b"null",
        b"-1",
        b"1e999",
        b"\0",
        b"\xff",
        b"<",
        b"</c>",
        b"9" * 30,
        b",",
    )
    understood = 0
    for _ in range(rounds):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.choice((0, 1, 5, 50))] = chance.choice(spice)
        understood += read(bytes(damaged))
    return understood


def test_numbers_in_every_shape() -> None:
    job = json.loads(
        '{"job_id": 5, "state": {"current": ["COMPLETED"]}, "time": {"start": 10, "end": {"set": true, "number": 20}}}'
    )
    found = slurm_json.outcome(job, "c1")
    assert not isinstance(found, Refused)
