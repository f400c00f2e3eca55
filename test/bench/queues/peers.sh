# shellcheck shell=bash disable=SC2034
# peers.sh: the queues that are compared, sourced by bench.sh.
#
# For each of them: install_X puts it where the private server or node finds it
# and fails, with the reason in $why, when it cannot; template_X makes a queue
# "bench" in a database; statements_X sets the statements that load executes.
# Nothing is installed outside of the checkout.

all_peers='pg_sweep pgmq pgq graphile pgboss'

install_pg_sweep() { :; }

template_pg_sweep()
{
	psql_in "$1" -c 'CREATE EXTENSION pg_sweep' -c "SELECT sweep.create_queue('bench', visibility => '5 min'${create_options:+, $create_options})"
}

statements_pg_sweep()
{
	send="SELECT sweep.send('bench', \$1::jsonb)"
	send_many="SELECT sweep.send_many('bench', \$1::jsonb[])"
	claim="SELECT message_id, payload, lease FROM sweep.claim('bench', {batch})"
	ack='SELECT sweep.ack($2::uuid)'
}

# Its SQL is given, not ours to keep a copy of: PEER_PGMQ=<pgmq.sql>.
install_pgmq()
{
	why='PEER_PGMQ does not name its SQL file'
	test -n "${PEER_PGMQ-}" && test -r "$PEER_PGMQ"
}

template_pgmq()
{
	psql_in "$1" -f "$PEER_PGMQ" -c "SELECT pgmq.create('bench')"
}

statements_pgmq()
{
	send="SELECT pgmq.send('bench', \$1::jsonb)"
	send_many="SELECT count(*) FROM pgmq.send_batch('bench', \$1::jsonb[])"
	claim="SELECT msg_id, message, NULL FROM pgmq.read('bench', 300, {batch})"
	ack="SELECT count(*) FROM pgmq.delete('bench', \$1::bigint[])"
}

# Debian's package, unpacked into the private copy of the server.
install_pgq()
{
	local package major

	why='its package cannot be had from apt'
	major=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
	test ! -e "$sweep_root$("$PG_CONFIG" --sharedir)/extension/pgq.control" || return 0
	(cd "$peers" && apt-get -q download "postgresql-$major-pgq3" >apt.log 2>&1) || return 1
	package=$(echo "$peers"/postgresql-*-pgq3_*.deb)
	dpkg-deb -x "$package" "$peers/pgq" || return 1
	cp "$peers/pgq$("$PG_CONFIG" --pkglibdir)"/*.so "$sweep_root$("$PG_CONFIG" --pkglibdir)/"
	cp "$peers/pgq$("$PG_CONFIG" --sharedir)"/extension/* "$sweep_root$("$PG_CONFIG" --sharedir)/extension/"
}

template_pgq()
{
	psql_in "$1" -c 'CREATE EXTENSION pgq' -c "SELECT pgq.create_queue('bench')" -c "SELECT pgq.register_consumer('bench', 'c1')"
}

# A tick is a batch, so the backlog is made with a tick after each; a consumer
# cannot choose the size. A batch may be empty and must be finished anyway.
statements_pgq()
{
	send="SELECT pgq.insert_event('bench', 't', \$1)"
	send_many="SELECT count(*) FROM (SELECT pgq.insert_event('bench', 't', e) FROM unnest(\$1::text[]) AS e OFFSET 0) AS s"
	claim="SELECT e.ev_id, e.ev_data, m.b
		FROM (SELECT b FROM (SELECT pgq.next_batch('bench', 'c{client}') AS b OFFSET 0) AS n WHERE b IS NOT NULL OFFSET 0) AS m
			LEFT JOIN LATERAL pgq.get_batch_events(m.b) AS e ON true"
	ack='SELECT coalesce(cardinality($1), 0) * pgq.finish_batch($2::bigint)'
}

# Both packages at once; their versions are those that node 20 can run.
install_node()
{
	why='node or npm is missing, or npm cannot get it'
	command -v node >/dev/null && command -v npm >/dev/null || return 1
	test ! -d "$peers/node_modules/$1" || return 0
	npm install --silent --no-audit --no-fund --prefix "$peers" graphile-worker@0.17.3 pg-boss@10.4.2 >"$peers/npm.log" 2>&1
}

install_graphile() { install_node graphile-worker; }
install_pgboss() { install_node pg-boss; }

template_graphile()
{
	PGDATABASE=$1 NODE_PATH=$peers/node_modules node -e \
		"require('graphile-worker').runMigrations({ connectionString: 'postgres:///$1' }).then(() => process.exit(0), (e) => { console.error(e); process.exit(1); })"
}

statements_graphile()
{
	send="SELECT 1 FROM graphile_worker.add_job('bench', \$1::json)"
	send_many="SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
		SELECT ROW('bench', p, NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec FROM unnest(\$1::json[]) AS p))"
}

template_pgboss()
{
	PGDATABASE=$1 NODE_PATH=$peers/node_modules node -e "
		const PgBoss = require('pg-boss');
		const boss = new PgBoss({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER,
			database: '$1', supervise: false, schedule: false });
		boss.start().then(() => boss.createQueue('bench')).then(() => process.exit(0), (e) => { console.error(e); process.exit(1); })"
}

statements_pgboss()
{
	send="INSERT INTO pgboss.job (name, data) VALUES ('bench', \$1::jsonb)"
	send_many="INSERT INTO pgboss.job (name, data) SELECT 'bench', p FROM unnest(\$1::jsonb[]) AS p"
}
