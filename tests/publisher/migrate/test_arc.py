"""import arc: a complete configuration from arc.conf and publishing.db, with a remark on every difference."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from publisher.errors import UsageError
from publisher.migrate.arc import from_arc
from publisher.migrate.proposal import Proposal
from publisher.text import iso

NEIC = 1_794_268_800
DECEMBER = 1_796_083_200
"""2026-12-01T00:00:00Z."""


@pytest.fixture
def state(fixtures: Path, tmp_path: Path) -> Path:
    """ARC's publishing.db."""
    path = tmp_path / "publishing.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript((fixtures / "moving" / "arc" / "publishing.sql").read_text())
    connection.close()
    return path


def remarks(proposal: Proposal, kind: str) -> dict[str, str]:
    return {remark.where: remark.text for remark in proposal.remarks if remark.kind == kind}


def conf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "arc.conf"
    path.write_text(text)
    return path


SMALL = "[arex/jura]\n[arex/jura/sgas:one]\ntargeturl = https://sgas.example.org:6143/sgas\n"


def test_the_configuration(fixtures: Path, state: Path, tmp_path: Path) -> None:
    config = from_arc(fixtures / "moving" / "arc" / "arc.conf", state).config(tmp_path / "publisher.toml")
    assert config.site.name == "EXAMPLE-SITE"
    source = config.sources["arc"]
    assert str(source.path) == "/var/spool/arc/jobstatus/accounting/accounting.db"
    assert source.benchmark is not None
    assert (source.benchmark.type, source.benchmark.value) == ("HEPSPEC", 12.26)
    past, *rules = source.benchmarks
    assert (past.type, past.value, past.until) == ("HEPSPEC", 1.0, DECEMBER), "as ARC sent what it knew no benchmark of"
    assert [(rule.type, rule.value, rule.queue) for rule in rules] == [
        ("HEPscore23", 14.2, ("main",)),
        ("HEPSPEC", 9.8, ("old",)),
    ]
    assert not source.map, "summaries of ARC have no VO for jobs without one"
    assert str(config.credentials.key) == "/etc/grid-security/hostkey.pem"
    assert set(config.targets) == {"neic", "national", "egi"}
    neic, national, egi = config.targets["neic"], config.targets["national"], config.targets["egi"]
    assert (neic.vo, neic.unknown_vo, neic.batch_records, neic.every) == (("atlas", "cms"), "skip", 80, 7200)
    assert neic.delivered_until == NEIC
    assert (national.local_id_prefix, national.every, national.delivered_until) == ("ce1-", 3600, None)
    assert getattr(national, "url", "") == "https://sgas.example.net:8001/sgas/ur"
    assert (egi.records, egi.version, egi.every, egi.vo_spelling) == ("apel-summary", "0.4", 86000, "arc")


def test_nothing_is_passed_over_in_silence(fixtures: Path, state: Path) -> None:
    proposal = from_arc(fixtures / "moving" / "arc" / "arc.conf", state)
    choose, left = remarks(proposal, "choose"), remarks(proposal, "not carried over")
    assert "targeturl" in " ".join(choose)
    assert "every job in the accounting database is sent" in choose["[arex/jura/sgas:national]"]
    assert "[arex/jura] jura_old_option" in left
    assert "[arex/jura] vo_group" in left
    assert "[arex/jura/archiving] archivedir" in left
    assert "issuer" in left["[arex/jura] vomsless_vo"]
    known = remarks(proposal, "state")
    assert (iso(NEIC) or "never") in known["[arex/jura/sgas:neic]"]
    assert "arex/jura/sgas:retired" in known
    for remark in proposal.remarks:
        assert remark.where in proposal.text()


def test_the_vo_of_jobs_without_one_is_carried_over_where_it_is_in_no_key(tmp_path: Path) -> None:
    text = (
        "[arex/jura]\nvomsless_vo = example.org#/CN=issuer\n[arex/jura/apel:egi]\ntargeturl=https://msg.example.org\n"
        "gocdb_name=A\napel_messages="
    )
    records = from_arc(conf(tmp_path, text + "urs"), None)
    assert records.sources["arc"]["map"] == [{"vo": "example.org"}]
    summaries = from_arc(conf(tmp_path, text + "summaries"), None)
    assert "map" not in summaries.sources["arc"]
    assert "twice" in remarks(summaries, "choose")["[arex/jura] vomsless_vo"]


def test_the_database_of_arc_7(tmp_path: Path) -> None:
    conf = tmp_path / "arc.conf"
    conf.write_text(f"[arex]\ncontroldir = {tmp_path}\n")

    def path(release: str = "") -> str:
        found = from_arc(conf, None, release=release)
        assert (("choose", "[arex] controldir") in [(one.kind, one.where) for one in found.remarks]) == both
        return str(next(iter(found.sources.values()))["path"]).rpartition("/")[2]

    both = False
    assert [path(), path("6.20"), path("7.0")] == ["accounting.db", "accounting.db", "accounting_v2.db"]
    (tmp_path / "accounting").mkdir()
    (tmp_path / "accounting" / "accounting_v2.db").touch()
    assert path() == "accounting_v2.db"
    (tmp_path / "accounting" / "accounting.db").touch()
    both = True
    assert path() == "accounting_v2.db"


