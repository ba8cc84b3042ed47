// An iterator of the changes of Kubernetes objects: keepwatch watch, as a process.
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { KeepwatchError, findProgram } from './program.js';

/** What all objects have. Give watch the type of yours, as that of @kubernetes/client-node: watch<V1Pod>('pods'). */
export interface KubernetesObject {
  apiVersion?: string;
  kind?: string;
  metadata?: {
    name?: string;
    namespace?: string;
    uid?: string;
    resourceVersion?: string;
    labels?: { [name: string]: string };
    annotations?: { [name: string]: string };
  };
}

/** An object was added, modified or deleted. The id is the same in every repetition of an event. */
export interface Change<T = KubernetesObject> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  revision: string;
  id: string;
  resource: string;
  /** Of a deletion within a gap: apiVersion, kind and metadata only. */
  object: T;
}

/** The events so far add up to the state at this revision, of count objects. */
export interface Synced {
  type: 'SYNCED';
  revision: string;
  count: number;
  /** The types that are complete. */
  resources?: string[];
}

/** The history between two revisions is lost; the events up to the next SYNCED are the difference. */
export interface Gap {
  type: 'GAP';
  from: string;
  to: string;
  reason: 'expired' | 'downtime' | 'rewind';
  /** The type whose history is lost. */
  resource?: string;
}

/** Everything up to this revision was delivered. Only with the flag --bookmarks. */
export interface Bookmark {
  type: 'BOOKMARK';
  revision: string;
  resources?: string[];
}

export type Event<T = KubernetesObject> = Change<T> | Synced | Gap | Bookmark;

const types = new Set(['ADDED', 'MODIFIED', 'DELETED', 'SYNCED', 'GAP', 'BOOKMARK']);

export interface WatchOptions {
  /** The folder of the cursor: the watch resumes where the last one with it ended. */
  state?: string;
  /** The path of the program. */
  program?: string;
  /** Receives the program's messages, such as one for each reconnect. */
  log?: (message: string) => void;
}

/**
 * Watches types as the command line does:
 *
 *     watch('pods,deployments.apps', ['-A', '-l', 'app=web'], { state: 'web.state' })
 *
 * With a state, the watch resumes where the last one ended. An event counts as handled when the next one is requested,
 * or by acknowledge. Whatever is killed in between, this process or keepwatch, an event that was not handled comes
 * again, with the same id; so do handled ones of the same batch. What was deleted meanwhile comes as DELETED. A loop
 * that is left ends the program; the event at which it is left was not handled, unless it was acknowledged.
 */
export function watch<T = KubernetesObject>(
  resources: string,
  flags: string[] = [],
  options: WatchOptions = {},
): Watch<T> {
  return new Watch<T>(resources, flags, options);
}

type Program = ChildProcessByStdio<Writable, Readable, Readable>;

/** Yields events until the program ends. Rejects with a KeepwatchError if it ends with an error. See watch. */
export class Watch<T = KubernetesObject> implements AsyncIterableIterator<Event<T>> {
  readonly #events: AsyncGenerator<Event<T>, undefined>;
  #program: Program | undefined;
  #ended: Promise<unknown> | undefined;
  #closed = false;
  #unacknowledged = 0;
  #lastMessage = '';

  constructor(resources: string, flags: string[], options: WatchOptions) {
    this.#events = this.#follow(resources, flags, options);
  }

  /** Acknowledges the last event, and waits for the next one. */
  next(): Promise<IteratorResult<Event<T>, undefined>> {
    return this.#events.next();
  }

  /** Marks the last event as handled, before the next one is requested: for a consumer that ends after it. */
  acknowledge(): void {
    if (this.#unacknowledged > 0) this.#program?.stdin.write('\n'.repeat(this.#unacknowledged));
    this.#unacknowledged = 0;
  }

  /** Ends the program. An event that was not acknowledged comes again in the next watch with this state. */
  async close(): Promise<void> {
    this.#closed = true;
    const program = this.#program;
    if (!program) return;
    program.stdin.end();
    const kill = setTimeout(() => program.kill('SIGKILL'), 30_000);
    await this.#ended;
    clearTimeout(kill);
    program.stdout.destroy();
    program.stderr.destroy();
  }

  async return(): Promise<IteratorResult<Event<T>, undefined>> {
    await this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async *#follow(resources: string, flags: string[], options: WatchOptions): AsyncGenerator<Event<T>, undefined> {
    const command = ['watch', resources, ...flags, '--acknowledge'];
    if (options.state !== undefined) command.push('--state', options.state);
    const path = await findProgram(options.program);
    if (this.#closed) return;
    // A session of its own: an interrupt at the terminal is for the consumer, whose end ends the program.
    const program: Program = spawn(path, command, { stdio: ['pipe', 'pipe', 'pipe'], detached: true });
    this.#program = program;
    this.#ended = once(program, 'exit').catch(() => {}); // it rejects if the program cannot be started
    program.stdin.on('error', () => {}); // the program has ended: its exit code shows why
    const messages = this.#readMessages(program.stderr, options.log ?? (() => {}));
    try {
      for await (const line of lines(program.stdout)) {
        if (this.#closed) return;
        this.#unacknowledged++;
        const event = JSON.parse(line.toString()) as Event<T>;
        if (types.has(event.type)) yield event; // a later version may have more types
        this.acknowledge();
      }
      await this.#ended;
      // A program that was killed may leave a credential plugin, which has stderr, too, as long as it runs.
      let timer: NodeJS.Timeout | undefined;
      await Promise.race([messages, new Promise((resolve) => (timer = setTimeout(resolve, 5_000)))]);
      clearTimeout(timer);
    } catch (error) {
      if (this.#closed) return; // stdout was destroyed
      await this.close();
      throw error;
    }
    if (this.#closed) return;
    this.#closed = true;
    program.stderr.destroy();
    if (program.signalCode) {
      throw new KeepwatchError(`keepwatch watch was killed by ${program.signalCode}`, program.signalCode);
    }
    if (program.exitCode !== 0) {
      const message = this.#lastMessage || `keepwatch watch has ended with exit code ${program.exitCode}`;
      throw new KeepwatchError(message, program.exitCode ?? undefined);
    }
    return undefined;
  }

  async #readMessages(stderr: Readable, log: (message: string) => void): Promise<void> {
    try {
      for await (const line of lines(stderr)) {
        const text = line.toString();
        if (!text.startsWith("See 'keepwatch ")) this.#lastMessage = text.replace(/^keepwatch: /, ''); // not of usage
        log(text);
      }
    } catch (error) {
      if (!this.#closed) throw error;
    }
  }
}

// lines divides a stream at its line feeds only: readline also divides at U+2028, which JSON may contain. A last line
// that is cut off is dropped; its event comes again.
async function* lines(stream: Readable): AsyncGenerator<Buffer> {
  let begin: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
      const rest = chunk.subarray(from, end);
      yield begin.length > 0 ? Buffer.concat([...begin, rest]) : rest;
      begin = [];
      from = end + 1;
    }
    if (from < chunk.length) begin.push(chunk.subarray(from));
  }
}
