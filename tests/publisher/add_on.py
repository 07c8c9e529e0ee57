"""Add-ons as an installed package brings them: by entry points that the program finds on the path of imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.base import Format, Rendered
from formats.job import Job
from formats.origin import origin


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, **points: str) -> None:
    """Install a package with entry points in a group, by name, for the rest of a test."""
    name = f"add_on_for_{group.replace('.', '_')}"
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="ascii")
    lines = [f"[{group}]", *(f"{each} = {value}" for each, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="ascii")
    monkeypatch.syspath_prepend(folder)


class JobNames:
    """A format whose records are the names of jobs, one a line."""

    content_type = "text/plain"
    overhead_bytes, separator_bytes = 0, 1

    def __init__(self, _view: object) -> None:
        pass

    def record(self, job: Job, _created: int) -> Rendered:
        """The name."""
        return Rendered((job.name or "").encode())

    def message(self, bodies: list[bytes]) -> bytes:
        """The names, one a line."""
        return b"\n".join(bodies)


JOB_NAMES = f"{__name__}:{JobNames.__name__}"
DESCRIBED_NAMES = f"{__name__}:DESCRIPTOR"
DESCRIPTOR = Format(
    name="mine", title="Names of jobs", shape="record", make=JobNames, key="record", content_type="text/plain",
    origins={"message": origin("name", how="the name of the job")},
)  # fmt: skip
"""The same with a descriptor."""
