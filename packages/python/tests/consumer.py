"""A consumer that a test kills: python consumer.py STATE HANDLED SECONDS. It writes a line for each handled change."""

import sys
import time

import keepwatch

state, handled, seconds = sys.argv[1:]
with open(handled, "a", encoding="utf-8") as out:
    for event in keepwatch.watch("configmaps", "-l", "app=killed", "--chunk-size=7", state=state):
        if isinstance(event, keepwatch.Change):
            time.sleep(float(seconds))
            print(event.type, event.object["metadata"]["name"], event.id, file=out, flush=True)
