-- name: list_specs
-- gives: spec
-- Apps are few; the one that was deployed last comes first.
SELECT spec FROM app WHERE deleted = 0 ORDER BY deployed_at DESC
