//! The events of object storage, except those of objects, which have none.

use crate::ids::UserId;

verbs! {
    /// What happens to the object storage of an organization.
    AccountEvent {
        /// It was enabled.
        "object_storage.enable" Enabled {}
        /// It was disabled, with so many objects in it.
        "object_storage.disable" Disabled { force: bool, objects: u64, bytes: u64 }
        /// The secret of a key was shown. The same is recorded once a minute.
        "object_storage.show_credentials" CredentialsShown { access_key_id: String }
    }
}

verbs! {
    /// What happens to an S3 key.
    S3KeyEvent {
        /// It was created for this user.
        "object_storage.create_key" Created { user: UserId, name: String }
        /// It was revoked.
        "object_storage.revoke_key" Revoked { user: UserId, name: String }
        /// It replaced older ones, which work until then or ended at once.
        "object_storage.rotate_keys" Rotated {
            access_key_id: String,
            old_access_key_ids: Vec<String>,
            old_until: Option<String>,
        }
        /// It was the legacy key of the organization, and was ended.
        "object_storage.retire_legacy_key" LegacyRetired { access_key_id: String }
    }
}

verbs! {
    /// What happens to a bucket.
    BucketEvent {
        /// It was created.
        "object_storage.create_bucket" Created { name: String }
        /// It was removed.
        "object_storage.delete_bucket" Deleted { name: String }
    }
}
