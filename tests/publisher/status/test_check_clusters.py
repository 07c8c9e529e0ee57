"""check: jobs that were stored before `cluster` was set get other record ids when they are read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.status.check import changed_clusters
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job


@pytest.mark.parametrize(
    ("kind", "stored", "cluster", "said"),
    [
        ("gridengine", "default", "c1", "with 'default', and `cluster` is 'c1' now"),
        ("lsf", None, "c1", "with no cluster, and `cluster` is 'c1' now"),
        ("torque", None, "c1", "with no cluster"),
        ("torque", "server", "c1", None),
        ("lsf", "c1", "c1", None),
        ("lsf", None, None, None),
        ("arc", None, "c1", None),
    ],
)
def test_jobs_stored_with_another_cluster_are_found(
    tmp_path: Path, kind: str, stored: str | None, cluster: str | None, said: str | None
) -> None:
    source = ListSource("ce1")
    source.add(make_job(1, cluster=stored))
    site = Site(tmp_path, [source], [RecordReceiver("neic")])
    site.table["sources"]["ce1"]["type"] = kind
    site.collect()
    if cluster is not None:
        site.table["sources"]["ce1"]["cluster"] = cluster
        site.reopen()
    findings = list(changed_clusters(site.config, site.publisher.store))
    assert [(each.subject, each.level) for each in findings] == [("source ce1", "yellow")] * (said is not None)
    assert said is None or said in findings[0].message
