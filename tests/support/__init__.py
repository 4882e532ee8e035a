"""What tests of several folders share; helpers of one folder stay in that folder.

- ``api_server``: the API over real HTTP in the test's own event loop.
- ``callbacks``: a target that calls back, and executions that wait for it.
- ``carillon``: the API's client, workers and engines inside the test's process, and changes behind the API's back.
- ``databases``: a database of its own for a test.
- ``declarations``: ``carillon apply`` without its process.
- ``domain_builders``: schedules, ticks and runs for tests of decisions, without any server.
- ``hostile_dns``: a name server that answers as the test says, or never.
- ``http_sink``: an HTTP target that records every call.
- ``hypothesis_examples``: how many examples hypothesis tries.
- ``memory_folder``: temporary files in memory.
- ``raw_http``: an HTTP client that sends any bytes.
- ``redis_refusals``: ways in which Redis refuses writes.
- ``secret_spellings``: the encodings in which a secret may appear.
- ``skip_reports``: skips that are listed at the end of the run.
- ``source``: Python source as a syntax tree.
- ``trace_collector``: an OTLP receiver that records every span.
- ``unconnected_api``: the application and its OpenAPI document, for tests that read routes and schemas.
- ``watched_process``: a ``carillon`` process with its log, port and exit code.
"""
