//! Builds the service: s3s with our access keys, access check, domains and bucket names.

use std::sync::Arc;

use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use s3s::validation::NameValidation;
use tarn_model::buckets::check_name;

use crate::Objects;
use crate::s3::Adapter;
use crate::s3::ingress::access::{AccessCheck, AccessKeys};
use crate::s3::ingress::domains::{Domains, SharedDomains};
use crate::s3::ingress::front::{OnRefusal, Service};

/// The maximum size of an XML body: a list of 10,000 parts with checksums fits.
pub(in crate::s3) const MAX_XML_BYTES: usize = 4 << 20;

/// Returns the S3 service of object storage. Below each of these domains and below `localhost`, buckets have their own
/// host names. `on_refusal` is told about keys that are refused.
pub fn service(objects: Objects, domains: Vec<String>, on_refusal: OnRefusal) -> Service {
    let mut builder = S3ServiceBuilder::new(Adapter { objects: objects.clone() });
    builder.set_auth(AccessKeys(objects.clone()));
    builder.set_access(AccessCheck::new(objects.clone()));
    let domains = Arc::new(Domains::new(domains));
    builder.set_host(SharedDomains(domains.clone()));
    builder.set_validation(BucketNames);
    let mut config = S3Config::default();
    config.xml_max_body_size = MAX_XML_BYTES;
    // Forms are refused before they are read; otherwise s3s would hold their files in memory.
    config.post_object_max_file_size = 0;
    config.form_max_fields_size = 0;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    Service::new(builder.build(), objects, domains, on_refusal)
}

/// Checks bucket names by the rules of the model. New names have further rules, which the creation of a bucket checks.
struct BucketNames;

impl NameValidation for BucketNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        check_name(name).is_ok()
    }
}
