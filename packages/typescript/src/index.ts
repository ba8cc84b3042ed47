export { KeepwatchError, findProgram, version } from './program.js';
export { type Server, type ServerOptions, startServer } from './server.js';
export {
  type Bookmark,
  type Change,
  type Event,
  type Gap,
  type KubernetesObject,
  type Synced,
  Watch,
  type WatchOptions,
  watch,
} from './watch.js';
