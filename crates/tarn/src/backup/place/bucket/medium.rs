//! What the rest of the backups needs of a place, in a bucket.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use md5::{Digest as _, Md5};
use object_store::path::Path as Key;
use tarn_model::ids::FileId;
use tarn_store::backup::NamedFile;

use super::Bucket;
use super::lock::LOCK;
use super::source::{Piece, Source, SparseFile};
use crate::backup::place::manifest::{LIST, MANIFEST};
use crate::backup::place::medium::{Brought, LocalFile, Medium, Trace, is_expected};
use crate::backup::place::scratch::Scratch;
use crate::backup::place::sums::FileSum;
use crate::backup::place::{CONTENTS, PARTIAL, content_key, is_backup_name};

/// The number of objects after which the lock is renewed during a removal.
const REMOVED_AT_ONCE: usize = 1000;

#[async_trait]
impl Medium for Bucket {
    async fn backup_names(&self) -> io::Result<Vec<String>> {
        let all = self.objects.directories().await?;
        let mut names = Vec::new();
        for name in all.iter().filter(|name| is_backup_name(name)) {
            // One without a note was completed. If it has no manifest, it is damaged.
            let is_noted = all.contains(&format!("{name}{PARTIAL}"));
            if !is_noted || self.objects.exists(&format!("{name}/{MANIFEST}")).await? {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    async fn begin(&self, name: &str) -> io::Result<PathBuf> {
        let scratch = Scratch::create(&self.local)?;
        let directory = scratch.path.clone();
        self.objects.put(&format!("{name}{PARTIAL}/begun"), Vec::new()).await?;
        *self.making.lock() = Some((name.to_owned(), scratch));
        Ok(directory)
    }

    fn staging(&self) -> &'static str {
        "the data directory"
    }

    async fn store_early(&self, name: &str, staged: &Path, file: &str) -> io::Result<()> {
        self.store_file(name, staged, file).await?;
        std::fs::remove_file(staged.join(file))
    }

    async fn publish(&self, name: &str, staged: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(staged)? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            if file != MANIFEST {
                self.store_file(name, staged, &file).await?;
            }
        }
        self.check_contents(&std::fs::read(staged.join(LIST))?).await?;
        self.make_in_time(self.store_file(name, staged, MANIFEST)).await?;
        *self.making.lock() = None;
        self.remove_below(&format!("{name}{PARTIAL}")).await
    }

    async fn remove_leftovers(&self) -> io::Result<()> {
        let all = self.objects.directories().await?;
        for directory in &all {
            let Some(name) = directory.strip_suffix(PARTIAL).filter(|name| is_backup_name(name)) else { continue };
            self.confirm().await?;
            self.end_uploads(directory).await?;
            if !self.objects.exists(&format!("{name}/{MANIFEST}")).await? {
                self.remove_below(name).await?;
            }
            self.remove_below(directory).await?;
        }
        Ok(())
    }

    async fn remove_backup(&self, name: &str) -> io::Result<()> {
        self.confirm().await?;
        // Without its manifest, and with a note, it is no backup any more, also if its removal is interrupted.
        self.objects.put(&format!("{name}{PARTIAL}/removed"), Vec::new()).await?;
        self.objects.remove([format!("{name}/{MANIFEST}")]).await?;
        self.remove_below(name).await?;
        self.remove_below(&format!("{name}{PARTIAL}")).await
    }

    async fn read_file(&self, name: &str, file: &str) -> io::Result<Vec<u8>> {
        Ok(self.objects.read(&format!("{name}/{file}")).await?.ok_or(ErrorKind::NotFound)?)
    }

    async fn file_sum(&self, name: &str, file: &str) -> io::Result<FileSum> {
        let mut hasher = blake3::Hasher::new();
        let bytes = self.unpack(name, file, |piece| hash_piece(&mut hasher, piece)).await?;
        Ok(FileSum { name: file.to_owned(), bytes, blake3: hasher.finalize().to_hex().to_string() })
    }

    async fn copy_file(&self, name: &str, file: &str, to: &Path) -> io::Result<()> {
        let mut written = SparseFile::create(to)?;
        let bytes = self.unpack(name, file, |piece| written.write(piece)).await?;
        written.finish(bytes)
    }

    async fn local_file(&self, name: &str, file: &str) -> io::Result<LocalFile> {
        let scratch = Scratch::create(&self.local)?;
        let path = scratch.path.join(file);
        self.copy_file(name, file, &path).await?;
        Ok(LocalFile { path, _scratch: Some(scratch) })
    }

    async fn contents(&self) -> io::Result<HashMap<String, u64>> {
        Ok(self.objects.sizes(CONTENTS).await?.into_iter().collect())
    }

    async fn bring(&self, file: &NamedFile, path: &Path) -> io::Result<Brought> {
        let source = match Source::whole(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Brought::Missing),
            source => source?,
        };
        let bytes = source.layout.bytes;
        if bytes != file.bytes {
            return Ok(Brought::Damaged);
        }
        let key = self.content(&file.file);
        Ok(match self.store(&key, &source, |md5| is_expected(file, bytes, md5)).await? {
            Some(md5) => Brought::Stored { is_linked: false, md5 },
            None => Brought::Damaged,
        })
    }

