"""Drives: what a worker does with a tick, from the claim to the settle, and how it recovers what went astray.

It decides nothing by itself (``app.domain`` does) and writes no SQL (``app.persistence`` does).
"""
