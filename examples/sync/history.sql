SELECT resource, name, valid_from, valid_to, deleted FROM resources WHERE namespace = 'default' AND name <> 'kube-root-ca.crt' ORDER BY valid_from;
SELECT name, object -> 'spec' -> 'size', valid_from FROM resources WHERE resource = 'widgets.example.com' ORDER BY valid_from;
SELECT 'deleted: ' || name, object -> 'spec' -> 'size' FROM resources WHERE deleted;
SELECT object -> 'data' ->> 'password' FROM current_configmaps WHERE name = 'settings';
