"""Make a configuration from that of another program, with remarks on every difference.

Nothing is guessed in silence: a setting of the other program is either carried over, or there is a remark about it.

The files have blocks and options, as those of ARC and of Python's configparser, and are read leniently: blocks `[name]`
with lines `option = value` or `option: value`, and comments that begin with `#` or `;`. Any other line is kept as a
problem, and the rest is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from publisher.config import file as config_file
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.text import iso, text_of

Kind = Literal["choose", "differs", "not carried over", "state"]
"""`choose`: the administrator must decide before the first run; `differs`: it works differently here; `not carried
over`: there is no counterpart, or it is not understood; `state`: what the other program had delivered, if known."""

_MOST_CHARACTERS: Final = 2000
UNKNOWN_SITE: Final = "SITE-NAME-AS-IN-GOCDB"
_ORDER: Final[tuple[Kind, ...]] = ("choose", "state", "differs", "not carried over")


class Remark(msgspec.Struct, frozen=True):
    """A remark. `where`: the setting of the other program, or ours."""

    kind: Kind
    where: str
    text: str


class Proposal:
    """A configuration being made. `origin` names the program and its files."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.state_file: Path | None = None
        """The file that had what the other program delivered, if it was read."""
        self.site = ""
        self.sources: dict[str, dict[str, Any]] = {}
        self.targets: dict[str, dict[str, Any]] = {}
        self.credentials: dict[str, Any] = {}
        self._remarks: list[Remark] = []

    def remark(self, kind: Kind, where: str, text: str) -> None:
        """Add a remark, unless it is there already."""
        remark = Remark(kind, where, text)
        if remark not in self._remarks:
            self._remarks.append(remark)

    @property
    def remarks(self) -> list[Remark]:
        """All remarks; first those on which the administrator must decide."""
        return sorted(self._remarks, key=lambda remark: _ORDER.index(remark.kind))

    def free_name(self, preferred: str, kind: str) -> str:
        """Return an unused name for a target."""
        name = preferred or kind
        if name in self.targets:
            name = f"{name}-{kind}"
        number = 2
        while name in self.targets:
            name, number = f"{preferred}-{kind}-{number}", number + 1
        return name

    def taken_over(self, who: str, now: int) -> None:
        """Record in each target the files it was made from, by whom, and when; the audit of the store shows it.

        A `delivered_until` in the future is left out: jobs that end until then would never be sent.
        """
        self._leave_out_future(now)
        state = [f"{remark.where}: {remark.text}" for remark in self.remarks if remark.kind == "state"]
        for target in self.targets.values():
            files = self.origin if self.state_file is None else f"{self.origin} and {self.state_file}"
            known = "; ".join([f"imported from {files} by {who} at {iso(now)}", *state])
            target["taken_over_from"] = _one_line(known)[:_MOST_CHARACTERS]

    def _leave_out_future(self, now: int) -> None:
        latest = iso(now) or ""
        for name, target in self.targets.items():
            if (until := target.get("delivered_until", "")) > latest:
                del target["delivered_until"]
                text = (
                    f"{until} is in the future, so it is left out: set it to the end of the last job that was "
                    "delivered, or all jobs are sent again"
                )
                self.remark("choose", f"targets.{name}.delivered_until", text)

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
        """The configuration as our reader reads it from this file. Raises `ConfigError`."""
        return config_file.parse(tomllib.loads(self.text()), file)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


LARGEST_BYTES: Final = 4 * 2**20
_BLOCK: Final = re.compile(r"\[\s*([^\[\]]+?)\s*\]\s*(?:[#;].*)?").fullmatch
_OPTION: Final = re.compile(r"([^\s=:\[\]]+)\s*(?:([=:])\s*(.*))?", re.DOTALL).fullmatch
_QUOTES: Final = "\"'"


class Option(msgspec.Struct, frozen=True):
    """An option; `value` without enclosing quotes, `line` from 1."""

    name: str
    value: str
    line: int
    quoted: bool = False


class Block(msgspec.Struct, frozen=True):
    """A block: its name, and its options in order, also repeated ones."""

    name: str
    line: int
    options: tuple[Option, ...] = ()

    def get(self, name: str) -> str | None:
        """The value of an option, the last one if it is repeated; None if it is missing or empty."""
        values = self.all(name)
        return values[-1] if values else None

    def all(self, name: str) -> list[str]:
        """All values of an option that are not empty."""
        return [option.value for option in self.options if option.name == name and option.value]


class BlockFile(msgspec.Struct, frozen=True):
    """A file. Blocks of the same name are joined. `problems`: other lines, as `(line, text)`."""

    path: Path
    blocks: dict[str, Block]
    problems: tuple[tuple[int, str], ...] = ()

    def block(self, name: str) -> Block:
        """The block of this name, or an empty one."""
        return self.blocks.get(name) or Block(name, 0)


def read_blocks(path: Path, *, keep_case: bool = True) -> BlockFile:
    """Read a file. `keep_case`: whether the names of options are case-sensitive (ARC's are, configparser's are not).

    Raises `UsageError` if it cannot be read, or is not such a file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Name the file of the old program") from error
    if len(content) > LARGEST_BYTES or b"\0" in content:
        raise UsageError(f"{path} is not a configuration file", hint="Name the file of the old program")
    text = content.decode("utf-8", "backslashreplace").removeprefix("\ufeff")
    blocks: dict[str, Block] = {}
    problems: list[tuple[int, str]] = []
    current: str | None = None
    for number, line in _lines(text):
        if match := _BLOCK(line):
            current = " ".join(match[1].split()) if ":" not in match[1] else _named(match[1])
            blocks.setdefault(current, Block(current, number))
        elif current is not None and (option := _option(line, number, keep_case=keep_case)) is not None:
            block = blocks[current]
            blocks[current] = msgspec.structs.replace(block, options=(*block.options, option))
        else:
            problems.append((number, line))
    if not blocks:
        raise UsageError(
            f"{path} is not a configuration file of blocks [name]", hint="Name the file of the old program"
        )
    return BlockFile(path, blocks, tuple(problems))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are neither empty nor comments, with their numbers. Indented lines are lines of their own: these
    programs have no values of several lines."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and stripped[0] not in "#;":
            yield number, stripped


def _named(name: str) -> str:
    keyword, _, identifier = name.partition(":")
    return f"{keyword.strip()}:{identifier.strip()}"


def _option(line: str, number: int, *, keep_case: bool) -> Option | None:
    match = _OPTION(line)
    if match is None:
        return None
    value = (match[3] or "").strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES
    name = match[1] if keep_case else match[1].lower()
    return Option(name, value[1:-1] if quoted else value, number, quoted)
