// A global setup of vitest, globalSetup: 'keepwatch/vitest'. It starts a server for all tests; KUBECONFIG refers to it.
import { globalSetup } from './setup.js';

export { globalSetup };
export const { setup, teardown } = globalSetup();
