// BullMQ's job schedulers at the same work: COUNT schedules of one second that do nothing, or that call URL by undici.
// Prints fires a second.
import { Queue, Worker } from "bullmq";
import { Pool } from "undici";

const [socket, count, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const url = process.argv[5] ? new URL(process.argv[5]) : null;
const connection = { path: socket, maxRetriesPerRequest: null };
const queue = new Queue("bench", { connection });
const pool = url && new Pool(url.origin, { connections: 200 });
let fired = 0;
const late = [];

async function call(job) {
  const body = JSON.stringify({ name: job.name, at: job.timestamp });
  const answer = await pool.request({
    path: url.pathname,
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": job.id },
    body,
  });
  await answer.body.dump();
  if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
}

for (let start = 0; start < count; start += 200) {
  const some = Array.from({ length: Math.min(200, count - start) }, (_, k) => start + k);
  await Promise.all(
    some.map((k) =>
      queue.upsertJobScheduler(
        `s${k}`,
        { every: 1000, offset: Math.floor((k * 1000) / count) },
        { name: "tick", data: {}, opts: { removeOnComplete: true, removeOnFail: true } },
      ),
    ),
  );
}
const worker = new Worker(
  "bench",
  async (job) => {
    const lateness = Date.now() - (job.timestamp + (job.opts.delay ?? 0));
    if (url) await call(job);
    fired += 1;
    late.push(lateness);
  },
  { connection, concurrency: 500 },
);
await new Promise((done) => setTimeout(done, 3000));
const before = fired;
late.length = 0;
const began = performance.now();
await new Promise((done) => setTimeout(done, seconds * 1000));
const rate = ((fired - before) * 1000) / (performance.now() - began);
late.sort((a, b) => a - b);
console.log(JSON.stringify({ rate, p50: late[late.length >> 1] ?? 0, p99: late[Math.floor(late.length * 0.99)] ?? 0 }));
await worker.close(true);
process.exit(0);
