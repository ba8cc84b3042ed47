//! Follows the ConfigMaps of a namespace with kube-rs: its watcher with the default backoff, through a
//! reflector, as its documentation shows.
//!
//!     follow KUBECONFIG NAMESPACE

use std::env;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Config};
use serde_json::{Map, Value, json};

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().collect();
    let kubeconfig = Kubeconfig::read_from(&arguments[1])?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.accept_invalid_certs = true; // rustls refuses a server's certificate that is its own authority
    let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, &arguments[2]);

    let (_cache, writer) = reflector::store();
    let events = reflector(writer, watcher::watcher(maps, watcher::Config::default()))
        .inspect_err(|err| print(json!({"type": "ERROR", "message": err.to_string()})))
        .default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = Map::new();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => report(event, &mut listed),
            Ok(None) => return Ok(()),
            Err(_) => {} // is printed; the watcher recovers when it is polled again
        }
    }
}

/// Prints an event. The objects between Init and InitDone are all objects.
fn report(event: Event<ConfigMap>, listed: &mut Map<String, Value>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            let (name, uid, revision) = identity(object);
            listed.insert(name, json!(format!("{uid}/{revision}")));
        }
        Event::InitDone => {
            print(json!({"type": "LISTED", "objects": listed}));
            print(json!({"type": "SYNCED"}));
        }
        Event::Apply(object) => change("MODIFIED", object),
        Event::Delete(object) => change("DELETED", object),
    }
}

fn change(kind: &str, object: ConfigMap) {
    let (name, uid, revision) = identity(object);
    print(json!({"type": kind, "name": name, "uid": uid, "revision": revision}));
}

fn identity(object: ConfigMap) -> (String, String, String) {
    let m = object.metadata;
    (m.name.unwrap_or_default(), m.uid.unwrap_or_default(), m.resource_version.unwrap_or_default())
}

fn print(line: Value) {
    println!("{line}");
}
