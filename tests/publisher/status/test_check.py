"""check: what a run will need, and what is likely to go wrong, found before it does."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from publisher.config import file as config_file
from publisher.config.schema import SOURCE_KINDS, Config
from publisher.finding import Finding
from publisher.observe.metrics import StatusCollector, serve
from publisher.simulator.pki import Pki, make_pki
from publisher.status import check_host
from publisher.status.check import check
from tests.publisher.auditor import AuditorDouble
from tests.publisher.observe.test_metrics import STATUS
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOW, ListSource, Site, make_jobs


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A separate PKI, because the test damages it."""
    return make_pki(tmp_path / "pki")


def config_of(pki: Pki, folder: Path, **target: object) -> Config:
    table = {
        "site": {"name": "EXAMPLE-SITE"},
        "store": {"url": "sqlite:///store.db"},
        "sources": {"ce1": {"type": "arc", "path": "x"}},
        "targets": {"neic": {"type": "sgas", "url": "https://sgas.example.org/sgas", **target}},
        "credentials": {
            "certificate": str(pki.client.certificate),
            "key": str(pki.client.key),
            "ca_directory": str(pki.ca_directory),
        },
    }
    return config_file.parse(table, folder / "publisher.toml")


def trusted(pki: Pki, folder: Path) -> list[Finding]:
    return list(check_host.trust(config_of(pki, folder), int(time.time())))


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def test_authorities_are_counted(pki: Pki, tmp_path: Path) -> None:
    (finding,) = trusted(pki, tmp_path)
    assert finding.level == "green"
    assert "authorities: 1, revocation lists: 0" in finding.message
    assert "fetch-crl" in finding.hint


def test_a_revocation_list_that_is_fresh_is_well(pki: Pki, tmp_path: Path) -> None:
    pki.revoke(pki.issue("other", "other.example.org"))
    assert levels(trusted(pki, tmp_path)) == ["green"]


def test_our_revoked_certificate_is_red(pki: Pki, tmp_path: Path) -> None:
    pki.revoke(pki.client)
    findings = trusted(pki, tmp_path)
    assert levels(findings) == ["green", "red"]
    assert "was revoked" in findings[1].message


def test_lists_that_expired_or_are_damaged_are_reported(pki: Pki, tmp_path: Path) -> None:
    path = pki.revoke()
    key = serialization.load_pem_private_key(pki.ca.key.read_bytes(), None)
    before = datetime.now(UTC) - timedelta(days=9)
    expired = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(pki.ca.load().subject)
        .last_update(before)
        .next_update(before + timedelta(days=1))
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    path.write_bytes(expired.public_bytes(serialization.Encoding.DER))
    (pki.ca_directory / "00000000.r0").write_bytes(b"no list")
    findings = trusted(pki, tmp_path)
    assert levels(findings) == ["green", "yellow"]
    assert path.name in findings[1].message
    assert "00000000.r0" in findings[1].message


def test_an_authority_of_ours_that_is_not_there(pki: Pki, tmp_path: Path) -> None:
    other = make_pki(tmp_path / "other", ca_cn="Another CA")
    config = config_of(pki, tmp_path, credentials={"ca_directory": str(other.ca_directory)})
    findings = list(check_host.trust(config, int(time.time())))
    assert levels(findings) == ["green", "yellow"]
    assert "was issued by an authority that is not in this directory" in findings[1].message


def test_no_authorities_at_all(pki: Pki, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, said in {"empty": "authorities: 0", "nosuch": "cannot be read"}.items():
        config = config_of(pki, tmp_path, credentials={"ca_directory": str(tmp_path / name)})
        (finding,) = check_host.trust(config, int(time.time()))
        assert finding.level == "red"
        assert said in finding.message
        assert finding.hint.endswith(f"Not tested without it: {next(iter(config.targets))}")


def test_a_service_without_authorities_is_reported_once(pki: Pki, tmp_path: Path) -> None:
    config = config_of(pki, tmp_path, credentials={"ca_directory": str(tmp_path / "nosuch")})
    red = [
        finding.subject for finding in check(config, lambda: None, lambda: int(time.time())) if finding.level == "red"
    ]
    assert red.count("authorities") == 1
    assert not [subject for subject in red if any(name in subject for name in config.targets)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    found = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("neic")])
    found.sources["ce1"].add(*make_jobs(3))
    return found


