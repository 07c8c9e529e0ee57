"""BLAH lines: of BLAH itself, of ARC with its escapes, of HTCondor-CE, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.grid_identity import Entry
from publisher.sources.fields import LineError
from publisher.sources.grid_log import MAX_LINE_BYTES, entry, pages

AT = '"timestamp=2026-11-20 18:40:00"'


def test_a_line_of_blah() -> None:
    line = (
        f'{AT} "userDN=/DC=org/O=Grid/CN=Ada Byron/Email=ada@example.org" "userFQAN=/atlas/Role=NULL/Capability=NULL" '
        '"userFQAN=/atlas/no/Role=NULL" "userFQAN=/atlas/Role=NULL/Capability=NULL" "ceID=ce:8443/cream-pbs-long" '
        '"jobID=https://ce:9000/x=y" "lrmsID=9575064.lrms1" "localUser=11999" "clientID=c"'
    )
    assert entry(line.encode()) == Entry(
        1_795_200_000,
        "9575064.lrms1",
        "/DC=org/O=Grid/CN=Ada Byron/Email=ada@example.org",
        ("/atlas/Role=NULL/Capability=NULL", "/atlas/no/Role=NULL"),
        "ce:8443/cream-pbs-long",
    )


@pytest.mark.parametrize("written", [r"/CN=Ada \"the\" B\\C", r'/CN=Ada "the" B\C'])
def test_quotes_and_backslashes_escaped_or_not(written: str) -> None:
    found = entry(f'{AT} "userDN={written}" "lrmsID=1"'.encode())
    assert found is not None
    assert found.user_dn == '/CN=Ada "the" B\\C'


def test_bytes_that_are_no_utf8_are_kept() -> None:
    found = entry(AT.encode() + b' "userDN=/CN=Ad\xe9" "lrmsID=1"')
    assert found is not None
    assert found.user_dn == "/CN=Ad\\xe9"


def test_a_line_that_names_nobody_is_passed_over() -> None:
    assert entry(f'{AT} "userDN=" "lrmsID=1" "localUser=3"'.encode()) is None
    assert entry(b"") is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"no entry", "no BLAH line"),
        (b'"x"', "no BLAH line"),
        (b'"', "no BLAH line"),
        (f'{AT} "userDN=/CN=Ada"'.encode(), "has no lrmsID"),
        (b'"userDN=/CN=Ada" "lrmsID=1"', "has no timestamp"),
        (b'"timestamp=2026-02-30 00:00:00" "userDN=/CN=Ada" "lrmsID=1"', "has no timestamp"),
        (b"\0" * 10, "NUL"),
        (b'"a=' * (MAX_LINE_BYTES // 3 + 1), "longer than"),
    ],
)
def test_what_is_no_entry(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason):
        entry(line)


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from((b'"', b"=", b" ", b"a", b"lrmsID", b"\\")), max_size=60).map(b"".join)
)
def test_any_bytes_are_an_entry_or_an_error(line: bytes) -> None:
    try:
        entry(line)
    except LineError:
        return


def test_a_log_is_read_on_from_where_it_stopped(tmp_path: Path) -> None:
    log = tmp_path / "blahp.log-20261120"
    log.write_text(f'{AT} "userDN=/CN=A" "lrmsID=1"\nnone\n{AT} "userDN=/CN=B" "lrmsID=2"', encoding="ascii")
    (first,) = pages(tmp_path / "blahp.log*", {})
    assert ([each.lrms_id for each in first.entries], len(first.unreadable)) == (["1"], 1)
    with log.open("a", encoding="ascii") as file:
        file.write("\n")
    (tmp_path / "blahp.log-20261121").write_text(f'{AT} "userDN=/CN=C" "lrmsID=3"\n', encoding="ascii")
    found = [each.lrms_id for page in pages(tmp_path / "blahp.log*", first.cursor) for each in page.entries]
    assert found == ["2", "3"]


def test_the_samples(shared: Path) -> None:
    found = [each for page in pages(shared / "samples" / "blah" / "blah-sample.log", {}) for each in page.entries]
    assert [each.lrms_id for each in found] == ["9575064.lrms1", "1_hepgrid6.ph.liv.ac.uk", "3639.grid012.ct.infn.it"]
    assert found[2].fqans[0] == "/atlas/Role=NULL/Capability=NULL"
