package postgres

// migrations[i] makes format i+1 of format i.
var migrations = []string{`
CREATE TABLE keepwatch (format int NOT NULL, writer text NOT NULL);
INSERT INTO keepwatch VALUES (0, '');

CREATE TABLE resources (
  id         bigint GENERATED ALWAYS AS IDENTITY,
  resource   text NOT NULL,
  namespace  text NOT NULL,
  name       text NOT NULL,
  uid        text NOT NULL,
  epoch      int NOT NULL,
  valid_from bigint NOT NULL,
  seen_from  timestamptz NOT NULL,
  to_epoch   int,
  valid_to   bigint,
  seen_to    timestamptz,
  deleted    boolean NOT NULL DEFAULT false,
  object     jsonb NOT NULL,
  PRIMARY KEY (resource, namespace, name, id),
  CHECK ((valid_to IS NULL) = (to_epoch IS NULL) AND (valid_to IS NULL) = (seen_to IS NULL)),
  CHECK (valid_to IS NULL OR (to_epoch, valid_to) >= (epoch, valid_from))
);
CREATE UNIQUE INDEX resources_current ON resources (resource, namespace, name) WHERE valid_to IS NULL;
CREATE INDEX resources_seen ON resources (seen_from);
CREATE INDEX resources_ended ON resources (seen_to) WHERE seen_to IS NOT NULL;

CREATE TABLE cursors (
  resource  text NOT NULL,
  namespace text NOT NULL,
  line      int NOT NULL,
  active    boolean NOT NULL,
  epoch     int NOT NULL DEFAULT 0,
  cursor    bigint NOT NULL DEFAULT 0,
  since     bigint NOT NULL DEFAULT 0,
  gap       text NOT NULL DEFAULT '',
  objects   bigint NOT NULL DEFAULT 0,
  written   timestamptz,
  identity  jsonb NOT NULL,
  position  jsonb,
  PRIMARY KEY (resource, namespace)
);

CREATE TABLE gaps (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  resource      text NOT NULL,
  namespace     text NOT NULL,
  epoch         int NOT NULL,
  from_revision bigint NOT NULL,
  to_revision   bigint NOT NULL,
  reason        text NOT NULL,
  seen          timestamptz NOT NULL
);

CREATE VIEW objects AS
  SELECT id, resource, namespace, name, uid, valid_from AS revision, seen_from, object FROM resources WHERE valid_to IS NULL;

CREATE VIEW synced AS
  SELECT line, max(epoch) AS epoch, max(written) AS written, CASE
    WHEN min(since) > 0 AND max(gap) = '' AND min(epoch) = max(epoch) AND min(cursor) >= max(since) THEN min(cursor)
  END AS revision
  FROM cursors WHERE active GROUP BY line;
`, `
ALTER TABLE resources ADD COLUMN full_name text;
UPDATE resources SET full_name = name, name = left(name, 40) || '~sha256:' || encode(sha256(convert_to(name, 'UTF8')), 'hex')
  WHERE octet_length(name) > 500;
`, `
ALTER TABLE resources ADD COLUMN sum bigint;
`, `
ALTER TABLE cursors ADD COLUMN first_epoch int NOT NULL DEFAULT 0, ADD COLUMN first_revision bigint NOT NULL DEFAULT 0,
  ADD COLUMN first_seen timestamptz;
UPDATE cursors SET first_epoch = epoch, first_revision = since, first_seen = written WHERE since > 0;

CREATE TABLE types (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  resource text NOT NULL,
  seen     timestamptz NOT NULL,
  type     jsonb NOT NULL
);

CREATE INDEX resources_from ON resources (resource, epoch, valid_from, seen_from);
CREATE INDEX resources_to ON resources (resource, to_epoch, valid_to, seen_to) WHERE valid_to IS NOT NULL;
`, `
ALTER TABLE gaps ADD COLUMN began timestamptz, ADD COLUMN ended timestamptz;
-- The list that ends a gap at the cursor is not complete: its end is open.
UPDATE gaps SET ended = seen WHERE NOT EXISTS (SELECT 1 FROM cursors c WHERE c.resource = gaps.resource
  AND c.namespace = gaps.namespace AND c.gap <> '' AND c.epoch = gaps.epoch AND c.cursor = gaps.from_revision);
CREATE INDEX gaps_open ON gaps (resource, namespace) WHERE ended IS NULL;
`, `
ALTER TABLE keepwatch ADD COLUMN thinned timestamptz;
CREATE INDEX gaps_thinned ON gaps (resource, namespace, ended) WHERE reason = 'thinned';
`, `
ALTER TABLE resources ADD COLUMN bytes int;
`, `
CREATE TABLE thinning (seconds bigint PRIMARY KEY, border timestamptz NOT NULL);
CREATE INDEX resources_aged ON resources (resource, seen_to) WHERE seen_to IS NOT NULL;
`, `
ALTER TABLE resources RENAME TO states;

-- A state without object is in a group, which has it as one of its texts, the first of which is 1.
CREATE TABLE groups (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, members int NOT NULL, objects text[] NOT NULL);
ALTER TABLE states ALTER COLUMN object DROP NOT NULL, ADD COLUMN group_id bigint, ADD COLUMN member int,
  ADD CHECK ((object IS NULL) = (group_id IS NOT NULL AND member IS NOT NULL)) NOT VALID;
CREATE INDEX states_group ON states (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX states_whole ON states (resource, namespace, name, id) WHERE seen_to IS NOT NULL AND group_id IS NULL;

CREATE VIEW resources AS
  SELECT id, resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted,
    coalesce(object, (SELECT objects[states.member] FROM groups WHERE groups.id = states.group_id)::jsonb) AS object,
    full_name, sum, bytes FROM states;
`, `
CREATE TABLE peaks (
  resource text NOT NULL,
  seen     timestamptz NOT NULL,
  epoch    int NOT NULL,
  revision bigint NOT NULL,
  PRIMARY KEY (resource, seen)
);
-- Roles that read the other tables read this one.
DO $$ DECLARE reader text; BEGIN
  FOR reader IN SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END FROM pg_class, aclexplode(relacl)
    WHERE oid = 'cursors'::regclass AND privilege_type = 'SELECT' AND grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user)
  LOOP EXECUTE format('GRANT SELECT ON peaks TO %s', reader); END LOOP;
END $$;
`}

// typesFormat is the format that has the table types.
const typesFormat = 4

// groupsFormat is the format that has the table states behind the view resources.
const groupsFormat = 9

// peaksFormat is the format that has the table peaks.
const peaksFormat = 10

const createView = `CREATE VIEW %s AS
  SELECT id, namespace, name, uid, valid_from AS revision, seen_from, object FROM states WHERE valid_to IS NULL AND resource = %s`
