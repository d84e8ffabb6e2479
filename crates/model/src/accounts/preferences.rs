//! The notification and payment settings of a user, and the rules between the thresholds.

use crate::Money;

/// The settings of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Preferences {
    /// Send a notice when a cluster is created.
    pub notify_email_cluster_create: bool,
    /// Send a notice when a cluster is destroyed.
    pub notify_email_cluster_destroy: bool,
    /// Reload the balance automatically.
    pub autopay_enabled: bool,
    /// Warn below this balance.
    pub balance_warning_threshold: Option<Money>,
    /// Reload below this balance.
    pub autopay_reload_threshold: Option<Money>,
}

/// Why a set of preferences is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum InvalidPreferences {
    #[error("balance_warning_threshold must be above autopay_reload_threshold")]
    WarningBelowReload,
    #[error("autopay needs a payment method, and this engine has none: an administrator grants balance instead")]
    NoPaymentMethod,
}

impl Preferences {
    /// Checks the rules between fields; the limits of single fields are in the schema of the API.
    pub fn check(&self) -> Result<(), InvalidPreferences> {
        if self.autopay_enabled {
            return Err(InvalidPreferences::NoPaymentMethod);
        }
        match (self.balance_warning_threshold, self.autopay_reload_threshold) {
            (Some(warning), Some(reload)) if warning <= reload => Err(InvalidPreferences::WarningBelowReload),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }
}
