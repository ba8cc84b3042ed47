// Runs an operator of Widgets with @kubernetes/client-node: each has a ConfigMap with its size.
//
//	KUBECONFIG=FILE node widgets.mjs
import { CoreV1Api, CustomObjectsApi, KubeConfig, makeInformer } from '@kubernetes/client-node';

const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);
const custom = config.makeApiClient(CustomObjectsApi);
const namespace = 'default';

async function reconcile(widget) {
  const { name, uid } = widget.metadata;
  const body = {
    metadata: { name, ownerReferences: [{ apiVersion: 'example.com/v1', kind: 'Widget', name, uid }] },
    data: { size: String(widget.spec.size) },
  };
  try {
    await core.createNamespacedConfigMap({ namespace, body });
  } catch (error) {
    if (error.code !== 409) throw error;
    await core.replaceNamespacedConfigMap({ name, namespace, body });
  }
}

// changed tries until it succeeds.
function changed(widget) {
  reconcile(widget).catch((error) => {
    console.error(widget.metadata.name, error.code ?? error.message);
    setTimeout(changed, 500, widget);
  });
}

const informer = makeInformer(config, '/apis/example.com/v1/namespaces/default/widgets',
  () => custom.listNamespacedCustomObject({ group: 'example.com', version: 'v1', namespace, plural: 'widgets' }));
informer.on('add', changed);
informer.on('update', changed);
informer.on('error', (error) => { // as its documentation says
  console.error(error?.message ?? error);
  setTimeout(() => informer.start(), 500);
});
informer.start();
