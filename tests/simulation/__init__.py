"""A world in which time is virtual and everything that can go wrong does, by a seed: the same seed, the same history.

The engine, the queue's worker, the bell and the transactions are the real ones, on a real Postgres; only the clock,
Redis and the work itself are made up.
"""
