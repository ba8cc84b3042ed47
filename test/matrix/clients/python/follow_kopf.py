"""Follows the ConfigMaps of a namespace with kopf.

    follow_kopf.py KUBECONFIG NAMESPACE
"""

import logging
import os
import sys

import kopf

import report

kubeconfig, namespace = sys.argv[1:]
os.environ['KUBECONFIG'] = kubeconfig


@kopf.on.startup()
def configure(settings, **_):
    settings.scanning.disabled = True
    logging.getLogger().setLevel(logging.WARNING)


@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.event('v1', 'configmaps')
def changed(type, body, **_):
    # What kopf lists has no type.
    report.event(type or 'ADDED', dict(body['metadata']))


kopf.configure()
kopf.run(standalone=True, namespaces=[namespace])
