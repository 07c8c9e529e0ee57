"""Sites with real targets for what tests of `reconcile` compare, and what they look at in what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from formats.calendar import Month
from formats.job import Job
from publisher.reconcile.reconcile import Reconciliation
from publisher.reconcile.result import Difference, Found, MonthFound
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.status.status import TargetStatus
from tests.publisher.simulator.records import Client
from tests.publisher.site import OCTOBER, ListSource, Site, make_job, make_jobs

NOV = Month(2026, 11)
OCT = Month(2026, 10)
DAY = 86400


def site_of(folder: Path, pki: Pki | None, jobs: Sequence[Job], **targets: dict[str, Any]) -> Site:
    """A site with real targets."""
    source = ListSource("ce1", page=1000)
    source.add(*jobs)
    site = Site(folder, [source], [])
    site.table["targets"] = targets
    if pki is not None:
        site.table["credentials"] = {
            "certificate": str(pki.client.certificate),
            "key": str(pki.client.key),
            "ca_directory": str(pki.ca_directory),
        }
    site.reopen()
    site.collect()
    site.publisher.publish()
    return site


def sgas(simulator: Simulator, **settings: Any) -> dict[str, Any]:
    return {"type": "sgas", "url": simulator.sgas_url, "attempts": 1, **settings}


def files(**settings: Any) -> dict[str, Any]:
    return {"type": "directory", "path": "out", "layout": "files", "records": "ogf-ur", **settings}


def _files(file: Path | Sequence[Path]) -> Sequence[Path]:
    return [file] if isinstance(file, Path) else file


def reconciled(site: Site, *months: Month, file: Path | Sequence[Path] = ()) -> tuple[Found, list[Difference]]:
    """What is found of the only target."""
    with site.publisher.reconcile((), months or (NOV,), _files(file)) as found:
        (name,) = found.targets
        return found.targets[name], list(found.differences(name))


def resent(site: Site, *months: Month, file: Path | Sequence[Path] = ()) -> int:
    """Send again what is missing; gives how many jobs were accepted."""
    with site.publisher.reconcile((), months or None, _files(file)) as found:
        return sent_missing(site, found)


def sent_missing(site: Site, found: Reconciliation) -> int:
    """Send again what a reconciliation did not find; gives how many jobs were accepted."""
    return sum(item.sent.accepted for item in site.publisher.send_missing(found).values())


def month(found: Found, which: Month = NOV) -> MonthFound:
    return next(one for one in found.months if one.month == which)


def kinds(differences: Sequence[Difference]) -> dict[str, set[str]]:
    reported: dict[str, set[str]] = {}
    for one in differences:
        reported.setdefault(one.kind, set()).add(one.record)
    return reported


def confirmed(site: Site) -> int:
    site.assert_counters_right()
    (target,) = site.publisher.status().targets.values()
    return target.confirmed


def asked(simulator: Simulator, pki: Pki, method: str, path: str, body: bytes | None = None) -> bytes:
    """The answer of the simulator to another client."""
    client = Client(simulator, pki.client)
    try:
        answer = client(method, path, body)
    finally:
        client.close()
    assert answer.status == 200
    return answer.body


def summaries(**settings: Any) -> dict[str, Any]:
    return files(records="apel-summary", **settings)


def of_two_users() -> list[Job]:
    return [*make_jobs(3), *make_jobs(2, 4, user_dn="/DC=org/CN=Bo"), make_job(9, end=OCTOBER + 7)]


def ams(simulator: Simulator, records: str, **settings: Any) -> dict[str, Any]:
    return {
        "type": "ams",
        "url": simulator.ams_url,
        "auth_url": simulator.token_url,
        "records": records,
        "attempts": 1,
        **settings,
    }


def ran(site: Site) -> set[str]:
    """The targets that a run reconciled."""
    return set(site.publisher.run().reconciled)


def only(site: Site) -> TargetStatus:
    """The status of its only target."""
    (target,) = site.publisher.status().targets.values()
    return target
