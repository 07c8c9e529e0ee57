"""check: the files that only reports read: carbon intensity, measured energy, and allocations."""

from __future__ import annotations

from collections.abc import Iterator

from publisher.collect.meters import why_unreadable
from publisher.config.schema import Config
from publisher.errors import ConfigError
from publisher.finding import Finding
from publisher.report.allocation_files import all_allocations
from publisher.report.carbon import carbon_hours
from publisher.text import counted, iso


def check_files(config: Config, now: int) -> Iterator[Finding]:
    """A finding for each file; red if reports or `collect` fail because of it."""
    if config.energy.carbon_file is not None:
        try:
            hours = carbon_hours(config.energy)
        except ConfigError as error:
            yield Finding("energy", "red", error.message, error.hint)
        else:
            text = f"{config.energy.carbon_file}: {counted(len(hours), 'hour')}"
            yield Finding("energy", "green", text + (f", the last is {iso(hours[-1].start)}" if hours else ""))
    for meter in config.energy.measured:
        problem = why_unreadable(meter, now)
        if problem is None:
            yield Finding("energy", "green", f"{meter.path} can be read")
        else:
            hint = "Correct `path` in [[energy.measured]], or the file"
            yield Finding("energy", "red", f"{meter.path} cannot be read: {problem}", hint)
    if config.allocation_files:
        try:
            allocations, _ = all_allocations(config)
        except ConfigError as error:
            yield Finding("allocations", "red", error.message, error.hint)
        else:
            yield Finding("allocations", "green", f"{counted(len(allocations), 'allocation')} can be read")
