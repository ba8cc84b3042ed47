"""The operator of ../main.go with kopf: each Widget gets a ConfigMap.

    keepwatch judge --crds examples/widgets.yaml --workload examples/judge/workload -- python examples/judge/python/widgets.py

The server generates the ConfigMap's name: if the answer is lost, or the process dies before kopf has stored the result, a
second one is created. With --fixed, the name is the Widget's, and creating it again does no harm.
"""

import sys

import kopf
import kubernetes

FIXED = '--fixed' in sys.argv


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False


@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.create('example.com', 'v1', 'widgets', backoff=1)
def adopt(name, namespace, **_):
    child = {'metadata': {'generateName': f'{name}-'}}
    if FIXED:
        child = {'metadata': {'name': name}}
    kopf.adopt(child)
    try:
        maps.create_namespaced_config_map(namespace, child)
    except kubernetes.client.ApiException as error:
        if not (FIXED and error.status == 409):
            raise


kubernetes.config.load_kube_config()
maps = kubernetes.client.CoreV1Api()
kopf.configure()
kopf.run(standalone=True, clusterwide=True)
