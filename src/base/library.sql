--
-- Compares the library that is loaded with the objects that are to be created, before there is a function that calls it: a server that
-- was not restarted after the files were installed has an older one, which may lack this very function. In the install script of
-- pg_sweep the schema comes first; in all others this does. The Makefile puts in what is between two @.
--
DO $$
BEGIN
	IF '@extension@' <> 'pg_sweep' AND (SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'pg_sweep') <> '@version@' THEN
		RAISE EXCEPTION 'extension @extension@ @version@ needs pg_sweep @version@' USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Execute ALTER EXTENSION pg_sweep UPDATE first.';
	ELSIF pg_catalog.to_regproc('sweep._require_library') IS NULL THEN
		CREATE FUNCTION sweep._require_library(version text) RETURNS void
			LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '$libdir/pg_sweep', 'sweep_extension_require_library';
		COMMENT ON FUNCTION sweep._require_library(text) IS 'raises unless the library that is loaded is of this version: the first statement of each update script';
	END IF;
	PERFORM sweep._require_library('@version@');
EXCEPTION WHEN undefined_function THEN
	RAISE EXCEPTION 'extension @extension@ @version@ needs its library, and an older one is loaded' USING ERRCODE = 'object_not_in_prerequisite_state',
		HINT = 'Restart the server after the files of the extension were installed.';
END
$$;
