//! Logins through the SSH gateway: the user name selects the instance, and the key identifies the user.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tarn_driver::GuestStream;
use tarn_model::access;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::events::{Event, InstanceEvent};
use tarn_model::ids::{ClusterId, InstanceId, UserId};
use tarn_model::lifecycle::State;
use tarn_model::users::Owner;
use tarn_store::events::Origin;
use tarn_store::{Tx, cluster_keys, clusters, instances, ssh_keys, users};

use crate::in_memory::access_holds::{AccessHolds, HoldGuard};
use crate::in_memory::refused_logins::Via;
use crate::{Control, Error, Result};

/// How long a login waits for an instance that is starting.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The delay between two tries to reach an instance.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How many ids are listed when a name matches several clusters.
const MAX_NAMED: usize = 10;

/// What a key opens under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginMatch {
    One(Login),
    /// The name is not enough; the message says which ids to use instead, or why.
    Ambiguous(String),
}

/// The sessions of all logins of this process, each with why it ended.
pub(crate) type HeldLogins = AccessHolds<HeldLogin, String>;

/// A login whose session is open.
pub(crate) struct HeldLogin {
    pub(crate) fingerprint: String,
    pub(crate) cluster: ClusterId,
    pub(crate) instance: InstanceId,
    pub(crate) user: UserId,
    pub(crate) scope: String,
    pub(crate) from: SocketAddr,
}

/// Tells when the access of a login ends, within seconds.
pub struct LoginAccess(HoldGuard<HeldLogin, String>);

impl LoginAccess {
    /// Waits until the access has ended, and returns why.
    pub async fn ended(&self) -> String {
        self.0.ended().await
    }
}

/// An authorized login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub instance: InstanceId,
    /// The user who saved the key or, for a key given at creation, the creator of the cluster.
    pub user: UserId,
    cluster: ClusterId,
    scope: String,
}

impl Login {
    /// The organization of the cluster, or its creator without one.
    pub fn scope(&self) -> &str {
        &self.scope
    }
}

/// Finds what `name` refers to among everything that the key with this fingerprint opens: the id or name of an
/// instance, or the id or name of a cluster, which stands for its first node. Returns `None` when there is no match,
/// whatever else has that name.
pub async fn find(control: &Control, name: &str, fingerprint: &str) -> Result<Option<LoginMatch>> {
    let read = control.store().read(|tx| -> Result<_> {
        let opened = clusters::opened_by(tx, fingerprint)?;
        let Matching { clusters: mut matching, node, is_by_id } = matching_clusters(tx, &opened, name)?;
        let was_found = !matching.is_empty();
        if !is_by_id {
            matching = proven_clusters(tx, &opened, matching, fingerprint)?;
        }
        match matching.as_slice() {
            [] if was_found => Ok(Some(LoginMatch::Ambiguous(NOT_PROVEN.to_owned()))),
            [] => Ok(None),
            [cluster] => {
                let Some(instance) = instances::of_cluster(tx, &cluster.id)?.into_iter().find(|one| one.node == node)
                else {
                    return Ok(None);
                };
                let user = user_of_key(tx, fingerprint, cluster)?;
                let scope = cluster.owner.scope().to_owned();
                let cluster = cluster.id.clone();
                Ok(Some(LoginMatch::One(Login { instance: instance.id, user, cluster, scope })))
            }
            several => Ok(Some(LoginMatch::Ambiguous(describe_ambiguity(name, several)))),
        }
    });
    read.await
}

/// Watches the access of a login until the result is dropped.
pub fn hold_access(control: &Control, login: &Login, fingerprint: &str, from: SocketAddr) -> LoginAccess {
    let Login { instance, user, cluster, scope } = login.clone();
    let held = HeldLogin { fingerprint: fingerprint.to_owned(), cluster, instance, user, scope, from };
    LoginAccess(control.memory.held_logins.add(held))
}

