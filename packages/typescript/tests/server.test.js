// Tests with the server of keepwatch/vitest, as users write them, and of what it promises.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
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

test('a program of the working directory is not the one on the PATH', async () => {
  const here = await mkdtemp(join(process.cwd(), 'keepwatch-test-'));
  const other = await mkdtemp(join(tmpdir(), 'keepwatch-test-'));
  for (const folder of [here, other]) {
    await writeFile(join(folder, 'mine'), "#!/bin/sh\necho 'keepwatch v0.1.0 (go1.26.8, linux/amd64)'\n");
    await chmod(join(folder, 'mine'), 0o755);
  }
  const code = `
    import { findProgram } from 'keepwatch';
    console.log(await findProgram(process.argv[1]));`;
  const found = async (wanted, path) => {
    const env = { ...process.env, PATH: `${path}:${process.env.PATH}` };
    const node = spawn(process.execPath, ['--input-type=module', '-e', code, wanted], {
      cwd: here,
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return String((await once(node.stdout, 'data'))[0]).trim();
  };
  expect(await found('./mine', other)).toBe(join(here, 'mine'));
  expect(await found(`../${relative(process.cwd(), here)}/mine`, other)).toBe(join(here, 'mine'));
  expect(await found('mine', `:${other}`)).toBe(join(here, 'mine')); // an empty element is the working directory
  await rm(here, { recursive: true });
  await rm(other, { recursive: true });
});

test.each(['123456', 'true', "it's"])('the token %s, which YAML may quote', async (token) => {
  const server = await startServer(['--token', token]);
  expect(server.token).toBe(token);
  await server.stop();
});

function accepts(url) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname, () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}
