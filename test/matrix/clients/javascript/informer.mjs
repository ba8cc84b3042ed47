// Runs the informer of @kubernetes/client-node on the pods of a namespace, as its
// documentation shows: an error starts it again. For each line on stdin it prints
// its cache, and the fold of its events.
//
//	node informer.mjs KUBECONFIG NAMESPACE
import * as readline from 'node:readline';
import { KubeConfig, CoreV1Api, makeInformer } from '@kubernetes/client-node';

const [file, namespace] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(file);
const api = config.makeApiClient(CoreV1Api);

const state = (o) => `${o.metadata.uid}/${o.metadata.resourceVersion}`;
const folded = {};
let errors = 0;

const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/pods`, () =>
  api.listNamespacedPod({ namespace }),
);
informer.on('add', (o) => { folded[o.metadata.name] = state(o); });
informer.on('update', (o) => { folded[o.metadata.name] = state(o); });
informer.on('delete', (o) => { delete folded[o.metadata.name]; });
informer.on('error', (err) => {
  errors++;
  console.error(String(err));
  setTimeout(() => informer.start(), 100);
});
informer.start();

readline.createInterface({ input: process.stdin })
  .on('line', () => {
    const held = Object.fromEntries(informer.list(namespace).map((o) => [o.metadata.name, state(o)]));
    console.log(JSON.stringify({ held, folded, errors }));
  })
  .on('close', () => process.exit(0));
