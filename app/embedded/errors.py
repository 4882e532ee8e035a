"""Errors of the embedded servers and of ``carillon up``, each with a stable code. The message is for the operator."""


class EmbeddedError(Exception):
    """Base of all errors of this package."""

    code = "embedded"


class EmbeddedNotInstalled(EmbeddedError):
    """The wheels with the servers are not installed."""

    code = "embedded_not_installed"


class DataFolderInUse(EmbeddedError):
    """Another Carillon has locked the data folder."""

    code = "data_folder_in_use"


class DataFolderUnusable(EmbeddedError):
    """The data folder cannot be created, read or written."""

    code = "data_folder_unusable"


class NoTemporaryFolder(EmbeddedError):
    """No temporary folder is suitable for the servers' sockets or programs."""

    code = "no_temporary_folder"


class ServerDidNotStart(EmbeddedError):
    """A server exited or was not ready in time; the message quotes the end of its output."""

    code = "server_did_not_start"


class ServerNotStarted(EmbeddedError):
    """The URL, socket or process of a server was read before the server was started."""

    code = "server_not_started"


class CannotListen(EmbeddedError):
    """The API cannot listen on its configured address."""

    code = "cannot_listen"


class ChildFailed(EmbeddedError):
    """A supervised process failed, or keeps exiting before everything is ready."""

    code = "child_failed"
