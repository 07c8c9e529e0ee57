"""The origin of a field of a record, as a format's descriptor states it: facts of the run, settings, and their use.

`render --explain` shows it, and the tables of the formats' pages are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

AS_IT_IS: Final = "as it is"


class Origin(msgspec.Struct, frozen=True):
    """The origin of a field: facts of the run (fields of `formats.job.Job`), settings of the target, and how they are
    used."""

    facts: tuple[str, ...]
    how: str = AS_IT_IS
    settings: tuple[str, ...] = ()


Origins = Mapping[str, Origin]
"""By field, named as in `formats.check.fields`. One without brackets is for all fields with this name."""


def origin(*facts: str, how: str = AS_IT_IS, settings: tuple[str, ...] = ()) -> Origin:
    """An `Origin`, written shortly."""
    return Origin(facts, how, settings)


SECONDS: Final = "whole seconds, half a second up"
MACHINE: Final = origin(
    "endpoint_url",
    "cluster",
    how="the setting, else the host of the endpoint, else the cluster",
    settings=("machine_name",),
)
RECORD_ID: Final = origin("record_id", how="blanks and forbidden characters become %XX", settings=("record_id_prefix",))
USER_NAME: Final = origin("user_dn", how="in slash form; sent, hashed, or withheld", settings=("dn", "dn_key"))
CORES: Final = origin("cores", "slots", how="cores, else slots")
PROJECT: Final = origin("project", "account", how="the project, else the account")
BENCHMARK: Final = origin(
    "benchmarks", how="the preferred one, else HEPscore23, HEPSPEC, Si2k; three decimals", settings=("benchmark_type",)
)
VO_NAME: Final = origin("vo", "fqans", how="the VO, else that of the first VOMS attribute")
SUBMIT_HOST: Final = origin(
    "endpoint_url", "endpoint_type", "cluster", how="the endpoint in the configured spelling, else the cluster",
    settings=("submit_host",),
)  # fmt: skip
GRID: Final = origin(
    "infrastructure", "endpoint_url", "user_dn", "token_subject", "fqans",
    how="as the source says, else grid for a job with an endpoint or a grid identity",
)  # fmt: skip
DESCRIPTION: Final = origin("middleware", "lrms", "system", how="USAGE-PUBLISHER, middleware or system, batch system")
WALL: Final = origin("wall_ms", how=SECONDS)
CPU_ALL: Final = origin("cpu_ms", "cpu_user_ms", "cpu_system_ms", how=f"the total, else user and system; {SECONDS}")
MONTH: Final = origin("end", how="the UTC month of the end")
