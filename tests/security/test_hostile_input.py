"""Hostile input, as one suite: each attack is refused or neutralised, by the command or the service that gets it.

The parts have their own tests; these are the attacks as an attacker would try them.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from tests.publisher.cli.program import BASE, FILES, SOURCE, Program
from tests.publisher.simulator.records import Client, message, record

SECRET = "the-secret-of-another-file"


def bomb() -> str:
    lines = ["<!DOCTYPE r [", '<!ENTITY a "aaaaaaaaaa">']
    lines += [f'<!ENTITY {chr(98 + level)} "{f"&{chr(97 + level)};" * 10}">' for level in range(9)]
    return "\n".join([*lines, "]>"])


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """An address to which nothing must connect, and what came."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        done = threading.Event()

        def listen() -> None:
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    came.append(b"somebody asked")

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/", came
        finally:
            done.set()
            thread.join()


def attacks(file: Path, url: str) -> dict[str, bytes]:
    plain = message(record(1)).decode()
    head, body = plain.split("\n", 1)
    named = body.replace("/DC=org/CN=Jane", "&x;")
    return {
        "a bomb of entities": f"{head}\n{bomb()}\n{body.replace('/DC=org/CN=Jane', '&j;')}".encode(),
        "an entity from a file": f'{head}\n<!DOCTYPE r [<!ENTITY x SYSTEM "file://{file}">]>\n{named}'.encode(),
        "an entity from the network": f'{head}\n<!DOCTYPE r [<!ENTITY x SYSTEM "{url}">]>\n{named}'.encode(),
        "a DTD from the network": f'{head}\n<!DOCTYPE r SYSTEM "{url}dtd">\n{body}'.encode(),
        "an entity of parameters": f'{head}\n<!DOCTYPE r [<!ENTITY % p SYSTEM "{url}p"> %p;]>\n{body}'.encode(),
        "XInclude": f'{head}\n{body}'.replace(
            "/DC=org/CN=Jane",
            f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" parse="text" href="file://{file}"/>',
        ).encode(),
        "a hundred thousand levels": b"<a>" * 100_000,
    }  # fmt: skip


ATTACKS = tuple(attacks(Path("/"), ""))