def said(site: Site, of: Callable[..., object]) -> list[Finding]:
    found = of(site.config, site.publisher.store, NOW)
    assert not isinstance(found, str)
    return list(found)  # type: ignore[call-overload,no-any-return]


def test_what_a_source_gave(site: Site) -> None:
    site.table["sources"]["ce1"]["expect_every"] = "6h"
    assert [finding.message for finding in said(site, check_host.collected)] == ["was never read"]
    site.collect()
    (finding,) = said(site, check_host.collected)
    assert finding.message.startswith("3 jobs collected, the last ended 2026-11-01T01:00:03Z")
    assert finding.level == "yellow", "it is silent"
    site.reopen()
    del site.table["sources"]["ce1"]["expect_every"]
    assert levels(said(site, check_host.collected)) == ["green"]
    site.sources["ce1"].fails = "the disk is gone"
    site.collect()
    assert levels(said(site, check_host.collected)) == ["red"]


def test_what_a_target_was_sent(site: Site) -> None:
    site.receivers["neic"].poison = {"ur-ce1.example.org-0002"}
    site.collect()
    site.publish()
    assert [finding.message for finding in said(site, check_host.targets)] == ["rejected: 1 record"]
    site.configure("neic", shadow=True)
    assert any("is a shadow" in finding.message for finding in said(site, check_host.targets))


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ({"type": "sgas", "url": "https://sgas.example.org/sgas"}, "Register it at SGAS (authorised names)"),
        ({"type": "directory", "path": "out", "records": "apel-job"}, ""),
    ],
)
def test_a_certificate_is_registered_where_it_is_used(
    pki: Pki, tmp_path: Path, target: dict[str, str], hint: str
) -> None:
    table = {
        "site": {"name": "EXAMPLE-SITE"},
        "store": {"url": "sqlite:///store.db"},
        "sources": {"ce1": {"type": "arc", "path": "x"}},
        "targets": {"it": target},
        "credentials": {"certificate": str(pki.client.certificate), "key": str(pki.client.key)},
    }
    given = config_file.parse(table, tmp_path / "publisher.toml")
    findings = check(given, lambda: None, lambda: int(time.time()))
    assert [finding.hint for finding in findings if finding.message.startswith("the subject is")] == [hint]


def test_names_that_sgas_would_not_take(site: Site, pki: Pki) -> None:
    site.table["credentials"] = {"certificate": str(pki.client.certificate), "key": str(pki.client.key)}
    site.collect()
    assert list(check_host.machine_names(site.config, site.publisher.store)) == []
    site.configure("neic", machine_name="cluster.example.net")
    (finding,) = check_host.machine_names(site.config, site.publisher.store)
    assert "ce1.example.org, and jobs ran on cluster.example.net" in finding.message
    assert "jobinsert:machine_name" in finding.hint


