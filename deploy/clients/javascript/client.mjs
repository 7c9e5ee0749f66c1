// What an application does: it serves a capability, starts two runs and waits
// for their completions. Nothing of agentruntime is imported; everything is
// CloudEvents over NATS.
//
// NATS_URL says where the server is, AGENT_NAMESPACE in which namespace to work.
// Against a server with the roles of deploy/nats the passwords of the two that
// are played here come from NATS_APPLICATION_PASSWORD and
// NATS_CAPABILITY_PASSWORD.
import { randomUUID } from "node:crypto";
import { connect, headers } from "@nats-io/transport-node";
import { DeliverPolicy, jetstream } from "@nats-io/jetstream";
import { CloudEvent, HTTP } from "cloudevents";

const { NATS_URL = "nats://127.0.0.1:4222", AGENT_NAMESPACE = "default", AGENT_TIMEOUT_SECONDS = "60" } = process.env;
const eventTypes = "dev.agentruntime.";

// publish stores an event, in binary mode (attributes in headers) or in
// structured mode (everything in the body). The server's acknowledgement means
// that the command is on its disk. Publishing the same event again is safe: the
// same source and id are the same run for ever.
export async function publish(js, event, mode) {
  const message = mode === "structured" ? HTTP.structured(event) : HTTP.binary(event);
  const h = headers();
  for (const [name, value] of Object.entries(message.headers)) h.set(name, value);
  await js.publish(`agent.cmd.${AGENT_NAMESPACE}.run.start`, message.body, { headers: h });
}

// receive reads an event in either mode.
export function receive(m) {
  const attributes = {};
  for (const name of m.headers?.keys() ?? []) attributes[name.toLowerCase()] = m.headers.get(name);
  attributes["content-type"] ??= attributes["ce-datacontenttype"] ?? "application/json";
  return HTTP.toEvent({ headers: attributes, body: m.string() });
}

export function startRun(data, id = randomUUID()) {
  return new CloudEvent({ type: `${eventTypes}run.start`, source: "/example/javascript", id, datacontenttype: "application/json", data });
}

// serveDesks answers requests of the capability desk.find. The key names the
// call: a service with effects remembers it and does nothing twice.
export function serveDesks(nc, subject = "sample.desk.find") {
  return nc.subscribe(subject, {
    queue: "desks",
    callback: (err, m) => {
      if (err) return;
      console.log(`asked for a desk (${m.headers?.get("Agent-Idempotency-Key")})`);
      try {
        const { floor } = m.json();
        if (!Number.isInteger(floor)) throw new Error("floor is not a whole number");
        m.respond(JSON.stringify({ desk: `desk-${floor}-17`, floor }));
      } catch (e) {
        const h = headers();
        h.set("Nats-Service-Error-Code", "400");
        h.set("Nats-Service-Error", e.message);
        m.respond("", { headers: h });
      }
    },
  });
}

// open connects as a role, or without credentials where none are set.
export async function open(role) {
  const pass = process.env[`NATS_${role.toUpperCase()}_PASSWORD`];
  const login = pass ? { user: role, pass, inboxPrefix: `_INBOX_${role}` } : {};
  return connect({ servers: NATS_URL, name: `javascript example, ${role}`, ...login });
}

// follow yields the namespace's public events from now on; what happens while
// the connection is lost is not missed. An application with credentials may not
// make a consumer and uses the one that was made for it.
export async function follow(js) {
  const consumer = process.env.NATS_APPLICATION_PASSWORD
    ? await js.consumers.get("AGENT_EVENTS", "application")
    : await js.consumers.get("AGENT_EVENTS", {
      filter_subjects: `agent.event.${AGENT_NAMESPACE}.>`,
      deliver_policy: DeliverPolicy.New,
    });
  return consumer.consume();
}

async function main() {
  const service = await open("capability");
  serveDesks(service);
  await service.flush(); // the server knows the service before a run asks for it

  const nc = await open("application");
  const js = jetstream(nc);
  const events = await follow(js);
  const deadline = setTimeout(() => {
    console.error(`no completion within ${AGENT_TIMEOUT_SECONDS} seconds`);
    process.exit(1);
  }, 1000 * AGENT_TIMEOUT_SECONDS);

  const waiting = new Map(); // by the command's id, which its events carry as correlationid
  for (const mode of ["binary", "structured"]) {
    const event = startRun({ agent: "desk-helper", message: "Find me a desk on floor 3", labels: { mode } });
    waiting.set(event.id, mode);
    await publish(js, event, mode);
  }

  for await (const m of events) {
    const event = receive(m);
    m.ack();
    const mode = waiting.get(event.correlationid);
    if (!mode) continue; // somebody else's
    switch (event.type) {
      case `${eventTypes}run.completed`: {
        const { run, reply, usage, steps } = event.data;
        console.log(`completed ${mode}: ${run} in ${steps} steps, ${JSON.stringify(usage)}: ${JSON.stringify(reply.output ?? reply.question)}`);
        if (reply.kind !== "output") throw new Error(`run ${run} asks: ${reply.question}`);
        waiting.delete(event.correlationid);
        break;
      }
      case `${eventTypes}run.failed`:
      case `${eventTypes}run.cancelled`:
      case `${eventTypes}run.rejected`:
        throw new Error(`${event.type}: ${JSON.stringify(event.data)}`);
    }
    if (waiting.size === 0) break;
  }
  clearTimeout(deadline);
  await nc.drain();
  await service.drain();
}

if (process.argv[1] === import.meta.filename) {
  try {
    await main();
  } catch (e) {
    console.error(`failed: ${e.message}`);
    process.exit(1);
  }
}
