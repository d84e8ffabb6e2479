//! Settings of buckets: tags, rules for browsers, and rules for the life of objects. Each is set and read as a whole.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_model::ids::OrgId;
use tarn_model::object_rules::ObjectRule;
use tarn_store::bucket_settings::{self, SettingKind};
use tarn_store::{Tx, lifecycle_passes};

use crate::{Objects, Result, accounts, buckets};

impl Objects {
    /// Returns a setting of a bucket.
    pub async fn setting<T: DeserializeOwned>(
        &self,
        org: &OrgId,
        bucket: &str,
        kind: SettingKind,
    ) -> Result<Option<T>> {
        let read = self.store().read(|tx| {
            let bucket = buckets::find(tx, org, bucket)?;
            Ok(bucket_settings::get(tx, &bucket.id, kind)?)
        });
        read.await
    }

    /// Sets a setting of a bucket, or removes it.
    pub async fn set_setting<T: Serialize + Send + Sync + 'static>(
        &self,
        org: &OrgId,
        bucket: &str,
        kind: SettingKind,
        value: Option<T>,
    ) -> Result<()> {
        let (org, name) = (org.clone(), bucket.to_owned());
        let write = self.write(move |tx| -> Result<()> {
            accounts::get(tx, &org)?;
            let bucket = buckets::find(tx, &org, &name)?;
            match &value {
                Some(value) => bucket_settings::set(tx, &bucket.id, kind, value)?,
                None => bucket_settings::remove(tx, &bucket.id, kind)?,
            }
            Ok(())
        });
        write.await
    }

    /// Sets the rules for the life of the objects of a bucket, or removes them. They are applied from the first object
    /// on; a pass with older rules ends in the same transaction.
    pub async fn set_object_rules(&self, org: &OrgId, bucket: &str, rules: Option<Vec<ObjectRule>>) -> Result<()> {
        let (org, name) = (org.clone(), bucket.to_owned());
        let write = self.write(move |tx: &mut Tx<'_>| -> Result<()> {
            accounts::get(tx, &org)?;
            let (bucket, now) = (buckets::find(tx, &org, &name)?.id, tx.now());
            match &rules {
                Some(rules) => {
                    bucket_settings::set(tx, &bucket, SettingKind::Lifecycle, rules)?;
                    lifecycle_passes::start(tx, &bucket, &org, now)?;
                }
                None => {
                    bucket_settings::remove(tx, &bucket, SettingKind::Lifecycle)?;
                    lifecycle_passes::remove(tx, &bucket)?;
                }
            }
            Ok(())
        });
        write.await?;
        self.notify_rules_changed();
        Ok(())
    }
}
