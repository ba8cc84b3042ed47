// The types, as users see them: tsc checks this file.
import type { V1Pod } from '@kubernetes/client-node';
import { type Event, startServer, watch } from 'keepwatch';

export async function phases(): Promise<string[]> {
  const phases: string[] = [];
  for await (const event of watch<V1Pod>('pods', ['-A'], { state: 'pods.state' })) {
    if (event.type === 'SYNCED') phases.push(`${event.count} at ${event.revision}`);
    else if (event.type === 'GAP') phases.push(event.reason);
    else if (event.type !== 'BOOKMARK') phases.push(event.object.status?.phase ?? event.id);
  }
  return phases;
}

export const names = (event: Event): string | undefined =>
  'object' in event ? event.object.metadata?.name : undefined;

// @ts-expect-error: a gap has no object
export const wrong = (event: Event): unknown => event.object;

export const kubeconfig = async (): Promise<string> => (await startServer(['--simulate'])).kubeconfig;
