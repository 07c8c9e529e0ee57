"""`[spool.NAME]`: what the store holds, written out as it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from publisher.config_types import FilePath, Settings

SpoolKind = Literal["jobs", "deliveries", "messages"]
SpoolFormat = Literal["classic", "delimited", "json-lines", "xml", "database"]


class SpoolContext(Settings):
    """`[spool.NAME]`: a spooling context."""

    format: SpoolFormat = Field(
        description="`classic` (names and values) and `xml`: one file an object; `delimited` and `json-lines`: one "
        "file a kind; `database`: tables of another database."
    )
    path: FilePath | None = Field(default=None, description="Folder of the files.")
    url: str = Field(default="", description="Of the other database, as `store.url`.")
    kinds: tuple[SpoolKind, ...] = Field(
        default=("jobs", "deliveries", "messages"), min_length=1, description="Which kinds of object are written."
    )
    delimiter: str = Field(
        default=":",
        min_length=1,
        max_length=1,
        pattern=r"^[^\w\s\\,=.+-]$|^\t$",
        description="Between fields of `delimited`.",
    )

    @model_validator(mode="after")
    def _has_a_place(self) -> SpoolContext:
        if self.format == "database":
            if (
                not self.url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://"))
                or self.path is not None
            ):
                raise ValueError("a context in a database has a url, sqlite:///path or postgresql://..., and no path")
        elif self.path is None or self.url:
            raise ValueError("a context in files has a path, and no url")
        return self

    @property
    def folder(self) -> Path:
        """Of a context in files."""
        assert self.path is not None  # see above
        return self.path
