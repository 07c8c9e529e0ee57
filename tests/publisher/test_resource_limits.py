"""A limit of the host is not a fault of the program, nor of its credentials."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from publisher.errors import CredentialError, PublisherError, ResourceLimitError, StoreError
from publisher.store.sent_mark import SentMarkFile


def _caused(error: PublisherError, cause: BaseException) -> PublisherError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "what", "remedy"),
    [
        (OSError(errno.EMFILE, "Too many open files", "a.db"), "open files of this process", "LimitNOFILE="),
        (OSError(errno.ENFILE, "Too many open files in system"), "open files of this host", "fs.file-max"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory", "MemoryMax="),
        (MemoryError(), "not enough memory", "MemoryMax="),
        (ImportError("libx.so.0: failed to map segment from shared object"), "not enough memory", "MemoryMax="),
        (RuntimeError("can't start new thread"), "no further thread", "TasksMax="),
    ],
)
def test_a_limit_is_named_with_what_raises_it(error: BaseException, what: str, remedy: str) -> None:
    found = ResourceLimitError.of(error)
    assert found is not None
    assert what in found.message
    assert remedy in found.hint
    assert found.exit_code == 1
    assert str(ResourceLimitError.of(_caused(CredentialError("unreadable"), error))) == str(found)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "No such file"),
        ValueError("x"),
        RuntimeError("x"),
        ImportError("x"),
        BlockingIOError(11, "x"),
    ],
)
def test_other_failures_are_not_limits(error: BaseException) -> None:
    assert ResourceLimitError.of(error) is None


def test_a_key_that_cannot_be_read_because_of_a_limit_is_not_a_problem_of_credentials() -> None:
    limit = OSError(errno.EMFILE, "Too many open files")
    assert isinstance(ResourceLimitError.instead_of(_caused(CredentialError("unreadable"), limit)), ResourceLimitError)
    of_store = _caused(StoreError("not written"), limit)
    assert ResourceLimitError.instead_of(of_store) is of_store
    refused = CredentialError("refused")
    assert ResourceLimitError.instead_of(refused) is refused


def test_the_mark_of_what_was_sent_names_the_limit(tmp_path: Path) -> None:
    mark = SentMarkFile(tmp_path / "store.db.sent", is_shared=False)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
    try:
        with pytest.raises(StoreError) as caught:
            mark.read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert "LimitNOFILE=" in caught.value.hint
