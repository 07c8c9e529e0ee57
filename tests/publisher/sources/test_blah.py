"""BLAH lines: of BLAH itself, of ARC with its escapes, of HTCondor-CE, and what is none."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.job import Job
from publisher.grid_identity import GridLogEntry, entry_for
from publisher.sources.blah import MAX_LINE_BYTES, entry, pages
from publisher.sources.fields import LineError
from publisher.sources.htcondor.lines import GridEntryParser
from tests.publisher.sources.log_reading import changed, mutated, watched

AT = '"timestamp=2026-11-20 18:40:00"'


def test_a_line_of_blah() -> None:
    line = (
        f'{AT} "userDN=/DC=org/O=Grid/CN=Ada Byron/Email=ada@example.org" "userFQAN=/atlas/Role=NULL/Capability=NULL" '
        '"userFQAN=/atlas/no/Role=NULL" "userFQAN=/atlas/Role=NULL/Capability=NULL" "ceID=ce:8443/cream-pbs-long" '
        '"jobID=https://ce:9000/x=y" "lrmsID=9575064.lrms1" "localUser=11999" "clientID=c"'
    )
    assert entry(line.encode()) == GridLogEntry(
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


def test_bytes_that_are_not_utf8_are_kept() -> None:
    found = entry(AT.encode() + b' "userDN=/CN=Ad\xe9" "lrmsID=1"')
    assert found is not None
    assert found.user_dn == "/CN=Ad\\xe9"


def test_a_line_without_a_user_is_skipped() -> None:
    assert entry(f'{AT} "userDN=" "lrmsID=1" "localUser=3"'.encode()) is None
    assert entry(b"") is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"no entry", "not a BLAH line"),
        (b'"x"', "not a BLAH line"),
        (b'"', "not a BLAH line"),
        (f'{AT} "userDN=/CN=Ada"'.encode(), "has no lrmsID"),
        (b'"userDN=/CN=Ada" "lrmsID=1"', "has no timestamp"),
        (b'"timestamp=2026-02-30 00:00:00" "userDN=/CN=Ada" "lrmsID=1"', "has no timestamp"),
        (b"\0" * 10, "NUL"),
        (b'"a=' * (MAX_LINE_BYTES // 3 + 1), "longer than"),
    ],
)
def test_what_is_not_an_entry(line: bytes, reason: str) -> None:
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


ROUTED = """GlobalJobId = "ce1.example.org#12.0#1795190000"
ClusterId = 12
ProcId = 0
JobStatus = 4
QDate = 1795190000
JobStartDate = 1795200000
CompletionDate = 1795203600
RemoteWallClockTime = 3600.0
RoutedFromJobId = "11.0"
GridJobId = "batch slurm ce1.example.org_9619_ce1.example.org#12.0#1795190000 slurm/20261120/4711"
x509userproxysubject = "/DC=org/CN=Ada"
x509UserProxyFirstFQAN = "/atlas/Role=production/Capability=NULL"
x509UserProxyFQAN = "/DC=org/CN=Ada,/atlas/Role=production/Capability=NULL,/atlas/Role=NULL"
AuthTokenSubject = "5f3c"
AuthTokenIssuer = "https://atlas-auth.example.org/"
*** Offset = 0 ClusterId = 12 ProcId = 0 Owner = "atlprd" CompletionDate = 1795203600
"""
OF_ADA = GridLogEntry(
    1_795_200_000,
    "slurm/20261120/4711",
    "/DC=org/CN=Ada",
    ("/atlas/Role=production/Capability=NULL", "/atlas/Role=NULL"),
    "ce1.example.org",
    "5f3c",
    "https://atlas-auth.example.org/",
)


def test_the_history_of_a_computing_element_names_the_jobs_it_handed_on(tmp_path: Path) -> None:
    history = tmp_path / "history"
    incoming = ROUTED.replace("#12.0", "#11.0").replace("12", "11").replace("RoutedFromJobId", "RoutedToJobId")
    incoming = "".join(line for line in incoming.splitlines(keepends=True) if not line.startswith("GridJobId"))
    history.write_text(incoming + ROUTED, encoding="ascii")
    (page,) = pages(history, {})
    assert (page.entries, page.unreadable) == ((OF_ADA,), ())


def ad(number: int, **attributes: str) -> str:
    lines = {"GlobalJobId": f'"ce1.example.org#{number}.0#1795190000"', "ClusterId": f"{number}", "ProcId": "0"}
    text = "".join(f"{name} = {value}\n" for name, value in (lines | {"QDate": "1795190000"} | attributes).items())
    return f"{text}*** Offset = 0 ClusterId = {number} ProcId = 0\n"


TOKEN = {"AuthTokenSubject": '"5f3c"', "AuthTokenIssuer": '"https://i/"', "AuthTokenGroups": '"/atlas,/atlas/pilot"'}
CLAIMED = {f"orig_{name}": '"/atlas/production"' for name in TOKEN}
JOB = ad(11, RoutedToJobId='"12.0"', **TOKEN)
COPY = ad(12, RoutedFromJobId='"11.0"', GridJobId='"batch slurm ce#12.0#1 slurm/20261120/4711"', **CLAIMED)
"""As HTCondor-CE 5.1.5 and later write them: in the copy, a user may have set what the token does not have."""


@pytest.mark.parametrize("order", [(JOB, COPY), (COPY, JOB)])
def test_the_token_is_that_of_the_job_as_it_was_submitted(tmp_path: Path, order: tuple[str, str]) -> None:
    history = tmp_path / "history"
    history.write_text(order[0], encoding="ascii")
    (*_, before) = pages(history, {})
    history.write_text("".join(order), encoding="ascii")
    (page,) = pages(history, json.loads(json.dumps(before.cursor)))
    (entry,) = page.entries
    assert (entry.lrms_id, entry.token_issuer, entry.token_groups) == (
        "slurm/20261120/4711", "https://i/", ("/atlas", "/atlas/pilot"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "ads",
    [
        (COPY,),
        (COPY, JOB.replace("12.0", "13.0")),
        (COPY, JOB.replace("AuthToken", "orig_AuthToken")),
        (JOB, COPY.replace('"11.0"', '"10.0"')),
    ],
)
def test_what_only_a_user_says_is_no_token(tmp_path: Path, ads: tuple[str, ...]) -> None:
    history = tmp_path / "history"
    history.write_text("".join(ads), encoding="ascii")
    assert [each for page in pages(history, {}) for each in page.entries] == []


def test_an_ad_that_comes_in_pieces_is_one(tmp_path: Path) -> None:
    history = tmp_path / "history"
    lines = ROUTED.splitlines(keepends=True)
    history.write_text("".join(lines[:7]), encoding="ascii")
    (*_, begun) = pages(history, {})
    assert begun.entries == ()
    history.write_text(ROUTED, encoding="ascii")
    (page,) = pages(history, begun.cursor)
    assert page.entries == (OF_ADA,)


def test_files_of_a_per_job_history_are_an_ad_each(tmp_path: Path) -> None:
    ads = [ROUTED.rpartition("***")[0].replace("4711", str(number)) for number in (4711, 4712)]
    for number, ad in enumerate(ads):
        (tmp_path / f"history.{number}.0").write_text(ad, encoding="ascii")
    found = [each.lrms_id for page in pages(tmp_path, {}) for each in page.entries]
    assert sorted(found) == ["slurm/20261120/4711", "slurm/20261120/4712"]


@pytest.mark.parametrize(
    ("ad", "entries", "reasons"),
    [
        (
            ROUTED.replace("batch slurm ", "slurm ").replace(
                "ce1.example.org_9619_ce1.example.org#12.0#1795190000 ", ""
            ),
            0,
            0,
        ),
        ("".join(each for each in ROUTED.splitlines(keepends=True) if "x509" not in each and "Auth" not in each), 0, 0),
        (ROUTED.replace("JobStartDate", "Nothing").replace("QDate", "Nothing"), 0, 1),
        (ROUTED.replace('#1795190000"', '"', 1), 1, 0),
        (ROUTED.replace("ClusterId = 12 ", "ClusterId = 99 "), 0, 1),
    ],
)
def test_ads_without_information(tmp_path: Path, ad: str, entries: int, reasons: int) -> None:
    history = tmp_path / "history"
    history.write_text(ad, encoding="ascii")
    (page,) = pages(history, {})
    assert (len(page.entries), len(page.unreadable)) == (entries, reasons)


def test_a_job_handed_to_another_schedd_is_known_by_that_schedds_id(tmp_path: Path) -> None:
    history = tmp_path / "history"
    routed = '"condor schedd.example.org pool.example.org 77.0"'
    history.write_text(re.sub('"batch.*', routed, ROUTED), encoding="ascii")
    ((entry_of_ada,),) = (page.entries for page in pages(history, {}))
    run = Job(record_id="r", system="htcondor", status="completed", local_id="77.0", end=1_795_203_600)
    assert entry_for(run, [entry_of_ada]) == entry_of_ada
    given = entry_of_ada.given_to(run)
    assert (given.token_subject, given.token_issuer, given.vo) == ("5f3c", "https://atlas-auth.example.org/", "atlas")


def test_the_samples(shared: Path) -> None:
    found = [each for page in pages(shared / "samples" / "blah" / "blah-sample.log", {}) for each in page.entries]
    assert [each.lrms_id for each in found] == ["9575064.lrms1", "1_hepgrid6.ph.liv.ac.uk", "3639.grid012.ct.infn.it"]
    assert found[2].fqans[0] == "/atlas/Role=NULL/Capability=NULL"


def _lines_fuzzed(rounds: int) -> int:
    """Entries that came out of mutated lines of BLAH."""
    blah = f'{AT} "userDN=/O=Grid/CN=Ada" "userFQAN=/atlas/Role=NULL" "ceID=ce:9619/ce-condor" "lrmsID=95.lrms1"'
    found = 0
    for raw in mutated([blah.encode(), blah.replace("Ada", 'A \\"B\\"').encode()], rounds):
        with contextlib.suppress(LineError):
            found += entry(raw) is not None
    return found


def _ads_fuzzed(rounds: int) -> int:
    """Entries that came out of ads with changes."""
    chance = random.Random(20261121)
    ads = GridEntryParser()
    found = 0
    for _ in watched(rounds):
        for raw in changed([ROUTED.encode()], chance).split(b"\n"):
            ads.parse(raw)
        found += len(ads.entries)
        ads.entries.clear()
    assert len(msgspec.json.encode(ads.state())) < 1 << 24
    return found


def test_fuzz() -> None:
    assert _lines_fuzzed(10_000) > 500
    assert _ads_fuzzed(5_000) > 500


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fuzzed", [_lines_fuzzed, _ads_fuzzed])
def test_fuzz_long(fuzzed: Callable[[int], int]) -> None:
    assert fuzzed(1_000_000) > 50_000
