"""Notify the service manager (systemd): ready, alive, reloading, stopping, and one line of status.

The protocol is a datagram to the socket that `NOTIFY_SOCKET` names; without it nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class ServiceManager:
    """The manager that the environment names, if it names one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "") if ours else ""
        self.alive_every_s = int(microseconds) / 2e6 if microseconds.isdigit() and int(microseconds) else None
        """Seconds between two notices that the program is alive, half the time-out; None: it expects none."""
        self._next_alive = 0.0

    def ready(self) -> None:
        """Notify that the configuration has been read and work begins."""
        self._notify("READY=1")

    def reloading(self) -> None:
        """Notify that the configuration is read again; `ready` follows."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the program ends after the current batch."""
        self._notify("STOPPING=1")

    def status(self, text: str) -> None:
        """Send one line of text about the present work."""
        self._notify("STATUS=" + " ".join(text.split()))

    def alive(self) -> None:
        """Notify that the program is alive, if a notice is due. Called at every step."""
        if self.alive_every_s is not None and time.monotonic() >= self._next_alive:
            self._next_alive = time.monotonic() + self.alive_every_s
            self._notify("WATCHDOG=1")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(text.encode(), self._address)
