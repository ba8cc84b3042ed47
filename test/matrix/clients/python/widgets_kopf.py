"""Runs an operator of Widgets with kopf, which does what ../javascript/widgets.mjs does: a ConfigMap with the Widget's
size and a Secret, which die with it, and a ConfigMap without an owner, which a delete handler deletes.

    KUBECONFIG=FILE widgets_kopf.py [--bug NAME]
"""

import base64
import logging
import secrets
import sys
import threading

import kopf
import kubernetes

BUGS = [
    '', 'generate-name', 'stale-cache', 'finalizer', 'status-first', 'hot-loop', 'event-only', 'fight', 'intermediate',
    'password', 'put', 'right', 'stale-list', 'cross-namespace', 'default',
]
BUG = sys.argv[2] if len(sys.argv) > 2 else ''
if BUG not in BUGS:
    sys.exit(f'--bug {BUG}: want one of {" ".join(BUGS)}')
NAMESPACE = 'default'
LOGS = 'logs' if BUG == 'cross-namespace' else NAMESPACE  # of the ConfigMap without an owner
LOG_IS_GUARDED = BUG not in ('event-only', 'cross-namespace')
WIDGETS = {'group': 'example.com', 'version': 'v1', 'namespace': NAMESPACE, 'plural': 'widgets'}

kubernetes.config.load_kube_config()
core = kubernetes.client.CoreV1Api()
custom = kubernetes.client.CustomObjectsApi()

one = threading.Lock()  # of the process: one Widget at a time
changed = set()  # names of Widgets whose children have changed
created = set()  # UIDs of Widgets with a generated child
conflict = False  # was met


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    settings.scanning.disabled = True
    logging.getLogger().setLevel(logging.WARNING)
    if BUG == 'stale-list':
        sweep()


@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)


def unless(code, request, *args, **kwargs):
    """Returns what a request returns, or None after an error with a code."""
    try:
        return request(*args, **kwargs)
    except kubernetes.client.ApiException as error:
        if error.status == code:
            return None
        raise


def owned(w, **rest):
    meta = w['metadata']
    owner = {'apiVersion': 'example.com/v1', 'kind': 'Widget', 'name': meta['name'], 'uid': meta['uid']}
    return {'metadata': {'name': meta['name'], 'labels': {'widget': meta['name']}, 'ownerReferences': [owner]}, **rest}


def is_of(w, child):
    return [o.uid for o in child.metadata.owner_references or []] == [w['metadata']['uid']]


def own(w, child):
    """Returns an existing child, unless that is one of an earlier Widget."""
    if child and not is_of(w, child):
        raise kopf.TemporaryError('the child of an earlier Widget is still there', delay=0.2)
    return child


def config_map(w):
    name, size = w['metadata']['name'], str(w['spec']['size'])
    want = owned(w, data={'size': size})
    if BUG in ('generate-name', 'stale-cache'):
        if BUG == 'stale-cache':  # what is read at resourceVersion 0 may be old
            cached = core.list_namespaced_config_map(NAMESPACE, label_selector=f'widget={name}', resource_version='0')
            if any(is_of(w, o) for o in cached.items):
                return
        if w['metadata']['uid'] not in created:
            want['metadata'] = {**want['metadata'], 'name': None, 'generateName': f'{name}-'}
            core.create_namespaced_config_map(NAMESPACE, want)
            created.add(w['metadata']['uid'])
        return
    have = own(w, unless(404, core.read_namespaced_config_map, name, NAMESPACE))
    if not have:
        core.create_namespaced_config_map(NAMESPACE, want)
    elif BUG == 'fight' and have.metadata.annotations:
        want['metadata']['resourceVersion'] = have.metadata.resource_version
        core.replace_namespaced_config_map(name, NAMESPACE, want)
    elif have.data != want['data']:
        have.data = want['data']
        core.replace_namespaced_config_map(name, NAMESPACE, want if BUG == 'put' else have)


def log(w):
    name = w['metadata']['name']
    if not unless(404, core.read_namespaced_config_map, f'{name}-log', LOGS):
        metadata = {'name': f'{name}-log', 'labels': {'widget': name}}
        core.create_namespaced_config_map(LOGS, {'metadata': metadata})


def delete_log(name):
    return unless(404, core.delete_namespaced_config_map, f'{name}-log', LOGS)


