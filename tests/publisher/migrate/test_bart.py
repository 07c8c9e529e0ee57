"""import sgas-bart: a complete configuration from bart.conf, its maps, and its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config.targets import SgasSettings
from publisher.errors import UsageError
from publisher.migrate.bart import from_bart
from publisher.migrate.proposal import Proposal

END = 1_794_268_800
LOG = f"11/10/2026 01:00:00;E;7.pbs;user=ada group=x jobname=j queue=q ctime=1 start=1 end={END} Exit_status=0\n"


@pytest.fixture
def conf(fixtures: Path, tmp_path: Path) -> Path:
    """BaRT with its files in a folder of the test."""
    source = fixtures / "moving" / "bart"
    text = (source / "bart.conf").read_text()
    for old, new in {
        "/etc/bart": source,
        "/var/spool/bart": tmp_path / "bart",
        "/var/spool/torque": tmp_path / "torque",
    }.items():
        text = text.replace(str(old), str(new))
    logs = tmp_path / "torque" / "server_priv" / "accounting"
    logs.mkdir(parents=True)
    (logs / "20261110").write_text(LOG + LOG.replace(";7.pbs;", ";8.pbs;").replace(str(END), str(END + 60)))
    (tmp_path / "bart").mkdir()
    (tmp_path / "bart" / "torque.state").write_text("7.pbs 20261110")
    (tmp_path / "bart" / "slurm.state").write_text("2026-11-10T03:00:00")
    path = tmp_path / "bart.conf"
    path.write_text(text)
    return path


def remarks(proposal: Proposal, kind: str) -> dict[str, str]:
    return {remark.where: remark.text for remark in proposal.remarks if remark.kind == kind}


def test_the_configuration(conf: Path, tmp_path: Path) -> None:
    proposal = from_bart(conf, site="EXAMPLE-SITE", zone="Europe/Oslo")
    config = proposal.config(tmp_path / "publisher.toml")
    torque, slurm = config.sources["torque"], config.sources["slurm"]
    assert torque.path == tmp_path / "torque" / "server_priv" / "accounting"
    assert (torque.cluster, slurm.cluster) == ("cluster.example.org", "cluster.example.org")
    assert [(rule.when.account, rule.when.local_user, rule.vo, rule.dn) for rule in torque.map] == [
        (("ice",), None, "icecube.example.org", None),
        (None, ("ice",), "icecube.example.org", None),
        (None, ("ada",), None, "/DC=org/DC=example/CN=Ada Example"),
    ]
    assert len(slurm.map) == 2
    everything, some = config.targets["sgas"], config.targets["icecube"]
    assert isinstance(everything, SgasSettings)
    assert (everything.url, everything.batch_records, everything.timeout) == (
        "https://sgas.example.org:6143/sgas", 200, 60
    )  # fmt: skip
    assert (some.vo, some.unknown_vo) == (("icecube.example.org", "chem"), "skip")
    assert everything.delivered_until == some.delivered_until == END


def test_the_state_is_the_earlier_of_both(conf: Path) -> None:
    (conf.parent / "bart" / "slurm.state").write_text("2026-11-09T00:00:00")
    proposal = from_bart(conf)
    assert proposal.targets["sgas"]["delivered_until"] == "2026-11-09T00:00:00Z"
    assert "local time" in remarks(proposal, "choose")["BaRT's slurm.state"]


def test_what_is_reported_takes_precedence_over_the_state(conf: Path) -> None:
    assert from_bart(conf, delivered_until=END - 10).targets["sgas"]["delivered_until"] == "2026-11-09T23:59:50Z"


def test_without_a_state_it_says_what_that_means(conf: Path) -> None:
    for name in ("torque.state", "slurm.state"):
        (conf.parent / "bart" / name).unlink()
    proposal = from_bart(conf)
    assert "twice" in remarks(proposal, "choose")["delivered_until"]
    assert "delivered_until" not in proposal.targets["sgas"]


def test_a_job_that_is_not_in_the_log(conf: Path) -> None:
    (conf.parent / "bart" / "torque.state").write_text("99.pbs 20261110")
    assert "job 99.pbs is not found" in remarks(from_bart(conf), "choose")["BaRT's torque.state"]


def test_a_state_that_has_no_path_out(conf: Path) -> None:
    (conf.parent / "bart" / "torque.state").write_text("7.pbs ../../../../etc/passwd")
    assert "BaRT's torque.state" in remarks(from_bart(conf), "choose")


def test_a_state_that_is_not_a_time(conf: Path) -> None:
    (conf.parent / "bart" / "slurm.state").write_text("yesterday")
    with pytest.raises(UsageError, match="yesterday"):
        from_bart(conf)
    (conf.parent / "bart" / "slurm.state").write_text("2026-11-10T00:00:00")
    with pytest.raises(UsageError, match="Mars"):
        from_bart(conf, zone="Mars/Olympus")


def test_records_that_are_not_registered_yet(conf: Path) -> None:
    urs = conf.parent / "bart" / "usagerecords" / "urs"
    urs.mkdir(parents=True)
    (urs / "cluster.example.org:8.pbs").write_text("<x/>")
    assert remarks(from_bart(conf), "choose")["usage records of BaRT"].startswith("1 records are not registered")


def test_nothing_is_passed_over_in_silence(conf: Path) -> None:
    conf.write_text(conf.read_text() + "[maui]\nspooldir=/var/spool/maui\n[common]\nmystery=1\nnonsense here\n")
    proposal = from_bart(conf)
    left, choose = remarks(proposal, "not carried over"), remarks(proposal, "choose")
    assert "[slurm] charge_unit" in left
    assert "[common] mystery" in left
    assert any(where.endswith("vomap line 3") for where in left)
    assert any("nonsense here" in text for text in left.values())
    assert "Maui" in choose["[maui]"]
    assert "usermap eve" in choose
    assert "site" in choose