@pytest.mark.parametrize("attack", ATTACKS)
def test_inspect_expands_includes_and_asks_for_nothing(fresh: Program, tmp_path: Path, attack: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    with listener() as (url, came):
        given = fresh.folder / "message.xml"
        given.write_bytes(attacks(secret, url)[attack])
        done = fresh("inspect", given)
    assert not came
    assert SECRET not in done.out + done.err
    assert len(done.out) + len(done.err) < 20_000
    assert done.code in ({0} if attack == "XInclude" else {1, 3}), "an element that is only a name harms nobody"
    assert "Traceback" not in done.err


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_simulated_service_expands_includes_and_asks_for_nothing(
    simulator: Simulator, client: Client, tmp_path: Path, attack: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    with listener() as (url, came):
        reply = client("POST", "/sgas/ur", attacks(secret, url)[attack])
    assert not came
    assert SECRET.encode() not in reply.body
    held = simulator.sgas.holdings()
    assert SECRET not in repr(held)
    assert client("POST", "/sgas/ur", message(record(2))).status == 200, "it went on"


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u202egnp\u2028x\u0085y"


def test_names_from_outside_do_not_steer_a_terminal(fresh: Program) -> None:
    fresh.change_database("UPDATE JobExtraInfo SET InfoValue = ? WHERE InfoKey = 'jobname'", ESCAPES)
    fresh.change_database("UPDATE Queues SET Name = ? WHERE ID = 1", f"main{ESCAPES}")
    assert fresh("collect").code == 0
    name = fresh.rows("SELECT record_id FROM runs ORDER BY id")[0][0]
    shown = [
        fresh(*words)
        for words in (["jobs"], ["jobs", name], ["status"], ["report", "utilization"], ["render", "ogf-ur"])
    ]
    for done in shown[:4]:
        for dangerous in ("\x1b", "\x07", "\u202e", "\u2028", "\u0085"):
            assert dangerous not in done.out + done.err
    assert "\x1b" not in shown[4].out


def test_markup_in_names_is_text_on_the_page(fresh: Program) -> None:
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    fresh.change_database("UPDATE JobExtraInfo SET InfoValue = ? WHERE InfoKey = 'jobname'", evil)
    fresh.change_database("UPDATE Queues SET Name = ? WHERE ID = 1", evil)
    assert fresh("collect").code == 0
    page = fresh.folder / "page.html"
    done = fresh("report", "utilization", "--format", "html", "--since", "2020-01-01", "--until", "2030-01-01", "--bin",
                 "365d", "--by", "queue", "--output", page)  # fmt: skip
    assert done.code == 0, done.err
    text = page.read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text or "&lt;img" in text


def test_ids_from_outside_do_not_become_paths(fresh: Program) -> None:
    fresh.change_database("UPDATE AAR SET JobID = '../../../escaped' || RecordID WHERE RecordID < 4")
    fresh.configure(BASE + SOURCE + FILES + "batch_records = 1\n")
    fresh("run")
    fresh("render", "ogf-ur", "--output", fresh.folder / "rendered")
    outside = {path.name for path in fresh.folder.parent.rglob("*escaped*")}
    assert outside == set()
    for folder in ("files", "rendered"):
        if (fresh.folder / folder).exists():
            assert all(".." not in path.name for path in (fresh.folder / folder).rglob("*"))


def test_a_store_that_is_a_link_is_not_followed(fresh: Program) -> None:
    victim = fresh.folder / "victim"
    victim.write_text("", encoding="utf-8")
    victim.chmod(0o600)
    (fresh.folder / "store.db").symlink_to(victim)
    done = fresh("collect")
    assert done.code == 5, done.err
    assert victim.read_bytes() == b""


def test_a_lock_that_is_a_link_is_not_followed(collected: Program) -> None:
    victim = collected.folder / "victim"
    for lock in ("collect", "target-files", "target-summaries"):
        link = collected.folder / f"store.db.{lock}.lock"
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
    done = collected("run")
    assert done.code == 5, done.err
    assert not victim.exists()


def test_output_does_not_go_through_links(collected: Program) -> None:
    victim = collected.folder / "victim"
    victim.write_text("untouched", encoding="utf-8")
    files = collected.folder / "files"
    files.symlink_to(collected.folder / "nowhere")
    done = collected("publish", "files")
    assert victim.read_text(encoding="utf-8") == "untouched"
    assert not (collected.folder / "nowhere").exists() or done.code == 0


def test_a_key_that_others_can_read_is_refused(collected: Program, pki: Pki) -> None:
    key = collected.folder / "key.pem"
    key.write_bytes(pki.client.key.read_bytes())
    key.chmod(0o644)
    collected.configure(
        BASE + SOURCE + '[targets.neic]\ntype = "sgas"\nurl = "https://localhost:1/sgas"\n'
        f'[credentials]\ncertificate = "{pki.client.certificate}"\nkey = "{key}"\nca_file = "{pki.ca_file}"\n'
    )
    done = collected("publish")
    assert done.code == 4, done.err
    assert "key.pem" in done.err
    assert "chmod" in done.err
    assert "PRIVATE KEY" not in done.out + done.err


def test_no_secret_is_in_the_process_list_or_the_environment_of_a_child(collected: Program) -> None:
    process = collected.start("run", "--every", "1h")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"key" not in shown
    finally:
        process.kill()
        process.communicate()


def test_the_proxy_of_the_environment_is_not_asked(collected: Program, pki: Pki) -> None:
    with listener() as (url, came):
        collected.configure(
            BASE + SOURCE + '[targets.neic]\ntype = "sgas"\nurl = "https://localhost:1/sgas"\nattempts = 1\n'
            f'[credentials]\ncertificate = "{pki.client.certificate}"\nkey = "{pki.client.key}"\n'
            f'ca_file = "{pki.ca_file}"\n'
        )
        done = collected("publish", https_proxy=url, HTTPS_PROXY=url, ALL_PROXY=url)
    assert done.code == 1
    assert not came


def test_the_store_and_its_folder_are_private(fresh: Program) -> None:
    fresh.configure(BASE.replace("sqlite:///store.db", "sqlite:///state/store.db") + SOURCE)
    old = os.umask(0)
    try:
        fresh("collect").ok()
    finally:
        os.umask(old)
    assert (fresh.folder / "state").stat().st_mode & 0o777 == 0o700
    for path in (fresh.folder / "state").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path.name
