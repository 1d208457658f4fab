"""Other people's formats, in and out: PromptKit, PromptPacks, files of MCP clients, MCP tool definitions, declarations for providers of models.

It imports `loading`, `expressions`, `registry`, `schema`, `security` and `core`; `table` lists the formats that
loading reads, and adding one takes a module here and a line there.
"""
