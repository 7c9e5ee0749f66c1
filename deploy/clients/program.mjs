// What the tests of these folders share: the program that they start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";

// binary is the program to test.
export const binary = process.env.AGENTRUNTIME_BINARY;
if (!binary) {
  console.error("AGENTRUNTIME_BINARY is not set: name the program to test, for example\n" +
    "  (cd ../../.. && go build ./cmd/agentruntime) && AGENTRUNTIME_BINARY=$PWD/../../../agentruntime npm test");
  process.exit(1);
}

// patience bounds every wait, in milliseconds.
export const patience = 90_000;

// freePort returns a port at which nothing listens now.
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// within fails when a promise takes too long.
export function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing within ${patience / 1000} seconds`)), patience);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const over = (child) => child.exitCode !== null || child.signalCode !== null;

// kill ends a process and waits for that.
export async function kill(child) {
  if (over(child)) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

// dev starts "agentruntime dev" at a port and waits until it serves. Its stop
// demands that it ends well.
export async function dev(port, args, options = {}) {
  const child = spawn(binary, ["dev", "--listen", `127.0.0.1:${port}`, "--metrics", "off", ...args], { ...options, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit");
  let said = "";
  await within(new Promise((resolve, reject) => {
    child.stdout.setEncoding("utf8").on("data", (text) => {
      said += text;
      if (said.includes("run start")) resolve();
    });
    ended.then(() => reject(new Error(`agentruntime dev ended: ${said}`)));
  }), "agentruntime dev").catch(async (e) => { await kill(child); throw e; });
  return {
    pid: child.pid,
    kill: () => kill(child),
    async stop() {
      child.kill("SIGTERM");
      const [code, signal] = await within(ended, "the end of agentruntime dev after SIGTERM");
      assert.deepEqual([code, signal], [0, null], "agentruntime dev must exit with 0 after SIGTERM");
    },
  };
}

// test runs a test to its end, which decides how this process exits.
export async function test(main) {
  try {
    await main();
    console.log("passed");
  } catch (e) {
    console.error(e);
    process.exit(1);
  }
}