def test_the_release_decides_the_spellings(fixtures: Path, state: Path) -> None:
    for release, spellings in {
        "6.17.0": ("url", "arc-6.17"),
        "6.19": ("url", "arc-6.17"),
        "6.20.1": ("url", "arc-6.20"),
        "6.21": ("arc-6.21", "arc"),
        "7.0": ("arc-6.21", "arc"),
    }.items():
        proposal = from_arc(fixtures / "moving" / "arc" / "arc.conf", state, release=release)
        egi = proposal.targets["egi"]
        assert (egi["submit_host"], egi["vo_spelling"]) == spellings, release
        assert "ARC's release" not in remarks(proposal, "choose")
    unknown = from_arc(fixtures / "moving" / "arc" / "arc.conf", state)
    assert unknown.targets["egi"]["submit_host"] == "arc-6.21"
    assert "6.20" in remarks(unknown, "choose")["ARC's release"]
    with pytest.raises(UsageError, match=r"6\.17"):
        from_arc(fixtures / "moving" / "arc" / "arc.conf", state, release="latest")


@pytest.mark.parametrize(
    ("messages", "records", "version", "decide"),
    [
        ("urs", "emi-car", "", False),
        ("summaries", "apel-summary", "0.2", False),
        ("summaries-v04", "apel-summary", "0.4", False),
        ("both", "apel-summary", "0.2", True),
        ("everything", "apel-summary", "0.2", True),
    ],
)
def test_kinds_of_messages(tmp_path: Path, messages: str, records: str, version: str, decide: bool) -> None:
    text = "[arex/jura]\n[arex/jura/apel:egi]\ntargeturl=https://msg.example.org\ngocdb_name=A\napel_messages="
    proposal = from_arc(conf(tmp_path, text + messages), None)
    target = proposal.config(tmp_path / "publisher.toml").targets["egi"]
    assert (target.records, target.version) == (records, version)
    assert ("[arex/jura/apel:egi] apel_messages" in remarks(proposal, "choose")) is decide


def test_without_a_state_it_says_what_that_means(tmp_path: Path) -> None:
    proposal = from_arc(conf(tmp_path, "[arex]\ncontroldir=/nosuch\n" + SMALL), None)
    assert "sent again" in remarks(proposal, "choose")["/nosuch/accounting/publishing.db"]
    assert "delivered_until" not in proposal.targets["one"]


def test_a_state_that_is_named_must_be_one(tmp_path: Path) -> None:
    path = conf(tmp_path, SMALL)
    with pytest.raises(UsageError, match=r"not a publishing\.db"):
        from_arc(path, path)
    with pytest.raises(UsageError, match="--publishing-db"):
        from_arc(path, tmp_path / "nosuch.db")


def test_a_time_in_the_future_is_not_when_something_was_delivered(fixtures: Path, state: Path) -> None:
    proposal = from_arc(fixtures / "moving" / "arc" / "arc.conf", state)
    proposal.taken_over("root", NEIC - 1)
    assert {name for name, each in proposal.targets.items() if "delivered_until" in each} == set()
    found = remarks(proposal, "choose")
    assert "is in the future" in found["targets.neic.delivered_until"]
    assert "set it to the end of the last job that was delivered" in found["targets.neic.delivered_until"]


@pytest.mark.parametrize("end", [10**15, 1e300, 2**62])
def test_a_state_with_what_is_not_a_time_is_refused(fixtures: Path, state: Path, end: float) -> None:
    with closing(sqlite3.connect(state)) as connection, connection:
        connection.execute("UPDATE AccountingTargets SET LastEndTime = ?", (end,))
    connection.close()
    with pytest.raises(UsageError, match=r"publishing.db: LastEndTime of .* is not a time"):
        from_arc(fixtures / "moving" / "arc" / "arc.conf", state)


def test_reading_the_state_changes_nothing(fixtures: Path, state: Path) -> None:
    before = state.read_bytes()
    from_arc(fixtures / "moving" / "arc" / "arc.conf", state)
    assert state.read_bytes() == before
    assert [path.name for path in state.parent.iterdir()] == ["publishing.db"]


@pytest.mark.parametrize(
    "value", ["$EXEC{hostname -f}", "$EVAL{1+1}", "$VAR{[common]$EXEC{id}}"], ids=["exec", "eval", "nested"]
)
def test_commands_in_values_are_never_carried_out(tmp_path: Path, value: str) -> None:
    text = SMALL + f"localid_prefix = {value}\n"
    proposal = from_arc(conf(tmp_path, text), None)
    assert "local_id_prefix" not in proposal.targets["one"]
    assert "[arex/jura/sgas:one] localid_prefix" in remarks(proposal, "choose")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("urbatchsize", "many"),
        ("urdelivery_frequency", "-1"),
        ("targeturl", "sgas.example.org"),
        ("vofilter", 'x"]\n[targets.evil]'),
    ],
)
def test_values_that_make_no_sense_still_give_a_configuration(tmp_path: Path, option: str, value: str) -> None:
    proposal = from_arc(conf(tmp_path, SMALL + f"{option} = {value}\n"), None, site="A")
    config = proposal.config(tmp_path / "publisher.toml")
    assert "evil" not in config.targets
    assert proposal.remarks


def test_two_targets_of_one_name(tmp_path: Path) -> None:
    text = SMALL + "[arex/jura/apel:one]\ntargeturl=https://msg.example.org\ngocdb_name=A\n"
    assert set(from_arc(conf(tmp_path, text), None).targets) == {"one", "one-apel"}


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"\0\1\2", b"[site]\nname = 'x'\n"], ids=["empty", "text", "binary", "toml"]
)
def test_other_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "arc.conf"
    path.write_bytes(content)
    if content.startswith(b"[site]"):
        proposal = from_arc(path, None)
        assert not proposal.targets
        assert "[arex/jura]" in remarks(proposal, "choose")
    else:
        with pytest.raises(UsageError, match="not a configuration file"):
            from_arc(path, None)
