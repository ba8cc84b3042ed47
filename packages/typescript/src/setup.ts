// The setup of test runners that begin with a function and end with another one.
import { type Server, startServer } from './server.js';

/**
 * Returns a setup that starts a server with these flags and sets KUBECONFIG, which the processes of tests inherit, and
 * the teardown that ends the server. For other flags than none, name a file of yours as the setup:
 *
 *     export const { setup, teardown } = globalSetup(['--simulate']);
 */
export function globalSetup(flags: string[] = []): { setup: () => Promise<void>; teardown: () => Promise<void> } {
  let server: Server | undefined;
  let before: string | undefined;
  return {
    async setup() {
      server = await startServer(flags);
      before = process.env['KUBECONFIG'];
      process.env['KUBECONFIG'] = server.kubeconfig;
    },
    async teardown() {
      await server?.stop();
      if (before === undefined) delete process.env['KUBECONFIG'];
      else process.env['KUBECONFIG'] = before;
    },
  };
}

/** The server of keepwatch/jest and keepwatch/jest-teardown, which jest loads as two modules. */
export const jestSetup = globalSetup();
