package sqlite

// migrations[i] makes format i+1 of format i.
var migrations = []string{`
CREATE TABLE keepwatch (format INTEGER NOT NULL) STRICT;
INSERT INTO keepwatch VALUES (0);

CREATE TABLE resources (
  id         INTEGER PRIMARY KEY,
  resource   TEXT NOT NULL,
  namespace  TEXT NOT NULL,
  name       TEXT NOT NULL,
  uid        TEXT NOT NULL,
  epoch      INTEGER NOT NULL,
  valid_from INTEGER NOT NULL,
  seen_from  TEXT NOT NULL,
  to_epoch   INTEGER,
  valid_to   INTEGER,
  seen_to    TEXT,
  deleted    INTEGER NOT NULL DEFAULT 0,
  object     TEXT NOT NULL,
  CHECK ((valid_to IS NULL) = (to_epoch IS NULL) AND (valid_to IS NULL) = (seen_to IS NULL)),
  CHECK (valid_to IS NULL OR (to_epoch, valid_to) >= (epoch, valid_from))
) STRICT;
CREATE UNIQUE INDEX resources_current ON resources (resource, namespace, name) WHERE valid_to IS NULL;
CREATE INDEX resources_history ON resources (resource, namespace, name, id);
CREATE INDEX resources_seen ON resources (seen_from);
CREATE INDEX resources_ended ON resources (seen_to) WHERE seen_to IS NOT NULL;

CREATE TABLE cursors (
  resource  TEXT NOT NULL,
  namespace TEXT NOT NULL,
  line      INTEGER NOT NULL,
  active    INTEGER NOT NULL,
  epoch     INTEGER NOT NULL DEFAULT 0,
  cursor    INTEGER NOT NULL DEFAULT 0,
  since     INTEGER NOT NULL DEFAULT 0,
  gap       TEXT NOT NULL DEFAULT '',
  objects   INTEGER NOT NULL DEFAULT 0,
  written   TEXT NOT NULL DEFAULT '',
  identity  TEXT NOT NULL,
  position  TEXT,
  PRIMARY KEY (resource, namespace)
) STRICT;

CREATE TABLE gaps (
  resource      TEXT NOT NULL,
  namespace     TEXT NOT NULL,
  epoch         INTEGER NOT NULL,
  from_revision INTEGER NOT NULL,
  to_revision   INTEGER NOT NULL,
  reason        TEXT NOT NULL,
  seen          TEXT NOT NULL
) STRICT;

CREATE VIEW objects AS
  SELECT id, resource, namespace, name, uid, valid_from AS revision, seen_from, object FROM resources WHERE valid_to IS NULL;

CREATE VIEW synced AS
  SELECT line, max(epoch) AS epoch, max(written) AS written, CASE
    WHEN min(since) > 0 AND max(gap) = '' AND min(epoch) = max(epoch) AND min(cursor) >= max(since) THEN min(cursor)
  END AS revision
  FROM cursors WHERE active GROUP BY line;
`, `
ALTER TABLE resources ADD COLUMN sum INTEGER;
`, `
ALTER TABLE cursors ADD COLUMN first_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cursors ADD COLUMN first_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cursors ADD COLUMN first_seen TEXT NOT NULL DEFAULT '';
UPDATE cursors SET first_epoch = epoch, first_revision = since, first_seen = written WHERE since > 0;

CREATE TABLE types (
  id       INTEGER PRIMARY KEY,
  resource TEXT NOT NULL,
  seen     TEXT NOT NULL,
  type     TEXT NOT NULL
) STRICT;

CREATE INDEX resources_from ON resources (resource, epoch, valid_from, seen_from);
CREATE INDEX resources_to ON resources (resource, to_epoch, valid_to, seen_to, epoch, valid_from) WHERE valid_to IS NOT NULL;
`, `
ALTER TABLE gaps ADD COLUMN began TEXT;
ALTER TABLE gaps ADD COLUMN ended TEXT;
-- The list that ends a gap at the cursor is not complete: its end is open.
UPDATE gaps SET ended = seen WHERE NOT EXISTS (SELECT 1 FROM cursors c WHERE c.resource = gaps.resource
  AND c.namespace = gaps.namespace AND c.gap <> '' AND c.epoch = gaps.epoch AND c.cursor = gaps.from_revision);
CREATE INDEX gaps_open ON gaps (resource, namespace) WHERE ended IS NULL;
`, `
ALTER TABLE keepwatch ADD COLUMN thinned TEXT;
CREATE INDEX gaps_thinned ON gaps (resource, namespace, ended) WHERE reason = 'thinned';
`, `
PRAGMA legacy_alter_table = ON; -- views, also those of users, continue to read what is named resources
ALTER TABLE resources RENAME TO states;
PRAGMA legacy_alter_table = OFF;

-- A state with a base is compressed: its object is an array of strings and of parts of the base, [from, length].
ALTER TABLE states ADD COLUMN base INTEGER;
CREATE INDEX states_base ON states (base) WHERE base IS NOT NULL;
CREATE TABLE bases (id INTEGER PRIMARY KEY AUTOINCREMENT, object TEXT NOT NULL) STRICT;
ALTER TABLE keepwatch ADD COLUMN compressed TEXT NOT NULL DEFAULT '';
ALTER TABLE keepwatch ADD COLUMN compressed_id INTEGER NOT NULL DEFAULT 0;

CREATE VIEW resources AS
  SELECT id, resource, namespace, name, uid, epoch, valid_from, seen_from, to_epoch, valid_to, seen_to, deleted,
    CASE WHEN base IS NULL THEN object ELSE (SELECT group_concat(CASE part.type WHEN 'text' THEN part.value
        ELSE substr(bases.object, json_extract(part.value, '$[0]'), json_extract(part.value, '$[1]')) END, '')
      FROM bases, json_each(states.object) AS part WHERE bases.id = states.base) END AS object, sum FROM states;
`, `
CREATE TABLE thinning (seconds INTEGER PRIMARY KEY, border TEXT NOT NULL) STRICT;
CREATE INDEX states_aged ON states (resource, seen_to) WHERE seen_to IS NOT NULL;
`, `
CREATE TABLE peaks (
  resource TEXT NOT NULL,
  seen     TEXT NOT NULL,
  epoch    INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  PRIMARY KEY (resource, seen)
) STRICT, WITHOUT ROWID;
`}

// peaksFormat is the format that has the table peaks.
const peaksFormat = 8

const createView = `DROP VIEW IF EXISTS "%[1]s"; CREATE VIEW "%[1]s" AS
  SELECT id, namespace, name, uid, valid_from AS revision, seen_from, object FROM resources WHERE valid_to IS NULL AND resource = '%[2]s'`
