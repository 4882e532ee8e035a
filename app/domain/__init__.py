"""The decisions, as pure functions: values in, values out.

When a schedule fires, what the result of a run does to it, who may see what. Nothing here reads a clock (``now`` is an
argument), touches a database, a socket or a file, or imports another package of this project.
"""
