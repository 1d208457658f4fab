"""Files to tools, packs, projects and scenarios, with the problems of each file; the index of a warm start, and reload.

Imports simulation, servers, expressions, registry, http, schema, security, protocols and core. The modes (`Kinds`) and the
formats of other systems (`Formats`) are handed in.
"""
