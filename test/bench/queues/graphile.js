// graphile.js: drains a backlog with graphile-worker; prints what load prints.
//
//	node graphile.js MESSAGES CONSUMERS BATCH SECONDS
//
// Batch 1 is graphile-worker as it comes; a larger batch is the size of its
// local queue, with completions sent together. Connects as PGHOST etc. say.
'use strict';
const { run, Logger } = require('graphile-worker');
const { Pool } = require('pg');

const [messages, consumers, batch, seconds] = process.argv.slice(2).map(Number);
const received = new Uint8Array(messages);
const pool = new Pool({ max: consumers + 2 });
pool.on('error', (error) => { throw error; });
pool.on('connect', () => {});
let count = 0;
let duplicates = 0;
let finished;
const allReceived = new Promise((resolve) => { finished = resolve; });

async function main() {
  const preload = `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
      SELECT ROW('bench', json_build_object('n', n, 't', 0, 'pad', repeat('x', 40)), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
      FROM generate_series($1::int, $2::int) AS n))`;
  for (let n = 0; n < messages; n += 5000)
    await pool.query(preload, [n, Math.min(n + 5000, messages) - 1]);
  const many = { localQueue: { size: Math.max(batch, consumers) }, completeJobBatchDelay: 0 };
  const began = process.hrtime.bigint();
  const runner = await run({
    pgPool: pool,
    concurrency: consumers,
    noHandleSignals: true,
    pollInterval: 100,
    logger: new Logger(() => () => {}),
    preset: batch > 1 ? { worker: many } : {},
    taskList: {
      bench: (payload) => {
        if (received[payload.n]++ > 0) duplicates++;
        else if (++count === messages) finished();
      },
    },
  });
  const limit = setTimeout(finished, seconds * 1000);
  await allReceived;
  clearTimeout(limit);
  const got = count;
  const elapsed = Number(process.hrtime.bigint() - began) / 1e9;
  await runner.stop();
  const left = await pool.query('SELECT count(*)::int AS jobs FROM graphile_worker._private_jobs');
  console.log(`sent\t${messages}\nacked\t${messages - left.rows[0].jobs}\nlost\t${Math.max(0, messages - left.rows[0].jobs - count)}`);
  console.log(`duplicates\t${duplicates}\ndrain_seconds\t${elapsed}\ndrain_rate\t${got / elapsed}`);
  await pool.end();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
