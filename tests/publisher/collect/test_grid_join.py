"""Grid logs: whichever of run and entry comes first, the run is sent once, as what it is."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.reason import sentence
from publisher.sources.base import Window
from tests.extent import short_or_whole
from tests.publisher.torque_cluster import NOW, TorqueCluster, torque_line

pytestmark = pytest.mark.either_store

HOUR = 3600
DAY = 86_400


class GridCluster(TorqueCluster):
    """A cluster with a grid log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.source |= {"benchmark": {"type": "HEPscore23", "value": 10}, "grid_log": {"path": "blah.log"}}
        self.blah()

    def blah(self, *numbers: int | str, at: int = NOW - DAY // 2, dn: str = "/DC=org/CN=Ada") -> None:
        """Append entries."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
        with (self.folder / "blah.log").open("a", encoding="utf-8") as file:
            for number in numbers:
                file.write(
                    f'"timestamp={stamp}" "userDN={dn}" "userFQAN=/atlas/Role=production/Capability=NULL" '
                    f'"userFQAN=/atlas/Role=NULL" "ceID=ce1.example.org:8443/ce-pbs-main" "jobID=CREAM{number}" '
                    f'"lrmsID={number}" "localUser=10001"\n'
                )


@pytest.fixture
def cluster(tmp_path: Path) -> GridCluster:
    return GridCluster(tmp_path)


def assert_grid(sent: str) -> None:
    for line in (
        "GlobalUserName: /DC=org/CN=Ada",
        "VO: atlas",
        "VORole: Role=production",
        "SubmitHost: ce1.example.org:8443/ce-pbs-main",
        "InfrastructureType: grid",
    ):
        assert line in sent


def test_an_entry_that_is_there_first(cluster: GridCluster) -> None:
    cluster.blah("1.server.example.org")
    cluster.log(torque_line(1, NOW - HOUR))
    cluster.run()
    assert_grid(cluster.sent())
    assert cluster.counts() == (1, 0, 0)
    cluster.run()
    assert cluster.sent() == ""


def test_an_entry_that_comes_later_releases_the_run(cluster: GridCluster) -> None:
    cluster.log(torque_line(1, NOW - HOUR), torque_line(2, NOW - HOUR))
    cluster.run()
    assert cluster.counts() == (0, 0, 2)
    assert set(cluster.held().values()) == {"user_dn: no grid log entry yet. See sources.ce1.grid_log"}
    cluster.blah(1)
    cluster.run()
    assert_grid(cluster.sent())
    assert cluster.counts() == (1, 0, 1)


def test_a_run_without_an_entry_is_local_when_it_has_waited(cluster: GridCluster) -> None:
    cluster.log(torque_line(1, NOW - HOUR), torque_line(2, NOW - 2 * DAY))
    cluster.run()
    assert "LocalJobId: 2" in cluster.sent()
    assert cluster.counts() == (1, 0, 1)
    cluster.now = NOW - HOUR + DAY - 1
    cluster.run()
    assert cluster.counts() == (1, 0, 1)
    cluster.now += 1
    cluster.run()
    sent = cluster.sent()
    assert "InfrastructureType: local" in sent
    assert "LocalJobId: 1" in sent
    assert cluster.counts() == (2, 0, 0)
    cluster.run()
    assert cluster.sent() == ""


def test_a_target_without_local_jobs_takes_back_what_turned_out_to_be_local(cluster: GridCluster) -> None:
    cluster.target["local_jobs"] = "skip"
    cluster.log(torque_line(1, NOW - HOUR), torque_line(2, NOW - HOUR))
    cluster.run()
    assert cluster.counts() == (0, 0, 2)
    cluster.blah(2)
    cluster.now += DAY
    cluster.run()
    assert cluster.counts() == (1, 0, 0)
    assert_grid(cluster.sent())


def test_with_require_a_run_stays_held(cluster: GridCluster) -> None:
    cluster.source["grid_log"]["require"] = True
    cluster.log(torque_line(1, NOW - 20 * DAY))
    cluster.run()
    cluster.now += 5 * DAY
    cluster.run()
    assert cluster.counts() == (0, 0, 1)
    cluster.source["grid_log"]["require"] = False
    cluster.run()
    assert cluster.counts() == (1, 0, 0)


def test_nothing_is_taken_for_local_while_the_log_cannot_be_read(cluster: GridCluster) -> None:
    (cluster.folder / "blah.log").rename(cluster.folder / "elsewhere")
    cluster.log(torque_line(1, NOW - 20 * DAY))
    with cluster.publisher() as publisher:
        collected = publisher.collect()
        assert collected is not None
        assert "grid log: " in (collected["ce1"].error or "")
        assert collected["ce1"].new == 1
        publisher.publish()
        assert not publisher.status().complete
    assert cluster.counts() == (0, 0, 1)
    (cluster.folder / "elsewhere").rename(cluster.folder / "blah.log")
    cluster.run()
    assert cluster.counts() == (1, 0, 0)


def test_a_log_that_is_no_longer_configured_holds_nothing(cluster: GridCluster) -> None:
    cluster.log(torque_line(1, NOW - HOUR))
    cluster.run()
    assert cluster.counts() == (0, 0, 1)
    del cluster.source["grid_log"]
    cluster.run()
    assert cluster.counts() == (1, 0, 0)


def test_a_log_that_is_configured_later_identifies_what_was_not_sent(cluster: GridCluster) -> None:
    cluster.target["local_jobs"] = "skip"
    settings = cluster.source.pop("grid_log")
    cluster.log(torque_line(1, NOW - HOUR), torque_line(2, NOW - HOUR))
    cluster.blah(1)
    cluster.run()
    assert cluster.counts() == (0, 0, 0)
    cluster.source["grid_log"] = settings
    cluster.run()
    assert cluster.counts() == (1, 0, 0)
    assert_grid(cluster.sent())


def test_an_entry_later_than_the_wait_corrects_the_record(cluster: GridCluster) -> None:
    cluster.log(torque_line(1, NOW - 2 * DAY))
    cluster.run()
    assert "InfrastructureType: local" in cluster.sent()
    cluster.blah(1, at=NOW - 3 * DAY)
    cluster.run()
    assert_grid(cluster.sent())
    assert cluster.counts() == (1, 0, 0)


def test_entries_out_of_their_window_and_of_other_jobs_count_for_nothing(cluster: GridCluster) -> None:
    cluster.log(torque_line(1, NOW - 2 * DAY), torque_line(2, NOW - 2 * DAY))
    cluster.blah(1, at=NOW - 31 * DAY, dn="/CN=Old")
    cluster.blah(1, at=NOW - DAY // 2, dn="/CN=New")
    cluster.blah("12", "schedd#3.0#17", at=NOW - 3 * DAY)
    cluster.run()
    assert "/CN=" not in cluster.sent()
    assert cluster.counts() == (2, 0, 0)


def test_rules_see_what_the_log_gave(cluster: GridCluster) -> None:
    cluster.source["map"] = [
        {"when": {"dn": "/DC=org/*"}, "vo": "cms", "submit_host": "other"},
        {"when": {"local_user": "ada"}, "vo": "local"},
    ]
    cluster.blah(1, at=NOW - 3 * DAY)
    cluster.log(torque_line(1, NOW - 2 * DAY), torque_line(2, NOW - 2 * DAY))
    cluster.run()
    sent = cluster.sent()
    assert_grid(sent)
    assert "VO: local" in sent


def test_summaries_and_the_stored_facts(cluster: GridCluster) -> None:
    cluster.target |= {"records": "apel-summary", "sync": True}
    cluster.log(*(torque_line(number, NOW - HOUR) for number in range(1, 6)))
    cluster.blah(1, 2, 3)
    cluster.run()
    sent = cluster.sent()
    assert_grid(sent)
    assert "NumberOfJobs: 3" in sent
    assert "NumberOfJobs: 5" not in sent
    cluster.now += DAY
    cluster.run()
    sent = cluster.sent()
    assert sent.count("NumberOfJobs: 2") == 2
    assert cluster.counts() == (5, 0, 0)
    with cluster.publisher() as publisher:
        (known,) = publisher.job("1")
        assert known.run.job.user_dn == "/DC=org/CN=Ada"


ROUTED = f"""\
GridJobId = "batch pbs ce1.example.org_9619_ce1.example.org#12.0#1795190000 pbs/20261120/1"
QDate = {NOW - DAY // 2}
AuthTokenSubject = "ada-7"
AuthTokenIssuer = "https://iam.example.org"
*** Offset = 0 ClusterId = 12 ProcId = 0
"""


def test_what_the_log_gave_of_a_token_is_known_of_the_run(cluster: GridCluster) -> None:
    cluster.source["map"] = [{"when": {"token_subject": "ada-*", "token_issuer": "https://iam*"}, "vo": "dune"}]
    (cluster.folder / "blah.log").write_text(ROUTED, "utf-8")
    cluster.log(torque_line(1, NOW - HOUR))
    cluster.run()
    assert "VO: dune" in cluster.sent()
    with cluster.publisher() as publisher:
        (known,) = publisher.job("1")
        assert known.run.job.token_subject == "ada-7"


def test_reading_again_changes_nothing(cluster: GridCluster) -> None:
    cluster.blah(1, 2)
    cluster.log(torque_line(1, NOW - HOUR), torque_line(3, NOW - HOUR))
    cluster.run()
    assert cluster.counts() == (1, 0, 1)
    blah = cluster.folder / "blah.log"
    text = blah.read_bytes()
    blah.with_name("blah.log.1").write_bytes(b'"timestamp=2020-01-01 00:00:00" "userDN=/CN=X" "lrmsID=77"\n' + text)
    cluster.run()
    cluster.sent()
    cluster.run()
    assert cluster.sent() == ""
    assert cluster.counts() == (1, 0, 1)


def test_lines_that_are_not_entries_are_kept_with_their_place(cluster: GridCluster) -> None:
    with (cluster.folder / "blah.log").open("a", encoding="utf-8") as file:
        file.write('no entry\n"timestamp=yesterday" "lrmsID=1" "userDN=/CN=Ada"\n')
    cluster.log(torque_line(1, NOW - HOUR))
    cluster.run()
    with cluster.publisher() as publisher:
        found = {(Path(row.file).name, row.line, row.reason) for row in publisher.unreadable()}
    assert found == {
        ("blah.log", 1, 'is not a BLAH line: those are pairs "key=value"'),
        ("blah.log", 2, "has no timestamp such as 2026-11-20 10:00:00"),
    }


def test_what_an_earlier_publisher_delivered_is_not_sent_when_its_entry_comes(cluster: GridCluster) -> None:
    cluster.target["delivered_until"] = "2026-11-20T18:40:00Z"
    cluster.log(torque_line(1, NOW - HOUR), torque_line(2, NOW - HOUR))
    cluster.run()
    cluster.blah(1)
    cluster.now += DAY
    cluster.run()
    assert cluster.sent() == ""
    assert cluster.counts() == (2, 0, 0)


def test_render_holds_what_publish_holds(cluster: GridCluster) -> None:
    cluster.log(torque_line(1, NOW - HOUR), torque_line(2, NOW - 2 * DAY))
    with cluster.publisher() as publisher:
        publisher.collect()
        for form in ("apel-job", "apel-summary", "apel-sync"):
            rendering = publisher.rendering(form, "spool", Window())
            (message,) = rendering.messages()
            assert message.records == 1
            assert b"NumberOfJobs: 2" not in message.payload
            held = ["user_dn: no grid log entry yet. See sources.ce1.grid_log"] if form != "apel-sync" else []
            assert [sentence(item.reason) for item in rendering.held] == held  # a count holds nothing, it leaves out


@settings(max_examples=short_or_whole(4, 8))
@given(
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sampled_from(("apel-job", "apel-summary")),
)
def test_the_order_of_runs_and_entries_does_not_matter(runs: list[int], entries: list[int], records: str) -> None:
    """Each run and each entry turns up at some collect (an entry at 3: never); all is sent once, as what it is."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = GridCluster(Path(folder))
        cluster.target["records"] = records
        for step in range(3):
            cluster.log(*(torque_line(number, NOW - HOUR) for number, at in enumerate(runs) if at == step))
            cluster.blah(*(number for number, at in enumerate(entries) if at == step))
            cluster.run()
        cluster.now += DAY
        cluster.run()
        sent = cluster.sent()
        assert cluster.counts() == (4, 0, 0)
        local = sum(at == 3 for at in entries)
        if records == "apel-job":
            assert sent.count("InfrastructureType: local") == local
            assert sent.count("GlobalUserName: /DC=org/CN=Ada") == 4 - local
        else:
            last = dict(re.findall(r"GlobalUserName: (\S+)\n.*?NumberOfJobs: (\d+)", sent, re.DOTALL))
            expected = {"None": local, "/DC=org/CN=Ada": 4 - local}
            assert last == {user: str(jobs) for user, jobs in expected.items() if jobs}


def test_check_looks_into_the_log(cluster: GridCluster) -> None:
    assert any("grid log: " in said and "no complete line" in said for said in cluster.check())
    cluster.blah(1)
    assert not any("grid log" in said for said in cluster.check())
    (cluster.folder / "blah.log").write_text("nonsense\n", encoding="ascii")
    assert any(
        "its beginning has no entry; the first unreadable line is not a BLAH line" in said for said in cluster.check()
    )
    (cluster.folder / "blah.log").unlink()
    assert any(said.startswith("ce1: grid log: ") and "blah.log" in said for said in cluster.check())
