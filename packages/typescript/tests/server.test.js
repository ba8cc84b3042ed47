// Tests with the server of keepwatch/vitest, as users write them, and of what it promises.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { findProgram, startServer } from 'keepwatch';
import { expect, test, vi } from 'vitest';

const namespace = 'default';

test('an old version cannot replace a newer one', async () => {
  const config = new KubeConfig();
  config.loadFromDefault(); // KUBECONFIG
  const core = config.makeApiClient(CoreV1Api);
  const first = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'a' } } });
  await core.replaceNamespacedConfigMap({ namespace, name: 'a', body: { ...first, data: { k: '1' } } });
  const late = core.replaceNamespacedConfigMap({ namespace, name: 'a', body: first });
  await expect(late).rejects.toMatchObject({ code: 409 });
});

test('the server has the flags of setup.js', async () => {
  const config = new KubeConfig();
  config.loadFromDefault();
  const nodes = await config.makeApiClient(CoreV1Api).listNode();
  expect(nodes.items.map((node) => node.metadata.name)).toEqual(['node-1']);
});

test('a server stops', async () => {
  const server = await startServer(['--simulate']);
  expect(server.token).toMatch(/^\w+$/);
  expect(server.certificateAuthority).toContain('BEGIN CERTIFICATE');
  expect(await accepts(server.url)).toBe(true);
  await server.stop();
  expect(await accepts(server.url)).toBe(false);
  expect(existsSync(server.kubeconfig)).toBe(false);
});

test('a wrong flag', async () => {
  await expect(startServer(['--nonsense'])).rejects.toThrow('unknown flag: --nonsense');
});

test('the server of a killed process ends', async () => {
  const code = `
    import { startServer } from 'keepwatch';
    console.log((await startServer()).url);
    setInterval(() => {}, 1e6);`;
  const process = spawn('node', ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  const url = String((await once(process.stdout, 'data'))[0]).trim();
  expect(await accepts(url)).toBe(true);
  process.kill('SIGKILL');
  await vi.waitFor(async () => expect(await accepts(url)).toBe(false), { timeout: 300_000 });
});

test('a program of another version, no keepwatch, and none', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'keepwatch-test-'));
  const program = async (name, text) => {
    await writeFile(join(folder, name), `#!/bin/sh\necho '${text}'\n`);
    await chmod(join(folder, name), 0o755);
    return findProgram(join(folder, name));
  };
  await expect(program('same', 'keepwatch v0.1.9 (go1.26.8, linux/amd64)')).resolves.toBe(join(folder, 'same'));
  await expect(program('built', 'keepwatch v0.1.0-3-g0123456 (go1.26.8, linux/amd64)')).resolves.toBe(
    join(folder, 'built'),
  );
  await expect(program('newer', 'keepwatch v0.2.0 (go1.26.8, linux/amd64)')).rejects.toThrow(
    'is keepwatch v0.2.0, but this package is made for v0.1: install keepwatch v0.1, or version 0.2 of the package',
  );
  await expect(program('other', 'watchkeeper')).rejects.toThrow('is not keepwatch');
  await expect(findProgram(join(folder, 'none'))).rejects.toThrow('is no program: install keepwatch v0.1');
  await rm(folder, { recursive: true });
});

function accepts(url) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname, () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}
