"""Does: the catalog of actions, the built-in handlers and the HTTP client that they call out with.

An action knows no database and no queue: what it may use is handed to it in its context.
"""
