"""Every setting of a source or target says whether a change of it plans deliveries again."""

from __future__ import annotations

import pytest

from publisher.config.schema import TARGET_KINDS, AddOnSettings, Settings, SourceSettings, TargetSettings
from publisher.config.types import Effect, planning_settings

MODELS: tuple[type[Settings], ...] = (
    SourceSettings, TargetSettings, AddOnSettings, *(kind.settings for kind in TARGET_KINDS.values()),
)  # fmt: skip

SENDING = {
    "attempts", "batch_bytes", "batch_records", "credentials", "every", "evidence", "infrastructure_description",
    "summary_description", "proxy", "publishers", "reconcile_every", "retry_budget", "retry_wait", "shadow",
    "taken_over_from", "timeout", "workers",
}  # fmt: skip
"""How what is due is sent, and what it looks like: no change of it makes another run due."""


@pytest.mark.parametrize("model", MODELS)
def test_every_setting_has_decided(model: type[Settings]) -> None:
    """None is left to a default, also where a kind has another description of a common setting."""
    effects = {
        name: sum(isinstance(part, Effect) for part in field.metadata) for name, field in model.model_fields.items()
    }
    assert [name for name, count in effects.items() if count != 1] == []


def test_a_kind_of_target_decides_as_all_targets_do() -> None:
    common = planning_settings(TargetSettings)
    for model in MODELS:
        if issubclass(model, TargetSettings):
            assert planning_settings(model) & TargetSettings.model_fields.keys() == common
    assert set(TargetSettings.model_fields) - common == SENDING
