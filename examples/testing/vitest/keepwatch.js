// A Kubernetes API server for tests, as a fixture: keepwatch serve, with its data in memory.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { KubeConfig } from '@kubernetes/client-node';
import { test as base } from 'vitest';

export const test = base.extend({
  // The client configuration of a server that all tests of a file share.
  server: [
    async ({}, use) => {
      const folder = await mkdtemp(join(tmpdir(), 'keepwatch-'));
      const path = join(folder, 'kubeconfig');
      const process = spawn(globalThis.process.env.KEEPWATCH ?? 'keepwatch', ['serve', '--listen', '127.0.0.1:0', '--kubeconfig-out', path], {
        stdio: ['ignore', 'ignore', 'inherit'],
      });
      const ended = once(process, 'exit');
      try {
        while (!existsSync(path)) { // the server writes it when it is ready
          await Promise.race([setTimeout(10), ended]);
          if (process.exitCode !== null) throw new Error(`keepwatch serve ended with ${process.exitCode}`);
        }
        const config = new KubeConfig();
        config.loadFromFile(path);
        await use(config);
      } finally {
        process.kill('SIGTERM');
        await ended;
        await rm(folder, { recursive: true });
      }
    },
    { scope: 'file' },
  ],
});
