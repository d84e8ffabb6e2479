//! One event of every verb, for tests and for the page that is rendered. A verb without one fails the test.

use crate::events::{
    AccountEvent, ApiKeyEvent, BucketEvent, Cause, ClusterEvent, Event, GpuClearance, GpuEvent, HostEvent,
    InstanceEvent, InstanceStop, JobEvent, KilledProcess, LoginEvent, RebootLosses, RequestEvent, RestoreLosses,
    S3KeyEvent, ScopeEvent, SshKeyEvent, UserEvent, VolumeEvent,
};
use crate::ids::{ClusterId, InstanceId, UserId};
use crate::instance_end::End;
use crate::limits::Limits;
use crate::requests::RequestType;

/// Returns the samples, in the order of the tables.
pub(super) fn all() -> Vec<Event> {
    let nouns = [clusters(), instances(), volumes(), requests(), jobs(), accounts(), object_storage(), hosts()];
    nouns.into_iter().flatten().collect()
}

fn cluster() -> ClusterId {
    "c-000000000001".parse().unwrap()
}

fn instance() -> InstanceId {
    "i-000000000001".parse().unwrap()
}

fn user() -> UserId {
    "u-000000000001".parse().unwrap()
}

fn node() -> String {
    "c-000000000001-0".to_owned()
}

fn clusters() -> Vec<Event> {
    let state = |name: &str| name.to_owned();
    let name = || "heron".to_owned();
    let mut events = vec![
        ClusterEvent::Created { name: name(), instance_type: "1xH100".into(), nodes: 2 },
        ClusterEvent::Edited { name: name(), deletion_protection: true },
        ClusterEvent::Placed { state: state("PROVISIONING") },
        ClusterEvent::ImageReady { image: "docker.io/library/debian@sha256:0000".into() },
        ClusterEvent::Provisioned { state: state("CONFIGURING") },
        ClusterEvent::Running { state: state("RUNNING") },
        ClusterEvent::RestartBegun { name: name(), cause: None },
        ClusterEvent::RestartBegun { name: name(), cause: Some(Cause(End::MachineRebooted)) },
        ClusterEvent::Restarted { state: state("RUNNING") },
        ClusterEvent::Failed { reason: Some("node c-000000000001-0 was lost for an unknown reason".into()) },
        ClusterEvent::DestroyBegun { name: name() },
        ClusterEvent::Destroyed { state: state("DESTROYED") },
    ];
    for restarted in [None, Some(state("RUNNING"))] {
        events.push(ClusterEvent::VolumeAttached { state: restarted.clone() });
        events.push(ClusterEvent::VolumeDetached { state: restarted.clone() });
        events.push(ClusterEvent::AttachmentUnchanged { state: restarted });
    }
    events.into_iter().map(|event| Event::Cluster(cluster(), event)).collect()
}

fn instances() -> Vec<Event> {
    let fingerprint = || "SHA256:0000".to_owned();
    let stopped = |end| InstanceEvent::Stopped { cluster: cluster(), name: node(), boot: 1, end };
    let stops = [InstanceStop::Restart, InstanceStop::Destroy, InstanceStop::MachineRebooted, InstanceStop::Restore];
    let died = |end| InstanceEvent::Died { cause: Cause(end), cluster: cluster(), name: node() };
    let ends = [End::OutOfMemory, End::Exit, End::MachineRebooted, End::DiskMissing, End::Lost];
    let mut events = vec![InstanceEvent::Started { cluster: cluster(), name: node(), boot: 1 }];
    events.extend(stops.map(stopped));
    events.extend(ends.map(died));
    events.extend([
        InstanceEvent::OrphanRemoved {},
        InstanceEvent::LoggedIn { fingerprint: fingerprint(), from: "192.0.2.1:50000".into() },
        InstanceEvent::SessionEnded {
            user: user(),
            fingerprint: fingerprint(),
            reason: "the SSH key was removed".into(),
        },
    ]);
    events.into_iter().map(|event| Event::Instance(instance(), event)).collect()
}

fn volumes() -> Vec<Event> {
    let name = || "data".to_owned();
    let events = [
        VolumeEvent::Created { name: name(), size_gb: 100 },
        VolumeEvent::Creating { state: "CREATING".into() },
        VolumeEvent::Ready { state: "READY".into() },
        VolumeEvent::Edited { name: name(), deletion_protection: false, grows_to_gb: Some(200) },
        VolumeEvent::Edited { name: name(), deletion_protection: true, grows_to_gb: None },
        VolumeEvent::Resized { size_gb: 200 },
        VolumeEvent::AttachBegun { cluster: cluster(), live: true },
        VolumeEvent::DetachBegun { cluster: cluster(), live: false },
        VolumeEvent::ProcessesKilled {
            node: node(),
            instance: instance(),
            request: "r-000000000001".parse().unwrap(),
            processes: vec![KilledProcess { pid: 42, program: "python3".into() }],
            count: 1,
        },
        VolumeEvent::Failed { state: None, reason: Some("its data is missing".into()) },
        VolumeEvent::Failed { state: Some("FAILED".into()), reason: None },
        VolumeEvent::Recovered { size_gb: 200 },
        VolumeEvent::DestroyBegun { name: name() },
        VolumeEvent::Destroyed { state: "DESTROYED".into() },
        VolumeEvent::Unknown {},
    ];
    events.into_iter().map(|event| Event::Volume("s-000000000001".parse().unwrap(), event)).collect()
}

