//! The service as it is put together: s3s with our keys, our gate and our names.

use std::sync::Arc;

use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::S3ServiceBuilder;
use s3s::validation::NameValidation;
use tarn_model::buckets::check_name;

use crate::Objects;
use crate::s3::Adapter;
use crate::s3::ingress::access::{Gate, Keys};
use crate::s3::ingress::domains::Domains;
use crate::s3::ingress::front::Service;

/// How large a body of XML may be: a list of 10,000 parts with checksums fits.
pub(in crate::s3) const MAX_XML_BYTES: usize = 4 << 20;

/// S3 in front of object storage. Buckets have hosts of their own below each of these domains, and below `localhost`.
pub fn service(objects: Objects, domains: Vec<String>) -> Service {
    let mut builder = S3ServiceBuilder::new(Adapter { objects: objects.clone() });
    builder.set_auth(Keys(objects.clone()));
    builder.set_access(Gate::new(objects.clone()));
    builder.set_host(Domains::new(domains));
    builder.set_validation(Names);
    let mut config = S3Config::default();
    config.xml_max_body_size = MAX_XML_BYTES;
    // Forms are refused before they are read, and s3s would hold their files in memory.
    config.post_object_max_file_size = 0;
    config.form_max_fields_size = 0;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    Service::new(builder.build(), objects)
}

/// Names of buckets follow the rules of the model.
struct Names;

impl NameValidation for Names {
    fn validate_bucket_name(&self, name: &str) -> bool {
        check_name(name).is_ok()
    }
}
