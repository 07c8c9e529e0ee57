"""The registry of kinds of target: the descriptor of each, and the settings of a target by its kind.

Classes are named, not imported, so that only what a site uses is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import PlainValidator, ValidationInfo
from pydantic_core import PydanticKnownError

from publisher import plugins
from publisher.config.auditor import AuditorSettings
from publisher.config.directory import DirectorySettings
from publisher.config.target_kind import SecondVersion, SumsKind, TargetKind
from publisher.config.targets import (
    AddOnSettings,
    AmsSettings,
    HttpsSettings,
    SgasSettings,
    TargetSettings,
)
from publisher.config.waldur import WaldurSettings

TARGET_KINDS: Final[Mapping[str, TargetKind]] = {
    each.name: each
    for each in (
        TargetKind(
            name="sgas",
            settings=SgasSettings,
            factory="publisher.targets.sgas:SgasTarget",
            second_version=SecondVersion.KEEPS_FIRST,
            evidence="query",
            sums=SumsKind(key=("machine", "user", "vo"), spelt="publisher.targets.sgas:spelt_in_sums"),
            receipts_name_records=True,
            registration="at SGAS (authorised names)",
            compares_machine_names=True,
            machine_names_right="jobinsert:all or jobinsert:machine_name=...",
            takes_apel=False,
        ),
        TargetKind(
            name="ams",
            settings=AmsSettings,
            factory="publisher.targets.ams:AmsTarget",
            registration="for APEL in GOCDB (endpoint glite-APEL)",
            skips_local_jobs=True,
            asked=("since", "local_jobs"),
        ),
        TargetKind(
            name="https",
            settings=HttpsSettings,
            factory="publisher.targets.https:HttpsTarget",
            sends_token=True,
            asked=("records",),
        ),
        TargetKind(
            name="directory",
            settings=DirectorySettings,
            factory="publisher.targets.directory:DirectoryTarget",
            evidence="files",
            asked=("records",),
        ),
        TargetKind(
            name="auditor",
            settings=AuditorSettings,
            factory="publisher.targets.auditor:AuditorTarget",
            registration="at AUDITOR, if it uses TLS (its CN in write_access_cn and read_access_cn)",
            second_version=SecondVersion.REFUSES_REPEATS,
            forwarder=("auditor-apel-plugin", "APEL"),
            evidence="records",
            takes_apel=False,
        ),
        TargetKind(
            name="waldur",
            settings=WaldurSettings,
            factory="publisher.targets.waldur:WaldurTarget",
            second_version=SecondVersion.REPLACES_PERIOD,
            evidence="totals",
            sends_token=True,
            takes_apel=False,
        ),
    )
}
"""By the `type` of a target. Add-ons register theirs as entry points."""

for _each in TARGET_KINDS.values():
    _each.settings.descriptor = _each


def settings_of_kind(kind: object) -> type[TargetSettings] | None:
    """The class of the settings of a `type`; None: there is no such type."""
    if not isinstance(kind, str):
        return None
    if kind in TARGET_KINDS:
        return TARGET_KINDS[kind].settings
    return AddOnSettings if kind in plugins.names(plugins.TARGETS) else None


def _read(table: Any, info: ValidationInfo) -> TargetSettings:
    kind = table.get("type") if isinstance(table, dict) else getattr(table, "type", None)
    settings = settings_of_kind(kind)
    if settings is not None:
        return settings.model_validate(table, context=info.context)
    if not isinstance(kind, str):
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "type"})
    allowed = ", ".join(TARGET_KINDS)
    raise PydanticKnownError("union_tag_invalid", {"discriminator": "type", "tag": kind, "expected_tags": allowed})


# Not a union of the kinds: pydantic would make the schemas of all of them at the start of every command.
if TYPE_CHECKING:
    Target: TypeAlias = TargetSettings
else:
    Target = Annotated[Any, PlainValidator(_read)]
"""The settings of one target of any kind."""
