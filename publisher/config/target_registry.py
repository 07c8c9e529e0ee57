"""The registry of kinds of target: the descriptor of each, and the union of their settings.

Classes are named, not imported, so that only what a site uses is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Discriminator, Tag

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
            compares_machine_names=True,
            takes_apel=False,
        ),
        TargetKind(
            name="ams",
            settings=AmsSettings,
            factory="publisher.targets.ams:AmsTarget",
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
            second_version=SecondVersion.REFUSES_REPEATS,
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

ADD_ON: Final = "add-on"


def _tag(value: Any) -> str | None:
    """The tag of a table in the union below: its `type`, or `ADD_ON` for that of an installed add-on."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str) or kind in TARGET_KINDS:
        return kind if isinstance(kind, str) else None
    return ADD_ON if kind in plugins.names(plugins.TARGETS) else kind


if TYPE_CHECKING:
    Target: TypeAlias = TargetSettings
else:
    Target = Annotated[
        reduce(
            or_,
            (
                Annotated[settings, Tag(name)]
                for name, settings in (
                    *((each.name, each.settings) for each in TARGET_KINDS.values()),
                    (ADD_ON, AddOnSettings),
                )
            ),
        ),
        Discriminator(_tag),
    ]
"""The settings of one target of any kind."""
