"""Stores state in Postgres: tables, queries, claim and settle, and the only commit.

All SQL lives here. It calls ``app.domain`` to decide, inside the transaction that writes the decision, and knows
nothing of Redis, HTTP or arq.

- ``tables``, ``schema_version``, ``migrations``: the schema.
- ``database``, ``engines``, ``connection_pool``, ``sql_batches``, ``pagination``, ``row_cache``: how SQL is run.
- ``claim``, ``settle``, ``fast_path``: the two ways to claim ticks and to settle runs.
- ``recovery``, ``leases``, ``parked_runs``, ``permits``: lost work, leases and locks, runs that wait.
- the others: the queries for one kind of object each.
"""
