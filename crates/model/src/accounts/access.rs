//! Who may do what: one decision from an action, the relation of a user to the object, and the policy of the engine.
//!
//! A new right is a line of the table below, and a new role is a [`Relation`]. Nothing outside of this module asks
//! whether a user administers something. `docs/states/access.md` shows all decisions.

use super::users::{Owner, User};
use crate::ids::{OrgId, UserId};

/// Turns the table into the enum of all actions, with their rule and their name.
macro_rules! actions {
    ($($(#[$doc:meta])+ $action:ident $rule:ident $name:literal;)+) => {
        /// What a user can do to an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Action {
            $($(#[$doc])+ $action,)+
        }

        impl Action {
            /// Every action.
            pub const ALL: &[Action] = &[$(Action::$action),+];

            /// Returns the action and the kind of its object, as in "only ada@example.org can destroy cluster …".
            pub fn name(self) -> &'static str {
                match self {
                    $(Action::$action => $name,)+
                }
            }

            fn rule(self) -> Rule {
                match self {
                    $(Action::$action => Rule::$rule,)+
                }
            }
        }
    };
}

actions! {
    /// Sees an object, logs in to it, runs a job on it, renames or enlarges it, or protects it from deletion.
    Use Shared "see and use";
    /// Destroys a cluster.
    DestroyCluster Personal "destroy cluster";
    /// Restarts the nodes of a cluster.
    RestartCluster Personal "restart cluster";
    /// Turns off the deletion protection of a cluster.
    UnprotectCluster Personal "turn off the deletion protection of cluster";
    /// Runs a job that destroys the cluster afterwards.
    TearDownCluster Personal "tear down cluster";
    /// Attaches a volume to a cluster: the cluster.
    AttachToCluster Personal "attach storage to cluster";
    /// Detaches a volume from a cluster: the cluster.
    DetachFromCluster Personal "detach storage from cluster";
    /// Destroys a volume.
    DestroyVolume Personal "destroy storage";
    /// Turns off the deletion protection of a volume.
    UnprotectVolume Personal "turn off the deletion protection of storage";
    /// Attaches a volume to a cluster: the volume.
    AttachVolume Personal "attach storage";
    /// Detaches a volume from a cluster: the volume.
    DetachVolume Personal "detach storage";
    /// Cancels a job.
    CancelJob Personal "cancel job";
    /// Deletes a job with its log and its files.
    DeleteJob Personal "delete job";
    /// Removes a saved SSH key.
    RemoveSshKey Personal "remove SSH key";
    /// Deletes a bucket.
    DeleteBucket Personal "delete bucket";
    /// Revokes an S3 key.
    RevokeS3Key Administered "revoke S3 key";
    /// Sees the S3 keys of all members, and retires the key that they shared.
    ManageS3Keys Administered "manage the S3 keys of organization";
    /// Disables the object storage of an organization, also with all of its objects.
    DisableObjectStorage Personal "disable the object storage of organization";
    /// Manages users, keys, limits and the host.
    AdministerEngine Engine "administer the engine";
}

/// Which relations an action needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Everything that belongs to an organization is shared by its members.
    Shared,
    /// It may take away what another member works with: only for its creator and the organization's administrators.
    Personal,
    /// Like `Personal`, whatever the operator allows members.
    Administered,
    /// Only for administrators of the engine.
    Engine,
}

/// What an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// What a user created, in their organization if they had one. The creator may be unknown.
    Owned {
        /// The creator.
        creator: Option<&'a UserId>,
        /// The organization that it belongs to.
        org: Option<&'a OrgId>,
    },
    /// The engine itself.
    Engine,
}

impl<'a> From<&'a Owner> for Object<'a> {
    fn from(owner: &'a Owner) -> Self {
        Object::Owned { creator: Some(&owner.user), org: owner.org.as_ref() }
    }
}