fn requests() -> Vec<Event> {
    let object = || "s-000000000001".to_owned();
    let completed = |kind| RequestEvent::Completed { kind, object: object(), message: Some("It is done.".into()) };
    let mut events: Vec<_> = RequestType::ALL.map(completed).into();
    events.push(RequestEvent::Failed { kind: RequestType::StorageCreate, object: object(), message: None });
    events.into_iter().map(|event| Event::Request("r-000000000001".parse().unwrap(), event)).collect()
}

fn jobs() -> Vec<Event> {
    let events = [
        JobEvent::Created { name: "train".into(), cluster: cluster(), teardown: false },
        JobEvent::Queued { cluster: cluster() },
        JobEvent::Started { cluster: cluster(), attempt: 1 },
        JobEvent::Retried { attempt: 2, reason: "exit code 1".into() },
        JobEvent::CancelBegun { was: "RUNNING".into() },
        JobEvent::Ended { status: "completed".into(), exit_code: Some(0), attempt: 2 },
        JobEvent::Ended { status: "canceled".into(), exit_code: None, attempt: 2 },
        JobEvent::Deleted { status: "completed".into() },
        JobEvent::UrlsSigned { grant: "download".into(), count: 3 },
    ];
    events.into_iter().map(|event| Event::Job("j-000000000001".parse().unwrap(), event)).collect()
}

fn accounts() -> Vec<Event> {
    let email = || "ada@example.org".to_owned();
    let of_user = |event| Event::User(user(), event);
    let of_api_key = |event| Event::ApiKey("a-000000000001".parse().unwrap(), event);
    let of_ssh_key = |event| Event::SshKey("k-000000000001".parse().unwrap(), event);
    let of_scope = |event| Event::Scope("o-000000000001".to_owned(), event);
    let fingerprint = || "SHA256:0000".to_owned();
    vec![
        of_user(UserEvent::Created { email: email() }),
        of_user(UserEvent::Disabled { email: email() }),
        of_user(UserEvent::Enabled { email: email() }),
        of_user(UserEvent::PreferencesChanged {}),
        of_user(UserEvent::KeysReset { email: email() }),
        of_api_key(ApiKeyEvent::Created { user: user() }),
        of_api_key(ApiKeyEvent::Revoked { user: user() }),
        Event::Login("api".into(), LoginEvent::Refused { via: "api".into(), reason: "invalid_key".into(), count: 7 }),
        of_ssh_key(SshKeyEvent::Added { fingerprint: fingerprint() }),
        of_ssh_key(SshKeyEvent::Removed { fingerprint: fingerprint(), withdrawn_from: 1 }),
        of_ssh_key(SshKeyEvent::Proven { fingerprint: fingerprint() }),
        of_scope(ScopeEvent::LimitsChanged {
            before: Limits::default(),
            after: Limits { gpus: Some(8), ..Limits::default() },
        }),
        of_scope(ScopeEvent::Granted { micros: 25_000_000, transaction: "t-0000000000000001".into() }),
    ]
}

fn object_storage() -> Vec<Event> {
    let key = || "TARN0000000000000001".to_owned();
    let of_account = |event| Event::Account("o-000000000001".parse().unwrap(), event);
    let of_key = |event| Event::S3Key(key(), event);
    let of_bucket = |event| Event::Bucket("b-000000000001".parse().unwrap(), event);
    vec![
        of_account(AccountEvent::Enabled {}),
        of_account(AccountEvent::Disabled { force: true, objects: 10, bytes: 4096 }),
        of_account(AccountEvent::CredentialsShown { access_key_id: key() }),
        of_key(S3KeyEvent::Created { user: user(), name: "laptop".into() }),
        of_key(S3KeyEvent::Revoked { user: user(), name: "laptop".into() }),
        of_key(S3KeyEvent::Rotated {
            access_key_id: key(),
            old_access_key_ids: vec!["TARN0000000000000000".into()],
            old_until: Some("2026-11-20T00:00:00Z".into()),
        }),
        of_key(S3KeyEvent::LegacyRetired { access_key_id: key() }),
        of_bucket(BucketEvent::Created { name: "models".into() }),
        of_bucket(BucketEvent::Deleted { name: "models".into() }),
    ]
}

fn hosts() -> Vec<Event> {
    let of_gpu = |event| Event::Gpu("GPU-0".into(), event);
    let of_host = |event| Event::Host("host".into(), event);
    let reason = || Some("a fan is replaced".to_owned());
    vec![
        of_gpu(GpuEvent::Drained { reason: reason() }),
        of_gpu(GpuEvent::Undrained { reason: None }),
        of_gpu(GpuEvent::Cleared { clearance: GpuClearance::Kept { reason: None } }),
        of_gpu(GpuEvent::Cleared { clearance: GpuClearance::Forgotten { forgotten: true } }),
        of_gpu(GpuEvent::Good { reason: None, instance: None, cluster: None }),
        of_gpu(GpuEvent::Bad { reason: reason(), instance: Some(instance()), cluster: Some(cluster()) }),
        of_gpu(GpuEvent::Fatal { reason: reason(), instance: None, cluster: None }),
        of_host(HostEvent::Drained { reason: reason() }),
        of_host(HostEvent::Undrained { reason: None }),
        of_host(HostEvent::Rebooted { losses: RebootLosses { requests_resumed: 1, ..RebootLosses::default() } }),
        of_host(HostEvent::Adopted { installation: "8f3a".into(), earlier: None }),
        of_host(HostEvent::Restored {
            losses: RestoreLosses { clusters: vec!["c-000000000001 (heron)".into()], ..RestoreLosses::default() },
        }),
        of_host(HostEvent::ClockJumped { by_us: -3_600_000_000, open_requests: 2 }),
    ]
}
