"""Embedded Postgres and Valkey from PyPI wheels, and the supervisor behind ``carillon up``.

It may import ``app.config`` and ``app.clock`` and no other package of Carillon; the API, the worker and the migrations
are run as commands. Tests use the same servers.

- ``accounts``: the account that runs a server, the programs of the wheels, private folders, the socket folder.
- ``launch``: the script that every child passes through before it becomes its own program.
- ``child_process``: one child process: its command, its output, how it is stopped and restarted.
- ``server``, ``postgres``, ``valkey``: one embedded server, its settings and its data.
- ``data_folder``: the lock, the admin token and the file with the database URL in ``CARILLON_DATA_DIR``.
- ``supervisor``: starts children in order, keeps them running, stops them in reverse order.
- ``console_link``: the link that opens the console and logs in once.
- ``stack``: what ``carillon up`` runs, in which order, with which environment.
- ``errors``: what can go wrong, each with a stable code.
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
