//! Tests with a server each: KEEPWATCH=bin/keepwatch cargo test --manifest-path examples/testing/rust/Cargo.toml

mod keepwatch;

use std::collections::BTreeMap;
use std::pin::pin;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Error};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

#[tokio::test]
async fn an_old_version_cannot_replace_a_newer_one() {
    let server = keepwatch::Server::start();
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await, "default");
    let first = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let with = |value: &str| ConfigMap { data: Some(BTreeMap::from([("k".into(), value.into())])), ..first.clone() };
    maps.replace("a", &PostParams::default(), &with("1")).await.unwrap();
    match maps.replace("a", &PostParams::default(), &with("2")).await {
        Err(Error::Api(status)) => assert_eq!(status.code, 409),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_watch_receives_a_deletion() {
    let server = keepwatch::Server::start();
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await, "default");
    let version = maps.list_metadata(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    maps.create(&PostParams::default(), &config_map("b")).await.unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    let mut events = pin!(maps.watch(&WatchParams::default().fields("metadata.name=b"), &version).await.unwrap());
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
}
