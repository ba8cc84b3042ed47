// A Kubernetes API server for tests: keepwatch serve, as a process, with its data in memory.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { KeepwatchError, findProgram } from './program.js';

export interface Server {
  /** https://127.0.0.1:PORT */
  readonly url: string;
  /** The administrator's bearer token. */
  readonly token: string;
  /** The path of a file. */
  readonly kubeconfig: string;
  /** PEM */
  readonly certificateAuthority: string;
  /** Ends the server, whose data are gone then. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ServerOptions {
  /** The path of the program. */
  program?: string;
}

/**
 * Starts a server on a free port of 127.0.0.1, and resolves when it is ready. Flags are those of keepwatch serve. The
 * server also ends when this process ends, however it ends.
 */
export async function startServer(flags: string[] = [], options: ServerOptions = {}): Promise<Server> {
  const path = await findProgram(options.program);
  const folder = await mkdtemp(join(tmpdir(), 'keepwatch-'));
  const kubeconfig = join(folder, 'kubeconfig');
  const log = await open(join(folder, 'log'), 'w+');
  const fixed = ['serve', '--listen', '127.0.0.1:0', '--kubeconfig-out', kubeconfig, '--end-with-parent'];
  // A session of its own: after an interrupt at the terminal, tests still clean up on the server.
  const server = spawn(path, [...fixed, ...flags], { stdio: ['ignore', log.fd, log.fd], detached: true });
  const ended = once(server, 'exit').catch(() => {}); // it rejects if the program cannot be started
  const stop = async () => {
    server.kill('SIGTERM');
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    while (!existsSync(kubeconfig)) {
      // the server writes it when it is ready
      await Promise.race([setTimeout(10), ended]);
      if (server.exitCode !== null || server.signalCode || !server.pid) {
        const text = await readFile(join(folder, 'log'), 'utf8');
        throw new KeepwatchError(
          `keepwatch serve has ended: ${text.trim()}`,
          server.exitCode ?? server.signalCode ?? undefined,
        );
      }
    }
    const text = await readFile(kubeconfig, 'utf8');
    const certificateAuthority = Buffer.from(field(text, 'certificate-authority-data'), 'base64').toString();
    return {
      url: field(text, 'server'),
      token: field(text, 'token'),
      kubeconfig,
      certificateAuthority,
      stop,
      [Symbol.asyncDispose]: stop,
    };
  } catch (error) {
    await stop();
    throw error;
  } finally {
    await log.close();
  }
}

// field returns a field of the kubeconfig that the server writes, which has one cluster and one user.
function field(kubeconfig: string, name: string): string {
  const value = new RegExp(`^[ -]*${name}: (\\S+)$`, 'm').exec(kubeconfig)?.[1];
  if (!value) throw new KeepwatchError(`the kubeconfig of keepwatch serve has no ${name}`);
  if (value.startsWith('"')) return JSON.parse(value) as string; // what would be a number, for example
  return value.startsWith("'") ? value.slice(1, -1).replaceAll("''", "'") : value;
}
