"""The view that a target has of the site's jobs, made from the configuration."""

from __future__ import annotations

from formats.view import View
from publisher.config import Config, Target


def view_of(target: Target, config: Config) -> View:
    """How this target is to see the jobs.

    Raises `CredentialError` when the key for hashed names cannot be read.
    """
    dn_key = b""
    if target.dn_key is not None:
        from publisher.credentials import read_secret  # noqa: PLC0415 - much to load for what few have

        dn_key = read_secret(target.dn_key, "the key for hashed names")
    return View(
        site=config.site.name,
        version=target.version,
        record_id_prefix=target.record_id_prefix,
        local_id_prefix=target.local_id_prefix,
        submit_host=target.submit_host,
        vo_spelling=target.vo_spelling,
        vo_groups_for_sgas="stripped" if target.vo_spelling == "plain" else "arc",
        infrastructure_description=target.infrastructure_description,
        benchmark=target.benchmark_type,
        ur_extensions=target.ur_extensions,
        namespace_style=target.namespace_style,
        service_class_as_service_level=target.service_class_as_service_level,
        machine_name=target.machine_name,
        signed=target.is_signed,
        ascii_names=target.ascii_names,
        dn=target.dn,
        dn_key=dn_key,
    )
