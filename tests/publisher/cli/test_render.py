"""render: the messages, to the terminal or to files, and nothing changes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from tests.publisher.cli.program import BASE, SOURCE, Program

pytestmark = pytest.mark.inside


def store_state(site: Program) -> dict[str, tuple[int, str]]:
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in site.folder.glob("store.db*")
        if not path.name.endswith(("-shm", "-wal", ".lock"))
    }


@pytest.mark.parametrize(
    "arguments",
    [("ogf-ur",), ("emi-car", "--since", "2026-09"), ("apel-summary", "--target", "summaries"), ("apel-sync",)],
)
def test_nothing_changes(collected: Program, arguments: tuple[str, ...]) -> None:
    before = store_state(collected)
    there = {path.name for path in collected.folder.iterdir() if not path.name.endswith(("-shm", "-wal"))}
    collected("render", *arguments).ok()
    assert store_state(collected) == before
    assert {path.name for path in collected.folder.iterdir() if not path.name.endswith(("-shm", "-wal"))} == there


def test_files_are_the_messages_and_nothing_else(collected: Program) -> None:
    shown = collected("render", "ogf-ur", "--target", "files", "--json", "--output", "rendered").ok().object
    written = sorted((collected.folder / "rendered").rglob("*"))
    assert len(written) == shown["files"] == 1
    assert sum(path.stat().st_size for path in written) == shown["bytes"]
    collected("publish", "files")
    sent = sorted((collected.folder / "files").iterdir())
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in sent]


AS_SENT = """
[targets.apel]
type = "ams"
url = "{ams}"
auth_url = "{token}"
records = "emi-car"
batch_bytes = 20_000
sync = false

[targets.months]
type = "directory"
path = "months"
layout = "files"
records = "apel-summary"

[credentials]
certificate = "{certificate}"
key = "{key}"
ca_file = "{ca}"
"""


def test_what_is_rendered_is_what_is_sent_to_the_byte(collected: Program, pki: Pki, tmp_path: Path) -> None:
    """Cut by the bytes of the signed message; summaries month by month, without the month that is held."""
    with Simulator(pki) as simulator:
        settings = AS_SENT.format(
            ams=simulator.ams_url, token=simulator.token_url, certificate=pki.client.certificate, key=pki.client.key,
            ca=pki.ca_file,
        )  # fmt: skip
        source = SOURCE.replace('complete_since = "2026-09-01"', 'complete_since = "2026-10-01"')
        collected.configure(BASE + source + settings)
        rendered = {name: tmp_path / name for name in ("emi-car", "apel-summary", "apel-sync")}
        for name, folder in rendered.items():
            target = "apel" if name == "emi-car" else "months"
            shown = collected("render", name, "--target", target, "--output", folder, "--json").ok().object
            assert shown["cut_otherwise"] is None
            assert shown["held"] == (13 if name == "apel-summary" else 0)
        assert collected("publish", "-q").code == 3
        sent = collected.rows("SELECT format, records, bytes FROM batches ORDER BY id")
        assert [(name, size) for name, _, size in sent if name == "emi-car"] == [
            ("emi-car", path.stat().st_size) for path in sorted(rendered["emi-car"].iterdir())
        ]
        assert sum(name == "emi-car" for name, _, _ in sent) > 4
    written = {path.read_bytes() for path in (collected.folder / "months").iterdir()}
    summaries = {path.read_bytes() for path in rendered["apel-summary"].iterdir()}
    counts = {path.read_bytes() for path in rendered["apel-sync"].iterdir()}
    assert len(summaries) == 2
    assert summaries <= written
    assert written - summaries <= counts


SIGNED = """
[targets.portal]
type = "https"
url = "https://portal.example.org/usage"
records = "ogf-ur"
{receiver}

