"""What a failed talk with the hub means to a person: one line with the way out. Fetches nothing.

huggingface_hub's errors come from three HTTP libraries, depending on its version; only its own classes, status codes
and the operating system's error numbers are looked at.
"""

import errno
from collections.abc import Iterator

from ..errors import DownloadError
from .client import short
from .names import HubName

_TOKEN = "log in with `hf auth login` or set HF_TOKEN"
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


def explained(error: Exception, repo: str, endpoint: str, cache: str) -> DownloadError:
    """The error of this package for one of huggingface_hub's, about the repository `repo`."""
    if isinstance(error, DownloadError):
        return error
    for cause in _causes(error):
        line = _from_disk(cause, cache) or _from_hub(cause, repo, endpoint)
        if line:
            return DownloadError(line)
    status = _status(error)
    if status is not None:
        return DownloadError(f"{endpoint} answered {status} for {repo}: try again later ({short(error)})")
    return DownloadError(
        f"cannot reach {endpoint} for {repo}: {short(_root(error))}; check the connection and HF_ENDPOINT, "
        "or give a file"
    )


def lookup_failed(error: Exception, name: HubName, endpoint: str, cache: str) -> DownloadError:
    """As explained, for an error that leaves open whether there is such a repository."""
    from huggingface_hub import errors  # noqa: PLC0415 - slow to import

    found = explained(error, name.repo, endpoint, cache)
    there = (errors.GatedRepoError, errors.RevisionNotFoundError)
    return found if any(isinstance(cause, there) for cause in _causes(error)) else unfound(name, str(found))


def unfound(name: HubName, why: str) -> DownloadError:
    """Why a repository was not found; for a name that may have meant a path, that this is not there either."""
    here = "" if name.path is None else f"{name.path}: no such file or folder here; as a hub id: "
    return DownloadError(here + why)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _root(error: BaseException) -> BaseException:
    """The error that an explanation begins with: huggingface_hub wraps a lost connection in one about its cache."""
    return error.__cause__ if type(error).__name__ == "LocalEntryNotFoundError" and error.__cause__ else error


def _status(error: BaseException) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _from_disk(error: BaseException, cache: str) -> str | None:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {cache} is full: free some space, or set HF_HOME to a folder on a larger one"
    if number in _NOT_OURS:
        return f"cannot write to the cache {cache}: {short(error)}; set HF_HOME to a folder of yours"
    if isinstance(error, OSError) and "Consistency check" in str(error):
        return f"the download broke off: {short(error)}; run it again, it goes on where it stopped"
    return None


def _from_hub(error: BaseException, repo: str, endpoint: str) -> str | None:
    from huggingface_hub import errors  # noqa: PLC0415 - slow to import

    status = _status(error)
    if isinstance(error, errors.GatedRepoError):
        return f"{repo} is gated: accept its terms at {endpoint}/{repo}, then {_TOKEN}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no such revision: leave @REVISION out for its main branch"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{endpoint} has no repository {repo}, or it is private: check the spelling; for a private one, {_TOKEN}"
    if status in (401, 403):
        return f"{endpoint} refuses {repo} ({status}): {_TOKEN}, and see {endpoint}/{repo} for terms to accept"
    if isinstance(error, errors.EntryNotFoundError) and status == 404:
        return f"{repo} lacks a file that it lists ({short(error)}): try again later"
    return None