/// Counts a client that gave up without a key that opens what it asked for.
pub fn count_refused(control: &Control, from: SocketAddr) {
    control.memory.refused_logins.count(Via::Ssh, "ssh_key_refused", Some(from.ip()), None);
}

/// Returns why a key no longer opens a cluster.
pub(crate) fn why_closed(tx: &mut Tx<'_>, login: &HeldLogin) -> Result<String> {
    let Some(cluster) = clusters::get(tx, &login.cluster)? else { return Ok("the cluster is gone".to_owned()) };
    let saved = ssh_keys::with_fingerprint(tx, &login.fingerprint)?;
    let savers = saved.into_iter().map(|key| key.owner).filter(|owner| owner.scope() == cluster.owner.scope());
    let mut owners: Vec<Owner> = savers.collect();
    if cluster_keys::was_given(tx, &cluster.id, &login.fingerprint)? {
        owners.push(cluster.owner);
    }
    for owner in owners {
        match users::get(tx, &owner.user)? {
            Some(user) if user.disabled => return Ok(format!("user {} was disabled", user.id)),
            Some(user) if access::may_use(&user, &owner) => {}
            Some(_) | None => return Ok(format!("user {} left the organization", owner.user)),
        }
    }
    Ok("the SSH key was removed".to_owned())
}

/// Records the event that a user has logged in, and that the key is proven in the organization of the instance.
pub async fn record(control: &Control, login: &Login, fingerprint: &str, from: SocketAddr) -> Result<()> {
    let (login, fingerprint) = (login.clone(), fingerprint.to_owned());
    let (user, address) = (Some(login.user.clone()), Some(from.ip().to_canonical()));
    let origin = Origin { user, address, ..Origin::default() };
    let write = control.store().write(move |tx| {
        tx.set_origin(origin.clone());
        ssh_keys::save_proof(tx, &fingerprint, &login.scope)?;
        let event = InstanceEvent::LoggedIn { fingerprint: fingerprint.clone(), from: from.to_string() };
        tx.record(&login.scope, Event::Instance(login.instance.clone(), event))
    });
    write.await.map_err(Error::from)
}

