"""Wrong input: one clear message, the right exit code, nothing lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from publisher.simulator.pki import Pki
from publisher.simulator.simulator import Simulator
from tests.publisher.cli.program import BASE, FILES, SOURCE, WHOLE, Program

CLOSED_PORT = 9
AMS = """
[targets.apel]
type = "ams"
url = "https://localhost:{port}"
auth_url = "https://localhost:{port}"
attempts = 1

[credentials]
certificate = "{certificate}"
key = "{key}"
ca_file = "{ca}"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BASE + FILES, ("no source is configured", "[sources.NAME]")),
        (WHOLE.replace("benchmark =", "benchmerk ="), ("publisher.toml", "sources.ce1.benchmerk", "'benchmark'")),
        (WHOLE.replace('layout = "files"', 'layout = "zip"'), ("publisher.toml", "targets.files.layout", "'dirq'")),
        (
            WHOLE.replace('layout = "files"', 'layout = "files"\nversion = "9.9"'),
            ("publisher.toml", "targets.files", "has no version '9.9'; it has"),
        ),
        (WHOLE.replace('type = "arc"', 'type = "ark"'), ("sources.ce1.type", "gridengine", "'arc'")),
        (
            BASE + SOURCE + FILES.replace('type = "directory"', 'type = "folder"'),
            ("targets.files.type", "sgas", "directory"),
        ),
        (WHOLE.replace('name = "EXAMPLE-SITE"', ""), ("site.name", "missing")),
        (WHOLE.replace("[site]", "[site"), ("publisher.toml", "is not TOML")),
    ],
    ids=["no source", "key", "value", "version", "source", "target", "missing", "TOML"],
)
def test_configuration(fresh: Program, text: str, words: tuple[str, ...]) -> None:
    fresh.configure(text)
    done = fresh("run", "--quiet")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1, done.err
    assert [word for word in words if word not in done.err] == []


def test_every_problem_of_the_configuration_is_one_line(fresh: Program) -> None:
    fresh.configure(WHOLE.replace('type = "arc"', 'type = "ark"').replace('records = "ogf-ur"', 'recods = "ogf-ur"'))
    done = fresh("status", "--json")
    lines = done.err.splitlines()
    assert (done.code, len(lines)) == (2, 2)
    assert [line.startswith(f"usage-publisher: {fresh.config}:") for line in lines] == [True, True]
    assert done.object["error"].splitlines() == [line.removeprefix("usage-publisher: ") for line in lines]


