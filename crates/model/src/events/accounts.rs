//! The events of users and organizations, their keys, balances and limits.

use crate::ids::UserId;
use crate::limits::Limits;

verbs! {
    /// What happens to a user.
    UserEvent {
        /// They were created.
        "user.create" Created { email: String }
        /// They were disabled: all of their access ends.
        "user.disable" Disabled { email: String }
        /// They were enabled again.
        "user.enable" Enabled { email: String }
        /// They changed their preferences.
        "user.preferences" PreferencesChanged {}
        /// All keys of the first administrator were replaced by a new one.
        "key.reset" KeysReset { email: String }
    }
}

verbs! {
    /// What happens to an API key.
    ApiKeyEvent {
        /// It was created for this user.
        "key.create" Created { user: UserId }
        /// It was revoked.
        "key.revoke" Revoked { user: UserId }
    }
}

verbs! {
    /// What happens to logins.
    LoginEvent {
        /// Logins were refused within the last minute, so many for this reason.
        "login.refused" Refused { via: String, reason: String, count: u64 }
    }
}

verbs! {
    /// What happens to a saved SSH key.
    SshKeyEvent {
        /// A user saved it.
        "ssh_key.add" Added { fingerprint: String }
        /// A user removed it. It was also withdrawn from so many clusters that were created with it.
        "ssh_key.remove" Removed { fingerprint: String, withdrawn_from: u64 }
        /// Its holder proved that it is theirs.
        "ssh_key.prove" Proven { fingerprint: String }
    }
}

verbs! {
    /// What happens to the account of an organization, or of a user without one.
    ScopeEvent {
        /// An administrator of the engine changed its limits.
        "limits.change" LimitsChanged { before: Limits, after: Limits }
        /// An administrator of the engine changed its balance by so many millionths of a dollar.
        "balance.grant" Granted { micros: i64, transaction: String }
    }
}
