"""Prints events as lines of JSON, for a test that reads them."""

import json
import sys
import threading

_lock = threading.Lock()


def _print(line):
    with _lock:
        print(json.dumps(line), flush=True)


def event(type, metadata):
    """Prints an event about an object with this metadata, a dict."""
    _print({
        'type': type,
        'name': metadata['name'],
        'uid': metadata['uid'],
        'revision': metadata['resourceVersion'],
    })


def listed(objects):
    """Prints that these dicts are all objects, whatever the events before led to."""
    _print({'type': 'LISTED', 'objects': {
        m['name']: f"{m['uid']}/{m['resourceVersion']}" for m in (o['metadata'] for o in objects)
    }})


def error(err):
    """Prints that the client has shown an error to its user."""
    _print({'type': 'ERROR', 'message': f'{type(err).__name__}: {err}'})
