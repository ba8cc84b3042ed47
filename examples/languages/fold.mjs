// Folds the lines that keepwatch watch appends to LOG:  node fold.mjs LOG STATE
//
// STATE has the position in LOG, and the last line of each object. Both are replaced together,
// so the program may be killed at any time.
import fs from "node:fs";

const [log, state] = process.argv.slice(2);
const objects = new Map(); // lines by resource and UID
let position = 0;

function fold(line) {
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    return; // keepwatch was killed while it wrote the line; the event is repeated
  }
  if (["ADDED", "MODIFIED", "DELETED"].includes(event.type)) {
    const key = event.resource + " " + event.id.split("/")[0];
    objects.delete(key);
    if (event.type !== "DELETED") objects.set(key, line);
  } else if (event.type === "SYNCED") {
    console.log(objects.size, "objects at revision", event.revision);
  }
}

if (fs.existsSync(state)) {
  const [first, ...lines] = fs.readFileSync(state, "utf8").split("\n");
  position = Number(first);
  lines.forEach(fold);
}
const file = fs.openSync(log);
let buffer = Buffer.alloc(1 << 20), saved = position;
function follow() {
  for (;;) {
    const n = fs.readSync(file, buffer, 0, buffer.length, position);
    const end = buffer.subarray(0, n).lastIndexOf("\n");
    if (end < 0 && n === buffer.length) buffer = Buffer.alloc(2 * n); // a long line
    else if (end < 0) break;
    else {
      buffer.toString("utf8", 0, end).split("\n").forEach(fold);
      position += end + 1;
    }
  }
  if (position !== saved) {
    fs.writeFileSync(state + ".new", [position, ...objects.values(), ""].join("\n"));
    fs.renameSync(state + ".new", state);
    saved = position;
  }
  setTimeout(follow, 100);
}
follow();