[credentials]
certificate = "{certificate}"
key = "{key}"
"""


@pytest.mark.parametrize("encrypted", [False, True])
def test_messages_are_signed_and_encrypted_as_they_are_sent(collected: Program, pki: Pki, encrypted: bool) -> None:
    receiver = pki.issue("receiver", "receiver.example.org")
    line = f'encrypt_to = "{receiver.certificate}"' if encrypted else ""
    of_site = SIGNED.format(receiver=line, certificate=pki.client.certificate, key=pki.client.key)
    collected.configure(BASE + SOURCE + of_site)
    collected("render", "ogf-ur", "--target", "portal", "--sign", "--output", "signed").ok()
    (message,) = (collected.folder / "signed").iterdir()
    assert (b"enveloped-data" in message.read_bytes()) == encrypted
    keys = ("--certificate", receiver.certificate, "--key", receiver.key) if encrypted else ()
    shown = collected("inspect", message, "--ca", pki.ca_directory, *keys).ok().out
    assert f"signed by {pki.client.dn}; the signature is valid" in shown


def test_nothing_is_signed_without_a_certificate(collected: Program) -> None:
    done = collected("render", "ogf-ur", "--target", "files", "--sign", "--output", "signed")
    assert done.code == 4
    assert "no certificate is configured. Set certificate and key in [credentials]" in done.err
    assert not (collected.folder / "signed").exists()


def test_of_a_month_only_the_groups_that_changed_are_rendered(published: Program, tmp_path: Path) -> None:
    published.change_database("UPDATE AAR SET UsedWalltime = UsedWalltime + 60 WHERE RecordID = 20")
    published("collect", "--since", "2026-09").ok()
    rendered = tmp_path / "rendered"
    published("render", "apel-summary", "--target", "summaries", "--output", rendered).ok()
    before = set((published.folder / "summaries").rglob("*"))
    published("publish")
    (one,) = rendered.iterdir()
    assert one.read_bytes().count(b"NumberOfJobs") == 1
    assert one.read_bytes() in {
        path.read_bytes() for path in set((published.folder / "summaries").rglob("*")) - before if path.is_file()
    }


def test_without_the_certificate_it_says_that_messages_may_be_cut_otherwise(collected: Program, pki: Pki) -> None:
    settings = AS_SENT.format(
        ams="https://localhost:9", token="https://localhost:9", certificate=pki.client.certificate, key="no.key", ca="x"
    )
    collected.configure(BASE + SOURCE + settings)
    done = collected("render", "emi-car", "--target", "apel").ok()
    assert "publish may cut messages at other places: the key" in done.err


def test_what_was_published_waits_no_more(published: Program) -> None:
    assert published("render", "ogf-ur", "--target", "files", "--json").ok().object["records"] == 0


def test_files_are_never_overwritten(collected: Program) -> None:
    collected("render", "ogf-ur", "--output", "rendered").ok()
    done = collected("render", "ogf-ur", "--output", "rendered")
    assert done.code == 2
    assert "already exists" in done.err


def test_before_anything_was_collected(fresh: Program) -> None:
    done = fresh("render", "ogf-ur")
    assert done.code == 2
    assert "usage-publisher collect" in done.err
    assert not (fresh.folder / "store.db").exists()


def test_what_cannot_be_rendered_is_reported(collected: Program) -> None:
    text = collected.config.read_text().replace('benchmark = { type = "HEPscore23", value = 14.2 }\n', "")
    collected.configure(text)
    found = collected("render", "emi-car", "--since", "2026-09", "--json").ok().object
    assert found["held"] == len(found["held_records"]) > 0
    assert "benchmark" in found["held_records"][0]["reason"]


ABORTED_TOO = """
[targets.aborted-too]
type = "directory"
path = "aborted-too"
records = "emi-car"
statuses = ["completed", "failed", "aborted"]
"""


def test_what_is_alike_in_many_records_is_reported_once(collected: Program) -> None:
    collected.configure(collected.config.read_text() + ABORTED_TOO + 'unknown_vo = "hold"\n')
    reported = collected("render", "emi-car", "--since", "2026-09", "--target", "aborted-too").ok().err
    assert re.search(r"^held: \d+ records, the first ur-ce\d.example.org-\w+: VO: unknown", reported, re.MULTILINE)
    assert reported.count("held: ") == 1


@pytest.mark.parametrize(
    ("options", "beside"),
    [
        (("--explain", "x", "--diff"), "--diff"),
        (("--explain", "x", "--output", "folder"), "--output"),
        (("--diff", "--sign", "--validate"), "--sign, --validate"),
    ],
)
def test_options_that_show_no_messages_exclude_those_about_messages(
    collected: Program, options: tuple[str, ...], beside: str
) -> None:
    done = collected("render", "ogf-ur", *options)
    assert done.code == 2
    assert f"shows no messages: omit {beside}\n" in done.err
    assert not (collected.folder / "folder").exists()


def test_a_folder_that_is_a_file(collected: Program) -> None:
    (collected.folder / "file").write_text("")
    done = collected("render", "ogf-ur", "--output", "file")
    assert done.code == 2
    assert "file is a file. Name a folder" in done.err


def test_a_folder_that_cannot_be_made(collected: Program) -> None:
    (collected.folder / "file").write_text("")
    done = collected("render", "ogf-ur", "--output", Path("file") / "folder")
    assert done.code in {1, 2}
    assert "Traceback" not in done.err
    assert "file" in done.err


@pytest.mark.parametrize("format_name", ["ogf-ur", "apel-summary", "apel-sync"])
def test_without_a_target_it_shows_what_is_usually_sent(collected: Program, format_name: str) -> None:
    """As many as a target with the default settings gets: no aborted jobs of ARC, whatever the number of targets."""
    window = ("--since", "2026-01", "--until", "2027-01", "--json")
    collected.configure(collected.config.read_text().replace('records = "apel-summary"', 'records = "emi-car"'))
    plain = collected("render", format_name, *window).ok().object["records"]
    records = "apel-summary" if format_name == "apel-sync" else format_name
    target = f'[targets.plain]\ntype = "directory"\npath = "plain"\nrecords = "{records}"\n'
    other = ABORTED_TOO.replace('"emi-car"', f'"{records}"')
    collected.configure(collected.config.read_text() + target + other)
    of_target = collected("render", format_name, "--target", "plain", *window).ok().object["records"]
    assert collected("render", format_name, *window).ok().object["records"] == plain == of_target
    if format_name == "ogf-ur":
        assert collected("render", format_name, "--target", "aborted-too", *window).object["records"] > plain
