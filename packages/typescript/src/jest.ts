// A global setup of jest, globalSetup: 'keepwatch/jest'. It starts a server for all tests; KUBECONFIG refers to it.
import { jestSetup } from './setup.js';

export { globalSetup } from './setup.js';
export default jestSetup.setup;
