-- name: find_note
-- gives: own, earlier, seq
SELECT own, earlier, seq FROM hive_note
 WHERE metastore = :metastore AND database_name = :database AND table_name = :table

-- name: list_noted
-- gives: metastore, database_name, table_name
SELECT metastore, database_name, table_name FROM hive_note ORDER BY metastore, database_name, table_name

-- name: put_note
INSERT INTO hive_note (metastore, database_name, table_name, own, earlier, seq)
VALUES (:metastore, :database, :table, :own, :earlier, {commit_seq})
    ON CONFLICT (metastore, database_name, table_name) DO UPDATE
   SET own = excluded.own, earlier = excluded.earlier, seq = excluded.seq

-- name: delete_note
-- quiet
-- Only if no statement and no other process has put the row again since it was read.
DELETE FROM hive_note
 WHERE metastore = :metastore AND database_name = :database AND table_name = :table AND seq = :seq
