//! Examines the network without an engine: which addresses are free, what exists of an installation, and whether the
//! kernel supports what clusters need. Changes nothing outside of its own namespace.

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
use super::links::netlink::NetlinkThreads;
use super::links::netlink::{Netlink, io_failure, netlink_error};
use crate::Error;
use crate::local::helper::kernel;

/// The id for names in the test namespace: six characters like every id.
const REHEARSAL_ID: &str = "d0ct0r";

/// The addresses of an installation, or those that it would get.
#[derive(Debug)]
pub(in crate::local) struct AddressSurvey {
    /// How many of the possible ranges are free, and how many there are.
    pub(in crate::local) free: (usize, usize),
    /// The range that its instances have or would get.
    pub(in crate::local) prefix: Option<Prefix>,
    /// Networks of others that overlap with it.
    pub(in crate::local) overlaps: Vec<String>,
}

/// Determines which addresses are free. `remembered` is the range of the addresses in use.
pub(in crate::local) async fn survey_addresses(
    installation: Option<&str>,
    remembered: Option<Prefix>,
) -> Result<AddressSurvey, Error> {
    let identity = Identity::new(installation.unwrap_or(REHEARSAL_ID))?;
    let asked = identity.clone();
    let used = NetlinkThreads::new().run_on_thread(async move || free_prefix::used_networks(&asked).await).await?;
    let is_free = |prefix: &Prefix| !used.iter().any(|(address, length)| prefix.overlaps(*address, *length));
    let all = Prefix::candidate_prefixes(identity.number()).count();
    let mut candidate_prefixes: Vec<Prefix> = Prefix::candidate_prefixes(identity.number()).filter(is_free).collect();
    let free = (candidate_prefixes.len(), all);
    candidate_prefixes.truncate(1);
    let prefix = remembered.or(candidate_prefixes.pop());
    let overlap = |(address, length): &(Ipv4Addr, u8)| {
        prefix.filter(|prefix| prefix.overlaps(*address, *length)).map(|_| format!("{address}/{length}"))
    };
    Ok(AddressSurvey { free, prefix, overlaps: used.iter().filter_map(overlap).collect() })
}

/// Returns what exists of an installation: its interfaces by name, and its firewall table.
pub(in crate::local) async fn existing_objects(installation: &str) -> Result<(Vec<String>, Option<String>), Error> {
    let identity = Identity::new(installation)?;
    let asked = identity.clone();
    let ours = NetlinkThreads::new().run_on_thread(async move || Netlink::open()?.own_link_names(&asked).await).await?;
    let table = firewall::firewall_exists(&identity)?.then(|| identity.table());
    Ok((ours.into_values().collect(), table))
}

/// Returns the names of an installation's bridges and veth interfaces.
pub(in crate::local) fn expected_link_names(
    installation: &str,
    slots: &[u16],
    addresses: &[Ipv4Addr],
) -> Result<Vec<String>, Error> {
    let identity = Identity::new(installation)?;
    let bridges = slots.iter().map(|slot| identity.bridge(*slot));
    Ok(bridges.chain(addresses.iter().map(|address| identity.veth(*address))).collect())
}

/// The results for the interfaces and for the firewall.
pub(in crate::local) type RehearsalResult = (Result<(), Error>, Result<(), Error>);

/// Creates a bridge and a veth pair, and loads the firewall, in a network namespace that ends with this call.
pub(in crate::local) async fn rehearse_network() -> Result<RehearsalResult, Error> {
    let (done, heard) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("rehearsal".to_owned()).spawn(move || {
        // The caller may be gone.
        let _ = done.send(rehearse_in_namespace());
    });
    thread.map_err(|error| io_failure("try the network", &error))?;
    heard.await.map_err(|_| Error::Retry("cannot try the network: it ended".to_owned()))?
}

/// A thread can have its own network namespace, which the programs that it starts inherit.
fn rehearse_in_namespace() -> Result<RehearsalResult, Error> {
    kernel::unshare(UnshareFlags::NEWNET).map_err(|error| io_failure("create a network namespace", &error))?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| io_failure("try the network", &error))?;
    runtime.block_on(async {
        let identity = Identity::new(REHEARSAL_ID)?;
        let interfaces = create_test_links(&identity).await;
        let prefix = Prefix::of(Ipv4Addr::new(10, 64, 0, 0));
        Ok((interfaces, Firewall::default().ensure_loaded(&identity, prefix, &BTreeSet::new()).await))
    })
}

async fn create_test_links(identity: &Identity) -> Result<(), Error> {
    let netlink = Netlink::open()?;
    let bridge = LinkMessageBuilder::<LinkBridge>::new(&identity.bridge(0)).build();
    netlink.handle.link().add(bridge).execute().await.map_err(|error| netlink_error("create a bridge", error))?;
    let pair = LinkMessageBuilder::<LinkVeth>::new(&identity.veth(Ipv4Addr::new(10, 64, 0, 2)), "eth0").build();
    netlink.handle.link().add(pair).execute().await.map_err(|error| netlink_error("create a pair of interfaces", error))
}
