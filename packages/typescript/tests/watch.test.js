// Tests of the watch against a real server: what a consumer receives, whatever is killed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { KeepwatchError, watch } from 'keepwatch';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';

const namespace = 'default';
const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);

let folder, state;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keepwatch-test-'));
  state = join(folder, 'state');
  process.env.KUBECACHEDIR = join(folder, 'cache');
});
afterEach(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }));

const create = (app, name, data) =>
  core.createNamespacedConfigMap({ namespace, body: { metadata: { name, labels: { app } }, data } });
const remove = (name) => core.deleteNamespacedConfigMap({ namespace, name });
const nameOf = (event) => ('object' in event ? `${event.type} ${event.object.metadata.name}` : event.type);
const all = async (events) => {
  const names = [];
  for await (const event of events) names.push(nameOf(event));
  return names;
};

test('events', async () => {
  await create('events', 'events-a', { text: '1' });
  const events = watch('configmaps', ['-l', 'app=events']);
  const { value: added } = await events.next();
  expect(nameOf(added)).toBe('ADDED events-a');
  expect(added).toMatchObject({ id: `${added.object.metadata.uid}/${added.revision}`, resource: 'configmaps' });
  expect((await events.next()).value).toMatchObject({ type: 'SYNCED', count: 1 });
  await remove('events-a');
  expect(nameOf((await events.next()).value)).toBe('DELETED events-a');
  const pending = events.next();
  await events.close();
  expect(await pending).toEqual({ value: undefined, done: true });
  expect(await events.next()).toEqual({ value: undefined, done: true });
});

test('several types', async () => {
  const events = [];
  for await (const event of watch('configmaps,pods', ['-l', 'app=none', '--until-synced'])) events.push(event);
  expect(events).toMatchObject([{ type: 'SYNCED', count: 0, resources: ['configmaps', 'pods'] }]);
});

test('what was not acknowledged comes again', async () => {
  await create('again', 'again-a');
  const ids = [];
  for (let i = 0; i < 3; i++) {
    for await (const event of watch('configmaps', ['-l', 'app=again'], { state })) {
      ids.push(event.id);
      break;
    }
  }
  expect(new Set(ids).size).toBe(1);
  const events = watch('configmaps', ['-l', 'app=again'], { state });
  expect([nameOf((await events.next()).value), nameOf((await events.next()).value)]).toEqual([
    'ADDED again-a',
    'SYNCED',
  ]);
  events.acknowledge();
  await events.close();
  await remove('again-a');
  const rest = () => all(watch('configmaps', ['-l', 'app=again', '--until-synced'], { state }));
  expect(await rest()).toEqual(['DELETED again-a', 'SYNCED']);
  expect(await rest()).toEqual(['SYNCED']);
});

test('errors', async () => {
  const failure = (resources, flags, options) => all(watch(resources, flags, options)).catch((error) => error);
  const unknown = await failure('nonsense');
  expect(unknown).toBeInstanceOf(KeepwatchError);
  expect(unknown).toMatchObject({
    code: 1,
    message: expect.stringContaining(`doesn't have a resource type "nonsense"`),
  });
  expect(await failure('pods', ['--nonsense'])).toMatchObject({ code: 2, message: 'unknown flag: --nonsense' });
  const json = await failure('nonsense', ['--log-format', 'json']);
  expect(json.message).toMatch(/^{.*doesn't have a resource type/);
  const events = watch('configmaps', ['-l', 'app=errors'], { state });
  await events.next();
  const second = await failure('configmaps', ['-l', 'app=errors'], { state });
  expect(second.message).toContain('is in use by another keepwatch');
  await events.close();
});

test('texts, and a line of more than 1 MiB', async () => {
  const data = { text: 'line\nline\r\n\u2028\u2029\x85 "\'\\ 猫 🐈', large: 'é'.repeat(500_000) };
  await create('texts', 'texts', data);
  for await (const event of watch('configmaps', ['-l', 'app=texts'])) {
    expect(event.object.data).toEqual(data);
    break;
  }
});

test('closing ends a program that is writing', async () => {
  for (let i = 0; i < 40; i++) await create('close', `close-${i}`, { large: 'x'.repeat(100_000) });
  const log = [];
  const events = watch('configmaps', ['-l', 'app=close'], { state, log: (line) => log.push(line) });
  await events.next();
  await events.close();
  const names = await all(watch('configmaps', ['-l', 'app=close', '--until-synced'], { state }));
  expect(names).toHaveLength(41);
  expect(log).toEqual([]);
});

test('a consumer that is killed again and again loses nothing', async () => {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 32));
  console.log('SEED =', seed);
  const draw = random(seed);
  const handled = join(folder, 'handled');
  const handledEvents = () => {
    const seen = new Map();
    for (const line of existsSync(handled) ? readFileSync(handled, 'utf8').split('\n').slice(0, -1) : []) {
      const [type, name, id] = line.split(' ');
      if (id && !seen.has(id)) seen.set(id, `${type} ${name}`);
    }
    return [...seen.values()];
  };
  await all(watch('configmaps', ['-l', 'app=killed', '--until-synced'], { state })); // from here on every event counts
  const start = () => {
    const consumer = spawn('node', ['consumer.js', state, handled], { stdio: ['ignore', 'inherit', 'ignore'] });
    consumer.ended = once(consumer, 'exit');
    return consumer;
  };
  let consumer = start();
  onTestFinished(() => void consumer.kill('SIGKILL'));
  const want = [];
  const alive = [];
  for (let step = 0; step < 200; step++) {
    if (draw() < 0.6 || alive.length === 0) {
      alive.push(`killed-${step}`);
      await create('killed', `killed-${step}`, { large: 'x'.repeat(draw() < 0.3 ? 100_000 : 0) });
      want.push(`ADDED killed-${step}`);
    } else {
      const [gone] = alive.splice(Math.floor(draw() * alive.length), 1);
      await remove(gone);
      want.push(`DELETED ${gone}`);
    }
    if (draw() < 0.08) {
      const before = handledEvents().length;
      // It is killed while it handles these.
      for (let i = 0; i < 5; i++) {
        alive.push(`killed-${step}-${i}`);
        await create('killed', `killed-${step}-${i}`);
        want.push(`ADDED killed-${step}-${i}`);
      }
      await vi.waitFor(
        () => {
          if (consumer.exitCode !== null) consumer = start(); // the program before had not ended yet
          expect(handledEvents().length).toBeGreaterThan(before);
        },
        { timeout: 250_000, interval: 5 },
      );
      await setTimeout(120 * draw()); // a random moment, on purpose
      consumer.kill('SIGKILL');
      await consumer.ended;
      consumer = start();
    }
    if (consumer.exitCode !== null) consumer = start();
  }
  await vi.waitFor(
    () => {
      if (consumer.exitCode !== null) consumer = start();
      expect(handledEvents()).toEqual(want);
    },
    { timeout: 250_000, interval: 100 },
  );
  consumer.kill('SIGKILL');
  await consumer.ended;
});

// random returns numbers between 0 and 1 (mulberry32).
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
