// A client of the official TypeScript SDK: starts the agent in its arguments, has one turn, and prints what it saw as JSON.
import { spawn } from "node:child_process";
import { pathToFileURL } from "node:url";
import { Readable, Writable } from "node:stream";

const [sdk, text, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdk));
const seen = { updates: [], questions: [] };
const client = acp
  .client()
  .onNotification("session/update", ({ params }) => {
    seen.updates.push(params.update);
  })
  .onRequest("session/request_permission", ({ params }) => {
    seen.questions.push([params.toolCall.toolCallId, params.options.map((option) => option.kind)]);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onRequest("fs/read_text_file", ({ params }) => ({ content: `text of ${params.path}` }));
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await client.connectWith(stream, async (connection) => {
  seen.initialized = await connection.request("initialize", {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: false }, terminal: false },
  });
  seen.session = await connection.request("session/new", { cwd: "/project", mcpServers: [] });
  const prompt = [{ type: "text", text }];
  seen.ended = await connection.request("session/prompt", { sessionId: seen.session.sessionId, prompt });
  try {
    await connection.request("session/prompt", { sessionId: "nobody", prompt });
  } catch (error) {
    seen.refused = error.code;
  }
});
const ended = new Promise((resolve) => agent.on("exit", resolve));
if (!agent.stdin.destroyed) agent.stdin.end();
if (agent.exitCode === null) await ended;
console.log(JSON.stringify(seen));
