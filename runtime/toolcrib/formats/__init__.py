"""Third-party formats, in and out: PromptKit, PromptPack, MCP clients, MCP tools, provider dialects.

It imports `loading`, `expressions`, `registry`, `schema`, `security` and `core`. To add a format that loading
reads, write a module here and add it to the table in `known_formats`.
"""
