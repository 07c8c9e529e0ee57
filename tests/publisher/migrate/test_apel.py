"""import apel: a complete configuration from client.cfg, parser.cfg, and sender.cfg."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from publisher.config.directory import DirectorySettings
from publisher.config.targets import AmsSettings
from publisher.errors import UsageError
from publisher.migrate.apel import from_apel
from publisher.migrate.proposal import Proposal

NAMES = ("client.cfg", "parser.cfg", "sender.cfg")


def files(fixtures: Path, *names: str) -> list[Path]:
    return [fixtures / "moving" / "apel" / name for name in names or NAMES]


def remarks(proposal: Proposal, kind: str) -> dict[str, str]:
    return {remark.where: remark.text for remark in proposal.remarks if remark.kind == kind}


def changed(fixtures: Path, tmp_path: Path, **changes: str) -> list[Path]:
    """The files with options changed; a missing option is added after the block's name."""
    found = []
    for path in files(fixtures):
        lines = path.read_text().splitlines()
        for key, value in changes.items():
            block, _, name = key.partition("__")
            lines = [line for line in lines if line.replace(":", "=").split("=")[0].strip() != name]
            if f"[{block}]" in lines:
                lines.insert(lines.index(f"[{block}]") + 1, f"{name} = {value}")
        copy = tmp_path / path.name
        copy.write_text("\n".join(lines) + "\n")
        found.append(copy)
    return found


def test_the_configuration(fixtures: Path, tmp_path: Path) -> None:
    config = from_apel(files(fixtures)).config(tmp_path / "publisher.toml")
    assert config.site.name == "EXAMPLE-SITE"
    source = config.sources["pbs"]
    assert (source.type, str(source.path)) == ("torque", "/var/spool/torque/server_priv/accounting")
    assert source.cluster == "pbs.example.org"
    assert source.benchmark is not None
    assert source.benchmark.value == 14.2
    assert source.grid_log is not None
    assert str(source.grid_log.path) == "/var/log/accounting/blahp.log*"
    target = config.targets["apel"]
    assert isinstance(target, AmsSettings)
    assert (target.url, target.project, target.topic) == ("https://msg.example.org", "accounting", "gLite-APEL")
    assert (target.records, target.version, target.vo) == ("apel-summary", "0.4", ("atlas", "cms", "lhcb"))
    assert str(target.encrypt_to) == "/etc/grid-security/servercert.pem"
    assert str(config.credentials.ca_directory) == "/etc/grid-security/certificates"


def test_the_order_of_the_files_does_not_matter(fixtures: Path) -> None:
    for order in itertools.permutations(NAMES):
        assert from_apel(files(fixtures, *order)).tables() == from_apel(files(fixtures)).tables()


def test_passwords_are_nowhere(fixtures: Path) -> None:
    assert "secret" not in from_apel(files(fixtures)).text()


@pytest.mark.parametrize(
    ("changes", "records", "version"),
    [
        ({"unloader__send_summaries": "false"}, "apel-job", "0.4"),
        ({"unloader__send_summaries": "false", "unloader__dict_benchmark_type": "false"}, "apel-job", "0.3"),
        ({"unloader__send_summaries": "false", "unloader__send_ur": "true"}, "emi-car", ""),
        ({"unloader__dict_benchmark_type": "no"}, "apel-summary", "0.2"),
    ],
)
def test_what_is_sent(fixtures: Path, tmp_path: Path, changes: dict[str, str], records: str, version: str) -> None:
    proposal = from_apel(changed(fixtures, tmp_path, **changes))
    target = proposal.config(tmp_path / "publisher.toml").targets["apel"]
    assert (target.records, target.version) == (records, version)
    assert ("delivered_until" in remarks(proposal, "choose")) is (records != "apel-summary")


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, "nodes-and-cores"),
        ({"batch__type": "SGE"}, "cores"),
        ({"batch__type": "HTCondor"}, "cores"),
        ({"batch__parallel": "false"}, "none"),
    ],
)
def test_keys_are_spelled_as_the_clients(fixtures: Path, tmp_path: Path, changes: dict[str, str], counts: str) -> None:
    target = from_apel(changed(fixtures, tmp_path, **changes)).config(tmp_path / "publisher.toml").targets["apel"]
    assert (target.submit_host, target.vo_spelling, target.summary_counts) == ("apel-client", "apel-client", counts)
    assert target.local_jobs == "skip"


def test_batch_systems_of_different_counts_are_to_be_decided(fixtures: Path, tmp_path: Path) -> None:
    paths = changed(fixtures, tmp_path, batch__type="SGE")
    proposal = from_apel([*paths, *files(fixtures, "parser.cfg")])
    assert "[batch] parallel" in remarks(proposal, "choose")
    assert proposal.config(tmp_path / "publisher.toml").targets["apel"].summary_counts == "nodes-and-cores"


def test_what_was_sent_is_reported(fixtures: Path, tmp_path: Path) -> None:
    paths = changed(fixtures, tmp_path, unloader__send_summaries="false")
    proposal = from_apel(paths, delivered_until=1_794_268_800)
    assert proposal.config(tmp_path / "publisher.toml").targets["apel"].delivered_until == 1_794_268_800
    assert "delivered_until" in remarks(proposal, "state")


