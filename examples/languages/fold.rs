// Folds the lines that keepwatch watch appends to LOG:  rustc -O fold.rs && ./fold LOG STATE
//
// STATE has the position in LOG, and the last line of each object. Both are replaced together,
// so the program may be killed at any time. The standard library has no JSON; the members before
// the object are always in this order: type, revision, id, resource.
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Result, Seek, SeekFrom, Write};

type Objects = HashMap<(String, String), Vec<u8>>; // lines by resource and UID

fn fold(objects: &mut Objects, line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    let part: Vec<&str> = text.splitn(19, '"').collect();
    if part.len() > 7 && part[3] == "SYNCED" {
        println!("{} objects at revision {}", objects.len(), part[7]);
    }
    if part.len() < 19 || part[17] != "object" || !text.ends_with("}}\n") {
        return; // also a line that keepwatch was killed in; the event is repeated
    }
    let key = (part[15].to_string(), part[11].split('/').next().unwrap_or_default().to_string());
    match part[3] {
        "DELETED" => objects.remove(&key),
        _ => objects.insert(key, line.to_vec()),
    };
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let (log, state, replacement) = (&args[1], &args[2], format!("{}.new", args[2]));
    let (mut objects, mut position) = (Objects::new(), 0);
    if let Ok(text) = fs::read(state) {
        let mut lines = text.split_inclusive(|b| *b == b'\n');
        let first = String::from_utf8_lossy(lines.next().unwrap_or_default());
        position = first.trim().parse().expect("the position");
        lines.for_each(|line| fold(&mut objects, line));
    }
    let (mut file, mut saved, mut line) = (BufReader::new(File::open(log)?), position, Vec::new());
    file.seek(SeekFrom::Start(position))?;
    loop {
        file.read_until(b'\n', &mut line)?; // continues an incomplete line
        if line.ends_with(b"\n") {
            fold(&mut objects, &line);
            position += line.len() as u64;
            line.clear();
            continue;
        }
        if position != saved {
            let mut out = File::create(&replacement)?;
            out.write_all(format!("{position}\n").as_bytes())?;
            out.write_all(&objects.values().flatten().copied().collect::<Vec<u8>>())?;
            fs::rename(&replacement, state)?;
            saved = position;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
