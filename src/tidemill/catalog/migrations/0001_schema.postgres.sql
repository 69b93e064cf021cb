-- What only PostgreSQL has. The clock is a sequence behind an advisory lock that is held until the transaction is
-- visible: a row lock fell from 17.7k to 2.0k ticks/s while a snapshot was open elsewhere (tried). Lock and nextval
-- are separate statements: a transaction that takes a tick sees all that committed under the ticks before it.
CREATE SEQUENCE tidemill_clock;

CREATE FUNCTION tidemill_tick() RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1953064301, hashtext(current_schema()::text));
    RETURN nextval('tidemill_clock');
END $$;

-- Epoch milliseconds.
CREATE FUNCTION tidemill_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- A guard refuses by raising: all that its message did is rolled back.
CREATE FUNCTION tidemill_refuse(code TEXT, a TEXT DEFAULT NULL, b TEXT DEFAULT NULL, c TEXT DEFAULT NULL,
                                d TEXT DEFAULT NULL, e TEXT DEFAULT NULL, f TEXT DEFAULT NULL)
RETURNS INTEGER LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'TM001', MESSAGE = code,
        DETAIL = array_to_json(ARRAY[a, b, c, d, e, f])::text;
END $$;
