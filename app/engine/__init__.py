"""The engine: what a worker does with a tick, from claim to settle, and how lost work is found and started again.

It makes no decisions (``app.domain`` does), writes no SQL (``app.persistence`` does) and knows no queue but its port.

- ``ticks``: one tick from top to bottom: claim, ring for the next one, run, settle.
- ``runner``, ``workflow_walk``, ``node_resources``: run a workflow under its timeout, node by node.
- ``call_tokens``, ``oidc_keys``: the tokens that calls carry, and the keys that sign them.
- ``concurrency``: how many runs a worker has at once, shared among owners.
- ``limit_gate``: gives the permits of named limits to runs that wait for them.
- ``queue_port``, ``ringing``: what the engine needs of a queue, and how it rings.
- ``worker_runtime``, ``leases``, ``recovery``, ``quarantine``: the loops of a worker, its lease, lost work, bad work.
- ``cron_ping``: another way to fire: a request to the cron endpoint.
- ``entity_schedulers``, ``entity_polling``: tables of plugins with times of their own, and how they are polled.
- ``sitemap``: the ping of the sitemap after publishing runs.
- ``schedule_changes``, ``manual_runs``: create, edit, pause, resume and run schedules inside a transaction.
- ``agent_leases``, ``lease_bounds``: the ends of agents' leases, and what their schedules may take from them.
- ``bulk_operations``: operations on many schedules, batch by batch.
- ``notifications``, ``housekeeping``, ``spans``: deliveries to users, old history, traces.
"""
