// Holds that a program without a line of Go can use the service. It starts the
// program named by AGENTRUNTIME_BINARY, runs client.mjs against it as a user
// would, and then tries what a user should be able to rely on.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstream } from "@nats-io/jetstream";
import { dev, freePort, test, within } from "../program.mjs";

const here = import.meta.dirname;
// collect follows the public events of the commands with the given id: all of
// them arrive in its list, and until() waits for those that a test wants.
function collect(events, receive) {
  const list = [];
  let wake = () => {};
  (async () => {
    for await (const m of events) {
      list.push(receive(m));
      wake();
    }
  })().catch((e) => { console.error(e); process.exitCode = 1; wake(); });
  return {
    of: (id) => list.filter((e) => e.correlationid === id),
    async until(ok) {
      while (!ok(list)) await new Promise((resolve) => { wake = resolve; });
    },
  };
}

const type = (name) => (event) => event.type === `dev.agentruntime.${name}`;

async function theClientRuns() {
  const client = spawn(process.execPath, ["client.mjs"], { cwd: here, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  client.stdout.setEncoding("utf8").on("data", (text) => { output += text; process.stdout.write(`  client: ${text}`); });
  const [code] = await within(once(client, "close"), "client.mjs");
  assert.equal(code, 0, "client.mjs must exit with 0");
  for (const mode of ["binary", "structured"]) assert.match(output, new RegExp(`completed ${mode}: .*desk-3-17`));
}

// One event is one run, however often and in whichever mode it is published:
// here three times in each, at once.
async function oneEventIsOneRun({ client, js, nc, seen }) {
  const event = client.startRun({ agent: "desk-helper", message: "Three times" }, `three-${randomUUID()}`);
  await Promise.all(["binary", "structured", "binary", "structured", "binary", "structured"].map((mode) => client.publish(js, event, mode)));
  await within(seen.until(() => seen.of(event.id).some(type("run.completed"))), "the completion of an event published six times");
  // A run that begins later and completes shows that the six were carried out.
  await aRunCompletes({ client, js, seen }, "Afterwards");
  const events = seen.of(event.id);
  const runs = new Set(events.map((e) => e.data.run));
  assert.equal(runs.size, 1, `six copies of one event made the runs ${[...runs]}`);
  assert.equal(new Set(events.filter(type("run.completed")).map((e) => e.id)).size, 1, "one completion");
  assert.equal(events.filter(type("run.rejected")).length, 0, "no copy of an event is rejected");
  const answer = (await nc.request("agent.api.default.run.list", "{}", { timeout: 5000 })).json();
  const [run] = runs;
  assert.ok(JSON.stringify(answer).includes(`"${run}"`), "the run is listed");
}

async function aRunCompletes({ client, js, seen }, message) {
  const event = client.startRun({ agent: "desk-helper", message });
  await client.publish(js, event, "binary");
  await within(seen.until(() => seen.of(event.id).some(type("run.completed"))), `the completion of "${message}"`);
  const completed = seen.of(event.id).find(type("run.completed"));
  assert.deepEqual(completed.data.reply, { kind: "output", output: { desk: "desk-3-17", task: message } });
  assert.equal(completed.data.agent, "desk-helper");
}

// The same id with another body is a conflict, and the sender is told.
async function anotherBodyIsRejected({ client, js, seen }) {
  const id = `twice-${randomUUID()}`;
  await client.publish(js, client.startRun({ agent: "desk-helper", message: "The first" }, id), "binary");
  // Commands that wait together are carried out side by side.
  await within(seen.until(() => seen.of(id).some(type("run.started"))), "the start of the first");
  await client.publish(js, client.startRun({ agent: "desk-helper", message: "Another" }, id), "structured");
  await within(seen.until(() => seen.of(id).some(type("run.rejected")) && seen.of(id).some(type("run.completed"))), "the answer to an id with two bodies");
  const [rejected] = seen.of(id).filter(type("run.rejected"));
  assert.equal(rejected.data.reason, "id_conflict");
  assert.equal(rejected.data.command, id);
  assert.equal(rejected.causationid, id);
  const [completed] = seen.of(id).filter(type("run.completed"));
  assert.equal(completed.data.reply.output.task, "The first", "the first body counts");
}

async function main() {
  const data = await mkdtemp(join(tmpdir(), "agentruntime-"));
  const port = await freePort();
  // Before the client is loaded, which reads it.
  Object.assign(process.env, { NATS_URL: `nats://127.0.0.1:${port}`, AGENT_NAMESPACE: "default" });
  for (const role of ["APPLICATION", "CAPABILITY"]) delete process.env[`NATS_${role}_PASSWORD`];
  const client = await import("./client.mjs");
  const program = await dev(port, ["--data", data, "--agents", "agents", "--capabilities", "capabilities"], { cwd: here });
  try {
    const nc = await client.open("application");
    await theClientRuns();
    const js = jetstream(nc);
    client.serveDesks(nc);
    const events = await client.follow(js);
    const use = { client, nc, js, seen: collect(events, client.receive) };
    await nc.flush();
    for (const promise of [oneEventIsOneRun, anotherBodyIsRejected]) {
      await promise(use);
      console.log(`  ok: ${promise.name}`);
    }
    await events.close();
    await nc.drain();
    await program.stop();
  } finally {
    await program.kill();
    await rm(data, { recursive: true, force: true });
  }
}

await test(main);
