"""Waldur's site agent: the requests of its mode `report`, to a double. In: URL and token, resources by account,
components with unit factors, rows of sacct by column for each of several reports, the instant of the report in ISO
8601, year, month; out: the words with which it called sacct, and for each report and account what stopped it."""

import json
import shlex
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

from waldur_api_client import AuthenticatedClient
from waldur_api_client.api.marketplace_component_usages import marketplace_component_usages_list
from waldur_site_agent.common.processors import OfferingReportProcessor
from waldur_site_agent_slurm.backend import SlurmBackend

_ALL_USERS = "TOTAL_ACCOUNT_USAGE"
given = json.load(sys.stdin)
components = {
    name: {"measured_unit": name, "unit_factor": factor, "accounting_type": "usage", "label": name}
    for name, factor in given["components"].items()
}
at = datetime.fromisoformat(given["at"])


class Reporting(OfferingReportProcessor):
    """Only what writes usages: the service and the cluster have nothing else here."""

    def __init__(self, client, backend):
        self.waldur_rest_client, self.resource_backend = client, backend
        self.timezone, self.offering = "", SimpleNamespace(omit_anomalous_usage_components=False)

    def _get_cached_offering_users(self):
        return []


def report(reporting, account, resource, usage):
    offered = [SimpleNamespace(type_=name) for name in components]
    about = SimpleNamespace(uuid=UUID(resource), backend_id=account)
    reporting._submit_total_usage_for_resource(about, dict(usage[_ALL_USERS]), offered, report_date=at)
    there = marketplace_component_usages_list.sync_all(
        client=reporting.waldur_rest_client, resource_uuid=resource, billing_period=at.replace(day=1).date()
    )
    users = {name: amounts for name, amounts in usage.items() if name != _ALL_USERS}
    reporting._submit_bulk_user_usages_for_resource(users, there, at)


stopped, called = [], ""
with tempfile.TemporaryDirectory() as folder:
    sacct = Path(folder) / "sacct"
    for rows in given["reports"]:
        lines = ["|".join(row[name] for name in ("Account", "ReqTRES", "Elapsed", "User")) for row in rows]
        sacct.write_text(f"#!/bin/sh\necho \"$@\" > {folder}/called\nprintf '%s\\n' {shlex.join(lines)}\n")
        sacct.chmod(0o700)
        client = AuthenticatedClient(base_url=given["url"], token=given["token"], prefix="Token")
        backend = SlurmBackend({"slurm_bin_path": folder}, components)
        reporting = Reporting(client, backend)
        usages = backend.get_usage_report_for_period([*given["resources"]], given["year"], given["month"])
        said = {}
        for account, usage in usages.items():
            try:
                report(reporting, account, given["resources"][account], usage)
            except Exception as error:
                said[account] = f"{type(error).__name__}: {error}"
        stopped.append(said)
        called = (Path(folder) / "called").read_text()
json.dump({"called": called.split(), "stopped": stopped}, sys.stdout)
