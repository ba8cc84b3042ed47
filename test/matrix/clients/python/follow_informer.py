"""Follows the ConfigMaps of a namespace with kubernetes.informer.SharedInformer.

    follow_informer.py KUBECONFIG NAMESPACE
"""

import logging
import sys
import threading

from kubernetes import client, config
from kubernetes.informer import ADDED, DELETED, ERROR, MODIFIED, SharedInformer

import report


def main(kubeconfig, namespace):
    logging.basicConfig(level=logging.CRITICAL)  # it logs a stack for each refused connection
    config.load_kube_config(kubeconfig)
    serializer = client.ApiClient()
    informer = SharedInformer(client.CoreV1Api().list_namespaced_config_map, namespace=namespace)
    for type in (ADDED, MODIFIED, DELETED):
        informer.add_event_handler(type, lambda o, type=type: report.event(
            type, serializer.sanitize_for_serialization(o)['metadata']))
    informer.add_event_handler(ERROR, report.error)
    informer.start()
    threading.Event().wait()


main(*sys.argv[1:])
