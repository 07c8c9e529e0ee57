"""Tests write below the folder for temporary files only, and leave alone what an installed program has on this host.
What other programs have there is not seen by them: to them no host has anything at the places of a grid site.

`watch` adds a hook to this process, which stops a write to any other place and records it. `watcher_for_processes` does
the same in every Python process that a test starts: it writes a folder with a `sitecustomize` module, for PYTHONPATH.

Not seen are writes of other programs, and those relative to an open folder, of which `os.open` tells nothing. It needs
the standard library only.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

OUR_PLACES: Final = ("/etc/usage-publisher", "/var/lib/usage-publisher")
"""No test has a reason to look there: not even to be read."""
EMPTY_PLACES: Final = ("/var/spool", "/etc/grid-security")
"""Configurations that are imported name them. What is there depends on the host: nothing is, to a test that reads."""
_ALLOWED_OUTSIDE: Final = ("/dev/", "/proc/")
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGING: Final = {
    "os.chmod": 1, "os.chown": 1, "os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1,
    "os.setxattr": 1, "os.symlink": 1, "os.truncate": 1, "os.utime": 1,
}  # fmt: skip
"""The events of changes, and how many of their arguments are paths. As many at the end are the open folders to which
these are relative, or `_NO_FOLDER`."""
_WITHOUT_FOLDERS: Final = frozenset({"os.setxattr", "os.truncate"})
_NO_FOLDER: Final = -1
_FIRST_PATH: Final = {"os.symlink": 1}
"""Where the paths begin, if not with the first argument: to what a link leads is not changed."""


class WriteOutsideError(RuntimeError):
    """A test would have touched this path."""


def watch(report: Path, *allowed: str, is_test_at_work: Callable[[], bool] = lambda: True) -> None:
    """Refuse writes of this process that are not below the allowed folders, and name them in a file."""
    roots = tuple(f"{folder.rstrip('/')}/" for folder in allowed)

    def refuse(event: str, path: str) -> None:
        with report.open("a", encoding="utf-8") as file:
            file.write(f"{event} {path}\n")
        raise WriteOutsideError(f"{event} {path}: no test may touch a path outside of {', '.join(roots)}")

    def changed(event: str, path: object) -> None:
        name = _path(path)
        if name and not f"{name}/".startswith((*roots, *_ALLOWED_OUTSIDE)) and "__pycache__" not in name:
            refuse(event, name)

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        path, mode, flags = arguments
        if flags & _WRITING and not (mode is None and _is_relative(path)):
            changed(event, path)
        looked_at(event, path)

    def connected(event: str, arguments: tuple[Any, ...]) -> None:
        path = _path(arguments[0])
        name, _, options = path.removeprefix("file:").partition("?")
        if name.startswith((*OUR_PLACES, *EMPTY_PLACES)) or not ("mode=ro" in options or "mode=memory" in options):
            changed(event, name)

    def looked_at(event: str, path: object) -> None:
        name = _path(path)
        if name.startswith(OUR_PLACES):
            refuse(event, name)
        if name.startswith(EMPTY_PLACES):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def listed(event: str, arguments: tuple[Any, ...]) -> None:
        looked_at(event, arguments[0])

    checks: dict[str, Callable[[str, tuple[Any, ...]], None]] = {
        "open": opened, "sqlite3.connect": connected, "os.listdir": listed, "os.scandir": listed,
    }  # fmt: skip

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in checks:
            if is_test_at_work():
                checks[event](event, arguments)
        elif event in _CHANGING and is_test_at_work():
            count = _CHANGING[event]
            folders = () if event in _WITHOUT_FOLDERS else arguments[-count:]
            in_open_folder = any(folder != _NO_FOLDER for folder in folders)
            for path in arguments[_FIRST_PATH.get(event, 0) :][:count]:
                if not (in_open_folder and _is_relative(path)):
                    changed(event, path)

    sys.addaudithook(hook)
    _hide_from_questions(is_test_at_work)


def _hide_from_questions(is_test_at_work: Callable[[], bool]) -> None:
    """Nothing is at these places to code that asks whether it is there, of which no event tells."""
    ask, ask_access = os.stat, os.access

    def is_hidden(path: Any) -> bool:
        return _path(path).startswith((*OUR_PLACES, *EMPTY_PLACES)) and is_test_at_work()

    def stat(path: Any, **options: Any) -> os.stat_result:
        if is_hidden(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return ask(path, **options)

    def access(path: Any, mode: int, **options: Any) -> bool:
        return not is_hidden(path) and ask_access(path, mode, **options)

    os.stat, os.access = stat, access


def watcher_for_processes(folder: Path, report: Path, *allowed: str) -> Path:
    """A folder in which Python finds a `sitecustomize` module that watches, and reports in the same file."""
    code = Path(__file__).read_text(encoding="utf-8")
    (folder / "sitecustomize.py").write_text(
        f"{code}\n\nwatch(Path({str(report)!r}), *{allowed!r})\n", encoding="utf-8"
    )
    return folder


def in_memory() -> None:
    """Have temporary files in memory, where there is room: tests sync to disk what they write, thousands of times."""
    folder = "/dev/shm"
    if "TMPDIR" in os.environ or not os.access(folder, os.W_OK | os.X_OK):
        return
    state = os.statvfs(folder)
    if state.f_bavail * state.f_frsize >= _ROOM_BYTES and not state.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = folder


_ROOM_BYTES: Final = 3 << 30


def _is_relative(path: object) -> bool:
    """Whether it is the path of a file in a folder that is not named."""
    return isinstance(path, str | bytes | os.PathLike) and not os.fsdecode(path).startswith("/")


def _path(path: object) -> str:
    """The path as text, from the root; empty for a descriptor."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str | os.PathLike):
        return ""
    name = os.fspath(path)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not name or name.startswith(("file:", ":memory:")):
        return name
    return os.path.normpath(name if name.startswith("/") else Path.cwd() / name)
