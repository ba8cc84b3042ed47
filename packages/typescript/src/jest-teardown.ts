// The global teardown of jest: globalTeardown: 'keepwatch/jest-teardown'.
import { jestSetup } from './setup.js';

export default jestSetup.teardown;
