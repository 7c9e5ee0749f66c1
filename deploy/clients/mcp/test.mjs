// Holds that agents can use MCP servers as they are published: two servers that
// nobody here wrote, one of them over both transports, imported by pattern and
// called from scripts. Each is killed in the middle of a call that is a read, which is
// told as such, and the next call finds it again. It starts the program named by
// AGENTRUNTIME_BINARY.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, readdir, realpath, rm, writeFile } from "node:fs/promises";
import { watch } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import { binary, dev, freePort, kill, over, patience, test, within } from "../program.mjs";

const here = import.meta.dirname;
const everything = join(here, "node_modules/.bin/mcp-server-everything");
const filesystem = join(here, "node_modules/.bin/mcp-server-filesystem");

// listens waits until a port accepts connections.
async function listens(port, process) {
  for (;;) {
    if (over(process)) throw new Error("it ended before it listened");
    const socket = connect(port, "127.0.0.1");
    try {
      await once(socket, "connect");
      return;
    } catch {
      await pause(100);
    } finally {
      socket.destroy();
    }
  }
}

// web starts the server that is reached over HTTP.
async function web(port) {
  const server = spawn(process.execPath, [await realpath(everything), "streamableHttp"], { env: { ...process.env, PORT: String(port) }, stdio: "ignore" });
  await within(listens(port, server), "the MCP server over HTTP");
  return server;
}

// children lists the processes that a process has started, with what they are.
async function children(pid) {
  const found = [];
  for (const task of await readdir(`/proc/${pid}/task`)) {
    const list = await readFile(`/proc/${pid}/task/${task}/children`, "utf8").catch(() => "");
    for (const child of list.split(" ").filter(Boolean)) {
      found.push({ pid: Number(child), command: await readFile(`/proc/${child}/cmdline`, "utf8").catch(() => "") });
    }
  }
  return found;
}

const started = async (program, name) => (await children(program.pid)).filter((c) => c.command.includes(name));

// world is a folder with agents and a configuration.
async function world(folder, port, webPort) {
  const files = join(folder, "files");
  const agents = join(folder, "agents");
  await mkdir(files);
  await mkdir(agents);
  const agent = async (name, capabilities, code) => {
    await writeFile(join(agents, `${name}.yaml`), JSON.stringify({ instructions: "Use the tools.", model: `scripted/${name}`, capabilities }));
    await writeFile(join(agents, `${name}.script.yaml`), JSON.stringify({ responses: [
      { calls: [{ name: "run_js", arguments: { code } }] },
      { calls: [{ name: "complete", arguments: { kind: "output", output: "$results" } }] },
    ] }));
  };
  await agent("uses", ["mcp.files.*", "mcp.everything.*", "mcp.web.get_*", "mcp.web.echo"], `
    await mcp.files.write_file({ path: ${JSON.stringify(join(files, "note.txt"))}, content: "a note" });
    const note = await mcp.files.read_text_file({ path: ${JSON.stringify(join(files, "note.txt"))} });
    const outside = await mcp.files.read_text_file({ path: "/etc/hostname" }).catch((e) => e.message);
    const weather = await mcp.web.get_structured_content({ location: "Chicago" });
    const sum = await mcp.everything.get_sum({ a: 2, b: 40 });
    const refused = await mcp.everything.get_sum({ a: "two", b: 40 }).catch((e) => e.message);
    return { note: note.content, outside, weather, sum: sum.content[0].text, refused };`);
  for (const server of ["everything", "web"]) {
    await agent(`dies-${server}`, ["mcp.files.write_file", `mcp.${server}.*`], `
      const slow = mcp.${server}.trigger_long_running_operation({ duration: 600, steps: 2 }).then(() => "it ended", (e) => e.message);
      await mcp.${server}.echo({ message: "the call before this one has been read" });
      await mcp.files.write_file({ path: ${JSON.stringify(join(files, `called-${server}`))}, content: "in call" });
      return await slow;`);
    await agent(`heals-${server}`, [`mcp.${server}.echo`], `return (await mcp.${server}.echo({ message: "again" })).content[0].text;`);
  }
  const config = join(folder, "config.yaml");
  await writeFile(config, JSON.stringify({
    mcp: { files: { command: [filesystem, files] }, everything: { command: [everything] }, web: { url: `http://127.0.0.1:${webPort}/mcp` } },
    http: { allow: ["127.0.0.1"] },
  }));
  const verb = async (...args) => JSON.parse((await promisify(execFile)(binary, [...args, "--config", config, "-s", `nats://127.0.0.1:${port}`, "-o", "json"], { timeout: patience })).stdout);
  return { files, agents, config, verb };
}

// begin starts a run of an agent.
async function begin({ verb }, agent) {
  return (await verb("run", "start", agent, "-m", "Go.")).run;
}

// result waits until a run has completed and returns what its script did.
async function result({ verb }, run) {
  const ended = await verb("run", "wait", run);
  const text = JSON.stringify(ended);
  assert.match(text, /completed/, text);
  return text;
}

async function publishedToolsWork(w) {
  const text = await result(w, await begin(w, "uses"));
  for (const word of ["a note", "Access denied", "temperature", "The sum of 2 and 40 is 42", "does not fit"]) assert.ok(text.includes(word), `${word} is missing: ${text}`);
}

// deathIsToldAndHeals kills a server in the middle of a call.
async function deathIsToldAndHeals(w, server, end) {
  const called = new Promise((resolve) => {
    const watcher = watch(w.files, (_, name) => { if (name === `called-${server}`) { watcher.close(); resolve(); } });
  });
  const run = await begin(w, `dies-${server}`);
  await within(called, `the call of ${server}`);
  await end();
  const text = await result(w, run);
  assert.match(text, /it changes nothing and may be made again/, text);
  assert.ok(!text.includes("it ended"), text);
  const healed = await result(w, await begin(w, `heals-${server}`));
  assert.match(healed, /Echo: again/, healed);
}

async function main() {
  const folder = await mkdtemp(join(tmpdir(), "agentruntime-"));
  const [port, webPort] = [await freePort(), await freePort()];
  let server = await web(webPort);
  const w = await world(folder, port, webPort);
  const checked = await w.verb("agents", "check", "--agents", w.agents);
  assert.ok(checked.find((a) => a.agent === "uses").capabilities.length > 20, JSON.stringify(checked));
  const program = await dev(port, ["--data", join(folder, "data"), "--agents", w.agents, "--config", w.config]);
  try {
    await publishedToolsWork(w);
    console.log("  ok: published tools work, over both transports");
    await deathIsToldAndHeals(w, "everything", async () => {
      const [process_] = await started(program, "server-everything");
      process.kill(process_.pid, "SIGKILL");
    });
    console.log("  ok: a program that dies in mid-call is told of, and heals");
    await deathIsToldAndHeals(w, "web", async () => {
      await kill(server);
      server = await web(webPort);
    });
    console.log("  ok: a server over HTTP that dies in mid-call is told of, and its restart heals");
    const left = [...await started(program, "server-everything"), ...await started(program, "server-filesystem")];
    assert.equal(left.length, 2, "one process of each server");
    await program.stop();
    for (const { pid } of left) assert.throws(() => process.kill(pid, 0), /ESRCH/, "a server outlives the worker");
    console.log("  ok: no server outlives the worker");
  } finally {
    await program.kill();
    await kill(server);
    await rm(folder, { recursive: true, force: true });
  }
}

await test(main);