def test_a_site_without_targets_is_for_reports_and_loses_no_job(fresh: Program) -> None:
    fresh.configure(BASE + SOURCE)
    done = fresh("run").ok()
    assert "no target is configured: nothing is sent" in done.err
    assert "Published" not in done.out
    assert "No target is configured: nothing is sent." in fresh("status").ok().out
    assert fresh("publish").code == 2
    assert "unless this site only makes reports" in re.sub(r"[\s│]+", " ", fresh("check").ok().out)
    fresh.configure(BASE + SOURCE + '[[charges.prices]]\nresource = "cores"\nprice = 1\n')
    assert "unless this site only makes reports" not in fresh("check").out
    fresh.configure(WHOLE)
    assert fresh("run", "--json").ok().object["targets"]["files"]["accepted"] == 37


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("publish", "nosuch"), "unknown target 'nosuch'; known: files, summaries"),
        (("collect", "nosuch"), "unknown source 'nosuch'; known: ce1"),
        (("render", "ogf-ur", "--target", "nosuch"), "unknown target 'nosuch'"),
        (
            ("render", "nosuch"),
            "apel-summary, apel-sync, auditor-record, emi-car, ogf-ur, waldur-usage, xdmod-slurm",
        ),
        (("republish", "nosuch", "--since", "2026-10", "--until", "2026-11"), "unknown target 'nosuch'"),
        (("republish", "files", "--since", "2026-10", "--until", "2026-11"), "this needs confirmation"),
        (("republish", "files", "--since", "2026-11", "--until", "2026-10"), "the window is empty"),
        (("republish", "files", "--since", "2026-11"), "Give --month, or --since and --until"),
        (("republish", "files"), "Give --month, or --since and --until"),
        (("republish", "files", "--month", "2026-11", "--until", "2026-12"), "--month cannot be combined"),
        (("jobs", "--since", "yesterday"), "--since: 'yesterday' is not a time"),
        (("jobs", "--state", "nosuch"), "unknown state 'nosuch'; known: waiting"),
        (("jobs", "--source", "nosuch"), "unknown source 'nosuch'; known: ce1"),
        (("jobs", "nosuch"), "job nosuch not found"),
        (("run", "--every", "often"), "--every: must be a duration"),
        (("run", "--every", "9" * 400), "--every: "),
        (("report", "nonsense"), "No such command 'nonsense'"),
        (("records", "list", "--state", "held", "--target", "nosuch"), "unknown target 'nosuch'"),
        (("records", "show", "nosuch", "--state", "held"), "record nosuch is not held"),
        (("records", "waive", "nosuch", "--state", "rejected", "--target", "files"), "a waiver needs a reason"),
        (("records", "waive", "nosuch", "--state", "rejected", "--reason", "old"), "record nosuch is not rejected"),
        (("records", "retry"), "no record is named"),
        (("reconcile", "--month", "oct"), "--month: 'oct' is not a month. Write it as 2026-11"),
        (("shadow", "files", "--month", "2026-13"), "--month: '2026-13' is not a month. Write it as 2026-11"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_there(published: Program, arguments: tuple[str, ...], message: str) -> None:
    done = published(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


SOME_DAYS = ("--since", "2026-09", "--until", "2026-10")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("publish", "file"), "unknown target 'file'; known: files, summaries; did you mean 'files'?"),
        (("collect", "ce2"), "unknown source 'ce2'; known: ce1; did you mean 'ce1'?"),
        (("render", "ogf-url"), "; did you mean 'ogf-ur'?"),
        (("jobs", "--state", "wating"), "; did you mean 'waiting'?"),
        (("report", "totals", "--by", "usr", *SOME_DAYS), "week, month, quarter, year; did you mean 'user'?"),
        (
            ("report", "totals", "--sort", "core", *SOME_DAYS),
            "no column 'core'; did you mean 'core_h'? Choose one of: ",
        ),
        (("report", "totals", "--output", "x.pdf", "--format", "csv"), "x.pdf and --format csv name different formats"),
        (
            ("report", "job", "--job", "105"),
            "has this id or name: choose an interval that begins earlier, or a pattern such as '105*'",
        ),
        (("render", "ogf-ur"), "nothing waits for files; --since TIME renders jobs by their end"),
        (("render", "ogf-ur", "--since", "2020-01", "--until", "2020-02"), "no job that files selects ended in this"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_nearly_is_right_gets_the_next_step(published: Program, arguments: tuple[str, ...], said: str) -> None:
    assert said in published(*arguments).err


def test_a_state_may_be_written_as_status_shows_it(published: Program) -> None:
    assert published("jobs", "--state", "in flight").ok().err == "no job matches\n"


def test_a_table_of_utilization_has_bins_that_can_be_read(published: Program) -> None:
    """Days of a month; data and pictures keep the hours."""
    table = published("report", "utilization", *SOME_DAYS).ok().out
    caption, _, rows = table.partition("\n")
    assert caption == "Running jobs, 2026-09-01 until 2026-10-01, UTC"
    assert rows.count("2026-09-") == 30
    assert published("report", "utilization", *SOME_DAYS, "--json").ok().object["bin_s"] == 3600
    assert published("report", "utilization", *SOME_DAYS, "--bin", "6h").ok().out.count("2026-09-") == 121


def test_a_record_that_is_accepted_is_named_as_such(published: Program) -> None:
    record = next(
        each["record_id"]
        for each in published("jobs", "--state", "accepted", "--json").object["records"]
        if each["targets"]["files"]["state"] == "accepted"
    )
    done = published("records", "show", record, "--target", "files")
    assert done.code == 2
    assert (
        f"record {record} is not held, rejected, or superseded for target files: it is accepted for files" in done.err
    )
    assert f"`usage-publisher jobs {record}` shows it" in done.err


def test_no_configuration_says_how_to_get_one(tmp_path: Path) -> None:
    done = Program(tmp_path)("--config", "missing.toml", "status")
    assert done.code == 2
    assert "there is no configuration file" in done.err
    assert "usage-publisher init" in done.err


def ams(pki: Pki, **changes: Path) -> str:
    files = {"certificate": pki.client.certificate, "key": pki.client.key, "ca": pki.ca_file} | changes
    return BASE + SOURCE + FILES + AMS.format(port=CLOSED_PORT, **files)


@pytest.mark.parametrize(
    ("case", "code", "word"),
    [
        ("missing key", 4, "cannot be read"),
        ("other key", 4, "does not belong to the certificate"),
        ("expired", 4, "expired"),
        ("closed port", 1, "refused"),
    ],
)
def test_credentials_and_services(collected: Program, pki: Pki, case: str, code: int, word: str) -> None:
    """The one target waits, saying why; the other is served."""
    expired = pki.issue("expired", "ce2.example.org", validity="expired") if case == "expired" else pki.client
    settings = {
        "missing key": {"key": collected.folder / "nosuch.pem"},
        "other key": {"key": pki.server.key},
        "expired": {"certificate": expired.certificate, "key": expired.key},
        "closed port": {},
    }[case]
    collected.configure(ams(pki, **settings))
    done = collected("publish", "--json")
    targets = done.object["targets"]
    assert done.code == code, done.err
    assert word in targets["apel"]["error"]
    assert targets["apel"]["accepted"] == 0
    assert targets["files"]["accepted"] == 37
    assert "Traceback" not in done.err


def test_plain_http_to_a_service_with_tls_says_that_https_is_needed(collected: Program, pki: Pki) -> None:
    with Simulator(pki) as simulator:
        url = simulator.sgas_url.replace("https://", "http://")
        client = pki.client
        collected.configure(
            f'{BASE}{SOURCE}[targets.sgas]\ntype = "sgas"\nurl = "{url}"\nattempts = 1\n[credentials]\n'
            f'certificate = "{client.certificate}"\nkey = "{client.key}"\nca_file = "{pki.ca_file}"\n'
        )
        done = collected("publish")
    assert done.code == 1
    assert "if the service uses TLS, write https://" in done.err


def test_an_error_of_the_program_is_a_message_with_a_code_of_its_own(collected: Program) -> None:
    """A file that the installation lost represents any fault."""
    program = """
import sys
class Lost:
    def find_spec(self, name, path=None, target=None):
        if name == "publisher.status.run_summary":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lost())
sys.argv[0] = "usage-publisher"
from publisher.cli.main import main
main()
"""
    for options, shown in (((), False), (("--verbose",), True)):
        done = subprocess.run(
            [sys.executable, "-c", program, "history", "--json", *options], cwd=collected.folder,
            env=collected.environment, capture_output=True, check=False, text=True,
        )  # fmt: skip
        assert done.returncode == 6
        assert json.loads(done.stdout)["exit_code"] == 6
        assert "internal error: ModuleNotFoundError" in done.stderr
        assert "CONTRIBUTING.md" in done.stderr
        assert ("Traceback" in done.stderr) == shown
