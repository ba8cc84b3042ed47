//! Runs an operator of Widgets with kube-rs' Controller, which does what ../javascript/widgets.mjs does: a ConfigMap with
//! the Widget's size and a Secret, which die with it, and a ConfigMap without an owner, which a finalizer deletes.
//!
//!     KUBECONFIG=FILE widgets [--bug NAME]

use std::collections::HashSet;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fmt, fs};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::WatchStreamExt;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

const BUGS: [&str; 15] = [
    "", "generate-name", "stale-cache", "finalizer", "status-first", "hot-loop", "event-only", "fight", "intermediate",
    "password", "put", "right", "stale-list", "cross-namespace", "default",
];
const FINALIZER: &str = "example.com/log";

#[derive(Debug)]
enum Error {
    Api(kube::Error),
    Earlier,
    Again,
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Error::Api(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Api(error) => error.fmt(f),
            Error::Earlier => write!(f, "the child of an earlier Widget is still there"),
            Error::Again => write!(f, "look again"),
        }
    }
}

impl std::error::Error for Error {}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

struct Operator {
    bug: String,
    widgets: Api<DynamicObject>,
    maps: Api<DynamicObject>,
    logs: Api<DynamicObject>, // ConfigMaps in the namespace of those without an owner
    secrets: Api<DynamicObject>,
    cache: Store<DynamicObject>, // of ConfigMaps, for stale-cache
    created: Mutex<HashSet<String>>,
    conflict: Mutex<bool>,
}

fn owned(w: &DynamicObject, name: &str, rest: Value) -> DynamicObject {
    let mut object = json!({"metadata": {
        "name": name, "labels": {"widget": w.name_any()},
        "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": w.name_any(), "uid": w.uid()}],
    }});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn size(w: &DynamicObject) -> String {
    w.data["spec"]["size"].to_string()
}

fn sized(w: &DynamicObject) -> DynamicObject {
    owned(w, &w.name_any(), json!({"data": {"size": size(w)}}))
}

/// Returns an existing child, unless that is one of an earlier Widget.
fn own(w: &DynamicObject, child: Option<DynamicObject>) -> Result<Option<DynamicObject>, Error> {
    match &child {
        Some(c) if c.owner_references().first().map(|o| &o.uid) != w.metadata.uid.as_ref() => Err(Error::Earlier),
        _ => Ok(child),
    }
}

