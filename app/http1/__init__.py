"""A small HTTP/1.1 client on asyncio: one request, one bounded response, connections that are kept for a few seconds.

It follows no redirects, knows no cookies and no proxies, and resolves no names: the caller says to which addresses it
may connect. It imports nothing else of ``app``.

- ``requests``: a request as bytes, and the parts of its URL.
- ``response``: the bytes of a response, parsed within bounds; no I/O.
- ``connections``: sockets, TLS, and the pool of kept connections.
"""
