//! Files on their way into a bucket. Large ones are sent in pieces, several at a time, in bounded memory.
//!
//! What arrives is compared: the server sees a checksum of each call, and the ETag that it returns is, on most servers,
//! the MD5 of what it has. Where it is not, the object is read again.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::objects::Objects;
use super::source::Source;

/// The size of a piece, unless there would be too many of them.
const PIECE_BYTES: u64 = 8 << 20;
const MAX_PIECES: u64 = 10_000;

/// The memory of the pieces of all files, in MiB. A piece that is larger is alone.
const MEMORY_MIB: u32 = 64;

/// What sends files.
#[derive(Clone)]
pub(super) struct Uploads {
    objects: Objects,
    memory: Arc<Semaphore>,
}

/// What was sent: its MD5, and the ETag of the pieces.
struct Sent {
    parts: Vec<PartId>,
    md5: String,
    tag: String,
}

impl Uploads {
    pub(super) fn new(objects: &Objects) -> Uploads {
        Uploads { objects: objects.clone(), memory: Arc::new(Semaphore::new(MEMORY_MIB as usize)) }
    }

    /// Stores a file, and returns the MD5 of what is stored. `None` if it is not `expected`; then the object is as it
    /// was. `note` is called before the first piece of an upload that must be ended by its id.
    pub(super) async fn store<N>(
        &self,
        key: &Path,
        source: &Source,
        expected: impl Fn(&str) -> bool + Send,
        note: impl FnOnce(String) -> N + Send,
    ) -> io::Result<Option<String>>
    where
        N: Future<Output = io::Result<()>> + Send,
    {
        let bytes = source.layout.stored_bytes();
        if bytes > PIECE_BYTES {
            return self.store_pieces(key, source, expected, note).await;
        }
        let _permit = self.permit(bytes).await?;
        let content = source.read(0, bytes).await?;
        let md5 = hex::encode(Md5::digest(&content));
        if !expected(&md5) {
            return Ok(None);
        }
        let put = self.objects.client.put(key, PutPayload::from(content)).await.map_err(|e| self.objects.failed(e))?;
        self.compare(key, put.e_tag, &md5, &md5).await?;
        Ok(Some(md5))
    }

    async fn store_pieces<N>(
        &self,
        key: &Path,
        source: &Source,
        expected: impl Fn(&str) -> bool + Send,
        note: impl FnOnce(String) -> N + Send,
    ) -> io::Result<Option<String>>
    where
        N: Future<Output = io::Result<()>> + Send,
    {
        let client = &self.objects.client;
        let id = client.create_multipart(key).await.map_err(|e| self.objects.failed(e))?;
        let sent = match note(id.clone()).await {
            Ok(()) => self.send_pieces(key, &id, source).await,
            Err(error) => Err(error),
        };
        let sent = match sent {
            Ok(sent) if expected(&sent.md5) => sent,
            other => {
                // The next backup ends it if this fails, too.
                let _ = client.abort_multipart(key, &id).await;
                return other.map(|_| None);
            }
        };
        let tag = match client.complete_multipart(key, &id, sent.parts).await {
            Ok(put) => put.e_tag,
            // The response to a call that succeeded may have been lost. If it did not succeed, the object is another
            // one.
            Err(error) => match client.head(key).await {
                Ok(found) => found.e_tag.filter(|tag| is_tag(tag, &sent.tag)),
                Err(_) => None,
            }
            .map_or_else(|| Err(self.objects.failed(error)), |tag| Ok(Some(tag)))?,
        };
        self.compare(key, tag, &sent.tag, &sent.md5).await?;
        Ok(Some(sent.md5))
    }

    /// Sends all pieces of a file.
    async fn send_pieces(&self, key: &Path, id: &str, source: &Source) -> io::Result<Sent> {
        let bytes = source.layout.stored_bytes();
        let piece = PIECE_BYTES.max(bytes.div_ceil(MAX_PIECES).next_multiple_of(1 << 20));
        let count = bytes.div_ceil(piece);
        let (mut whole, mut tags, mut sending) = (Md5::new(), Md5::new(), JoinSet::new());
        let mut parts = vec![None; usize::try_from(count).map_err(io::Error::other)?];
        for index in 0..parts.len() {
            let at = index as u64 * piece;
            let permit = self.permit(piece).await?;
            let content = source.read(at, piece.min(bytes - at)).await?;
            whole.update(&content);
            tags.update(Md5::digest(&content));
            sending.spawn(send_piece(self.objects.clone(), (key.clone(), id.to_owned()), index, content, permit));
            while let Some(sent) = sending.try_join_next() {
                let (index, part) = sent.map_err(io::Error::other)??;
                parts[index] = Some(part);
            }
        }
        while let Some(sent) = sending.join_next().await {
            let (index, part) = sent.map_err(io::Error::other)??;
            parts[index] = Some(part);
        }
        let tag = format!("{}-{count}", hex::encode(tags.finalize()));
        Ok(Sent { parts: parts.into_iter().flatten().collect(), md5: hex::encode(whole.finalize()), tag })
    }

    /// Compares what the server has with what was sent.
    async fn compare(&self, key: &Path, tag: Option<String>, expected: &str, md5: &str) -> io::Result<()> {
        if tag.is_some_and(|tag| is_tag(&tag, expected)) {
            return Ok(());
        }
        let mut found = Md5::new();
        let update = |piece: &[u8]| {
            found.update(piece);
            Ok(())
        };
        self.objects.each_piece(key, update).await?;
        if hex::encode(found.finalize()) == md5 {
            return Ok(());
        }
        let _ = self.objects.client.delete(key).await;
        Err(io::Error::other(format!("what {} has of {key} is not what was sent", self.objects.server())))
    }

    async fn permit(&self, bytes: u64) -> io::Result<OwnedSemaphorePermit> {
        let mebibytes = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(MEMORY_MIB).clamp(1, MEMORY_MIB);
        self.memory.clone().acquire_many_owned(mebibytes).await.map_err(io::Error::other)
    }
}

async fn send_piece(
    objects: Objects,
    (key, id): (Path, String),
    index: usize,
    content: Bytes,
    permit: OwnedSemaphorePermit,
) -> io::Result<(usize, PartId)> {
    let sent = objects.client.put_part(&key, &id, index, PutPayload::from(content)).await;
    drop(permit);
    Ok((index, sent.map_err(|e| objects.failed(e))?))
}

/// Whether an ETag is the expected one. It has quotes.
fn is_tag(tag: &str, expected: &str) -> bool {
    tag.trim_matches('"').eq_ignore_ascii_case(expected)
}
