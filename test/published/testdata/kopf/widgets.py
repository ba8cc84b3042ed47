"""An operator of Widgets with kopf: it notes that it has seen one, and lets it go."""

import kopf


@kopf.on.create("example.com", "v1", "widgets")
def create(patch, **_):
    patch.metadata.annotations["example.com/seen"] = "yes"


@kopf.on.delete("example.com", "v1", "widgets")
def delete(**_):
    pass
