"""The queue: everything that Redis is used for, and the only package that imports arq and redis.

It implements ``app.engine.queue_port``; only ``app.wiring`` and ``app.worker`` import it. Messages wake workers up and
decide nothing: one may be lost, late or delivered twice.

- ``bell``: queues messages, and opens connections.
- ``redis_nodes``: which server to connect to where Redis has Sentinels or is a cluster.
- ``worker``: the loop that delivers messages, and the settings for arq's own worker.
- ``message_format``: the format of messages.
- ``lua_scripts``: the Lua scripts that run in Redis.
- ``rate_counter``: a counter for the API's rate limits.
"""