/// Connects to the guest of an instance, and waits for one that is starting. The error is a message for the user.
pub async fn dial(control: &Control, instance: &InstanceId) -> std::result::Result<GuestStream, String> {
    let started = tokio::time::Instant::now();
    loop {
        let why = match try_dial(control, instance).await {
            Ok(stream) => return Ok(stream),
            Err(DialError::Permanent(why)) => return Err(why),
            Err(DialError::Retry(why)) => why,
        };
        if started.elapsed() + RETRY_INTERVAL >= DIAL_TIMEOUT {
            return Err(format!("{why}; try again in a moment"));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

enum DialError {
    Retry(String),
    Permanent(String),
}

async fn try_dial(control: &Control, id: &InstanceId) -> std::result::Result<GuestStream, DialError> {
    let read = control.store().read(|tx| instances::get(tx, id)).await;
    let found: Option<Instance> = read.map_err(|error| {
        tracing::error!(%error, instance = %id, "an instance could not be looked up for a login");
        DialError::Retry("the engine cannot look up the instance at the moment".into())
    })?;
    let state = found.map_or(State::Destroyed, |instance| instance.state);
    match &state {
        State::Running => {}
        State::Pending | State::Provisioning | State::Configuring | State::Restarting => {
            return Err(DialError::Retry(format!("instance {id} is not running yet: it is {}", state.name())));
        }
        State::Destroying | State::Destroyed => {
            return Err(DialError::Permanent(format!("instance {id} has been destroyed")));
        }
        State::Failed { reason } => {
            return Err(DialError::Permanent(format!("instance {id} is not running: {reason}")));
        }
    }
    control.driver().connect(id).await.map_err(|error| match error {
        tarn_driver::Error::Retry(why) => DialError::Retry(format!("instance {id} does not respond: {why}")),
        tarn_driver::Error::Permanent(why) | tarn_driver::Error::Unsupported(why) => DialError::Permanent(why),
    })
}

/// The message to the holder of a key that several organizations have saved.
const NOT_PROVEN: &str = "several organizations have saved your SSH key, so a name is not enough; prove that it \
                          is yours with `tarn me sshkey prove KEYFILE`, or log in once by the id of your cluster or \
                          instance (`tarn cluster list` shows it); its name works from then on";

/// Returns the clusters in organizations in which the holder of the key has proven it. Any user can save any key, and
/// so offer it a cluster of any name. No proof is needed while only one organization has the key and its holder has
/// never logged in to another one.
fn proven_clusters(
    tx: &mut Tx<'_>,
    opened: &[Cluster],
    matching: Vec<Cluster>,
    fingerprint: &str,
) -> Result<Vec<Cluster>> {
    let saved = ssh_keys::with_fingerprint(tx, fingerprint)?;
    let scopes = saved.iter().map(|key| key.owner.scope()).chain(opened.iter().map(|cluster| cluster.owner.scope()));
    if scopes.collect::<BTreeSet<_>>().len() <= 1 && !ssh_keys::is_proven(tx, fingerprint)? {
        return Ok(matching);
    }
    let mut proven = Vec::new();
    for cluster in matching {
        if ssh_keys::is_proven_in(tx, fingerprint, cluster.owner.scope())? {
            proven.push(cluster);
        }
    }
    Ok(proven)
}

/// The clusters that a name refers to.
struct Matching {
    clusters: Vec<Cluster>,
    /// Which of their nodes.
    node: u32,
    is_by_id: bool,
}

fn matching_clusters(tx: &mut Tx<'_>, opened: &[Cluster], name: &str) -> Result<Matching> {
    let by_id = |clusters, node| Ok(Matching { clusters, node, is_by_id: true });
    let of_id = |id: &ClusterId| opened.iter().filter(|cluster| cluster.id == *id).cloned().collect();
    if let Ok(id) = name.parse::<InstanceId>() {
        let instance = instances::get(tx, &id)?;
        let (clusters, node) = instance.map_or((Vec::new(), 0), |instance| (of_id(&instance.cluster), instance.node));
        return by_id(clusters, node);
    }
    if let Ok(id) = name.parse::<ClusterId>() {
        return by_id(of_id(&id), 0);
    }
    if let Some((cluster, node)) = name.rsplit_once('-')
        && let (Ok(id), Ok(node)) = (cluster.parse::<ClusterId>(), node.parse())
    {
        return by_id(of_id(&id), node);
    }
    let clusters = opened.iter().filter(|cluster| cluster.name == name).cloned().collect();
    Ok(Matching { clusters, node: 0, is_by_id: false })
}

/// Returns the user to whom a login counts. If several members have saved the key, this is the creator of the cluster
/// if they are one of them: another member's copy does not take over their logins.
fn user_of_key(tx: &mut Tx<'_>, fingerprint: &str, cluster: &Cluster) -> Result<UserId> {
    let mut saved = ssh_keys::with_fingerprint(tx, fingerprint)?;
    saved.sort_by_key(|key| key.owner.user != cluster.owner.user);
    for key in saved {
        if key.owner.scope() == cluster.owner.scope()
            && users::get(tx, &key.owner.user)?.is_some_and(|user| !user.disabled && access::may_use(&user, &key.owner))
        {
            return Ok(key.owner.user);
        }
    }
    Ok(cluster.owner.user.clone())
}

fn describe_ambiguity(name: &str, several: &[Cluster]) -> String {
    let ids: Vec<&str> = several.iter().take(MAX_NAMED).map(|cluster| cluster.id.as_str()).collect();
    let more = if several.len() > MAX_NAMED { ", …" } else { "" };
    format!("several clusters that your key opens are named {name}; use an id instead: {}{more}", ids.join(", "))
}
