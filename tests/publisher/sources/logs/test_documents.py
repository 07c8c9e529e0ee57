"""Large documents: the same elements for any size of the pieces in which they are read; damage is reported, never
raised."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.identity import decode, encode
from formats.job import Job
from publisher.config.schema import SourceSettings as Settings
from publisher.errors import SourceFormatError
from publisher.sources import make_source
from publisher.sources.base import Outcome, UnreadableLine
from publisher.sources.htcondor import lines, xml
from publisher.sources.logs import json_stream
from publisher.sources.logs.json_stream import Damaged, JsonElements
from publisher.sources.slurm import json as slurm_json
from tests.publisher.sources.log_reading import JSON_VALUE, Seen, changed, odd_value, read_on, watched


def elements(content: bytes, key: str = "", size: int = 0) -> list[dict[str, Any] | Damaged]:
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
        ('{"jobs": [{"x": 1}]}\n{"meta": {}, "jobs": [{"x": 2}]}\n{"jobs": null}', "jobs", [{"x": 1}, {"x": 2}]),
        ('[{"x": 1}] {"x": 2} [{"x": 3}]', "", [{"x": 1}, {"x": 2}, {"x": 3}]),
        ("[]", "", []),
        ("", "", []),
        ('[{"x": "ä\\u00e4"}]', "", [{"x": "ää"}]),
        ('[{"x": ["\\ud83d\\ude00", "a\\uD83Db"], "\\ude00": 1}]', "", [{"x": ["😀", "a\\ud83db"], "\\ude00": 1}]),
    ],
)
def test_shapes(text: str, key: str, expected: list[object]) -> None:
    assert elements(text.encode(), key) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"jobs": [{"x": 1}',
        '{"jobs": [{"x":',
        '{"jobs"',
        "[1]",
        "[" * 100_000,
        '[{"x": ' + "9" * 10_000 + "}]",
    ],
)
def test_damage_is_reported_once(text: str) -> None:
    found = elements(text.encode(), "jobs" if text.startswith("{") else "")
    assert len([each for each in found if isinstance(each, Damaged)]) == 1


@pytest.mark.parametrize("deep", [10, 400, 900])
def test_escapes_in_what_is_nested(deep: int) -> None:
    (found,) = elements(('{"\\ud800":' * deep + "1" + "}" * deep).encode())
    assert isinstance(found, Damaged) or next(iter(found)) == "\\ud800"


FOREIGN: Final = {
    "slurm": ("gridengine/accounting.jsonl", "htcondor/history.json", "htcondor/history.xml"),
    "htcondor": ("gridengine/accounting.jsonl", "slurm/sacct-22.05.json", "slurm/sacct-24.05.json"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in FOREIGN.items() for name in names])
def test_the_document_of_another_batch_system_is_refused_by_name(fixtures: Path, kind: str, name: str) -> None:
    source = make_source("s", Settings.model_validate({"type": kind, "path": fixtures / name}))
    seems = {
        "gri": "a Grid Engine accounting file of JSON",
        "htc": "output of condor_history",
        "slu": "JSON output of Sl",
    }
    with pytest.raises(SourceFormatError, match=f"this looks like {seems[name[:3]]}"):
        read_on(source, Seen())
    assert [finding.level for finding in source.check()] == ["red"]


def test_an_element_without_end_is_bounded() -> None:
    read = 0

    def endless(size: int) -> bytes:
        nonlocal read
        read += size
        return b"x" * size if read > size else b'[{"x": "'

    reading = iter(JsonElements(endless))
    assert isinstance(next(reading), Damaged)
    assert json_stream.MAX_ELEMENT < read < 4 * json_stream.MAX_ELEMENT


class DocumentKind(NamedTuple):
    """A kind of document: its list of elements, the text around them, and its reader."""

    pieces: Callable[[bytes], list[bytes]]
    around: tuple[bytes, bytes]
    read: Callable[[bytes], Iterator[Outcome]]


def _json_pieces(content: bytes) -> list[bytes]:
    found = json.loads(content)
    return [json.dumps(each, indent=1).encode() for each in (found["jobs"] if isinstance(found, dict) else found)]


def _xml_pieces(content: bytes) -> list[bytes]:
    return re.findall(rb"(?s)<c>.*?\n</c>", content)


def _slurm(content: bytes) -> Iterator[Outcome]:
    for each in JsonElements(io.BytesIO(content).read, slurm_json.KEY):
        yield UnreadableLine(each.reason) if isinstance(each, Damaged) else slurm_json.outcome(each, "c1")


def _condor(content: bytes) -> Iterator[Outcome]:
    for each in JsonElements(io.BytesIO(content).read):
        yield UnreadableLine(each.reason) if isinstance(each, Damaged) else lines.from_json(each, None)


def _condor_xml(content: bytes) -> Iterator[Outcome]:
    for ad in xml.ads(io.BytesIO(content).read):
        yield ad if isinstance(ad, UnreadableLine) else lines.from_ad(ad, None)


DOCUMENTS: Final = {
    "slurm/sacct-22.05.json": DocumentKind(
        _json_pieces, (b'{"meta": {}, "jobs": [\n', b'\n], "errors": []}\n'), _slurm
    ),
    "slurm/sacct-24.05.json": DocumentKind(
        _json_pieces, (b'{"meta": {}, "jobs": [\n', b'\n], "errors": []}\n'), _slurm
    ),
    "htcondor/history.json": DocumentKind(_json_pieces, (b"[\n", b"\n]\n"), _condor),
    "htcondor/history.xml": DocumentKind(
        _xml_pieces, (b'<?xml version="1.0"?>\n<classads>\n', b"\n</classads>\n"), _condor_xml
    ),
}
_XML_VALUE: Final = re.compile(rb"(?<=>)[^<\n]+(?=<)")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_fuzz(fixtures: Path, name: str) -> None:
    assert _fuzzed(DOCUMENTS[name], (fixtures / name).read_bytes(), 2_000) > 500


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_fuzz_long(fixtures: Path, name: str) -> None:
    assert _fuzzed(DOCUMENTS[name], (fixtures / name).read_bytes(), 1_000_000) > 250_000


def _fuzzed(kind: DocumentKind, content: bytes, rounds: int) -> int:
    """Runs that came out of documents of one element, every other one damaged anywhere, the rest in values only."""
    chance = random.Random(20261121)
    pieces = kind.pieces(content)
    head, tail = kind.around
    values = _XML_VALUE if head.startswith(b"<") else JSON_VALUE
    runs = 0
    for number in watched(rounds):
        piece = changed(pieces, chance) if number % 2 else odd_value(pieces, chance, values)
        for each in kind.read(head + piece + tail):
            if isinstance(each, Job):
                runs += 1
                assert decode(encode(each)) == each
    return runs


@pytest.mark.parametrize("name", ["slurm/sacct-22.05.json", "slurm/sacct-24.05.json"])
def test_a_damaged_element_costs_only_itself_wherever_a_read_ends(fixtures: Path, name: str) -> None:
    jobs = json.loads((fixtures / name).read_bytes())["jobs"][:5]
    jobs[1]["name"] = "damaged"
    content = json.dumps({"jobs": jobs}, indent=1).encode().replace(b'"damaged"', b'"\\x"')
    for first in range(1, len(content), 17):
        sizes = iter([first])
        stream = io.BytesIO(content)
        elements = list(JsonElements(lambda size, sizes=sizes, stream=stream: stream.read(next(sizes, size)), "jobs"))
        found = [None if isinstance(each, Damaged) else each["job_id"] for each in elements]
        assert found == [101, None, 103, 104, 105], first


def test_bytes_that_are_not_utf_8_are_spelled() -> None:
    """Programs in C write them into strings as they are."""
    content = b'[{"a": "x\xff\xc3"}, {"a": "\xe9"}]'
    assert list(JsonElements(io.BytesIO(content).read)) == [{"a": "x\\xff\\xc3"}, {"a": "\\xe9"}]


def test_numbers_in_every_shape() -> None:
    job = json.loads(
        '{"job_id": 5, "state": {"current": ["COMPLETED"]}, "time": {"start": 10, "end": {"set": true, "number": 20}}}'
    )
    found = slurm_json.outcome(job, "c1")
    assert not isinstance(found, UnreadableLine)
