//! Users, their organization and their preferences.

use serde::{Deserialize, Serialize};
use tarn_base::Edit;
use utoipa::ToSchema;

use crate::admin::{LimitSet, LimitUsage};

/// Response for GET /user/info and GET /me.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserInfoResponse {
    /// ID of the user.
    pub user_id: String,
    /// E-mail address.
    pub email: String,
    /// ID of the organization; null for a user without one.
    pub org_id: Option<String>,
    /// Name of the organization; null for a user without one.
    pub org_name: Option<String>,
    /// Balance of the organization, or of the user without one, in US dollars.
    pub balance: f64,
    /// Clusters that are not destroyed.
    pub clusters: u64,
    /// Volumes that are not destroyed.
    pub volumes: u64,
    /// What all of them cost per hour, in US dollars.
    pub hourly_rate: f64,
    /// What the organization, or the user without one, may have.
    pub limits: LimitSet,
    /// What it uses of that.
    pub used: LimitUsage,
    /// The same as text.
    pub message: String,
}

/// The notification and payment settings of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserPreferences {
    /// Send a notice when a cluster is created.
    pub notify_email_cluster_create: bool,
    /// Send a notice when a cluster is destroyed.
    pub notify_email_cluster_destroy: bool,
    /// Reload the balance automatically.
    pub autopay_enabled: bool,
    /// Warn below this balance, in US dollars.
    pub balance_warning_threshold: Option<f64>,
    /// Reload below this balance, in US dollars.
    pub autopay_reload_threshold: Option<f64>,
}

/// Request body for PATCH /user/preferences; absent fields stay unchanged, and null removes a threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserPreferencesPatch {
    /// Send a notice when a cluster is created.
    pub notify_email_cluster_create: Option<bool>,
    /// Send a notice when a cluster is destroyed.
    pub notify_email_cluster_destroy: Option<bool>,
    /// Reload the balance automatically.
    pub autopay_enabled: Option<bool>,
    /// Warn below this balance, in US dollars; above the reload threshold.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 1000000000)]
    pub balance_warning_threshold: Edit<f64>,
    /// Reload below this balance, in US dollars; below the warning threshold.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    #[schema(value_type = Option<f64>, minimum = 20, maximum = 1000000000)]
    pub autopay_reload_threshold: Edit<f64>,
}

/// A member of an organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrganizationMember {
    /// ID of the user.
    pub uid: String,
    /// E-mail address.
    pub email: String,
    /// Whether the user administers the organization.
    pub admin: bool,
}

/// Response for GET /user/organization/info.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OrganizationInfo {
    /// ID of the organization.
    pub org_id: String,
    /// Its name.
    pub org_name: String,
    /// Its members.
    pub members: Vec<OrganizationMember>,
    /// Its balance in US dollars.
    pub balance: f64,
    /// The same as text.
    pub message: String,
}