/// Returns 24 random digits, which are valid base64, too.
fn word() -> String {
    let mut bytes = [0; 12];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("random bytes");
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Operator {
    async fn config_map(&self, w: &DynamicObject) -> Result<(), Error> {
        let (name, create) = (w.name_any(), PostParams::default());
        if self.bug == "generate-name" || self.bug == "stale-cache" {
            let uid = w.uid().unwrap_or_default();
            let cached = |o: &Arc<DynamicObject>| o.owner_references().iter().any(|r| r.uid == uid);
            if self.bug == "stale-cache" && self.cache.state().iter().any(cached) {
                return Ok(());
            }
            if !self.created.lock().unwrap().contains(&uid) {
                let mut child = sized(w);
                (child.metadata.name, child.metadata.generate_name) = (None, Some(format!("{name}-")));
                self.maps.create(&create, &child).await?;
                self.created.lock().unwrap().insert(uid);
            }
            return Ok(());
        }
        match own(w, self.maps.get_opt(&name).await?)? {
            None => {
                self.maps.create(&create, &sized(w)).await?;
            }
            Some(have) if self.bug == "fight" && !have.annotations().is_empty() => {
                let mut child = sized(w);
                child.metadata.resource_version = have.resource_version();
                self.maps.replace(&name, &create, &child).await?;
            }
            Some(mut have) if have.data["data"]["size"] != size(w) => {
                if self.bug == "put" {
                    have = sized(w);
                } else {
                    have.data["data"] = json!({"size": size(w)});
                }
                self.maps.replace(&name, &create, &have).await?;
            }
            Some(_) => {}
        }
        Ok(())
    }

    async fn log(&self, w: &DynamicObject) -> Result<(), Error> {
        let name = format!("{}-log", w.name_any());
        if self.logs.get_opt(&name).await?.is_none() {
            let log = json!({"metadata": {"name": name, "labels": {"widget": w.name_any()}}});
            self.logs.create(&PostParams::default(), &serde_json::from_value(log).unwrap()).await?;
        }
        Ok(())
    }

    /// Deletes the logs of Widgets that it does not see. What is read with match_any may be old.
    async fn sweep(&self) -> Result<(), Error> {
        let seen = self.widgets.list(&ListParams::default().match_any()).await?;
        for map in self.maps.list(&ListParams::default().labels("widget")).await? {
            let widget = map.labels()["widget"].clone();
            if map.name_any() == format!("{widget}-log") && !seen.iter().any(|w| w.name_any() == widget) {
                self.delete_log(&widget).await?;
            }
        }
        Ok(())
    }

    async fn secret(&self, w: &DynamicObject, password: &str) -> Result<Value, Error> {
        let (name, create) = (w.name_any(), PostParams::default());
        let mut want = owned(w, &name, json!({"data": {"password": password}}));
        let secret = match own(w, self.secrets.get_opt(&name).await?)? {
            None => self.secrets.create(&create, &want).await?,
            Some(have) if self.bug == "default" && have.data["type"] != want.data["type"] => {
                want.data["data"] = have.data["data"].clone(); // the server has set the type
                want.metadata.resource_version = have.resource_version();
                self.secrets.replace(&name, &create, &want).await?;
                return Err(Error::Again);
            }
            Some(have) => have,
        };
        Ok(secret.data["data"]["password"].clone())
    }

    async fn status(&self, mut w: DynamicObject, changes: &[(&str, Value)]) -> Result<DynamicObject, Error> {
        if changes.iter().all(|(field, value)| &w.data["status"][field] == value) {
            return Ok(w);
        }
        for (field, value) in changes {
            w.data["status"][field] = value.clone();
        }
        Ok(self.widgets.replace_status(&w.name_any(), &PostParams::default(), &w).await?)
    }

    async fn set_finalizers(&self, mut w: DynamicObject, finalizers: Vec<String>) -> Result<(), Error> {
        w.metadata.finalizers = Some(finalizers);
        self.widgets.replace(&w.name_any(), &PostParams::default(), &w).await?;
        Ok(())
    }

    async fn delete_log(&self, name: &str) -> Result<bool, Error> {
        match self.logs.delete(&format!("{name}-log"), &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            Err(error) if code(&error) == 404 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings the children of a Widget, whose state is read from the server, to what it says.
    async fn reconcile(&self, name: &str) -> Result<Action, Error> {
        let done = Ok(Action::await_change());
        let Some(mut w) = self.widgets.get_opt(name).await? else { return done };
        let guarded = w.finalizers().iter().any(|f| f == FINALIZER);
        if w.metadata.deletion_timestamp.is_some() {
            if guarded && (self.delete_log(name).await? || self.bug != "finalizer") {
                self.set_finalizers(w, vec![]).await?;
            }
            return done;
        }
        let bug = self.bug.as_str();
        if matches!(bug, "status-first" | "generate-name" | "stale-cache") && w.data["status"]["phase"] == "Ready" {
            return done;
        }
        if bug == "status-first" {
            w = self.status(w, &[("phase", json!("Ready"))]).await?;
        }
        if *self.conflict.lock().unwrap() {
            let looks = w.data["status"]["looks"].as_i64().unwrap_or(0);
            self.status(w, &[("looks", json!(looks + 1))]).await?;
            return Ok(Action::requeue(Duration::from_millis(5)));
        }
        if !guarded && !matches!(bug, "event-only" | "intermediate" | "cross-namespace") {
            self.set_finalizers(w, vec![FINALIZER.into()]).await?;
            return done;
        }
        self.config_map(&w).await?;
        if bug != "intermediate" {
            self.log(&w).await?;
        }
        let fresh = word();
        if bug == "password" && w.data["status"]["password"].is_null() {
            w = self.status(w, &[("password", json!(fresh))]).await?;
        }
        let password = self.secret(&w, &fresh).await?;
        let ready = ("phase", json!("Ready"));
        if bug == "password" {
            self.status(w, &[ready]).await?;
        } else {
            self.status(w, &[ready, ("password", password)]).await?;
        }
        done
    }

    async fn recover(&self, name: &str, result: Result<Action, Error>) -> Result<Action, Error> {
        if let Err(Error::Api(error)) = &result {
            if code(error) == 409 && self.bug == "hot-loop" {
                *self.conflict.lock().unwrap() = true;
            }
            if code(error) == 500 && self.bug == "right" {
                let selected = ListParams::default().labels(&format!("widget={name}"));
                let _ = self.maps.delete_collection(&DeleteParams::default(), &selected).await;
            }
        }
        result
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().collect();
    let bug = arguments.get(2).cloned().unwrap_or_default();
    if !BUGS.contains(&bug.as_str()) {
        return Err(format!("--bug {bug}: want one of {BUGS:?}").into());
    }
    let client = Client::try_default().await?;
    let widget = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let map = ApiResource::erase::<ConfigMap>(&());
    let secret = ApiResource::erase::<Secret>(&());
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &widget);
    let maps: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &map);
    let beside = if bug == "cross-namespace" { "logs" } else { "default" };
    let logs: Api<DynamicObject> = Api::namespaced_with(client.clone(), beside, &map);
    let secrets: Api<DynamicObject> = Api::namespaced_with(client, "default", &secret);

    let writer = reflector::store::Writer::new(map.clone());
    let operator = Arc::new(Operator {
        bug: bug.clone(),
        widgets: widgets.clone(),
        maps: maps.clone(),
        logs,
        secrets: secrets.clone(),
        cache: writer.as_reader(),
        created: Mutex::default(),
        conflict: Mutex::default(),
    });
    if bug == "stale-list" {
        operator.sweep().await?;
    }
    if bug == "stale-cache" {
        // Lists without pages may be old.
        let old = watcher::Config { page_size: None, ..Default::default() }.any_semantic();
        let cached = reflector::reflector(writer, watcher::watcher(maps.clone(), old))
            .inspect_err(|error| eprintln!("ConfigMaps: {error}"))
            .default_backoff();
        tokio::spawn(cached.for_each(|_| async {}));
        operator.cache.wait_until_ready().await?;
    }
    if bug == "intermediate" {
        // Handles what is new to it, and nothing else.
        let mut known = HashSet::new();
        let mut events = watcher::watcher(widgets, watcher::Config::default()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(w) | Event::InitApply(w)) if known.insert(w.name_any()) => {
                    while operator.reconcile(&w.name_any()).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
                Ok(Event::Delete(w)) => {
                    known.remove(&w.name_any());
                }
                _ => {}
            }
        }
        return Ok(());
    }
    if matches!(bug.as_str(), "event-only" | "cross-namespace") {
        let (deleted, of) = (operator.clone(), watcher::watcher(widgets.clone(), watcher::Config::default()));
        let events = of.default_backoff().try_for_each(move |event| {
            let deleted = deleted.clone();
            async move {
                if let Event::Delete(w) = event {
                    let _ = deleted.delete_log(&w.name_any()).await;
                }
                Ok(())
            }
        });
        tokio::spawn(events);
    }
    let of_child = |kind: ApiResource| {
        move |child: DynamicObject| {
            let widget = child.labels().get("widget").cloned();
            let namespace = child.namespace().unwrap_or_default();
            widget.map(|name| ObjectRef::new_with(&name, kind.clone()).within(&namespace))
        }
    };
    Controller::new_with(widgets, watcher::Config::default(), widget.clone())
        .watches_with(maps, map, watcher::Config::default(), of_child(widget.clone()))
        .watches_with(secrets, secret, watcher::Config::default(), of_child(widget.clone()))
        .run(
            |w, operator: Arc<Operator>| async move {
                let result = operator.reconcile(&w.name_any()).await;
                operator.recover(&w.name_any(), result).await
            },
            |w, error, _| {
                eprintln!("{}: {error}", w.name_any());
                Action::requeue(Duration::from_millis(200))
            },
            operator,
        )
        .for_each(|_| async {})
        .await;
    Ok(())
}