/// What a user is to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Created the object, and still belongs to its organization.
    Creator,
    /// Administers the organization of the object.
    OrgAdmin,
    /// Belongs to the organization of the object.
    Member,
    /// Administers the engine, if that is the object.
    EngineAdmin,
    /// None of these.
    Stranger,
}

impl Relation {
    /// Every relation.
    pub const ALL: [Relation; 5] =
        [Relation::Creator, Relation::OrgAdmin, Relation::Member, Relation::EngineAdmin, Relation::Stranger];

    /// Returns what a user is to an object. To the objects of other organizations an administrator of the engine is a
    /// stranger.
    pub fn between(user: &User, object: Object<'_>) -> Relation {
        let (creator, org) = match object {
            Object::Engine if user.engine_admin => return Relation::EngineAdmin,
            Object::Engine => return Relation::Stranger,
            Object::Owned { creator, org } => (creator, org),
        };
        let is_creator = creator == Some(&user.id);
        match (&user.org, org) {
            (Some(mine), Some(theirs)) if mine == theirs => {
                if is_creator {
                    Relation::Creator
                } else if user.org_admin {
                    Relation::OrgAdmin
                } else {
                    Relation::Member
                }
            }
            // A user keeps what they created before they joined an organization.
            (_, None) if is_creator => Relation::Creator,
            // What belongs to an organization stays with it when its creator leaves.
            (Some(_), Some(_)) | (None, Some(_)) | (_, None) => Relation::Stranger,
        }
    }
}

/// What the operator has decided for all organizations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether members may also take away what other members created.
    pub members_may_destroy: bool,
}

/// Why an action is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The object belongs to another user or organization.
    Foreign,
    /// Another member of the organization created the object.
    NotYours,
    /// Only administrators of the engine may do this.
    NotEngineAdmin,
}

/// Decides whether a user may do something to an object.
pub fn check(user: &User, action: Action, object: Object<'_>, policy: Policy) -> Result<(), Denied> {
    decide(action, Relation::between(user, object), policy)
}

/// Decides whether a user may see and use what belongs to `owner`. No policy changes this.
pub fn may_use(user: &User, owner: &Owner) -> bool {
    check(user, Action::Use, owner.into(), Policy::default()).is_ok()
}

/// Decides whether an action is allowed in a relation.
pub fn decide(action: Action, relation: Relation, policy: Policy) -> Result<(), Denied> {
    match (action.rule(), relation) {
        (Rule::Shared, Relation::Creator | Relation::OrgAdmin | Relation::Member)
        | (Rule::Personal | Rule::Administered, Relation::Creator | Relation::OrgAdmin)
        | (Rule::Engine, Relation::EngineAdmin) => Ok(()),
        (Rule::Personal, Relation::Member) if policy.members_may_destroy => Ok(()),
        (Rule::Personal | Rule::Administered, Relation::Member) => Err(Denied::NotYours),
        (Rule::Shared | Rule::Personal | Rule::Administered, Relation::EngineAdmin | Relation::Stranger) => {
            Err(Denied::Foreign)
        }
        (Rule::Engine, Relation::Creator | Relation::OrgAdmin | Relation::Member | Relation::Stranger) => {
            Err(Denied::NotEngineAdmin)
        }
    }
}

