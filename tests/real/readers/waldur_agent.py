"""Waldur's site agent for Slurm: the usage of accounts in a month, which its mode `report` writes. In: rows of sacct by
column, components with unit factors, accounts, year, month; out: usage by account, by user (`TOTAL_ACCOUNT_USAGE`: of
all), and by component."""

import json
import shlex
import sys
import tempfile
from pathlib import Path

from waldur_site_agent_slurm.backend import SlurmBackend

given = json.load(sys.stdin)
components = {
    name: {"measured_unit": name, "unit_factor": factor, "accounting_type": "usage", "label": name}
    for name, factor in given["components"].items()
}
with tempfile.TemporaryDirectory() as folder:
    lines = ["|".join(row[name] for name in ("Account", "ReqTRES", "Elapsed", "User")) for row in given["rows"]]
    sacct = Path(folder) / "sacct"  # which selects by account and month, as all of these rows are
    sacct.write_text(f"#!/bin/sh\nprintf '%s\\n' {shlex.join(lines)}\n")
    sacct.chmod(0o700)
    backend = SlurmBackend({"slurm_bin_path": folder}, components)
    json.dump(backend.get_usage_report_for_period(given["accounts"], given["year"], given["month"]), sys.stdout)
