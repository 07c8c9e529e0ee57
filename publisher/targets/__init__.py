"""Targets: one module for each kind of service, behind the protocol of `publisher.targets.base`.

The kinds of this program are listed in `publisher.config.target_registry.TARGET_KINDS`; those of add-ons come by the
entry-point group `usage_publisher.targets`: a `publisher.config.target_kind.TargetKind`, or only a callable with name,
settings, and context. A module is imported when a target of its kind is made, so that commands that send nothing start
quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from publisher import plugins
from publisher.config.target_kind import TargetKind, added_kind, factory_of
from publisher.config.target_registry import TARGET_KINDS
from publisher.config.targets import TargetSettings
from publisher.errors import ConfigError
from publisher.text import unknown_name

if TYPE_CHECKING:
    from publisher.targets.base import Target
    from publisher.targets.identity import TargetContext


TargetFactory: TypeAlias = "Callable[[str, Any, TargetContext], Target]"


def make_target(name: str, settings: Any, context: TargetContext) -> Target:
    """Make the target NAME of the configuration. `settings.type` is its kind.

    Raises `ConfigError` for an unknown kind, and for settings with which nothing can be sent safely.
    """
    if settings.type in TARGET_KINDS:
        return cast("Target", factory_of(TARGET_KINDS[settings.type])(name, settings, context))
    brought = plugins.load(plugins.TARGETS, settings.type, key=f"targets.{name}.type")
    if brought is None:
        known = [*TARGET_KINDS, *plugins.names(plugins.TARGETS)]
        raise ConfigError(unknown_name("kind of target", settings.type, known), key=f"targets.{name}.type")
    kind = added_kind(settings.type, brought)
    _require_fitting_format(name, settings, kind)
    from publisher.targets.plugin import added_target  # noqa: PLC0415

    return added_target(kind, name, settings, context)


def _require_fitting_format(name: str, settings: TargetSettings, kind: TargetKind) -> None:
    """Raise `ConfigError` for a format of which the service could not be sent corrections: totals of a period are sent
    again when one of its runs changed, and records one by one."""
    if settings.format.is_snapshot and not kind.second_version.replaces:
        why = f"sends totals, which replace earlier ones, and a service of type {settings.type} replaces nothing"
    elif kind.second_version.sends_vanished and not settings.format.is_snapshot:
        why = f"sends records one by one, and a service of type {settings.type} replaces whole periods"
    else:
        return
    raise ConfigError(f"{settings.records} {why}", key=f"targets.{name}.records")
