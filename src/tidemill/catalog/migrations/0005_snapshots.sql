-- Of a snapshot, whose only partition has the empty key, one version is current: two would be read as one.
CREATE UNIQUE INDEX version_current ON partition_change (dataset_id) WHERE partition_key = '' AND superseded_seq IS NULL;
CREATE INDEX version_kept ON partition_change (dataset_id, write_pointer) WHERE partition_key = '' AND expired_at IS NULL;
