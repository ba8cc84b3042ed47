// Runs an operator of Widgets with @kubernetes/client-node. A Widget has three children: a ConfigMap with its size and a
// Secret with a password, which die with it, and a ConfigMap without an owner, which a finalizer deletes. The status
// repeats the password. Events only say which Widget changed: its state, and that of its children, is read from the server.
//
//	KUBECONFIG=FILE node widgets.mjs [--bug NAME]
import { randomBytes } from 'node:crypto';
import { CoreV1Api, CustomObjectsApi, KubeConfig, makeInformer } from '@kubernetes/client-node';

const bug = process.argv[2] === '--bug' ? process.argv[3] : '';
const bugs = ['', 'generate-name', 'stale-cache', 'finalizer', 'status-first', 'hot-loop', 'event-only', 'fight', 'intermediate', 'password', 'put', 'right',
  'stale-list', 'cross-namespace', 'default'];
if (!bugs.includes(bug)) {
  console.error(`--bug ${bug}: want one of ${bugs.join(' ')}`);
  process.exit(2);
}

const namespace = 'default';
const logs = bug === 'cross-namespace' ? 'logs' : namespace; // of the ConfigMap without an owner
const finalizer = 'example.com/log';
const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);
const custom = config.makeApiClient(CustomObjectsApi);
const widgets = { group: 'example.com', version: 'v1', namespace, plural: 'widgets' };
const memory = new Map(); // of this process

// unless returns what a request returns, or undefined after an error with one of some codes.
async function unless(codes, request) {
  try {
    return await request;
  } catch (error) {
    if (codes.includes(error.code)) return undefined;
    throw error;
  }
}

const owned = (w, name, rest) => ({
  metadata: {
    name, labels: { widget: w.metadata.name },
    ownerReferences: [{ apiVersion: 'example.com/v1', kind: 'Widget', name: w.metadata.name, uid: w.metadata.uid }],
  },
  ...rest,
});
const sized = (w) => owned(w, w.metadata.name, { data: { size: String(w.spec.size) } });

// own returns an existing child, unless that is one of an earlier Widget.
function own(w, child) {
  if (child && child.metadata.ownerReferences?.[0]?.uid !== w.metadata.uid) {
    throw new Error('the child of an earlier Widget is still there');
  }
  return child;
}

async function configMap(w) {
  const { name } = w.metadata;
  if (bug === 'generate-name' || bug === 'stale-cache') {
    if (bug === 'stale-cache') { // what is read at resourceVersion 0 may be old
      const cached = await core.listNamespacedConfigMap({ namespace, labelSelector: `widget=${name}`, resourceVersion: '0' });
      if (cached.items.some((o) => o.metadata.ownerReferences?.[0]?.uid === w.metadata.uid)) return;
    }
    if (!memory.has(w.metadata.uid)) {
      const child = sized(w);
      child.metadata = { ...child.metadata, name: undefined, generateName: `${name}-` };
      await core.createNamespacedConfigMap({ namespace, body: child });
      memory.set(w.metadata.uid, 'created');
    }
    return;
  }
  const have = own(w, await unless([404], core.readNamespacedConfigMap({ name, namespace })));
  if (!have) {
    await core.createNamespacedConfigMap({ namespace, body: sized(w) });
  } else if (bug === 'fight' && have.metadata.annotations) {
    const body = sized(w);
    body.metadata.resourceVersion = have.metadata.resourceVersion;
    await core.replaceNamespacedConfigMap({ name, namespace, body });
  } else if (have.data?.size !== String(w.spec.size)) {
    const body = bug === 'put' ? sized(w) : { ...have, data: { size: String(w.spec.size) } };
    await core.replaceNamespacedConfigMap({ name, namespace, body });
  }
}

async function log(w) {
  const name = `${w.metadata.name}-log`;
  if (!(await unless([404], core.readNamespacedConfigMap({ name, namespace: logs })))) {
    const metadata = { name, labels: { widget: w.metadata.name } };
    await core.createNamespacedConfigMap({ namespace: logs, body: { metadata } });
  }
}

const deleteLog = (widget) => unless([404], core.deleteNamespacedConfigMap({ name: `${widget}-log`, namespace: logs }));

// sweep deletes the logs of Widgets that it does not see. What is read at resourceVersion 0 may be old.
async function sweep() {
  const seen = (await custom.listNamespacedCustomObject({ ...widgets, resourceVersion: '0' })).items.map((w) => w.metadata.name);
  for (const o of (await core.listNamespacedConfigMap({ namespace, labelSelector: 'widget' })).items) {
    const { widget } = o.metadata.labels;
    if (o.metadata.name === `${widget}-log` && !seen.includes(widget)) await deleteLog(widget);
  }
}