impl Denied {
    /// Returns the stable code of this refusal.
    pub fn code(self) -> &'static str {
        match self {
            Denied::Foreign | Denied::NotEngineAdmin => "access_denied",
            Denied::NotYours => "not_yours",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::rendering::render_page;

    fn user(id: &str, org: Option<&str>, org_admin: bool) -> User {
        User {
            id: id.parse().unwrap(),
            email: "a@b".into(),
            org: org.map(|org| org.parse().unwrap()),
            org_admin,
            engine_admin: false,
            disabled: false,
            created: Time::ZERO,
        }
    }

    /// A relation follows from the organization of today, and only then from who created the object.
    #[test]
    fn relation_follows_from_organization_and_creator() {
        let (me, other) = ("u-000000000001", "u-000000000002");
        let (ours, theirs) = (Some("o-000000000001"), Some("o-000000000002"));
        let to = |user: &User, owner: &Owner| Relation::between(user, owner.into());
        let of = |id, org| user(id, org, false).owner();
        assert_eq!(to(&user(me, ours, false), &of(me, ours)), Relation::Creator);
        assert_eq!(to(&user(me, ours, true), &of(me, ours)), Relation::Creator);
        assert_eq!(to(&user(me, ours, false), &of(other, ours)), Relation::Member);
        assert_eq!(to(&user(me, ours, true), &of(other, ours)), Relation::OrgAdmin);
        assert_eq!(to(&user(me, ours, true), &of(other, theirs)), Relation::Stranger);
        assert_eq!(to(&user(me, None, false), &of(me, None)), Relation::Creator);
        assert_eq!(to(&user(me, None, true), &of(other, None)), Relation::Stranger);
        assert_eq!(to(&user(me, ours, false), &of(me, None)), Relation::Creator, "from before they joined");
        assert_eq!(to(&user(me, theirs, true), &of(me, ours)), Relation::Stranger, "a former organization keeps it");
        assert_eq!(to(&user(me, None, false), &of(me, ours)), Relation::Stranger, "a former organization keeps it");
    }

    /// What has no known creator is an administrator's.
    #[test]
    fn unknown_creator_leaves_administrators() {
        let org: OrgId = "o-000000000001".parse().unwrap();
        let object = Object::Owned { creator: None, org: Some(&org) };
        assert_eq!(Relation::between(&user("u-000000000001", Some(org.as_str()), false), object), Relation::Member);
        assert_eq!(Relation::between(&user("u-000000000001", Some(org.as_str()), true), object), Relation::OrgAdmin);
    }

    /// An administrator of the engine is one to the engine only.
    #[test]
    fn engine_admin_is_stranger_to_tenants() {
        let admin = User { engine_admin: true, ..user("u-000000000001", Some("o-000000000001"), true) };
        assert_eq!(Relation::between(&admin, Object::Engine), Relation::EngineAdmin);
        let foreign = user("u-000000000002", Some("o-000000000002"), false).owner();
        assert_eq!(Relation::between(&admin, (&foreign).into()), Relation::Stranger);
        let plain = user("u-000000000001", Some("o-000000000001"), true);
        assert_eq!(Relation::between(&plain, Object::Engine), Relation::Stranger);
    }

    /// Renders every decision, with the policy where it matters.
    #[test]
    fn decisions_are_rendered() {
        let (strict, open) = (Policy::default(), Policy { members_may_destroy: true });
        let mut page = String::from(
            "# Access\n\nWho may do what: **yes**, or the code of the refusal. Rendered by the tests of `crates/model`; do not \
             edit. \"Open\"\nis what holds with `organization.members_may_destroy`. An administrator of the engine is a \
             stranger to what belongs\nto other organizations.\n\n| action | creator | administrator of the organization \
             | member | member, open | administrator of the engine | stranger |\n|---|---|---|---|---|---|---|\n",
        );
        let cell = |decision: Result<(), Denied>| decision.map_or_else(Denied::code, |()| "**yes**");
        for action in Action::ALL {
            let cells = Relation::ALL.map(|relation| {
                let (decision, opened) = (decide(*action, relation, strict), decide(*action, relation, open));
                match relation {
                    Relation::Member => format!("{} | {}", cell(decision), cell(opened)),
                    Relation::Creator | Relation::OrgAdmin | Relation::EngineAdmin | Relation::Stranger => {
                        assert_eq!(decision, opened, "the policy is about members");
                        cell(decision).to_owned()
                    }
                }
            });
            page.push_str(&format!("| {} | {} |\n", action.name(), cells.join(" | ")));
        }
        render_page("states/access", &page);
    }
}
