//! Copying within the storage. The bytes are not moved: the new object gets links to the same files.

use futures::StreamExt;
use tarn_model::ids::ContentId;
use tarn_model::objects::{Algorithm, Body, Details, Object, Part};

use crate::files::{Pending, Received, Sums};
use crate::put::{Condition, NewObject, ObjectLocation, Replaced, Stored, check_key};
use crate::{Error, Objects, Result};

impl Objects {
    /// Copies an object that was just found. The copy has the ETag and the parts of the original.
    pub async fn copy(
        &self,
        from: &Object,
        to: &ObjectLocation,
        details: Details,
        condition: Condition,
    ) -> Result<Stored> {
        check_key(&to.key)?;
        self.check_room(to, &Replaced::Object, Some(from.size)).await?;
        let mut pending = Vec::new();
        let (body, parts) = match &from.body {
            Body::Inline(data) => (Body::Inline(data.clone()), Vec::new()),
            Body::Parts(_) => self.link_parts(from, &mut pending).await?,
        };
        let object = NewObject { size: from.size, etag: from.etag.clone(), details, body, parts };
        self.store_object(to, object, pending, condition).await
    }

    async fn link_parts(&self, from: &Object, pending: &mut Vec<Pending>) -> Result<(Body, Vec<Part>)> {
        let content = ContentId::fresh(self.ids());
        let mut parts = self.parts_of(from, 0, tarn_model::objects::MAX_PARTS).await?;
        if parts.iter().map(|part| part.size).sum::<u64>() != from.size {
            return Err(Error::NoSuchVersion);
        }
        let files = parts.iter().map(|part| part.file.clone()).collect();
        for (part, linked) in parts.iter_mut().zip(self.files().link_all(files).await.map_err(read_error)?) {
            part.content = content.clone();
            part.file = linked.id().clone();
            pending.push(linked);
        }
        Ok((Body::Parts(content), parts))
    }

    /// Reads bytes of an object and receives them again, to compute sums that are not known. `as_file` is for parts,
    /// which are always files.
    pub async fn receive_again(
        &self,
        from: &Object,
        range: std::ops::Range<u64>,
        sums: Sums,
        as_file: bool,
    ) -> Result<Received> {
        let mut reader = self.read(from, range).await?;
        let files = self.files();
        let mut intake = if as_file { files.intake_file(sums) } else { files.intake(sums) };
        while let Some(piece) = reader.next().await {
            intake.push(piece.map_err(read_error)?).await?;
        }
        Ok(intake.finish().await?)
    }
}

/// A missing file belonged to an object that was removed since it was found.
fn read_error(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::NoSuchVersion,
        _ => error.into(),
    }
}

impl Sums {
    /// The MD5 and the requested checksum.
    pub fn with(algorithm: Option<Algorithm>) -> Self {
        Sums {
            md5: true,
            crc32: algorithm == Some(Algorithm::Crc32),
            crc32c: algorithm == Some(Algorithm::Crc32c),
            crc64nvme: algorithm == Some(Algorithm::Crc64Nvme),
            sha1: algorithm == Some(Algorithm::Sha1),
            sha256: algorithm == Some(Algorithm::Sha256),
        }
    }
}
