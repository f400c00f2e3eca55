// pgboss.js: drains a backlog with pg-boss; prints what load prints.
//
//	node pgboss.js MESSAGES CONSUMERS BATCH SECONDS
//
// A consumer is a loop of fetch and complete. Connects as PGHOST etc. say.
'use strict';
const PgBoss = require('pg-boss');

const [messages, consumers, batch, seconds] = process.argv.slice(2).map(Number);
const received = new Uint8Array(messages);
let count = 0;
let acked = 0;
let duplicates = 0;

async function consume(boss, until) {
  while (process.hrtime.bigint() < until) {
    const jobs = await boss.fetch('bench', { batchSize: batch });
    if (jobs.length === 0) return;
    for (const job of jobs) {
      if (received[job.data.n]++ > 0) duplicates++;
      else count++;
    }
    await boss.complete('bench', jobs.map((job) => job.id));
    acked += jobs.length;
  }
}

async function main() {
  const boss = new PgBoss({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER,
    database: process.env.PGDATABASE, max: consumers + 2, supervise: false, schedule: false, migrate: false });
  await boss.start();
  for (let n = 0; n < messages; n += 1000) {
    const jobs = [];
    for (let i = n; i < Math.min(n + 1000, messages); i++)
      jobs.push({ name: 'bench', data: { n: i, t: 0, pad: 'x'.repeat(40) } });
    await boss.insert(jobs);
  }
  const began = process.hrtime.bigint();
  const until = began + BigInt(seconds * 1e9);
  await Promise.all(Array.from({ length: consumers }, () => consume(boss, until)));
  const elapsed = Number(process.hrtime.bigint() - began) / 1e9;
  const left = await boss.getQueueSize('bench', { before: 'completed' });
  console.log(`sent\t${messages}\nacked\t${acked}\nlost\t${Math.max(0, messages - left - count)}`);
  console.log(`duplicates\t${duplicates}\ndrain_seconds\t${elapsed}\ndrain_rate\t${acked / elapsed}`);
  await boss.stop({ graceful: false });
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
