"""The package's exceptions. Imports nothing, so every module may raise them."""


class EagleError(Exception):
    """Base of all errors of this package: one line that says what was wrong, with the value, and what to do."""


class InputError(EagleError, ValueError):
    """An argument is of the wrong type, shape or range."""


class UsageError(EagleError):
    """The command line was used in a way that makes no sense."""


class NativeError(EagleError, RuntimeError):
    """llama.cpp or the shim over it refused or failed a call."""


class ModelError(EagleError):
    """A GGUF file cannot be loaded, or does not fit its partner."""


class CheckpointError(EagleError, ValueError):
    """A draft checkpoint cannot be read or converted."""


class ClosedError(EagleError):
    """A handle was used after close()."""


class ContextFullError(EagleError):
    """The context has no free cells for the batch."""


class AbortedError(EagleError):
    """A decode was stopped by Context.abort()."""


class SessionError(EagleError, ValueError):
    """A saved session is damaged, or is not one of this model and build."""


class DownloadError(EagleError, OSError):
    """A file could not be fetched or is not the expected one."""


class TrainingError(EagleError):
    """The training of a head cannot begin or go on."""
