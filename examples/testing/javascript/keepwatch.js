// A Kubernetes API server for tests: keepwatch serve, with its data in memory.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KubeConfig } from '@kubernetes/client-node';

// start starts a server. It returns the client configuration, and stop, which ends the server.
export async function start() {
  const folder = await mkdtemp(join(tmpdir(), 'keepwatch-'));
  const kubeconfig = join(folder, 'kubeconfig');
  const server = spawn(process.env.KEEPWATCH ?? 'keepwatch', ['serve', '--listen', '127.0.0.1:0', '--kubeconfig-out', kubeconfig], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = once(server, 'exit');
  const stop = async () => {
    server.kill('SIGTERM');
    await ended;
    await rm(folder, { recursive: true });
  };
  let log = '';
  const ready = new Promise((resolve) => {
    server.stderr.on('data', (text) => {
      log += text;
      if (log.includes('keepwatch: ready')) resolve('ready');
    });
  });
  if ((await Promise.race([ready, ended])) !== 'ready') {
    await rm(folder, { recursive: true });
    throw new Error(log);
  }
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  return { config, stop };
}
