// KEEPWATCH=bin/keepwatch node --test examples/testing/javascript
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CoreV1Api, Watch } from '@kubernetes/client-node';
import { start } from './keepwatch.js';

let server, core;
const namespace = 'default';

before(async () => {
  server = await start();
  core = server.config.makeApiClient(CoreV1Api);
});
after(() => server?.stop());

test('an old version cannot replace a newer one', async () => {
  const first = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'a' }, data: { k: '1' } } });
  await core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...first, data: { k: '2' } } });
  await assert.rejects(core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...first, data: { k: '3' } } }), { code: 409 });
});

test('a watch receives a deletion', async () => {
  const { metadata } = await core.listNamespacedConfigMap({ namespace });
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'b' } } });
  await core.deleteNamespacedConfigMap({ namespace, name: 'b' });
  const events = [];
  await new Promise((resolve, reject) => {
    new Watch(server.config)
      .watch(
        `/api/v1/namespaces/${namespace}/configmaps`,
        { resourceVersion: metadata.resourceVersion, fieldSelector: 'metadata.name=b' },
        (type, object) => {
          events.push([type, object.metadata.name]);
          if (type === 'DELETED') resolve();
        },
        reject,
      )
      .then((request) => after(() => request.abort()));
  });
  assert.deepEqual(events, [
    ['ADDED', 'b'],
    ['DELETED', 'b'],
  ]);
});
