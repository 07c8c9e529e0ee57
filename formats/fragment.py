"""Parts of a record that many runs share, rendered once: a user with groups, a queue on a machine, a host.

This is where the speed of the formats comes from: what repeats is looked up, what is different in every run is
rendered each time. A cache is bounded and holds nothing that is not a function of its key and the format's view.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from formats import fit
from formats.job import Job
from formats.record import Note
from formats.rules import NameRule

CACHED_FRAGMENTS: Final = 8192
"""Per kind of fragment; when it is full it is emptied, which costs less than keeping an order of use."""


class FragmentCache(dict[Hashable, str]):
    """Fragments by the facts of a job that they depend on. What was altered in is not kept: its notes are due again."""

    def __init__(self, make: Callable[[Job, list[Note]], str]) -> None:
        super().__init__()
        self._make = make

    def of(self, key: Hashable, job: Job, notes: list[Note]) -> str:
        """The fragment of a job, kept or rendered now; `key` as for `render`."""
        kept = self.get(key)
        return self.render(key, job, notes) if kept is None else kept

    def render(self, key: Hashable, job: Job, notes: list[Note]) -> str:
        """The fragment of a job that is not kept yet; `key` holds every fact of the job that it depends on."""
        altered: list[Note] = []
        xml = self._make(job, altered)
        if altered:
            notes += altered
            return xml
        if len(self) >= CACHED_FRAGMENTS:
            self.clear()
        self[key] = xml
        return xml


class HostCache:
    """Host elements, kept by host: the hosts of a run are few, their combinations are many."""

    def __init__(self, rule: NameRule) -> None:
        self._rule = rule
        self._names: set[str] = set()

    def of(self, job: Job, notes: list[Note]) -> str:
        """The hosts of a run; the first that has a proper name is the primary one."""
        xml = ""
        for host in job.hosts:
            if host.name in self._names or self._proper(host.name, notes):
                xml += f"<Host>{host.name}</Host>" if xml else f'<Host urf:primary="true">{host.name}</Host>'
        return xml

    def _proper(self, name: str, notes: list[Note]) -> bool:
        if not fit.name(self._rule, name, notes):
            return False
        if len(self._names) >= CACHED_FRAGMENTS:
            self._names.clear()
        self._names.add(name)
        return True
