"""Decides: values in, values out.

What fires when, what an outcome does to a schedule, who may see what. Nothing here reads a clock, touches a
database, a socket or a file, or imports a package of this project other than itself: ``now`` is an argument.
"""
