"""Clusters of Slurm, for calculation by hand: one day, jobs as rows of a saved table of sacct."""

from __future__ import annotations

from pathlib import Path

from publisher.api import Publisher
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.publisher.cli.program import BASE

DAY, NEXT = 1_772_409_600, 1_772_496_000
"""2 March 2026 and the day after it, UTC."""
_COLUMNS = "Cluster|JobIDRaw|JobID|User|Group|State|Submit|Start|End|ElapsedRaw|NCPUS|NNodes|NodeList|AllocTRES"


def slurm_site(folder: Path, jobs: list[dict[str, object]], more: str = "") -> Publisher:
    """The clusters, collected. Each job has `nodes` (such as n[1-3]), `count` of them, `cluster`, `cores`, and `gpus`,
    and ran all day, in March `day`, after it waited for `waited_h`."""
    lines = [_COLUMNS]
    for number, job in enumerate(jobs, 1):
        count, cores, gpus = job.get("count", 1), job.get("cores", 1), job.get("gpus", 0)
        resources = f"cpu={cores},node={count}" + (f",gres/gpu={gpus}" if gpus else "")
        day = int(str(job.get("day", 2)))
        submit = f"2026-03-{day - 1:02}T{24 - int(str(job.get('waited_h', 1))):02}:00:00"
        lines.append(
            f"{job.get('cluster', 'alpha')}|{number}|{number}|{job.get('user', 'ada')}|physics|COMPLETED|{submit}|"
            f"2026-03-{day:02}T00:00:00|2026-03-{day + 1:02}T00:00:00|86400|{cores}|{count}|{job['nodes']}|{resources}"
        )
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    config = folder / "publisher.toml"
    config.write_text(BASE + f'\n[sources.slurm]\ntype = "slurm"\npath = "sacct.psv"\ntimezone = "UTC"\n{more}')
    publisher = Publisher.from_file(config)
    collected = publisher.collect()
    assert collected is not None
    assert collected["slurm"].jobs == len(jobs)
    return publisher


def view(publisher: Publisher, name: str, **asked: object) -> Report:
    """A view of that day."""
    given: dict[str, object] = {"start": DAY, "stop": NEXT, "period": "day", **asked}
    context = ReportContext(publisher.store, publisher.config, NEXT)
    return make(name, context, ReportRequest(**given))  # type: ignore[arg-type]
