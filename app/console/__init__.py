"""The web console: a built front end and the pages that serve it. It may touch the files in ``static`` alone.

- ``bundle``: the built files in memory, each with its compressed variants.
- ``pages``: the routes below ``/console``, their caching and their security headers.

``web`` holds the sources of the front end, and ``static`` what `make console` builds from them.
"""
