"""Tools as other systems write them: schemas without references, MCP's definitions, descriptor files of imported tools."""
