// The client of the TypeScript SDK: told by JSON what to ask, prints as JSON what it got. Runs with the packages of the run.

import { createRequire } from "node:module";

const asked = JSON.parse(process.argv[2]);
const require = createRequire(`${asked.packages}/`);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

function target() {
  if (asked.url) return new StreamableHTTPClientTransport(new URL(asked.url));
  const [command, ...args] = asked.command;
  return new StdioClientTransport({ command, args, env: asked.env, stderr: "ignore" });
}

function told(result) {
  return {
    is_error: Boolean(result.isError),
    texts: result.content.filter((part) => part.type === "text").map((part) => part.text),
    kinds: result.content.map((part) => part.type),
    structured: result.structuredContent ?? null,
  };
}

const client = new Client(
  { name: "conformance", version: "1" },
  { capabilities: { elicitation: {} }, versionNegotiation: { mode: asked.era === "modern" ? "auto" : "legacy" } },
);
const forms = [];
client.setRequestHandler("elicitation/create", async (request) => {
  forms.push(request.params.message);
  return { action: "accept", content: asked.forms[forms.length - 1] };
});
await client.connect(target());

const found = { protocol: client.getNegotiatedProtocolVersion() };
found.listed = (await client.listTools()).tools.map((tool) => tool.name);
for (const [key, [name, given]] of Object.entries(asked.calls))
  found[key] = told(await client.callTool({ name, arguments: given }));
try {
  found.unknown = told(await client.callTool({ name: "no_such_tool", arguments: {} }));
} catch (error) {
  found.unknown = { code: error.code, message: error.message };
}
const [name, given] = asked.approval;
found.approval = [];
for (const _form of asked.forms) found.approval.push(told(await client.callTool({ name, arguments: given })));
found.forms = forms;
console.log(JSON.stringify(found));
await client.close();
