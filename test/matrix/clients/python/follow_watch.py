"""Follows the ConfigMaps of a namespace with kubernetes.watch.Watch.

    follow_watch.py KUBECONFIG NAMESPACE

It does what Watch.stream documents: it lists, watches from the list's revision, and lists
again after an ApiException of code 410. A connection that fails is tried again after a
second. Any other ApiException ends the process, as it ends a program that does no more.
"""

import sys
import time

import urllib3
from kubernetes import client, config, watch

import report


def main(kubeconfig, namespace):
    config.load_kube_config(kubeconfig)
    api = client.CoreV1Api()
    serializer = client.ApiClient()
    revision = None
    while True:
        try:
            if revision is None:
                listing = api.list_namespaced_config_map(namespace)
                report.listed([serializer.sanitize_for_serialization(o) for o in listing.items])
                revision = listing.metadata.resource_version
            w = watch.Watch()
            try:
                for event in w.stream(api.list_namespaced_config_map, namespace, resource_version=revision):
                    report.event(event['type'], event['raw_object']['metadata'])
            finally:
                revision = w.resource_version
        except client.ApiException as err:
            report.error(err)
            if err.status != 410:
                raise
            revision = None
        except (urllib3.exceptions.HTTPError, OSError) as err:
            report.error(err)
            time.sleep(1)


main(*sys.argv[1:])
