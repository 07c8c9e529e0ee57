"""A site with every kind of source, collected once for all that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.api import Publisher
from tests.publisher.cli.program import BASE

SOURCES = """
[[map]]
when = { local_group = "chem*" }
vo = "chemistry"
dn = "/DC=org/CN=Pool"
[sources.dqs]
type = "dqs"
path = "{0}/dqs/act_file"
[sources.ge]
type = "gridengine"
path = "{0}/gridengine/real/accounting"
local_id_prefix = "ge-"
[sources.old]
type = "gridengine"
path = "{0}/gridengine/accounting-variants"
[sources.torque]
type = "torque"
path = "{0}/torque/accounting"
timezone = "Europe/Oslo"
[sources.pbs]
type = "pbs"
path = "{0}/pbs/accounting"
[sources.slurm]
type = "slurm"
path = "{0}/slurm/sacct.psv"
[sources.condor]
type = "htcondor"
path = "{0}/htcondor/history"
[sources.lsf]
type = "lsf"
path = "{0}/lsf/lsb.acct"
"""


@pytest.fixture(scope="session")
def every_source(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Iterator[Publisher]:
    """Its publisher; `config.file` is in its folder."""
    config = tmp_path_factory.mktemp("every-source") / "publisher.toml"
    config.write_text(BASE + SOURCES.replace("{0}", str(fixtures)))
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        yield publisher
