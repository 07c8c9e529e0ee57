"""inspect: what it shows, what programs get of it, its exit codes, and that no input makes it fall."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from formats.apel.fold import Fold, SyncFold
from formats.job import Job
from formats.registry import record_format, totals_format
from formats.view import View
from publisher.security.credentials import load_credentials
from publisher.security.sign import Signer
from publisher.simulator.pki import Pki
from tests.formats.golden_jobs import ARC
from tests.publisher.cli.program import Program

pytestmark = pytest.mark.inside

YEARS_S = 6 * 365 * 86_400
OLD: Job = msgspec.structs.replace(
    ARC,
    **{
        name: value - YEARS_S
        for name in ("submit", "lrms_submit", "start", "end", "execution_start", "execution_end")
        if isinstance(value := getattr(ARC, name), int)
    },
)
"""Long past whatever the clock of this machine says: some rules are about it."""
OTHER = msgspec.structs.replace(OLD, record_id="ur-ce1.example.org-2", local_id="1000002", global_id="2")
CREATED = 1_610_000_000
VIEW = View(site="EXAMPLE-SITE")


def records(name: str) -> bytes:
    renderer = record_format(name, VIEW)
    return renderer.message([renderer.record(job, CREATED).body for job in (OLD, OTHER)])


def summaries() -> bytes:
    fold = Fold(VIEW)
    for job in [OLD, OTHER]:
        fold.add(job)
    renderer = totals_format("apel-summary", VIEW)
    return renderer.message([renderer.record(group).body for group in fold.groups()])


def sync() -> bytes:
    fold = SyncFold(VIEW)
    fold.add(OLD)
    renderer = totals_format("apel-sync", VIEW)
    return renderer.message([renderer.record(count).body for count in fold.groups()])


MESSAGES = {
    "ur.xml": records("ogf-ur"),
    "ur-refused.xml": records("ogf-ur").replace(b"<NodeCount>2", b"<NodeCount>70000").replace(b"KB", b"Kb", 1),
    "car.xml.gz": gzip.compress(records("emi-car"), mtime=0),
    "car-refused.xml": records("emi-car").replace(b"<Site", b"<Place", 1).replace(b"</Site", b"</Place", 1),
    "jobs.txt": records("apel-job"),
    "jobs-refused.txt": records("apel-job").replace(b"Queue: main", b"Queue: main\n\nColour: red", 1),
    "summaries.txt": summaries(),
    "sync.txt": sync(),
    "nothing.txt": b"Dear service,\nhere is what we used: \x1b[31mlots\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Program:
    program = Program(tmp_path_factory.mktemp("messages"), "")
    for name, content in MESSAGES.items():
        (program.folder / name).write_bytes(content)
    return program


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_shown(name: str, folder: Program, fixtures: Path, rewrite_golden: bool) -> None:
    done = folder("inspect", name)
    path = fixtures / "golden" / "inspect" / f"{name.partition('.')[0]}.txt"
    if rewrite_golden:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(done.out, encoding="utf-8")
    assert done.out == path.read_text(encoding="utf-8")
    assert done.code == (3 if "refused" in name or name == "nothing.txt" else 0), done.err


def test_no_golden_file_is_left_over(fixtures: Path) -> None:
    stems = {path.stem for path in (fixtures / "golden" / "inspect").iterdir()}
    assert stems == {name.partition(".")[0] for name in MESSAGES}


def test_what_programs_get(folder: Program) -> None:
    done = folder("inspect", "ur-refused.xml", "summaries.txt", "--json")
    assert done.code == 3
    assert done.object["taken"] is False
    refused, taken = done.object["messages"]
    assert refused.keys() == {
        "file", "layers", "format", "title", "service", "taken", "valid", "records", "violations",
    }  # fmt: skip
    assert (refused["format"], refused["service"], refused["taken"]) == ("ogf-ur", "SGAS", False)
    assert refused["records"][0]["job"]["wall_ms"] == OLD.wall_ms
    error = next(one for one in refused["violations"] if one["level"] == "error")
    assert (error["record"], error["field"], error["source"]) == (1, "NodeCount", "SGAS column, 16 bits")
    assert (taken["taken"], taken["records"][0]["fields"]["NumberOfJobs"]) == (True, "2")


def test_numbers_that_json_has_no_place_for(folder: Program) -> None:
    content = records("ogf-ur").replace(b"<NodeCount>2", b"<NodeCount>" + b"9" * 400)
    (folder.folder / "huge.xml").write_bytes(content.replace(b"<Status>", b"<Charge>INF</Charge><Status>", 1))
    done = folder("inspect", "--json", "huge.xml")
    job = done.object["messages"][0]["records"][0]["job"]
    assert (done.code, job["nodes"], job["charge"]) == (3, "a number of 1329 bits", "inf")


def test_standard_input_and_limit(folder: Program) -> None:
    done = folder("inspect", "-", "--limit", "1", answers=MESSAGES["jobs.txt"].decode()).ok()
    assert done.out.startswith("standard input: APEL individual jobs v0.3")
    assert "(1 more record; --json lists all)" in done.out


def test_limit_0_shows_the_verdict_alone(folder: Program) -> None:
    done = folder("inspect", "sync.txt", "--limit", "0").ok()
    assert [line.strip() for line in done.out.splitlines()][1:] == [
        "(1 more record; --json lists all)", "1 record; 0 errors, 0 warnings; APEL would accept it",
    ]  # fmt: skip


def test_signature_and_authorities(folder: Program, pki: Pki, tmp_path: Path) -> None:
    now = Path(pki.client.certificate).stat().st_mtime + 60
    credentials = load_credentials(pki.client.certificate, pki.client.key, now_s=now)
    (folder.folder / "signed.eml").write_bytes(Signer(credentials, clock=lambda: now).sign(MESSAGES["sync.txt"]))
    done = folder("inspect", "signed.eml", "--ca", pki.ca_directory).ok()
    assert f"signed by {pki.client.dn}; the signature is valid; the signer's certificate is trusted" in done.out
    assert "the signer's certificate is not checked" in folder("inspect", "signed.eml").ok().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone.xml"], 2, "gone.xml does not exist"),
        (["ur.xml", "--key", "k.pem"], 2, "go together"),
        (["ur.xml", "--ca", "gone.pem"], 2, "--ca: gone.pem does not exist"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], code: int, message: str, folder: Program) -> None:
    done = folder("inspect", *arguments)
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err


HOSTILE = (
    b"", b"\0", b"\xff" * 99, b"<" * 9999, b"\x1f\x8b", b'{"messages":[' * 9999,
    b"Content-Type: multipart/signed\n\n", b"\xff\xfe<\0a\0/\0>\0",
    b"APEL-sync-message: v0.1\nSite: \xe2\x80\xae\x1b[2J\n",
)  # fmt: skip


def test_hostile_files_are_one_clear_answer_each(folder: Program) -> None:
    (folder.folder / "hostile").mkdir()
    for number, content in enumerate(HOSTILE):
        (folder.folder / "hostile" / str(number)).write_bytes(content)
    done = folder("inspect", "hostile")
    assert (done.code, done.err) == (3, "a service would refuse the messages with errors\n")
    answers = done.out.split("\nhostile/")
    assert len(answers) == len(HOSTILE)
    assert all("\n  error: " in answer and answer.rstrip().endswith("would refuse it") for answer in answers)
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


def test_what_render_writes_is_valid_and_would_be_taken(collected: Program) -> None:
    """The formats of all that the fixture's jobs can be rendered in, validated before and inspected after."""
    for name in ("ogf-ur", "emi-car", "apel-summary"):
        done = collected("render", name, "--since", "2026-01", "--validate", "--output", name, "--json")
        assert (done.code, done.object.get("broken_rules")) == (0, []), (name, done.out, done.err)
        assert done.object["files"] == len(list((collected.folder / name).iterdir())) > 0
        inspected = collected("inspect", name, "--json")
        formats = {one["format"] for one in inspected.object["messages"]}
        assert formats <= {name, "apel-sync"}
        assert all(one["valid"] for one in inspected.object["messages"]), name
        assert inspected.code == 0
