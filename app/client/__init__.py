"""The HTTP client of Carillon's own API, for the command line. It knows nothing of the server's code.

It imports little, so that a command starts quickly: no database driver, no web framework.

- ``errors``: exit codes, and errors that a command prints.
- ``contexts``: which server and which token a command uses, and the file that stores contexts.
- ``connection``: requests, problems, pages of lists, and the live pulse.
"""
