// A setup with flags, after that of keepwatch/vitest: KUBECONFIG refers to the newer server.
import { globalSetup } from 'keepwatch/vitest';

export const { setup, teardown } = globalSetup(['--simulate']);
