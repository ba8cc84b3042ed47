// Follows the ConfigMaps of a namespace with the informer of @kubernetes/client-node. As
// its documentation shows, an error starts it again five seconds later. Each event is a
// line of JSON.
//
//	node follow.mjs KUBECONFIG NAMESPACE
import { KubeConfig, CoreV1Api, makeInformer } from '@kubernetes/client-node';

const [file, namespace] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(file);
const api = config.makeApiClient(CoreV1Api);

const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () =>
  api.listNamespacedConfigMap({ namespace }),
);
const report = (type) => ({ metadata: m }) => {
  console.log(JSON.stringify({ type, name: m.name, uid: m.uid, revision: m.resourceVersion }));
};
informer.on('add', report('ADDED'));
informer.on('update', report('MODIFIED'));
informer.on('delete', report('DELETED'));
informer.on('error', (err) => {
  console.log(JSON.stringify({ type: 'ERROR', message: String(err) }));
  setTimeout(() => informer.start(), 5000);
});
informer.start();
