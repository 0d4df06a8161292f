"""Every error autospec raises on purpose, on one page.

A message names the value that was wrong, where it stands, and what would be right, in one line.
Only ``cli`` turns an error into output and an exit code.

::

    AutospecError                 exit 1
    ├── InputError                exit 2: what the user gave cannot be used
    │   ├── ConfigError           a speculative configuration breaks a rule
    │   ├── WorkloadError         a prompt file, with file, line and field
    │   ├── SchemaError           a YAML or JSON document, with the path of the field
    │   ├── ModelError            a target or draft model that is missing or does not fit
    │   └── BudgetError           the time or trials allowed cannot hold the smallest study
    ├── MismatchError             a profile belongs to another model, GPU or engine
    ├── EngineError               something about SGLang
    │   ├── EngineMissingError    SGLang is not installed, or not the supported version
    │   ├── PortTakenError        the port asked for is in use
    │   ├── LaunchError           the server did not become ready; carries the log tail
    │   │   ├── LaunchTimeoutError
    │   │   └── OutOfMemoryError
    │   ├── ServerDiedError       a ready server went away; carries the log tail
    │   ├── RequestError          the server refused or failed a request
    │   └── WireError             an answer without what this engine version promises
    ├── MeasureError              a pass produced nothing that can be trusted
    ├── StudyError                a study folder cannot be used
    ├── StorageError              a file could not be written
    ├── ReportError               a report needs a package that is not installed
    ├── DemoError                 the demo model could not be fetched or converted
    └── InterruptedStudyError     exit 130: stopped by the user, resumable
"""

from __future__ import annotations

__all__ = [
    "AutospecError",
    "BudgetError",
    "ConfigError",
    "DemoError",
    "EngineError",
    "EngineMissingError",
    "InputError",
    "InterruptedStudyError",
    "LaunchError",
    "LaunchTimeoutError",
    "MeasureError",
    "MismatchError",
    "ModelError",
    "OutOfMemoryError",
    "PortTakenError",
    "ReportError",
    "RequestError",
    "SchemaError",
    "ServerDiedError",
    "StorageError",
    "StudyError",
    "WireError",
    "WorkloadError",
]


class AutospecError(Exception):
    """Base of all errors that autospec raises on purpose."""

    exit_code = 1


class InputError(AutospecError):
    """What the user gave cannot be used as it stands."""

    exit_code = 2


class ConfigError(InputError):
    """A speculative configuration breaks a rule; the message names the rule."""


class WorkloadError(InputError):
    """A prompt file cannot be used; the message names file, line and field."""


class SchemaError(InputError):
    """A document has an unknown key, a wrong type, a value out of range or a newer schema."""


class ModelError(InputError):
    """A target or draft model is missing, unreadable or does not fit."""


class BudgetError(InputError):
    """The time or number of trials allowed cannot hold the smallest study."""


class MismatchError(AutospecError):
    """A profile belongs to another model, GPU or engine; the message names the first field."""


class EngineError(AutospecError):
    """Something about SGLang went wrong."""


class EngineMissingError(EngineError):
    """SGLang is not installed, or not in a version this autospec knows."""


class PortTakenError(EngineError):
    """The port asked for is in use."""


class LaunchError(EngineError):
    """The server did not become ready.

    Attributes:
        log_tail: the last lines of the server's log, for the trial's record.
    """

    def __init__(self, message: str, *, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class LaunchTimeoutError(LaunchError):
    """The server was neither ready nor dead when the time allowed was over."""


class OutOfMemoryError(LaunchError):
    """The server ran out of memory."""


class ServerDiedError(LaunchError):
    """A server that had been ready went away."""


class RequestError(EngineError):
    """The server refused or failed a request.

    Those that ``autospec.client`` raises for a request without an answer are httpx's errors too.

    Attributes:
        status: the HTTP status, or None when no answer came.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class WireError(EngineError):
    """An answer lacks what this engine version promises, or has it in another type."""


class MeasureError(AutospecError):
    """A pass produced nothing that can be trusted."""


class StudyError(AutospecError):
    """A study folder cannot be used."""


class StorageError(AutospecError):
    """A file could not be written; what was there before is untouched."""


class ReportError(AutospecError):
    """A report needs a package that is not installed."""


class DemoError(AutospecError):
    """The demo model could not be fetched or converted."""


class InterruptedStudyError(AutospecError):
    """Stopped by the user; everything finished is kept and the message says how to resume."""

    exit_code = 130
