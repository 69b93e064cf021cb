-- name: order_by_logical_time
-- In the begin of a refresh. Its order time is not below that of the version that was current when its run began: so a
-- refresh replaces what had committed before its run began, also by an earlier logical time. A retry keeps the order
-- of the first attempt, whatever has committed since.
UPDATE in_progress
   SET logical_time = CAST(:logical_time AS BIGINT),
       order_time = (SELECT max(seen.order_time)
                       FROM (SELECT CAST(:logical_time AS BIGINT) AS order_time
                              UNION ALL
                             SELECT change.order_time FROM partition_change AS change {indexed_by:version_current}
                              WHERE change.dataset_id = in_progress.dataset_id AND change.partition_key = ''
                                AND change.superseded_seq IS NULL
                                AND change.commit_seq < coalesce(CAST(:run_began AS BIGINT), {commit_seq})
                              UNION ALL
                             SELECT change.order_time FROM partition_change AS change {indexed_by:partition_superseded}
                              WHERE change.dataset_id = in_progress.dataset_id
                                AND change.superseded_seq >= CAST(:run_began AS BIGINT)
                                AND +change.commit_seq < CAST(:run_began AS BIGINT)) AS seen)
 WHERE write_pointer = {commit_seq} AND dataset_id IN ({texts:snapshots})

-- name: order_by_begin
-- In the begin of a refresh without a logical time. It comes after all refreshes that have begun: the current version,
-- and those that are open.
UPDATE in_progress
   SET order_time = (SELECT max(seen.order_time)
                       FROM (SELECT change.order_time FROM partition_change AS change {indexed_by:version_current}
                              WHERE change.dataset_id = in_progress.dataset_id AND change.partition_key = ''
                                AND change.superseded_seq IS NULL
                              UNION ALL
                             SELECT other.order_time FROM in_progress AS other
                              WHERE other.dataset_id = in_progress.dataset_id) AS seen)
 WHERE write_pointer = {commit_seq} AND dataset_id IN ({texts:snapshots})

-- name: find_order
-- gives: logical_time, order_time
SELECT logical_time, order_time FROM in_progress WHERE dataset_id = :dataset_id AND write_pointer = :write_pointer
