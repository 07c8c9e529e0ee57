"""What the configuration adds, from the log to the message: held without it, released by it, never sent again by it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from formats.job import Benchmark, Host
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import OCTOBER, ListSource, Site, make_job
from tests.publisher.torque_cluster import NOW, TorqueCluster, torque_line

pytestmark = pytest.mark.either_store

SCORE = {"type": "HEPscore23", "value": 10.5}


@pytest.fixture
def cluster(tmp_path: Path) -> TorqueCluster:
    return TorqueCluster(tmp_path)


def test_a_job_without_benchmark_is_held_and_released_by_a_rule_for_its_queue(cluster: TorqueCluster) -> None:
    cluster.log(torque_line(1, NOW - 7200), torque_line(2, NOW - 7100, queue="fast"))
    cluster.run()
    assert cluster.counts() == (0, 0, 2)
    remedy = "Set sources.ce1.benchmark, or a rule that matches in sources.ce1.benchmarks"
    assert all(reason.endswith(remedy) for reason in cluster.held().values())
    cluster.source["benchmarks"] = [SCORE | {"queue": "f*"}]
    cluster.run()
    assert cluster.counts() == (1, 0, 1)
    sent = cluster.sent()
    assert "ServiceLevel: 10.5" in sent
    assert "Queue: fast" in sent
    cluster.source["benchmark"] = {"type": "HEPSPEC", "value": 8}
    cluster.run()
    assert cluster.counts() == (2, 0, 0)
    assert "ServiceLevelType: hepspec" in cluster.sent().replace("HEPSPEC", "hepspec")
    cluster.source["benchmark"] = {"type": "HEPSPEC", "value": 9}
    cluster.run()
    assert cluster.sent() == ""


@pytest.mark.parametrize("records", ["emi-car", "apel-summary"])
def test_jobs_with_an_unusable_benchmark_are_released_by_the_configured_one(tmp_path: Path, records: str) -> None:
    source = ListSource("ce1")
    source.add(
        make_job(1, benchmarks=(Benchmark("CloudMark", 5.0),), end=OCTOBER + 1),
        make_job(2, benchmarks=(Benchmark("HEPSPEC:1:2", 0.0),), hosts=(Host("old1"),), end=OCTOBER + 2),
        make_job(3, end=OCTOBER + 3),
    )
    service = SummaryReceiver("apel") if records == "apel-summary" else RecordReceiver("apel", "directory")
    site = Site(tmp_path, [source], [service])
    site.configure("apel", records=records, sync=False)
    site.collect()
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 1, State.HELD: 2}
    held = sorted(reason for reason in site.reasons("apel").values() if reason)
    assert [reason.partition(";")[0] for reason in held] == [
        "ServiceLevel: CloudMark:5 is not a usable benchmark", "ServiceLevel: HEPSPEC:1:2 is not a usable benchmark",
    ]  # fmt: skip
    site.table["sources"]["ce1"]["benchmarks"] = [SCORE | {"host": "old*"}]
    site.reopen()
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 2, State.HELD: 1}
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPSPEC", "value": 8}
    site.reopen()
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 3}


@pytest.mark.parametrize("records", ["apel-job", "emi-car", "apel-summary"])
def test_slurm_jobs_without_cpu_time_name_the_column_and_are_released_by_a_table_with_it(
    cluster: TorqueCluster, records: str
) -> None:
    cluster.source = {"type": "slurm", "path": "accounting", "cluster": "c1", "benchmark": SCORE}
    cluster.source["complete_since"] = "2026-01-01"
    cluster.target |= {"records": records, "local_jobs": "send"}
    line = "1|sim|ada|phys|2026-11-01T00:00:00|2026-11-01T01:00:00|01:00:00|{}|main|4|1|wn1|||COMPLETED\n"
    step = "1.batch|batch|||2026-11-01T00:00:00|2026-11-01T01:00:00|01:00:00|{}||4|1|wn1|100K|200K|COMPLETED\n"
    cluster.log(line.format("14400"), step.format("14400"))  # as APEL's documentation has sacct write it: CPUTimeRAW
    cluster.run()
    assert cluster.counts() == (0, 0, 1)
    (reason,) = cluster.held().values()
    assert reason.startswith("CpuDuration: source ce1 does not have it")
    assert "a table with a header line, the column TotalCPU" in reason
    header = (
        "JobID|JobName|User|Group|Start|End|Elapsed|TotalCPU|Partition|NCPUS|NNodes|NodeList|MaxRSS|MaxVMSize|State"
    )
    table = f"{header}\n{line}{step}".format("03:00:00", "03:00:00")
    (cluster.folder / "accounting" / "20261121").write_text(table, encoding="utf-8")
    cluster.run()
    assert cluster.counts() == (1, 0, 0)
    assert re.search("CpuDuration: 10800|CpuDuration[^>]*>PT10800S", cluster.sent())


def test_benchmarks_depend_on_host_and_date(cluster: TorqueCluster) -> None:
    day = 86_400
    cluster.source["benchmarks"] = [
        {"type": "HEPscore23", "value": 1, "host": "old*", "until": "2026-11-19"},
        {"type": "HEPscore23", "value": 2, "host": ["old*"]},
        {"type": "HEPscore23", "value": 3, "host": "wn*", "since": "2026-11-20"},
    ]
    cluster.log(
        torque_line(1, NOW - 3 * day, exec_host="old1/0"),
        torque_line(4, NOW - 3 * day, exec_host="wn1/0"),
        torque_line(2, NOW - 7200, exec_host="old1/0"),
        torque_line(3, NOW - 7200, exec_host="wn1/0"),
        torque_line(5, NOW - 7200, exec_host="wn1/0+old1/0"),
    )
    cluster.run()
    sent = cluster.sent()
    assert dict(re.findall(r"LocalJobId: (\d+)\n.*?ServiceLevel: (\S+)", sent, re.DOTALL)) == {
        "1": "1",
        "2": "2",
        "3": "3",
    }
    assert cluster.counts() == (3, 0, 2)


def test_jobs_of_an_unknown_vo_are_held_where_vos_are_selected_until_a_rule_gives_it(cluster: TorqueCluster) -> None:
    cluster.source["benchmark"] = SCORE
    cluster.target["vo"] = ["atlas"]
    cluster.log(torque_line(1, NOW - 7200), torque_line(2, NOW - 7100, group="bio"))
    cluster.run()
    assert cluster.counts() == (0, 0, 2)
    assert all("[[sources.ce1.map]]" in reason for reason in cluster.held().values())
    cluster.source["map"] = [
        {"when": {"local_group": "phys*"}, "vo": "atlas", "fqans": ["/atlas/Role=production"], "dn": "/DC=org/CN=Ada"},
        {"when": {"local_group": "bio"}, "vo": "biomed"},
    ]
    cluster.run()
    assert cluster.counts() == (1, 0, 0)
    sent = cluster.sent()
    assert "VO: atlas" in sent
    assert "VORole: Role=production" in sent
    assert "GlobalUserName: /DC=org/CN=Ada" in sent
    assert "InfrastructureType: grid" in sent


def test_jobs_of_an_unknown_vo_are_sent_or_skipped_as_configured(cluster: TorqueCluster) -> None:
    cluster.source["benchmark"] = SCORE
    cluster.log(torque_line(1, NOW - 7200))
    cluster.target |= {"vo": ["atlas"], "unknown_vo": "skip"}
    cluster.run()
    assert cluster.counts() == (0, 0, 0)
    cluster.target["unknown_vo"] = "send"
    cluster.run()
    assert cluster.counts() == (1, 0, 0)


def test_local_jobs_become_grid_jobs_by_a_rule_for_all_sources(cluster: TorqueCluster) -> None:
    cluster.source["benchmark"] = SCORE
    cluster.target["local_jobs"] = "skip"
    cluster.log(torque_line(1, NOW - 7200), torque_line(2, NOW - 7100, user="bob"))
    cluster.run()
    assert cluster.counts() == (0, 0, 0)
    cluster.more["map"] = [{"when": {"local_user": "ada"}, "vo": "cms"}]
    cluster.run()
    assert cluster.counts() == (1, 0, 0)
    assert "VO: cms" in cluster.sent()


def test_site_submit_host_and_prefix_of_a_source(cluster: TorqueCluster) -> None:
    cluster.source |= {
        "benchmark": SCORE, "site": "OTHER-SITE", "submit_host": "ce1.example.org:9619/ce1-torque",
        "local_id_prefix": "ce1-", "infrastructure": "grid",
    }  # fmt: skip
    cluster.log(torque_line(1, NOW - 7200))
    cluster.run()
    sent = cluster.sent()
    for line in (
        "Site: OTHER-SITE",
        "SubmitHost: ce1.example.org:9619/ce1-torque",
        "LocalJobId: ce1-1",
        "InfrastructureType: grid",
    ):
        assert line in sent


def test_a_submit_host_makes_no_grid_job_of_a_local_one(cluster: TorqueCluster) -> None:
    cluster.source |= {"benchmark": SCORE, "submit_host": "ce1.example.org:9619/ce1-torque"}
    cluster.log(torque_line(1, NOW - 7200))
    cluster.run()
    assert "InfrastructureType: local" in cluster.sent()


def test_check_names_the_rules_that_give_nothing(cluster: TorqueCluster) -> None:
    day = 86_400
    cluster.log(torque_line(1, NOW - 3 * day), torque_line(2, NOW - 7200))
    cluster.source["map"] = [
        {"when": {"local_group": "physics"}, "vo": "atlas"},
        {"when": {"local_user": "ada"}, "vo": "cms"},
        {"when": {"local_user": "adam"}, "vo": "cms"},
    ]
    cluster.source["benchmarks"] = [
        SCORE | {"until": "2026-11-18"},
        SCORE | {"since": "2026-11-18", "until": "2026-11-19"},
        SCORE | {"queue": "none"},
        SCORE,
        SCORE,
    ]
    cluster.more["map"] = [{"vo": "cms"}, {"submit_host": "ce1.example.org"}]
    assert [said for said in cluster.check() if said.startswith("rule")] == []
    cluster.run()
    reported = "has no effect: the source or an earlier rule gives the value"
    assert [said for said in cluster.check() if said.startswith("rule")] == [
        f"rule sources.ce1.map[1]: {reported}",
        "rule sources.ce1.map[2]: matches no job",
        f"rule map[0]: {reported}",
        "rule sources.ce1.benchmarks[1]: matches no job",
        "rule sources.ce1.benchmarks[2]: matches no job",
        "rule sources.ce1.benchmarks[4]: matches no job",
    ]


def test_check_warns_of_local_ids_that_could_collide(cluster: TorqueCluster) -> None:
    second = {"type": "gridengine", "path": "accounting"}
    cluster.more["sources"] = {"ce1": cluster.source, "ce2": second}
    assert any("the sources ce1 and ce2 belong to one site" in said for said in cluster.check())
    second["local_id_prefix"] = "ce2-"
    assert not any("belong to one site" in said for said in cluster.check())
    second["local_id_prefix"] = ""
    second["site"] = "OTHER"
    assert not any("belong to one site" in said for said in cluster.check())
    del second["site"]
    cluster.target["sources"] = ["ce2"]
    assert not any("belong to one site" in said for said in cluster.check())


def test_check_names_all_sources_whose_local_ids_could_collide_at_once(cluster: TorqueCluster) -> None:
    more = {name: {"type": "gridengine", "path": f"accounting-{name}"} for name in ("ce2", "ce3", "ce4")}
    cluster.more["sources"] = {"ce1": cluster.source, **more}
    (said,) = [said for said in cluster.check() if "belong to one site" in said]
    assert "the sources ce1, ce2, ce3 and ce4 belong to one site" in said
    more["ce2"]["local_id_prefix"] = "Two-"
    more["ce3"]["local_id_prefix"] = "two-"
    found = [said for said in cluster.check() if "belong to one site" in said]
    assert [said.partition(" belong")[0].partition("the sources ")[2] for said in found] == [
        "ce1 and ce4",
        "ce2 and ce3",
    ]


def test_check_names_settings_without_which_jobs_and_months_are_held(cluster: TorqueCluster) -> None:
    """Before the first run; not for a target that does not get the jobs of the source."""
    second = {"type": "gridengine", "path": "accounting"}
    cluster.more["sources"] = {"ce1": cluster.source, "ce2": second}

    def held() -> list[str]:
        return [said for said in cluster.check() if said.startswith("source ce2") and said.endswith("held")]

    benchmark = "source ce2: it has no benchmark: its jobs for spool are held"
    assert held() == [benchmark]
    cluster.target["records"] = "apel-summary"
    months = "source ce2: it does not show since when it has every job: months for spool are held"
    assert held() == [months, benchmark]
    second["complete_since"] = "2026-10-01"
    assert held() == [benchmark]
    cluster.target["sources"] = ["ce1"]
    assert held() == []
