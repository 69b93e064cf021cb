-- name: put_rule
-- A changed rule is looked at at once.
INSERT INTO alert_rule (rule_id, namespace, app, name, spec, looks_after, next_look_at)
VALUES (:rule_id, :namespace, :app, :name, :spec, :looks_after, tidemill_now())
    ON CONFLICT (namespace, name) DO UPDATE
   SET app = excluded.app, spec = excluded.spec, looks_after = excluded.looks_after,
       next_look_at = excluded.next_look_at

-- name: delete_rule
DELETE FROM alert_rule WHERE rule_id = :rule_id

-- name: find_rule
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE namespace = :namespace AND name = :name

-- name: find_rule_by_id
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule WHERE rule_id = :rule_id

-- name: list_of_app
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE namespace = :namespace AND app = :app

-- name: list_rules
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE (namespace, name) > (:after_namespace, :after_name)
 ORDER BY namespace, name LIMIT :limit

-- name: list_rules_of_app
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE namespace = :namespace AND app = :app AND name > :after
 ORDER BY name LIMIT :limit

-- name: list_due
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE next_look_at <= tidemill_now() ORDER BY next_look_at LIMIT :limit

-- name: list_after
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
-- Two looks, each at an index of its own.
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE looks_after <> ''
 UNION ALL
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE is_open = 1 AND looks_after = ''

-- name: find_next_look
-- gives: next_look_at
SELECT min(next_look_at) AS next_look_at FROM alert_rule

-- name: note_look
UPDATE alert_rule SET next_look_at = :next_look_at, is_open = :is_open WHERE rule_id = :rule_id

-- name: look_at_namespace
-- A deployment may change what rules are about.
UPDATE alert_rule SET next_look_at = tidemill_now() WHERE namespace = :namespace

-- name: silence_rule
UPDATE alert_rule SET silent_until = :silent_until, next_look_at = tidemill_now() WHERE rule_id = :rule_id

-- name: silence_subjects
UPDATE alert_rule SET silent_subjects = :silent_subjects, next_look_at = tidemill_now() WHERE rule_id = :rule_id

-- name: find_rules
-- gives: rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open
SELECT rule_id, namespace, app, name, spec, silent_until, silent_subjects, next_look_at, is_open FROM alert_rule
 WHERE rule_id IN ({texts:rule_ids})

-- name: list_live
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert {indexed_by:alert_live} WHERE rule_id IN ({texts:rule_ids}) AND state <> 'RESOLVED'

-- name: count_live
-- gives: rule_id, alerts
SELECT rule_id, count(*) AS alerts
  FROM alert {indexed_by:alert_live} WHERE rule_id IN ({texts:rule_ids}) AND state <> 'RESOLVED' GROUP BY rule_id

-- name: list_machines
-- gives: alert_id, subject, renewals
-- Alerts of a rule about machines: each machine renews its own, so that others see that it lives.
SELECT alert_id, subject, renewals FROM alert WHERE rule_id = :rule_id AND state <> 'RESOLVED'

-- name: renew_alert
UPDATE alert SET renewals = renewals + 1 WHERE alert_id = :alert_id AND state <> 'RESOLVED'

-- name: find_alert
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert WHERE alert_id = :alert_id

-- name: name_namespaces
-- gives: alert_id, namespace
SELECT alert_id, namespace FROM alert WHERE alert_id IN ({texts:alert_ids})

-- name: list_newest
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert WHERE alert_id < :after ORDER BY alert_id DESC LIMIT :limit

-- name: list_newest_live
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert WHERE state <> 'RESOLVED' AND alert_id < :after ORDER BY alert_id DESC LIMIT :limit

-- name: list_newest_of
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert WHERE namespace = :namespace AND alert_id < :after ORDER BY alert_id DESC LIMIT :limit

-- name: list_newest_live_of
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert WHERE state <> 'RESOLVED' AND namespace = :namespace AND alert_id < :after ORDER BY alert_id DESC LIMIT :limit

-- name: list_of_rule
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert WHERE rule_id = :rule_id AND alert_id < :after ORDER BY alert_id DESC LIMIT :limit

-- name: list_live_of_rule
-- gives: alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
SELECT alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, notified_at, acknowledged_by, resolved_at
  FROM alert {indexed_by:alert_live}
 WHERE rule_id = :rule_id AND state <> 'RESOLVED' AND alert_id < :after ORDER BY alert_id DESC LIMIT :limit

-- name: open_alert
INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at)
VALUES (:alert_id, :rule_id, :namespace, :rule, :subject, 'OPEN', :why, :since, tidemill_now())

-- name: note_notified
UPDATE alert SET notified_at = tidemill_now(), why = :why WHERE alert_id = :alert_id

-- name: acknowledge_alert
UPDATE alert SET state = 'ACKNOWLEDGED', acknowledged_by = :acknowledged_by
 WHERE alert_id = :alert_id AND state = 'OPEN'

-- name: resolve_alert
UPDATE alert SET state = 'RESOLVED', resolved_at = tidemill_now() WHERE alert_id = :alert_id AND state <> 'RESOLVED'

-- name: forget_old_alerts
DELETE FROM alert WHERE resolved_at < tidemill_now() - :keep

-- name: find_newest_end
-- gives: seq, n
SELECT seq, n FROM message WHERE topic = :topic ORDER BY seq DESC, n DESC LIMIT 1
