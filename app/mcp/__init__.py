"""The Model Context Protocol, by which agents use Carillon. It speaks JSON-RPC; ``app.api.mcp`` carries it over HTTP.

- ``protocol``: messages, versions of the protocol, and what each method answers.
- ``tools``: the tools, what each needs, and how services carry them out.
- ``reading``: resources and prompts.
"""
