// An agent of the official TypeScript SDK: it asks for permission to write a file, reads it again, and runs a command.
import { pathToFileURL } from "node:url";
import { Readable, Writable } from "node:stream";

const acp = await import(pathToFileURL(process.argv[2]));
const stream = acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin));
let folder, cancelled;
acp
  .agent()
  .onRequest("initialize", () => ({ protocolVersion: acp.PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest("session/new", ({ params }) => {
    folder = params.cwd;
    return { sessionId: "typescript" };
  })
  .onNotification("session/cancel", () => cancelled?.())
  .onRequest("session/prompt", async ({ params, client }) => {
    const sessionId = params.sessionId;
    const update = (update) => client.notify("session/update", { sessionId, update });
    const say = (text) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
    if (params.prompt[0].text === "wait") {
      await say("waiting");
      await new Promise((resolve) => (cancelled = resolve));
      return { stopReason: "cancelled" };
    }
    const path = `${folder}/written.txt`;
    const call = { toolCallId: "call-1", title: "Write", kind: "edit", locations: [{ path }], rawInput: { path } };
    await update({ sessionUpdate: "tool_call", status: "pending", ...call });
    const { outcome } = await client.request("session/request_permission", {
      sessionId,
      toolCall: { toolCallId: "call-1" },
      options: [
        { optionId: "yes", name: "Yes", kind: "allow_once" },
        { optionId: "no", name: "No", kind: "reject_once" },
      ],
    });
    if (outcome.optionId !== "yes") {
      await update({ sessionUpdate: "tool_call_update", toolCallId: "call-1", status: "failed" });
      return { stopReason: "end_turn" };
    }
    await client.request("fs/write_text_file", { sessionId, path, content: "by TypeScript\n" });
    const { content } = await client.request("fs/read_text_file", { sessionId, path });
    const shown = [{ type: "diff", path, oldText: null, newText: content }];
    await update({ sessionUpdate: "tool_call_update", toolCallId: "call-1", status: "completed", content: shown });
    const { terminalId } = await client.request("terminal/create", { sessionId, command: "cat written.txt | wc -l" });
    const exit = await client.request("terminal/wait_for_exit", { sessionId, terminalId });
    const { output } = await client.request("terminal/output", { sessionId, terminalId });
    await client.request("terminal/release", { sessionId, terminalId });
    await say(`${exit.exitCode}: ${output.trim()}`);
    return { stopReason: "end_turn", usage: { totalTokens: 3, inputTokens: 1, outputTokens: 2 } };
  })
  .connect(stream);