@pytest.mark.parametrize(
    ("reported", "kind"),
    [("PBS", "torque"), ("SGE", "gridengine"), ("LSF", "lsf"), ("SLURM", "slurm"), ("HTCondor", "htcondor")],
)
def test_batch_systems(fixtures: Path, tmp_path: Path, reported: str, kind: str) -> None:
    proposal = from_apel(changed(fixtures, tmp_path, batch__type=reported))
    assert proposal.config(tmp_path / "publisher.toml").sources["pbs"].type == kind


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"batch__type": "LoadLeveler"}, "parser.cfg [batch] type"),
        ({"sender__protocol": "STOMP"}, "[sender] protocol"),
        ({"messaging__destination": "/queue/global.accounting.cpu.central"}, "[messaging] destination"),
        ({"messaging__token": "abc"}, "[messaging] token"),
        ({"spec_updater__manual_spec2": "ce2,HEPscore23,10"}, "[spec_updater] manual_spec"),
        ({"joiner__local_jobs": "true"}, "[joiner] local_jobs"),
        ({"batch__parallel": "false"}, "parser.cfg [batch] parallel"),
        ({"batch__type": "LSF"}, "Processors"),
        ({"batch__type": "SLURM"}, "path"),
        ({"spec_updater__manual_spec2": "ce2,bogomips,10"}, "[spec_updater] manual_spec2"),
        ({"unloader__enabled": "perhaps"}, "[unloader] enabled"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_somebody_must_decide(fixtures: Path, tmp_path: Path, changes: dict[str, str], where: str) -> None:
    proposal = from_apel(changed(fixtures, tmp_path, **changes))
    assert where in remarks(proposal, "choose")
    proposal.config(tmp_path / "publisher.toml")


def test_tokens_are_nowhere(fixtures: Path, tmp_path: Path) -> None:
    assert "s3cr3t" not in from_apel(changed(fixtures, tmp_path, messaging__token="s3cr3t")).text()


def test_excluded_vos_and_scaling_have_no_counterpart(fixtures: Path, tmp_path: Path) -> None:
    paths = changed(
        fixtures, tmp_path, unloader__include_vos="", unloader__exclude_vos="dteam", batch__scale_host_factor="true"
    )
    proposal = from_apel(paths)
    assert "dteam" in remarks(proposal, "choose")["[unloader] exclude_vos"]
    assert "parser.cfg [batch] scale_host_factor" in remarks(proposal, "not carried over")


def test_without_ssm_messages_are_written_to_its_queue(fixtures: Path, tmp_path: Path) -> None:
    for paths in (changed(fixtures, tmp_path, ssm__enabled="false"), files(fixtures, "client.cfg", "parser.cfg")):
        target = from_apel(paths).config(tmp_path / "publisher.toml").targets["apel"]
        assert isinstance(target, DirectorySettings)
        assert (str(target.path), target.layout) == ("/var/spool/apel/outgoing", "dirq")


@pytest.mark.parametrize("interval", ["gap", "all"])
def test_a_client_that_did_not_mark_what_it_sent(fixtures: Path, tmp_path: Path, interval: str) -> None:
    options = {"unloader__interval": interval, "unloader__send_summaries": "false"}
    said = remarks(from_apel(changed(fixtures, tmp_path, **options)), "choose")["[unloader] interval"]
    assert "run the client once more with `interval = latest`" in said
    assert "export all rows of VJobRecords" in said


def test_a_client_that_counted_steps(fixtures: Path, tmp_path: Path) -> None:
    place = "[joiner] local_jobs"
    torque = from_apel(changed(fixtures, tmp_path, joiner__local_jobs="true"))
    assert "steps" not in remarks(torque, "differs").get(place, "")
    slurm = from_apel(changed(fixtures, tmp_path, joiner__local_jobs="true", batch__type="SLURM"))
    assert "1087.batch" in remarks(slurm, "differs")[place]


def test_several_batch_systems(fixtures: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.cfg"
    text = (fixtures / "moving" / "apel" / "parser.cfg").read_text()
    second.write_text(text.replace("type = PBS", "type = SLURM"))
    proposal = from_apel([*files(fixtures), second])
    assert {name: source["type"] for name, source in proposal.sources.items()} == {"pbs": "torque", "pbs-2": "slurm"}


def test_messages_left_in_the_queue_are_counted(fixtures: Path, tmp_path: Path) -> None:
    queue = tmp_path / "outgoing"
    (queue / "5ba24c88").mkdir(parents=True)
    (queue / "5ba24c88" / "5ba24c8f0f129d").write_text("APEL-sync-message: v0.1\n")
    (queue / "5ba24c88" / "5ba24c8f0f129d.lck").touch()
    proposal = from_apel(changed(fixtures, tmp_path, messaging__path=str(queue)))
    assert remarks(proposal, "state")[str(queue)].startswith("1 messages are left")


def test_other_files(fixtures: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.cfg"
    other.write_text("[server]\nport = 1\n")
    with pytest.raises(UsageError, match="neither"):
        from_apel([other])
    with pytest.raises(UsageError, match="several"):
        from_apel(files(fixtures, "client.cfg", "client.cfg"))
