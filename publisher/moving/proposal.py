"""What a configuration of another program becomes: ours, and every remark about what is not the same.

Nothing is guessed in silence: a setting of the old program is either carried over, or there is a remark about it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from publisher import config_file
from publisher.config import Config
from publisher.times import iso
from publisher.toml_text import text_of

Kind = Literal["choose", "differs", "not carried over", "state"]
"""`choose`: somebody must decide before the first run; `differs`: it works otherwise here; `not carried over`: there is
no counterpart, or it is not understood; `state`: what the old program had delivered, as far as that is known."""

_MOST_TOLD: Final = 2000
UNKNOWN_SITE: Final = "SITE-NAME-AS-IN-GOCDB"
_ORDER: Final[tuple[Kind, ...]] = ("choose", "state", "differs", "not carried over")


class Remark(msgspec.Struct, frozen=True):
    """One thing to know. `where`: the setting of the old program, or ours."""

    kind: Kind
    where: str
    text: str


class Proposal:
    """A configuration in the making. `origin` names the program and its files."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.state_file: Path | None = None
        """Where the old program kept what it had delivered, if it was read."""
        self.site = ""
        self.sources: dict[str, dict[str, Any]] = {}
        self.targets: dict[str, dict[str, Any]] = {}
        self.credentials: dict[str, Any] = {}
        self._remarks: list[Remark] = []

    def remark(self, kind: Kind, where: str, text: str) -> None:
        """Add one; said once, however often it is true."""
        remark = Remark(kind, where, text)
        if remark not in self._remarks:
            self._remarks.append(remark)

    @property
    def remarks(self) -> list[Remark]:
        """All of them, what somebody must decide first."""
        return sorted(self._remarks, key=lambda remark: _ORDER.index(remark.kind))

    def free_name(self, wanted: str, kind: str) -> str:
        """A name for a target that no other has."""
        name = wanted or kind
        if name in self.targets:
            name = f"{name}-{kind}"
        number = 2
        while name in self.targets:
            name, number = f"{wanted}-{kind}-{number}", number + 1
        return name

    def taken_over(self, who: str, now: int) -> None:
        """Put into each target from what it was made, by whom and when: the audit of the store tells it afterwards."""
        state = [f"{remark.where}: {remark.text}" for remark in self.remarks if remark.kind == "state"]
        for target in self.targets.values():
            files = self.origin if self.state_file is None else f"{self.origin} and {self.state_file}"
            known = "; ".join([f"imported from {files} by {who} at {iso(now)}", *state])
            target["taken_over_from"] = _one_line(known)[:_MOST_TOLD]

    def tables(self) -> dict[str, Any]:
        """The configuration as plain values."""
        return {
            "site": {"name": self.site or UNKNOWN_SITE},
            "store": {"url": "sqlite:////var/lib/usage-publisher/store.db"},
            **({"credentials": self.credentials} if self.credentials else {}),
            "sources": self.sources,
            "targets": self.targets,
        }

    def text(self) -> str:
        """The configuration file, with the remarks as its first lines."""
        tables = {name: table for name, table in self.tables().items() if table}
        return "\n".join([*self._preface(), text_of(tables)])

    def _preface(self) -> Iterator[str]:
        yield f"# Made by `usage-publisher import` from {_one_line(self.origin)}. Every key is explained in the example"
        yield "# configuration and in the documentation, under Configuration."
        if self._remarks:
            yield "#"
        for remark in self.remarks:
            yield f"# {remark.kind}: {_one_line(remark.where)}: {_one_line(remark.text)}"
        yield ""

    def config(self, file: Path) -> Config:
        """The same as our reader understands it from a file there. Raises `ConfigError`."""
        return config_file.parse(tomllib.loads(self.text()), file)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
