// KEEPWATCH=bin/keepwatch npx vitest run --root examples/testing/vitest
import { CoreV1Api, Watch } from '@kubernetes/client-node';
import { expect } from 'vitest';
import { test } from './keepwatch.js';

const namespace = 'default';

test('an old version cannot replace a newer one', async ({ server }) => {
  const core = server.makeApiClient(CoreV1Api);
  const first = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'a' }, data: { k: '1' } } });
  await core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...first, data: { k: '2' } } });
  const late = core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...first, data: { k: '3' } } });
  await expect(late).rejects.toMatchObject({ code: 409 });
});

test('a watch receives a deletion', async ({ server, onTestFinished }) => {
  const core = server.makeApiClient(CoreV1Api);
  const { metadata } = await core.listNamespacedConfigMap({ namespace });
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'b' } } });
  await core.deleteNamespacedConfigMap({ namespace, name: 'b' });
  const events = [];
  const request = await new Watch(server).watch(
    `/api/v1/namespaces/${namespace}/configmaps`,
    { resourceVersion: metadata.resourceVersion, fieldSelector: 'metadata.name=b' },
    (type, object) => events.push([type, object.metadata.name]),
    () => {},
  );
  onTestFinished(() => request.abort());
  await expect.poll(() => events).toEqual([['ADDED', 'b'], ['DELETED', 'b']]);
});
