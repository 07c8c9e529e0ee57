"""Reading by shape gives the same as the parser, for any message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from publisher.simulator import sgas_records
from publisher.simulator.record_shapes import Leaf, NotUsageRecordsError, Shapes, Values, collected
from tests.extent import short_or_whole
from tests.publisher.simulator.records import message, record

SHAPES = Shapes(sgas_records.parsed)
texts = st.one_of(
    st.sampled_from(["", "a", "&amp;lt;", "&#235;", "&bad;", "&", "]]>", "a>b", '"', "<", "\r\n", "\t", " ", "\x00",
                     "<!--x-->", "<![CDATA[y]]>", "<?p i?>", "Zoë", "\ue0000\ue001", "\ue000", "</ur:JobUsageRecord>",
                     "<ur:JobUsageRecord>", "</ur:UsageRecords>", "<ur:Queue>q</ur:Queue>", "xmlns", "\ufffe"]),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=5),
)  # fmt: skip
attributes = st.one_of(
    st.sampled_from(
        ["a", 'a" ur:createTime="b', 'a" xmlns:ur="urn:x', 'a" xmlns:q="urn:x', "a>b", "a&amp;b", "'", "\t"]
    ),
    texts,
)


def by_parser(text: str) -> list[Values] | None:
    try:
        return [collected(leaves) for leaves in sgas_records.parsed(text)]
    except NotUsageRecordsError:
        return None


@st.composite
def records(draw: st.DrawFn) -> str:
    value = draw(texts)
    more = draw(st.sampled_from(["", f"<ur:Queue>{value}</ur:Queue>", f"{value}<ur:Host/>", "<ur:Queue></ur:Queue>",
                                 f'<ur:Memory ur:type="{value}">1</ur:Memory>', f"<q:X {value}/>"]))  # fmt: skip
    return record(1, record_id=draw(attributes), local_id=draw(texts), create=draw(attributes), more=more)


@settings(max_examples=short_or_whole(100, 300), deadline=None)
@given(st.lists(records(), min_size=1, max_size=3))
@example([record(1), record(2), record(3)])
@example([record(1), "<ur:JobUsageRecord>" + record(2) + "</ur:JobUsageRecord>"])
@example([record(1), record(2).replace("</ur:JobUsageRecord>", "</ur:JobUsageRecord >")])
@example([record(1, more='<ur:Queue ur:a="x>">y</ur:Queue>'), record(1, more='<ur:Queue ur:a="x>">z</ur:Queue>')])
def test_both_ways_of_reading_agree(parts: list[str]) -> None:
    body = message(*parts)
    text = body.decode()
    shaped = SHAPES.read(body, text)
    assert shaped is None or shaped == by_parser(text)


def test_plain_messages_are_read_by_shape() -> None:
    body = message(*(record(number) for number in range(10)))
    shaped = Shapes(sgas_records.parsed).read(body, body.decode())
    assert shaped == by_parser(body.decode())


def test_a_known_shape_is_not_parsed_again() -> None:
    calls: list[str] = []

    def parser(text: str) -> Iterator[list[Leaf]]:
        calls.append(text)
        return sgas_records.parsed(text)

    shapes = Shapes(parser)
    body = message(*(record(number, local_id="a &amp; b") for number in range(50)))
    assert shapes.read(body, body.decode()) == by_parser(body.decode())
    learnt = len(calls)
    assert max(call.count("</") for call in calls) < record(1).count("</")
    assert len(set(calls)) == learnt
    assert [shapes.read(body, body.decode()) for _ in range(2)] == [by_parser(body.decode())] * 2
    assert len(calls) == learnt


def test_children_in_another_order_or_number_are_known_too() -> None:
    calls: list[str] = []

    def parser(text: str) -> Iterator[list[Leaf]]:
        calls.append(text)
        return sgas_records.parsed(text)

    shapes = Shapes(parser)
    queue, host = "<ur:Queue>q</ur:Queue>", "<ur:Host>h</ur:Host>"
    known = message(record(1, more=queue + host))
    shapes.read(known, known.decode())
    learnt = len(calls)
    for more in ("", queue, host, host + queue, queue * 3 + host):
        body = message(record(2, more=more))
        assert shapes.read(body, body.decode()) == by_parser(body.decode())
    assert len(calls) == learnt


def test_prefixes_declared_otherwise_are_another_shape() -> None:
    one, other = message(record(1)), message(record(1)).replace(b"2009/05/ur/vo", b"other/vo")
    read = [SHAPES.read(body, body.decode()) for body in (one, other, one)]
    assert read[0] == read[2] == by_parser(one.decode())
    assert read[1] == by_parser(other.decode())
    assert any(first != second for first, second in pairwise(read))
