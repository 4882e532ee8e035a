"""What can go wrong around the embedded servers, each with a stable code. The message is for the operator."""


class EmbeddedError(Exception):
    """Something around the embedded servers does not work."""

    code = "embedded"


class EmbeddedNotInstalled(EmbeddedError):
    """The wheels with the servers are not installed."""

    code = "embedded_not_installed"


class DataFolderInUse(EmbeddedError):
    """Another Carillon holds the data folder."""

    code = "data_folder_in_use"


class DataFolderUnusable(EmbeddedError):
    """The user cannot work in the data folder."""

    code = "data_folder_unusable"


class NoTemporaryFolder(EmbeddedError):
    """No temporary folder suits the servers' sockets or programs."""

    code = "no_temporary_folder"


class ServerDidNotStart(EmbeddedError):
    """A server ended, or was not ready in time; the message quotes its last words."""

    code = "server_did_not_start"


class ServerNotStarted(EmbeddedError):
    """Something was asked of a server that only a started one can answer."""

    code = "server_not_started"


class CannotListen(EmbeddedError):
    """The API's address cannot be listened on."""

    code = "cannot_listen"


class ChildFailed(EmbeddedError):
    """A supervised process cannot do its work."""

    code = "child_failed"
