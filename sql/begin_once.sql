-- room: job
-- sweep.begin_once: a key counts when its transaction commits, per role, for a time.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_sweep;
RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE ROLE regress_sweep_once;
GRANT sweep_user TO regress_sweep_once;
CREATE ROLE regress_sweep_nobody;

SELECT sweep.begin_once('mail:1');
SELECT sweep.begin_once('mail:1');
SELECT sweep.begin_once('mail:2');
SELECT sweep.begin_once('');

-- one that was rolled back was not done
BEGIN;
SELECT sweep.begin_once('mail:3');
SELECT sweep.begin_once('mail:3');
ROLLBACK;
SELECT sweep.begin_once('mail:3');
BEGIN;
SAVEPOINT s;
SELECT sweep.begin_once('mail:4');
ROLLBACK TO s;
SELECT sweep.begin_once('mail:4');
COMMIT;

-- the keys of another role are others, and nobody sees them
SET ROLE regress_sweep_once;
SELECT sweep.begin_once('mail:1');
SELECT sweep.begin_once('mail:1');
TABLE sweep.once_key;
SELECT sweep._begin_once('regress_sweep_once'::regrole, 'x');
SET ROLE regress_sweep_nobody;
SELECT sweep.begin_once('mail:1');
RESET ROLE;

-- what is no key
SELECT sweep.begin_once(NULL);
SELECT sweep.begin_once(repeat('x', 1001));
SELECT sweep.begin_once(repeat('x', 1000));

-- forgotten after pg_sweep.once_retention
UPDATE sweep.once_key SET done_at = now() - interval '1 day' - current_setting('pg_sweep.once_retention')::interval WHERE key IN ('mail:1', 'mail:2') AND role = current_user;
SELECT sweep._forget_once();
SELECT sweep.begin_once('mail:1'), sweep.begin_once('mail:3');
DELETE FROM sweep.once_key;
DROP ROLE regress_sweep_once, regress_sweep_nobody;
