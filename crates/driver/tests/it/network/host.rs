//! A host for one test: processes that keep namespaces open, and functions that run inside of them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tarn_driver::local::network::Network;

/// A process in its own network namespace, which ends with it, also when the test fails.
pub(crate) struct Namespace(Child);

impl Namespace {
    /// A namespace like the host's.
    pub(crate) fn new() -> Namespace {
        Namespace::start(&["--net"])
    }

    /// A namespace like an instance's: it belongs to a user namespace.
    pub(crate) fn instance() -> Namespace {
        Namespace::start(&["--user", "--map-root-user", "--net"])
    }

    /// A process without its own namespace.
    pub(crate) fn sharing() -> Namespace {
        Namespace::start(&[])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns whether this process has an open descriptor of the namespace.
    pub(crate) fn is_held(&self) -> bool {
        let namespace = fs::read_link(format!("/proc/{}/ns/net", self.pid())).unwrap();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        descriptors.filter_map(|path| fs::read_link(path).ok()).any(|link| link == namespace)
    }

    /// Runs work inside, on a thread that ends with it.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(work).join().unwrap()
    }

    /// Starts work inside.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let file = File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        std::thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        })
    }

    /// Runs a command line inside, which has to succeed.
    pub(crate) fn command(&self, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || command(&line))
    }

    /// The shell prints a line once the namespaces exist; then it waits for the end of its input, which comes with the
    /// end of the test.
    fn start(arguments: &[&str]) -> Namespace {
        let mut command = Command::new("unshare");
        command.args(arguments).arg("--").args(["sh", "-c", "echo ready; read nothing"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Namespace(child)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a test on its own host, or prints that it cannot.
pub(crate) fn on_test_host<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to make network namespaces");
        return;
    }
    let host = Namespace::new();
    let thread = host.spawn(move || {
        command("ip link set lo up");
        // Threads and processes of this runtime are in the namespace of this thread.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A cluster of instances as the driver creates it.
pub(crate) struct Cluster {
    pub(crate) slot: u16,
    pub(crate) nodes: Vec<(Ipv4Addr, Namespace)>,
}

impl Cluster {
    pub(crate) async fn start(network: &Network, slot: u16, count: usize) -> Cluster {
        network.ensure_base().await.unwrap();
        network.ensure_bridge(slot).await.unwrap();
        let mut nodes = Vec::new();
        let mut taken = BTreeSet::new();
        for _ in 0..count {
            let address = network.address(slot, &taken).unwrap();
            taken.insert(address);
            let instance = Namespace::instance();
            network.attach(slot, address, instance.pid()).await.unwrap();
            nodes.push((address, instance));
        }
        Cluster { slot, nodes }
    }

    pub(crate) async fn remove(self, network: &Network) {
        for (address, _) in &self.nodes {
            network.detach(self.slot, *address).await.unwrap();
        }
        network.remove_bridge(self.slot).await.unwrap();
    }
}

/// Everything that a network leaves on a host: interfaces, addresses, routes, rules. The carrier state is left out,
/// because the kernel updates it at any time.
pub(crate) fn snapshot() -> String {
    let output = ["ip -o address", "ip route show table all", "ip rule", "nft list ruleset"].map(command).concat();
    interfaces().join(" ") + &output.replace(" linkdown", "")
}

/// Returns the names of the host's interfaces.
pub(crate) fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    text.lines().skip(2).filter_map(|line| line.split(':').next()).map(|name| name.trim().to_owned()).collect()
}

/// Polls until a condition holds; every check takes a few milliseconds, and the kernel a second or more.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    assert!((0..20_000).any(|_| is_so()), "the condition never held");
}

/// Runs a command line, which has to succeed.
pub(crate) fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
