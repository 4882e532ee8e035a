"""Actions: their catalog, the built-in ones, their templates and secrets, and the HTTP client that they use.

An action has access to neither the database nor the queue. It gets what it may use in its context.
"""
