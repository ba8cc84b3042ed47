//! A Kubernetes API server for tests: keepwatch serve, with its data in memory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, process, thread};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A server that ends when it is dropped.
pub struct Server {
    process: Child,
    kubeconfig: PathBuf,
}

static STARTED: AtomicUsize = AtomicUsize::new(0);

impl Server {
    /// Starts a server, and returns it when it is ready.
    pub fn start() -> Server {
        let name = format!("kubeconfig-{}-{}", process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_file(&kubeconfig); // of another run
        let process = Command::new(env::var("KEEPWATCH").unwrap_or("keepwatch".into()))
            .args(["serve", "--listen", "127.0.0.1:0", "--kubeconfig-out"])
            .arg(&kubeconfig)
            .spawn()
            .expect("keepwatch is on the PATH, or KEEPWATCH is its path");
        let mut server = Server { process, kubeconfig };
        while !server.kubeconfig.exists() {
            let ended = server.process.try_wait().unwrap();
            assert!(ended.is_none(), "keepwatch serve: {}", ended.unwrap());
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Returns a client of the administrator.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.kubeconfig);
    }
}
