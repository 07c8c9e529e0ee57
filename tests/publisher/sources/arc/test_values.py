"""The texts inside ARC's rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.job import Benchmark, Host
from publisher.sources.arc.database import SEPARATOR
from publisher.sources.arc.source import ArcCursor, pack, unpack
from publisher.sources.arc.values import benchmarks_of, client_host, epoch_s, epochs_s, hosts_of, unescaped, unsigned


def _as_written(text: str) -> str:
    return "".join(f"%{ord(letter):02x}" if letter in "'#%\r\n" else letter for letter in text)


@given(st.text())
def test_unescaping_gives_back_what_was_escaped(text: str) -> None:
    assert unescaped(_as_written(text)) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("O%27Brien %23 7", "O'Brien # 7"),
        ("100%25", "100%"),
        ("%2527", "%27"),
        ("a%20b%00%", "a%20b%00%"),
        ("%0D%0a", "\r\n"),
    ],
)
def test_only_what_the_writer_escapes_is_unescaped(text: str, plain: str) -> None:
    assert unescaped(text) == plain


def test_sizes_are_unsigned() -> None:
    assert [unsigned(size) for size in (0, 5, -1, -(2**63))] == [0, 5, 2**64 - 1, 2**63]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-09-18T14:21:26Z", 1_789_741_286),
        ("2026-09-18T16:21:26+02:00", 1_789_741_286),
        ("2026-09-18 14:21:26", 1_789_741_286),
        ("1969-12-31T23:59:59Z", None),
        ("2026-09-18T14:21:60Z", None),
        ("2026-09-18T25:21:26Z", None),
        ("yesterday", None),
        ("", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_times_of_events(text: str, seconds: int | None) -> None:
    assert epoch_s(text) == seconds


@given(st.lists(st.integers(min_value=86_400, max_value=253_402_300_799), min_size=1))
def test_times_as_the_writer_has_them_are_read_by_the_day(seconds: list[int]) -> None:
    texts = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in seconds]
    assert epochs_s(SEPARATOR.join(texts), len(texts)) == [epoch_s(text) for text in texts]


@pytest.mark.parametrize("odd", ["2026-09-18T14:21:60Z", "2026-09-18T25:21:26Z", "2026-09-18 14:21:26", "never", ""])
def test_an_odd_time_among_others_leaves_all_to_be_read_one_by_one(odd: str) -> None:
    assert epochs_s(f"2026-09-18T14:21:26Z{SEPARATOR}{odd}", 2) is None


@pytest.mark.parametrize("odd", ["2026-09-18T14:21:26Z_2026-09-18T14:21:26Z", "2026-09-18T14:21:26Z\u00e9"])
def test_a_longer_text_is_not_two_times(odd: str) -> None:
    assert epochs_s(odd, 1) is None


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("198.51.100.7:40001", "198.51.100.7"),
        ("client.example.org", "client.example.org"),
        ("[::1]:123", "::1"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"),
        ("2001:db8::7:40001", "2001:db8::7"),
        ("", None),
        (":5", None),
    ],
)
def test_client_host(text: str, host: str | None) -> None:
    assert client_host(text) == (host if host != ":5" else None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("wn1.example.org:wn2.example.org", ["wn1.example.org", "wn2.example.org"]),
        ("wn1:wn1:wn2:", ["wn1", "wn2"]),
        ("[2001:db8::17]:wn2", ["2001:db8::17", "wn2"]),
        ("2001:db8::17", ["2001:db8::17"]),
        ("", []),
        (" : ", []),
    ],
)
def test_hosts(text: str, names: list[str]) -> None:
    assert hosts_of(text) == tuple(Host(name) for name in names)


@pytest.mark.parametrize(
    "text",
    ["HEPSPEC", "HEPSPEC:", ":14.2", "HEPSPEC:fast", "HEPSPEC:0", "HEPSPEC:-1", "H:nan", "H:inf", "HEPSPEC:1:2", " a "],
)
def test_a_benchmark_that_cannot_be_read_is_its_text_without_a_score(text: str) -> None:
    assert benchmarks_of(text) == (Benchmark(text.strip(), 0.0),)


def test_no_benchmark() -> None:
    assert benchmarks_of("") == ()
    assert benchmarks_of(" ") == ()


def test_benchmark() -> None:
    assert benchmarks_of("HEPscore23:14.20") == (Benchmark("HEPscore23", 14.2),)


@given(st.sets(st.integers(min_value=1, max_value=2_000) | st.integers(min_value=1, max_value=10**9)))
def test_packed_ids_come_back(ids: set[int]) -> None:
    assert unpack(pack(ids)) == ids


def test_packed_ids_are_small() -> None:
    assert pack(range(1_000, 2_000_000)) == "1000+1998999"
    assert len(pack(range(5_000_000, 5_000_300, 3))) == len("5000000") + 99 * len(",3")


@pytest.mark.parametrize("cursor", [{"last": "x"}, {"pending": "1,?"}, {"last": 5, "slices": [[1]]}])
def test_a_cursor_that_is_not_ours_is_the_beginning(cursor: dict[str, object]) -> None:
    assert ArcCursor.of(cursor) == ArcCursor()
