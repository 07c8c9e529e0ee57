"""check: the files that only reports read: carbon intensity, measured energy, and allocations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from publisher.collect.meters import why_unreadable
from publisher.config.energy import Energy
from publisher.config.schema import Config
from publisher.errors import ConfigError
from publisher.finding import Finding
from publisher.report.allocation_files import all_allocations
from publisher.report.carbon import carbon_hours
from publisher.text import counted, iso


def check_files(config: Config, now: int) -> Iterator[Finding]:
    """A finding for each file; red if reports or `collect` fail because of it."""
    if config.energy.carbon_file is not None:
        yield _read("energy", lambda: _hours_text(config.energy))
    for meter in config.energy.measured:
        problem = why_unreadable(meter, now)
        if problem is None:
            yield Finding("energy", "green", f"{meter.path} can be read")
        else:
            hint = "Correct `path` in [[energy.measured]], or the file"
            yield Finding("energy", "red", f"{meter.path} cannot be read: {problem}", hint)
    if config.allocation_files:
        yield _read("allocations", lambda: f"{counted(len(all_allocations(config)[0]), 'allocation')} can be read")


def _read(subject: str, read: Callable[[], str]) -> Finding:
    """The finding of what is read: its text, or why it cannot be."""
    try:
        return Finding(subject, "green", read())
    except ConfigError as error:
        return Finding(subject, "red", error.message, error.hint)


def _hours_text(settings: Energy) -> str:
    hours = carbon_hours(settings)
    text = f"{settings.carbon_file}: {counted(len(hours), 'hour')}"
    return text + (f", the last is {iso(hours[-1].start)}" if hours else "")
