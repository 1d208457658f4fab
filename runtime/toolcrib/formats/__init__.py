"""Other people's formats, in and out: PromptKit, PromptPack, MCP clients, MCP tools, provider dialects.

It imports `loading`, `expressions`, `registry`, `schema`, `security` and `core`; `table` lists the formats that
loading reads, and adding one takes a module here and a line there.
"""
