"""Source `torque`: runs from the accounting files of TORQUE (`server_priv/accounting/YYYYMMDD`)."""

from __future__ import annotations

from publisher import config
from publisher.sources.pbs_log import PbsSource
from publisher.sources.pbs_runs import TORQUE


class TorqueSource(PbsSource):
    """The accounting folder of a TORQUE server."""

    def __init__(self, name: str, settings: config.Source) -> None:
        super().__init__(name, settings, TORQUE)
