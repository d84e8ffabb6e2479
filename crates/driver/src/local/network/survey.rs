//! Looking at the network without an engine: which addresses are free, what of an installation exists, and whether the kernel
//! takes what clusters are made of. Nothing that is seen from outside is changed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use rtnetlink::{LinkBridge, LinkMessageBuilder, LinkVeth};
use rustix::thread::UnshareFlags;
use tokio::runtime::Builder;

use super::addresses::free_prefix;
use super::addresses::prefix::Prefix;
use super::firewall;
use super::firewall::Firewall;
use super::identity::Identity;
use super::links::netlink::{Netlink, failed, refused};
use super::links::netlink_threads::Turns;
use crate::Error;
use crate::local::helper::kernel;

/// Whose names are tried in a namespace where nobody else is: six characters as every id has.
const NOBODY: &str = "d0ct0r";

/// The addresses of an installation, or those that it would get.
#[derive(Debug)]
pub(in crate::local) struct Addresses {
    /// How many of the ranges that it may choose from are free, and how many there are.
    pub(in crate::local) free: (usize, usize),
    /// The range that its instances have or would get.
    pub(in crate::local) prefix: Option<Prefix>,
    /// Networks of others that overlap with it.
    pub(in crate::local) overlaps: Vec<String>,
}

/// Looks which addresses are free. `remembered` is the range of the addresses that were given out.
pub(in crate::local) async fn addresses(
    installation: Option<&str>,
    remembered: Option<Prefix>,
) -> Result<Addresses, Error> {
    let identity = Identity::new(installation.unwrap_or(NOBODY))?;
    let asked = identity.clone();
    let used = Turns::new().take(async move || free_prefix::used(&asked).await).await?;
    let is_free = |prefix: &Prefix| !used.iter().any(|(address, length)| prefix.overlaps(*address, *length));
    let all = Prefix::candidates(identity.number()).count();
    let mut candidates: Vec<Prefix> = Prefix::candidates(identity.number()).filter(is_free).collect();
    let free = (candidates.len(), all);
    candidates.truncate(1);
    let prefix = remembered.or(candidates.pop());
    let overlap = |(address, length): &(Ipv4Addr, u8)| {
        prefix.filter(|prefix| prefix.overlaps(*address, *length)).map(|_| format!("{address}/{length}"))
    };
    Ok(Addresses { free, prefix, overlaps: used.iter().filter_map(overlap).collect() })
}

/// What of an installation exists: its interfaces by name, and its firewall's table.
pub(in crate::local) async fn existing(installation: &str) -> Result<(Vec<String>, Option<String>), Error> {
    let identity = Identity::new(installation)?;
    let asked = identity.clone();
    let ours = Turns::new().take(async move || Netlink::open()?.owned(&asked).await).await?;
    let table = firewall::exists(&identity)?.then(|| identity.table());
    Ok((ours.into_values().collect(), table))
}

/// The names that an installation's bridges and addresses have.
pub(in crate::local) fn names(installation: &str, slots: &[u16], addresses: &[Ipv4Addr]) -> Result<Vec<String>, Error> {
    let identity = Identity::new(installation)?;
    let bridges = slots.iter().map(|slot| identity.bridge(*slot));
    Ok(bridges.chain(addresses.iter().map(|address| identity.veth(*address))).collect())
}

/// How it went with the interfaces, and with the firewall.
pub(in crate::local) type Tried = (Result<(), Error>, Result<(), Error>);

/// Makes a bridge and a pair of interfaces, and loads the firewall of every installation, in a network namespace that ends with
/// this call. Says for both how it went.
pub(in crate::local) async fn rehearse() -> Result<Tried, Error> {
    let (done, heard) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("rehearsal".to_owned()).spawn(move || {
        // Whoever asked may have gone away.
        let _ = done.send(alone());
    });
    thread.map_err(|error| failed("try the network", &error))?;
    heard.await.map_err(|_| Error::Retry("cannot try the network: it ended".to_owned()))?
}

/// A thread of its own may have a network of its own, and what it starts has that, too.
fn alone() -> Result<Tried, Error> {
    kernel::unshare(UnshareFlags::NEWNET).map_err(|error| failed("make a network namespace", &error))?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("try the network", &error))?;
    runtime.block_on(async {
        let identity = Identity::new(NOBODY)?;
        let interfaces = interfaces(&identity).await;
        let prefix = Prefix::of(Ipv4Addr::new(10, 64, 0, 0));
        Ok((interfaces, Firewall::default().ensure(&identity, prefix, &BTreeSet::new()).await))
    })
}

async fn interfaces(identity: &Identity) -> Result<(), Error> {
    let netlink = Netlink::open()?;
    let bridge = LinkMessageBuilder::<LinkBridge>::new(&identity.bridge(0)).build();
    netlink.handle.link().add(bridge).execute().await.map_err(|error| refused("make a bridge", error))?;
    let pair = LinkMessageBuilder::<LinkVeth>::new(&identity.veth(Ipv4Addr::new(10, 64, 0, 2)), "eth0").build();
    netlink.handle.link().add(pair).execute().await.map_err(|error| refused("make a pair of interfaces", error))
}
