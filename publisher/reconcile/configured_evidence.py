"""Read the `evidence` of a target: the files and URLs with what the service has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from publisher.config.schema import TargetSettings
from publisher.errors import CredentialError, StoreFullError, TargetError, UnreachableError
from publisher.security.exchange import Failure
from publisher.security.http import same_origin
from publisher.targets import answers
from publisher.targets.identity import Identity, TargetContext


@contextmanager
def configured_evidence(settings: TargetSettings, context: TargetContext) -> Iterator[list[Path]]:
    """Give the path of each file, or of a copy of the content of a URL; copies are removed at the end. Raises as
    `_path_of`."""
    with ExitStack() as stack:
        yield [stack.enter_context(_path_of(settings, path, context)) for path in settings.evidence]


@contextmanager
def _path_of(settings: TargetSettings, evidence: str, context: TargetContext) -> Iterator[Path]:
    """The path of a file, or of a copy of the content of a URL.

    A URL is fetched with the target's certificate, time-out, and proxy; with its token, if it is at the target's
    service. Raises `UnreachableError`, `TargetError`, and `CredentialError` if it cannot be fetched, and
    `StoreFullError` if there is no room for the copy.
    """
    if not evidence.startswith("https://"):
        yield Path(evidence)
        return
    content = _got(settings, evidence, context)
    try:
        with NamedTemporaryFile(prefix="usage-publisher-evidence-") as copy:
            copy.write(content)
            copy.flush()
            yield Path(copy.name)
    except OSError as error:
        raise StoreFullError(f"cannot write a temporary copy of {evidence}: {error.strerror or error}") from error


def _got(settings: TargetSettings, url: str, context: TargetContext) -> bytes:
    identity = Identity(settings.own_credentials, context)
    # A token is for the target's service alone: another host would learn it.
    is_at_service = same_origin(url, str(getattr(settings, "url", "")))
    make_client = identity.authorised_client if is_at_service else identity.client
    client = make_client(url, timeout_s=settings.timeout, proxy=settings.proxy)
    try:
        reply = client.request("GET", url)
    finally:
        client.close()
    if isinstance(reply, Failure):
        raise UnreachableError(f"{url}: {reply.message}", hint=reply.hint)
    if reply.status in {401, 403, 407} or answers.refuses_certificate(reply):
        who = "the target's token" if is_at_service and identity.has_token else "the name of the target's certificate"
        hint = f"Ask the service to let {who} read this URL"
        raise CredentialError(f"{url}: {answers.describe(reply)}", hint=hint)
    if reply.status != 200:
        raise TargetError(f"{url}: {answers.describe(reply)}", hint="Check `evidence` in the configuration")
    return reply.body