    async fn content_sum(&self, file: &FileId) -> io::Result<(u64, String)> {
        let mut md5 = Md5::new();
        let update = |piece: &[u8]| {
            md5.update(piece);
            Ok(())
        };
        let key = self.content(file);
        let bytes = self.objects.each_piece(&key, update).await?;
        Ok((bytes, hex::encode(md5.finalize())))
    }

    async fn copy_content(&self, file: &FileId, to: &Path, _: bool) -> io::Result<(u64, String)> {
        let mut md5 = Md5::new();
        let key = self.content(file);
        let bytes = self.objects.download(&key, to, |piece| md5.update(piece)).await?;
        Ok((bytes, hex::encode(md5.finalize())))
    }

    async fn remove_contents(&self, keys: Vec<String>) -> io::Result<()> {
        for some in keys.chunks(REMOVED_AT_ONCE) {
            let keys: Vec<_> = some.iter().map(|key| format!("{CONTENTS}/{key}")).collect();
            self.make_in_time(self.objects.remove(keys)).await?;
        }
        Ok(())
    }

    async fn read_note(&self, note: &str) -> io::Result<Option<String>> {
        let text = self.objects.read(note).await?;
        Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    async fn write_note(&self, note: &str, text: &str) -> io::Result<()> {
        self.objects.put(note, text.as_bytes().to_vec()).await
    }

    fn says_damage(&self, error: &io::Error) -> bool {
        // The others say that the server cannot be reached, or does not respond as it should.
        !matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::PermissionDenied | ErrorKind::Unsupported)
    }

    fn trace(&self) -> Option<Trace> {
        let etag = self.lock.as_ref()?.first_tag().trim_matches('"').to_owned();
        let (bucket, key) = self.objects.address(LOCK);
        Some(Trace { bucket, key, etag })
    }

    async fn close(&self) {
        *self.making.lock() = None;
        if let Some(lock) = &self.lock {
            lock.release().await;
        }
    }
}

impl Bucket {
    fn content(&self, file: &FileId) -> Key {
        self.objects.key(&format!("{CONTENTS}/{}", content_key(file)))
    }
}

/// Adds a piece to a checksum; a hole is zeros.
fn hash_piece(hasher: &mut blake3::Hasher, piece: Piece<'_>) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    match piece {
        Piece::Data(data) => drop(hasher.update(data)),
        Piece::Hole(mut length) => {
            while length > 0 {
                let some = length.min(ZEROS.len() as u64);
                hasher.update(&ZEROS[..some as usize]);
                length -= some;
            }
        }
    }
    Ok(())
}
