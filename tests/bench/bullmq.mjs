// BullMQ's job schedulers at the same work: COUNT schedules of one second that do nothing. Prints fires a second.
import { Queue, Worker } from "bullmq";

const [socket, count, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const connection = { path: socket, maxRetriesPerRequest: null };
const queue = new Queue("bench", { connection });
let fired = 0;
const late = [];

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
    fired += 1;
    late.push(Date.now() - (job.timestamp + (job.opts.delay ?? 0)));
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
