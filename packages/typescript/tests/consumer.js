// A consumer that a test kills: node consumer.js STATE HANDLED. It writes a line for each handled change.
import { appendFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { watch } from 'keepwatch';

const [state, handled] = process.argv.slice(2);
for await (const event of watch('configmaps', ['-l', 'app=killed', '--chunk-size=7'], { state })) {
  if (!('object' in event)) continue;
  await setTimeout(20);
  appendFileSync(handled, `${event.type} ${event.object.metadata.name} ${event.id}\n`);
}