def sweep():
    """Deletes the logs of Widgets that it does not see. What is read at resourceVersion 0 may be old."""
    seen = [w['metadata']['name'] for w in custom.list_namespaced_custom_object(**WIDGETS, resource_version='0')['items']]
    for o in core.list_namespaced_config_map(NAMESPACE, label_selector='widget').items:
        widget = o.metadata.labels['widget']
        if o.metadata.name == f'{widget}-log' and widget not in seen:
            delete_log(widget)


def secret(w, password):
    name = w['metadata']['name']
    want = owned(w, data={'password': password})
    have = own(w, unless(404, core.read_namespaced_secret, name, NAMESPACE))
    if not have:
        have = core.create_namespaced_secret(NAMESPACE, want)
    elif BUG == 'default' and have.type != want.get('type'):  # the server has set it
        want['data'] = have.data
        want['metadata']['resourceVersion'] = have.metadata.resource_version
        core.replace_namespaced_secret(name, NAMESPACE, want)
        raise kopf.TemporaryError('look again', delay=0.01)
    return have.data['password']


def write_status(w, **changes):
    """Returns the Widget with changes of its status."""
    body = {**w, 'status': {**w.get('status', {}), **changes}}
    return custom.replace_namespaced_custom_object_status(**WIDGETS, name=w['metadata']['name'], body=body)


def reconcile(w, patch):
    """Makes the children of a Widget, whose state is read from the server."""
    global conflict
    w = unless(404, custom.get_namespaced_custom_object, **WIDGETS, name=w['metadata']['name'])
    if not w or 'deletionTimestamp' in w['metadata']:
        return
    status = w.get('status', {})
    if status.get('phase') == 'Ready' and BUG in ('status-first', 'generate-name', 'stale-cache'):
        return
    if BUG == 'status-first':
        w = write_status(w, phase='Ready')
    if conflict:
        patch.status['looks'] = status.get('looks', 0) + 1
        raise kopf.TemporaryError('look again', delay=0.01)
    fresh = base64.b64encode(secrets.token_bytes(15)).decode()
    if BUG == 'password' and 'password' not in status:
        w = write_status(w, password=fresh)
    try:
        config_map(w)
        log(w)
        stored = secret(w, fresh)
    except kubernetes.client.ApiException as error:
        conflict = conflict or error.status == 409 and BUG == 'hot-loop'
        if error.status == 500 and BUG == 'right':
            selected = f'widget={w["metadata"]["name"]}'
            unless(403, core.delete_collection_namespaced_config_map, NAMESPACE, label_selector=selected)
        raise
    if BUG != 'password' and status.get('password') != stored:
        patch.status['password'] = stored
    if status.get('phase') != 'Ready':
        patch.status['phase'] = 'Ready'


@kopf.on.create('example.com', 'v1', 'widgets', backoff=0.2)
@kopf.on.update('example.com', 'v1', 'widgets', backoff=0.2)
@kopf.on.resume('example.com', 'v1', 'widgets', backoff=0.2)
def adopt(body, patch, **_):
    with one:
        reconcile(body, patch)


# Events have no retries, timers do. kopf calls them beside the delete handler, and they need a finalizer, too.
@kopf.on.event('v1', 'configmaps', labels={'widget': kopf.PRESENT})
@kopf.on.event('v1', 'secrets', labels={'widget': kopf.PRESENT})
def child_changed(labels, **_):
    changed.add(labels['widget'])


@kopf.timer('example.com', 'v1', 'widgets', interval=0.1, backoff=0.2, when=lambda **_: LOG_IS_GUARDED)
def repair(body, name, patch, **_):
    with one:
        if name not in changed:
            return
        changed.remove(name)
        try:
            reconcile(body, patch)
        except BaseException:
            changed.add(name)
            raise


if BUG == 'intermediate':
    @kopf.on.field('example.com', 'v1', 'widgets', field='spec.size')
    def resized(old, patch, **_):
        if old is not None:
            patch.status['before'] = old
elif not LOG_IS_GUARDED:
    @kopf.on.event('example.com', 'v1', 'widgets')
    def gone(type, name, **_):
        if type == 'DELETED':
            delete_log(name)
else:
    @kopf.on.delete('example.com', 'v1', 'widgets', backoff=0.2)
    def clean(name, **_):
        with one:
            if not delete_log(name) and BUG == 'finalizer':
                raise kopf.TemporaryError('the log cannot be deleted', delay=0.2)


kopf.configure()
kopf.run(standalone=True, namespaces=[NAMESPACE])
