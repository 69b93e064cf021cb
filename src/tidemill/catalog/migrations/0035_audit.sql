-- Changes that people and programs asked for, each written by the transaction of its change. `actor` asked, `action` is
-- noun and verb of the operation, `subject` the name or id of the thing, `detail` JSON. An id sorts by time, about.
CREATE TABLE audit (
    audit_id {key} PRIMARY KEY,
    at       BIGINT NOT NULL,
    actor    TEXT NOT NULL,
    action   TEXT NOT NULL,
    subject  {key} NOT NULL,
    detail   TEXT NOT NULL
);

CREATE INDEX audit_subject ON audit (subject, audit_id);