async function secret(w, password) {
  const { name } = w.metadata;
  const have = own(w, await unless([404], core.readNamespacedSecret({ name, namespace })));
  const want = owned(w, name, { data: { password } });
  if (!have) return core.createNamespacedSecret({ namespace, body: want });
  if (bug === 'default' && have.type !== want.type) { // the server has set it
    want.data = have.data;
    want.metadata.resourceVersion = have.metadata.resourceVersion;
    await core.replaceNamespacedSecret({ name, namespace, body: want });
    throw new Error('look again');
  }
  return have;
}

async function status(w, changes) {
  if (Object.entries(changes).every(([field, value]) => w.status?.[field] === value)) return w;
  const body = { ...w, status: { ...w.status, ...changes } };
  return custom.replaceNamespacedCustomObjectStatus({ ...widgets, name: w.metadata.name, body });
}

const setFinalizers = (w, finalizers) => custom.replaceNamespacedCustomObject({
  ...widgets, name: w.metadata.name, body: { ...w, metadata: { ...w.metadata, finalizers } },
});

async function reconcile(name) {
  let w = await unless([404], custom.getNamespacedCustomObject({ ...widgets, name }));
  if (!w && bug === 'cross-namespace') await deleteLog(name);
  if (!w) return;
  const guarded = w.metadata.finalizers?.includes(finalizer);
  if (w.metadata.deletionTimestamp) {
    if (!guarded) return;
    const gone = await deleteLog(name);
    if (bug === 'finalizer' && !gone) return;
    await setFinalizers(w, []);
    return;
  }
  if (['status-first', 'generate-name', 'stale-cache'].includes(bug)) {
    if (w.status?.phase === 'Ready') return;
  }
  if (bug === 'status-first') w = await status(w, { phase: 'Ready' });
  if (bug === 'hot-loop' && memory.has('conflict')) {
    await status(w, { looks: (w.status?.looks ?? 0) + 1 });
    again(name, 5);
    return;
  }
  if (!guarded && !['event-only', 'intermediate', 'cross-namespace'].includes(bug)) {
    await setFinalizers(w, [finalizer]);
    return;
  }
  await configMap(w);
  if (bug !== 'intermediate') await log(w);
  const fresh = randomBytes(15).toString('base64');
  if (bug === 'password' && !w.status?.password) w = await status(w, { password: fresh });
  const { password } = (await secret(w, fresh)).data;
  await status(w, bug === 'password' ? { phase: 'Ready' } : { phase: 'Ready', password });
}

// The queue: at most one reconcile of a name at a time, and one more after events in between.
const queued = new Set();
const running = new Set();
const failures = new Map();

function again(name, milliseconds) {
  setTimeout(() => { queued.add(name); work(); }, milliseconds);
}

async function one(name) {
  try {
    await reconcile(name);
    failures.delete(name);
  } catch (error) {
    console.error(name, error.code ?? error.message);
    if (error.code === 409 && bug === 'hot-loop') memory.set('conflict', true);
    if (error.code === 500 && bug === 'right') {
      await unless([403], core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: `widget=${name}` }))
        .catch(() => {});
    }
    const n = failures.get(name) ?? 0;
    failures.set(name, n + 1);
    again(name, Math.min(50 * 2 ** n, 1000));
  }
}

function work() {
  for (const name of queued) {
    if (running.has(name)) continue;
    queued.delete(name);
    running.add(name);
    one(name).finally(() => { running.delete(name); work(); });
  }
}

function follow(path, list, enqueue, events) {
  const informer = makeInformer(config, path, list);
  for (const event of events) informer.on(event, enqueue);
  informer.on('error', () => setTimeout(() => informer.start(), 100));
  informer.start();
  return informer;
}

if (bug === 'stale-list') await sweep();
const enqueue = (name) => { if (name) { queued.add(name); work(); } };
const ofChild = (o) => enqueue(o.metadata.labels?.widget);
const all = ['add', 'update', 'delete'];
const parents = follow('/apis/example.com/v1/namespaces/default/widgets',
  () => custom.listNamespacedCustomObject(widgets), (w) => enqueue(w.metadata.name),
  bug === 'intermediate' ? ['add'] : all);
if (bug === 'event-only') {
  parents.on('delete', (w) => {
    deleteLog(w.metadata.name).catch(console.error);
  });
}
if (bug !== 'intermediate') {
  follow('/api/v1/namespaces/default/configmaps', () => core.listNamespacedConfigMap({ namespace }), ofChild, all);
  follow('/api/v1/namespaces/default/secrets', () => core.listNamespacedSecret({ namespace }), ofChild, all);
}
