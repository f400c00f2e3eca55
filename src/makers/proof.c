/*
 * proof.c
 *		Keeps what a retention has proved when it has drained.
 *
 * Called by ranges.c in the batch that finds nothing more to do: the proof is committed with it, or not at all. It is the answer of the
 * statement of the run, under the number of the run that this process executes; a call of the step by hand keeps nothing.
 */
#include "postgres.h"

#include "makers/proof.h"

/*
 * A transaction that has written nothing yet inserts later than the proof, whenever it has begun. A scheduler writes tables of sweep
 * alone.
 */
static SweepStatement open_since_sql = {
	.text = "SELECT pg_catalog.min(t.since) FROM (SELECT a.xact_start FROM pg_catalog.pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_catalog.pg_backend_pid() "
		"AND a.backend_type NOT IN ('autovacuum worker', 'pg_sweep scheduler') AND a.datname = pg_catalog.current_database() UNION ALL SELECT p.prepared FROM pg_catalog.pg_prepared_xacts p WHERE p.database = pg_catalog.current_database()) AS t (since)"};

static SweepStatement keep_proof_sql = {
	.text = "INSERT INTO sweep.retention_proof AS p (job, run_as, run_id, proved_at, proof, system_identifier, database) "
		"SELECT r.job, r.run_as, r.run_id, pg_catalog.statement_timestamp(), $2 || pg_catalog.jsonb_build_object('open_since', $3), sweep._system_identifier(), (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) "
		"FROM sweep.run_live r JOIN sweep.job_definition j ON j.name = r.job AND j.run_as = r.run_as WHERE r.run_id = $1 AND r.status = 'running' AND r.pid = pg_catalog.pg_backend_pid() "
		"ON CONFLICT (job) DO UPDATE SET run_as = excluded.run_as, run_id = excluded.run_id, proved_at = excluded.proved_at, proof = excluded.proof, "
		"system_identifier = excluded.system_identifier, database = excluded.database",
	.types = {INT8OID, JSONBOID, TIMESTAMPTZOID}};

TimestampTz
sweep_proof_open_since(void)
{
	(void) sweep_sql_execute(&open_since_sql, NULL, NULL);
	return sweep_sql_is_null(1) ? 0 : sweep_sql_moment(1);
}

void
sweep_proof_keep(int64 run_id, Jsonb *proof, TimestampTz open_since)
{
	Datum		values[] = {Int64GetDatum(run_id), JsonbPGetDatum(proof), TimestampTzGetDatum(open_since)};

	(void) sweep_sql_execute(&keep_proof_sql, values, open_since == 0 ? "  n" : NULL);
}
