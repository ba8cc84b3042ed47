"""Folds the lines that keepwatch watch appends to LOG:  python3 fold.py LOG STATE

STATE has the position in LOG, and the last line of each object. Both are replaced together,
so the program may be killed at any time.
"""
import json, os, sys, time

log, state = sys.argv[1:]
position, objects = 0, {}  # lines by resource and UID


def fold(line):
    try:
        event = json.loads(line)
    except ValueError:
        return  # keepwatch was killed while it wrote the line; the event is repeated
    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
        key = event["resource"], event["id"].split("/")[0]
        objects.pop(key, None)
        if event["type"] != "DELETED":
            objects[key] = line
    elif event["type"] == "SYNCED":
        print(len(objects), "objects at revision", event["revision"], flush=True)


def save():
    with open(state + ".new", "wb") as file:
        file.write(b"%d\n" % position + b"".join(objects.values()))
    os.replace(state + ".new", state)


if os.path.exists(state):
    with open(state, "rb") as file:
        position = int(file.readline())
        for line in file:
            fold(line)
saved = position
with open(log, "rb") as file:
    while True:
        file.seek(position)
        for line in file:
            if line.endswith(b"\n"):
                fold(line)
                position += len(line)
        if position != saved:
            save()
            saved = position
        time.sleep(0.1)
