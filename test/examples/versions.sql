-- A database as it is after the files were installed and the server was restarted: its objects are those of 0.2.0.
CREATE EXTENSION pg_sweep VERSION '0.2.0';
CREATE EXTENSION pg_sweep_gitlab VERSION '0.2.0';