def test_files_that_others_may_change(site: Site) -> None:
    file = site.folder / "publisher.toml"
    file.write_text("")
    file.chmod(0o644)
    store = site.publisher.store
    assert list(check_host.modes(site.config, store)) == []
    file.chmod(0o666)
    site.store_file.chmod(0o640)
    site.folder.chmod(0o775)
    found = list(check_host.modes(site.config, store))
    assert [(finding.subject, finding.level) for finding in found] == [
        ("configuration", "red"), ("store", "yellow"), ("store", "red")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "zone", "expected"), [("torque", "Asia/Tokyo", 1), ("arc", "Asia/Tokyo", 0), ("torque", "UTC", 0)]
)
def test_local_times(site: Site, kind: str, zone: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        site.table["sources"]["ce1"]["type"] = kind
        assert len(list(check_host.zones(site.config))) == expected
        site.table["sources"]["ce1"]["timezone"] = "UTC"
        assert list(check_host.zones(site.config)) == []
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_store_that_cannot_be_created_is_red(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (finding,) = check_host.new_store(f"sqlite:///{tmp_path}/plain/below/store.db")
    assert (finding.level, finding.message) == (
        "red", f"{tmp_path}/plain is not a folder, so no store can be created in it"
    )  # fmt: skip
    assert list(check_host.new_store(f"sqlite:///{tmp_path}/new/store.db")) == []
    assert list(check_host.new_store("postgresql://db.example.org/x")) == []


def test_a_missing_file_of_evidence_is_red(pki: Pki, tmp_path: Path) -> None:
    settings = config_of(pki, tmp_path, evidence="export.csv").targets["neic"]
    (finding,) = check_host.evidence("neic", settings)
    assert (finding.level, finding.subject) == ("red", "target neic")
    assert finding.message == f"evidence: {tmp_path}/export.csv does not exist: nothing can be confirmed"
    (tmp_path / "export.csv").write_text("")
    assert list(check_host.evidence("neic", settings)) == []


def metrics_of(folder: Path, **table: object) -> list[Finding]:
    config = config_file.parse({"site": {"name": "S"}, "metrics": table}, folder / "publisher.toml")
    return list(check_host.metrics(config))


def test_the_file_for_metrics_can_be_written_or_it_is_said_why_not(tmp_path: Path) -> None:
    assert levels(metrics_of(tmp_path)) == []
    assert levels(metrics_of(tmp_path, textfile=str(tmp_path / "usage.prom"))) == ["green"]
    (bad,) = metrics_of(tmp_path, textfile=str(tmp_path / "missing" / "usage.prom"))
    assert (bad.subject, bad.level) == ("metrics", "yellow")
    assert bad.message.endswith(f"{tmp_path / 'missing'} does not exist")
    assert metrics_of(tmp_path, textfile=str(tmp_path))[0].message.endswith("it is a folder")


def test_the_port_for_metrics_is_free_or_ours(tmp_path: Path) -> None:
    with AuditorDouble().running() as other:
        listen = other.url.removeprefix("http://")
        (used,) = metrics_of(tmp_path, listen=listen)
    assert (used.level, used.message) == ("yellow", f"{listen} is used by another program")
    (free,) = metrics_of(tmp_path, listen=listen)
    assert free.level == "green"
    end = serve(StatusCollector(lambda: STATUS, dict, lambda: NOW), listen, pytest.fail)
    try:
        (ours,) = metrics_of(tmp_path, listen=listen)
    finally:
        end()
    assert (ours.level, ours.message) == ("green", f"{listen} answers with metrics of this program")
    (bad,) = metrics_of(tmp_path, listen="192.0.2.1:9000")
    assert bad.level == "yellow"


@pytest.mark.parametrize("kind", [kind for kind, each in SOURCE_KINDS.items() if each.submit_filter])
def test_the_filter_of_a_source_is_recommended(tmp_path: Path, root: Path, kind: str) -> None:
    table = {"site": {"name": "EXAMPLE-SITE"}, "sources": {"cluster1": {"type": kind, "path": "log"}}}
    config = config_file.parse(table, tmp_path / "publisher.toml")
    (found,) = check_host.texts(config)
    assert (found.subject, found.level) == ("source cluster1", "green")
    file = SOURCE_KINDS[kind].submit_filter
    assert f"share/usage-publisher/filters/{file}" in found.hint
    assert (root / "conf" / "filters" / file).is_file()


def test_no_filter_is_recommended_for_a_log_that_escapes_texts(pki: Pki, tmp_path: Path) -> None:
    assert list(check_host.texts(config_of(pki, tmp_path))) == []
