// Holds that every adapter speaks to a server of models that others wrote. It
// starts that server and the program named by AGENTRUNTIME_BINARY, and runs one
// agent for each adapter: a streamed response with text, reasoning and two calls
// at once, then a refusal for the rate, a stream that is cut off, and the end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { LLMock } from "@copilotkit/aimock";
import { binary, dev, freePort, patience, test } from "../program.mjs";

const run = promisify(execFile);
const key = "key-of-independent-models";

// The adapters by the kind of their provider, with what follows the server's
// address in their base URL, where their requests go, after how many events the
// stream is cut, and what responses say of themselves. (Gemini ends a response
// with calls like any other; the server has a reason of its own for it.)
const chat = { base: "/v1", path: "/v1/chat/completions", cut: 8, says: (i, o) => ({ usage: { prompt_tokens: i, completion_tokens: o } }) };
const adapters = {
  openai: chat,
  openai_compatible: chat,
  openai_responses: { base: "/v1", path: "/v1/responses", cut: 8, says: (i, o) => ({ usage: { input_tokens: i, output_tokens: o } }) },
  anthropic: { base: "", path: "/v1/messages", cut: 8, says: (i, o) => ({ usage: { input_tokens: i, output_tokens: o } }) },
  gemini: { base: "", path: "/v1beta/models/gemini-model:streamGenerateContent", cut: 1, says: (i, o) => ({ usage: { promptTokenCount: i, candidatesTokenCount: o }, finishReason: "stop" }) },
};

// teach makes the server play the run of one agent.
function teach(server, model, says, cut) {
  server.on({ model, hasToolResult: false }, {
    content: "Let me see: é, 漢.",
    reasoning: "Two scripts will do.",
    ...says(100, 20),
    toolCalls: [
      { id: `call_${model}_a`, name: "run_js", arguments: { code: "return 6 * 7" } },
      { id: `call_${model}_b`, name: "run_js", arguments: { code: "throw new Error('é, 漢')" } },
    ],
  }, { chunkSize: 3 });
  const after = { model, hasToolResult: true };
  server.on({ ...after, sequenceIndex: 0 }, { error: { message: "Slow down.", type: "rate_limit_error" }, status: 429, retryAfter: 1 });
  const end = { content: "Done.", ...says(200, 10), toolCalls: [{ id: `call_${model}_c`, name: "complete", arguments: { kind: "output", output: { answer: "42 é, 漢" } } }] };
  server.on({ ...after, sequenceIndex: 1 }, end, { chunkSize: 3, truncateAfterChunks: cut });
  server.on(after, end, { chunkSize: 3 });
}

// requestsOf returns what the server was sent for a model, with its own reading
// of each body: the conversation as chat messages.
const requestsOf = (server, model) => server.getRequests().filter((r) => r.body?.model === model);

async function theAdapterRunsAnAgent({ server, url, kind }) {
  const model = `${kind}-model`;
  const { stdout } = await run(binary, ["run", "start", kind.replaceAll("_", "-"), "-m", "What is six times seven?", "--wait", "--server", url, "-o", "json"], { timeout: patience });
  const { event } = JSON.parse(stdout.trim().split("\n").at(-1));
  const requests = requestsOf(server, model);
  assert.equal(requests.length, 4, `${kind}: the first step, a refusal, a cut stream and the last step`);
  for (const r of requests) assert.equal(r.path.split("?")[0], adapters[kind].path, `${kind}: path`);
  const seen = requests.at(-1).body.messages;
  assert.deepEqual(requests.slice(1).map((r) => JSON.stringify(r.body.messages)), Array(3).fill(JSON.stringify(seen)), `${kind}: the same request is repeated`);
  const said = seen.filter((m) => m.role === "assistant");
  const calls = said.flatMap((m) => m.tool_calls ?? []);
  assert.deepEqual(calls.map((c) => [c.function.name, JSON.parse(c.function.arguments).code]),
    [["run_js", "return 6 * 7"], ["run_js", "throw new Error('é, 漢')"]], `${kind}: the calls go back as they came`);
  assert.ok(JSON.stringify(said).includes("Let me see: é, 漢."), `${kind}: the text goes back`);
  const results = seen.filter((m) => m.role === "tool");
  assert.deepEqual(results.map((m) => m.tool_call_id), calls.map((c) => c.id), `${kind}: each call has its result`);
  assert.match(JSON.stringify(results[0].content), /42/);
  assert.match(JSON.stringify(results[1].content), /error.*é, 漢/);
  assert.equal(event.type, "dev.agentruntime.run.completed", `${kind}: the run`);
  assert.deepEqual(event.data.reply, { kind: "output", output: { answer: "42 é, 漢" } }, `${kind}: the reply`);
  assert.deepEqual(event.data.usage, { input: 300, output: 30 }, `${kind}: usage`);
}

async function main() {
  const folder = await mkdtemp(join(tmpdir(), "agentruntime-models-"));
  // It refuses requests that do not carry the key as their API wants it.
  process.env.AIMOCK_API_KEYS = key;
  const server = new LLMock({ port: 0, strict: true, logLevel: "warn" });
  await server.start();
  const port = await freePort();
  const url = `nats://127.0.0.1:${port}`;
  let config = "providers:\n";
  await mkdir(join(folder, "agents"));
  await mkdir(join(folder, "capabilities"));
  for (const [kind, { base, says, cut }] of Object.entries(adapters)) {
    teach(server, `${kind}-model`, says, cut);
    config += `  at_${kind}: { kind: ${kind}, base_url: "${server.url}${base}", key_env: MODELS_KEY, models: { ${kind}-model: { context_tokens: 32000, output_tokens: 2000 } } }\n`;
    await writeFile(join(folder, "agents", `${kind.replaceAll("_", "-")}.yaml`),
      `instructions: Compute what the user asks for.\nmodel: at_${kind}/${kind}-model\noutput: { type: object, properties: { answer: { type: string } }, required: [answer], additionalProperties: false }\n`);
  }
  await writeFile(join(folder, "config.yaml"), config);
  const program = await dev(port, ["--config", join(folder, "config.yaml"), "--data", join(folder, "data"), "--agents", join(folder, "agents"), "--capabilities", join(folder, "capabilities")],
    { env: { ...process.env, MODELS_KEY: key } });
  try {
    for (const kind of Object.keys(adapters)) {
      await theAdapterRunsAnAgent({ server, url, kind });
      console.log(`  ok: ${kind}`);
    }
    await program.stop();
  } finally {
    await program.kill();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

await test(main);
