"""Frame, local times and attributes of accounting lines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.sources.fields import LineError
from publisher.sources.pbs.attributes import AttributeReader, attributes, start_in
from publisher.sources.pbs.lines import LocalClock, PbsLogEntry, frame


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_only_three_semicolons_separate() -> None:
    entry = frame(b"05/01/2015 00:29:15;E;1.s;user=a jobname=x;y;z end=5")
    assert entry == PbsLogEntry("05/01/2015 00:29:15", "E", "1.s", "user=a jobname=x;y;z end=5")


def test_a_record_without_its_last_semicolon() -> None:
    assert frame(b"05/01/2015 00:29:15;R;1.s").text == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"", b";;;", b"no line", b"05/01/2015 00:29:15;EE;1.s;", b"05/01/2015 00:29:15;E;;user=a", b"\0" * 30,
        b"05/01/2015 00:29:15;Q;1.s;queue=a\0",
        b"05/01/2015 00:29:15;E;1.s;user=a jo05/01/2015 00:29:16;Q;2.s;queue=b",
    ],
)  # fmt: skip
def test_what_is_not_a_line(raw: bytes) -> None:
    with pytest.raises(LineError):
        frame(raw)


@pytest.mark.parametrize(
    ("zone", "stamp", "expected"),
    [
        ("UTC", "05/01/2015 00:29:15", "2015-05-01T00:29:15"),
        ("Australia/Adelaide", "05/01/2015 00:29:15", "2015-04-30T14:59:15"),  # the real line ends at 1430405955
        ("Europe/London", "10/02/2011 06:41:44", "2011-10-02T05:41:44"),
        ("America/Denver", "04/16/2025 10:19:48", "2025-04-16T16:19:48"),
        ("Europe/Oslo", "03/29/2026 01:59:59", "2026-03-29T00:59:59"),
        ("Europe/Oslo", "03/29/2026 03:00:00", "2026-03-29T01:00:00"),
    ],
)
def test_local_times(zone: str, stamp: str, expected: str) -> None:
    assert LocalClock(zone).instant(stamp, after=0) == utc(expected)


def test_a_repeated_hour_is_distinguished_by_the_record() -> None:
    clock = LocalClock("Europe/Oslo")
    first, second = utc("2026-10-25T00:30:00"), utc("2026-10-25T01:30:00")
    assert clock.instant("10/25/2026 02:30:00", after=0, near=str(first - 5)) == first
    assert clock.instant("10/25/2026 02:30:00", after=0, near=str(second - 5)) == second


def test_a_repeated_hour_is_distinguished_by_the_line_before() -> None:
    clock = LocalClock("Europe/Oslo")
    at, seen = utc("2026-10-25T00:10:00"), []
    for stamp in ("02:10:00", "02:59:00", "02:58:59", "02:05:00", "02:40:00", "03:00:00"):
        at = clock.instant(f"10/25/2026 {stamp}", after=at)
        seen.append(at)
    assert seen == [
        utc(f"2026-10-25T{each}") for each in ("00:10:00", "00:59:00", "00:58:59", "01:05:00", "01:40:00", "02:00:00")
    ]


def test_an_older_file_read_later_begins_with_the_first_pass() -> None:
    clock = LocalClock("Europe/Oslo")
    assert clock.instant("10/25/2026 02:30:00", after=utc("2026-11-20T00:00:00")) == utc("2026-10-25T00:30:00")


@given(
    st.integers(min_value=0, max_value=4_000_000_000), st.sampled_from(["Europe/Oslo", "America/Denver", "Asia/Tokyo"])
)
def test_any_instant_is_found_again(at: int, zone: str) -> None:
    from zoneinfo import ZoneInfo

    stamp = datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%m/%d/%Y %H:%M:%S")
    assert LocalClock(zone).instant(stamp, after=0, near=str(at)) == at


@pytest.mark.parametrize(
    "stamp", ["13/01/2015 00:00:00", "02/30/2015 00:00:00", "01/01/2015 24:00:00", "01-01-2015 00:00:00"]
)
def test_what_is_not_a_time(stamp: str) -> None:
    with pytest.raises(LineError):
        LocalClock("UTC").instant(stamp, after=0)


@pytest.mark.parametrize(
    ("quoted", "text", "expected"),
    [
        (False, "", {}),
        (False, "queue=emu", {"queue": "emu"}),
        (False, "user=a group=b jobname= queue=q", {"user": "a", "group": "b", "jobname": "", "queue": "q"}),
        (False, "account=a lab jobname=a b;c d=e queue=q", {"account": "a lab", "jobname": "a b;c d=e", "queue": "q"}),
        (False, 'account="x" queue=q', {"account": '"x"', "queue": "q"}),
        (True, 'account="x" queue=q', {"account": "x", "queue": "q"}),
        (True, 'account="a b" project="c d" queue=q', {"account": "a b", "project": "c d", "queue": "q"}),
        (True, "group=RConsole Users jobname=x y queue=q", {"group": "RConsole Users", "jobname": "x y", "queue": "q"}),
        (True, 'Resource_List.s="it\'s; end=7" end=9', {"Resource_List.s": "it's; end=7", "end": "9"}),
        (True, "Resource_List.n='say \"hi\" now' end=9", {"Resource_List.n": 'say "hi" now', "end": "9"}),
        (True, "Resource_List.b='it's \"x\" y' end=9", {"Resource_List.b": "it's \"x\" y", "end": "9"}),
        (True, 'Resource_List.b="open end=9', {"Resource_List.b": '"open', "end": "9"}),
        (True, "run_count=1 new_thing=3 end=9", {"run_count": "1", "new_thing": "3", "end": "9"}),
        (True, "start=1  resources_used.mem=1kb", {"start": "1", "resources_used.mem": "1kb"}),
        (False, "Resource_List.odd-one=7 queue=q", {"Resource_List.odd-one": "7", "queue": "q"}),
        # what a user wrote into a free text neither changes who he is nor when the job ran
        (False, "user=a account=x user=root start=1 start=5", {"user": "a", "account": "x", "start": "5"}),
    ],
)  # fmt: skip
def test_attributes(quoted: bool, text: str, expected: dict[str, str]) -> None:
    assert attributes(text, quoted=quoted) == expected


def test_text_that_is_not_attributes() -> None:
    with pytest.raises(LineError):
        attributes("Job deleted as result of dependency", quoted=False)


_PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'\" "), min_size=1, max_size=8)
_BLANKS = st.lists(_PLAIN.filter(lambda word: "=" not in word), min_size=1, max_size=3).map(" ".join)


@given(_BLANKS, _BLANKS, _BLANKS, _PLAIN)
def test_free_texts_come_back(account: str, name: str, resource: str, queue: str) -> None:
    expected = {"account": account, "jobname": name, "queue": queue, "Resource_List.x": resource, "end": "7"}
    text = f"account={account} jobname={name} queue={queue} Resource_List.x={resource} end=7"
    assert attributes(text, quoted=False) == expected
    quoted = f'account="{account}" jobname={name} queue={queue} Resource_List.x="{resource}" end=7'
    assert attributes(quoted, quoted=True) == expected


def test_many_open_quotes_take_linear_time() -> None:
    text = " ".join(f'Resource_List.r{number}="x' for number in range(20_000))
    assert len(attributes(text, quoted=True)) == 20_000


_PIECES = st.sampled_from(
    ["user=a", "account=my", 'account="a start=5"', "jobname=x y", "start=7", 'start="9', "'", '"', "queue=q", "x", ""]
)


@given(st.lists(_PIECES, max_size=8).map(" ".join), st.booleans())
def test_the_start_alone_is_the_one_of_the_attributes(text: str, quoted: bool) -> None:
    def or_refused(find: Callable[[], str]) -> str:
        try:
            return find()
        except LineError:
            return "refused"

    expected = or_refused(lambda: attributes(text, quoted=quoted).get("start", ""))
    assert or_refused(lambda: start_in(text, quoted=quoted)) == expected


def _or_reason(read: Callable[[], dict[str, str]]) -> dict[str, str] | str:
    try:
        return read()
    except LineError as error:
        return str(error)


_ANY_VALUE = st.text(st.sampled_from("aé =;\"'\n,+"), max_size=4)
_KEYS = ("user", "account", "jobname", "queue", "ctime", "start", "Resource_List.nodes", "session", "end")


@given(st.data(), st.booleans())
def test_texts_like_earlier_ones_have_the_attributes_that_they_have_alone(data: st.DataObject, quoted: bool) -> None:
    read = AttributeReader(quoted=quoted)
    kinds = [data.draw(st.lists(st.sampled_from(_KEYS), max_size=6)) for _ in range(2)]
    for _ in range(12):
        keys = data.draw(st.sampled_from(kinds))
        text = " ".join(f"{key}={data.draw(st.just('1') | _ANY_VALUE)}" for key in keys)
        assert _or_reason(lambda text=text: read(text)) == _or_reason(lambda text=text: attributes(text, quoted=quoted))


def test_a_pattern_is_made_only_for_attributes_that_return_and_for_so_many() -> None:
    read = AttributeReader(quoted=False)
    for number in range(200):
        for _ in range(2):
            assert read(f"user=a Resource_List.r{number}=1") == {"user": "a", f"Resource_List.r{number}": "1"}
    assert read._made == 64
    assert len(read._layouts) == 4
