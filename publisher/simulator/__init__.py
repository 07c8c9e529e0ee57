"""SGAS and AMS on loopback: for the demonstration, the tests, and rehearsals of a site.

They store and refuse the same as the real services, and report what they have stored. They write no files except the
temporary certificates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publisher.simulator.faults import Fault, Faults
    from publisher.simulator.simulator import Simulator

__all__ = ["Fault", "Faults", "Simulator"]


def __getattr__(name: str) -> object:
    """Import on first use: the certificates are often needed without the servers."""
    if name == "Simulator":
        from publisher.simulator.simulator import Simulator  # noqa: PLC0415 - as above

        return Simulator
    if name in {"Fault", "Faults"}:
        from publisher.simulator import faults  # noqa: PLC0415 - as above

        return getattr(faults, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
