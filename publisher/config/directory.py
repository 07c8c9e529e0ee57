"""The settings of targets that are directories."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from formats.registry import FORMATS
from publisher.config.target_kind import EvidenceSource, SecondVersion
from publisher.config.targets import ApelSettings
from publisher.config.types import FilePath, KeepsPlan, PlansAgain, Switch, WrongKeysError


class DirectorySettings(ApelSettings):
    """`[targets.NAME]` with `type = "directory"`."""

    type: PlansAgain[Literal["directory"]] = Field(
        description="Messages as files, which SSM or another program fetches."
    )
    path: KeepsPlan[FilePath] = Field(description="The directory.")
    layout: KeepsPlan[Literal["dirq", "files", "daily"]] = Field(
        default="dirq",
        description="`dirq`: an outgoing queue of SSM; `files`: one plain file per message; `daily`: one for each "
        "resource and UTC day, the default and only one for `xdmod-slurm`.",
    )
    sign: KeepsPlan[Switch] = Field(
        default=False,
        description="Sign messages (S/MIME) with the certificate. SSM signs the messages of its queue.",
    )

    @model_validator(mode="before")
    @classmethod
    def _files_of_whole_days_are_large(cls, table: Any) -> Any:
        records = FORMATS.get(str(table.get("records"))) if isinstance(table, dict) else None
        if records is None or records.file_of is None:
            return table
        return {"layout": "daily", "batch_records": 100_000, "batch_bytes": 64_000_000, **table}

    @model_validator(mode="after")
    def _daily_files_have_their_format(self) -> Self:
        if self.by_day and self.format.file_of is None:
            names = " or ".join(f'"{name}"' for name, each in FORMATS.items() if each.file_of is not None)
            raise WrongKeysError((("layout",), f'"daily" needs records = {names}'))
        if self.by_day and self.sign:
            raise WrongKeysError((("sign",), "files by day are not signed. Omit it"))
        return self

    @property
    def by_day(self) -> bool:
        """See `TargetSettings`."""
        return self.layout == "daily"

    @property
    def second_version(self) -> SecondVersion:
        """A file of a day is never written again."""
        return SecondVersion.KEEPS_FIRST if self.by_day else super().second_version

    @property
    def destination(self) -> tuple[str, ...]:
        """See `TargetSettings`."""
        return "directory", str(self.path)

    @property
    def evidence_source(self) -> EvidenceSource:
        """None for a queue: SSM fetches the messages, and their fate is unknown here."""
        return "none" if self.layout == "dirq" and not self.evidence else super().evidence_source

    @property
    def least_batch_bytes(self) -> int:
        """See `TargetSettings`: SSM signs, and may encrypt."""
        if self.layout != "dirq":
            return super().least_batch_bytes
        return 60_000 if self.sign else 40_000

    @property
    def signs(self) -> bool:
        """Whether we sign them; SSM signs the messages of its queue."""
        return self.sign

    @property
    def is_signed(self) -> bool:
        """By us, or by SSM when it takes a message from its queue."""
        return self.sign or self.layout == "dirq"
