//! What a backup consists of. The manifest is written last, and its checksum is in a file beside it.
//!
//! A backup may come from elsewhere: its manifest names nothing outside of it, and its texts control no terminal.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tarn_base::{files, plain};
use tarn_model::Time;
use tarn_model::ids::VolumeId;

use super::medium::Medium;
use super::sums::FileSum;

/// The version of the format.
pub(in crate::backup) const FORMAT: u32 = 1;

/// The names of the files of a backup.
pub(in crate::backup) const MANIFEST: &str = "manifest.json";
const MANIFEST_SUM: &str = "manifest.blake3";

/// The most characters of a text of a manifest that are shown.
const MAX_SHOWN: usize = 500;
pub(in crate::backup) const SQLITE: &str = "tarn.db";
pub(in crate::backup) const DUMP: &str = "tarn.pgdump";
pub(in crate::backup) const LIST: &str = "objects.list";
pub(in crate::backup) const SEALED_KEY: &str = "secret.key.sealed";
/// The end of the name of the file of a volume.
pub(in crate::backup) const VOLUME: &str = ".volume";

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct Manifest {
    pub(in crate::backup) format: u32,
    pub(in crate::backup) name: String,
    /// When the database was copied, in microseconds since 1970, and for people.
    pub(in crate::backup) created_us: i64,
    pub(in crate::backup) created: String,
    /// The version of the program that made it.
    pub(in crate::backup) tarn: String,
    /// The schema of the database.
    pub(in crate::backup) schema: i64,
    pub(in crate::backup) database: DatabaseKind,
    pub(in crate::backup) database_file: FileSum,
    /// The encrypted master key; absent if it was left out.
    pub(in crate::backup) secret_key: Option<FileSum>,
    /// What identifies the master key; it reveals nothing about it.
    pub(in crate::backup) key_fingerprint: Option<String>,
    pub(in crate::backup) objects: ObjectsCopy,
    /// The volumes, if they were copied.
    pub(in crate::backup) volumes: Vec<VolumeCopy>,
    /// Why a volume was left out, by id.
    pub(in crate::backup) volumes_left_out: Vec<String>,
}

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::backup) enum DatabaseKind {
    Sqlite,
    Postgresql,
}

/// The contents of objects. They are outside of the directory of the backup, because backups share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct ObjectsCopy {
    pub(in crate::backup) files: u64,
    pub(in crate::backup) bytes: u64,
    /// The file with a line for each: its id, its size, its MD5.
    pub(in crate::backup) list: FileSum,
    /// Files that the database names and that were damaged or missing before the backup.
    pub(in crate::backup) damaged: Vec<String>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backup) struct VolumeCopy {
    pub(in crate::backup) id: String,
    pub(in crate::backup) file: FileSum,
}

impl VolumeCopy {
    /// The name of the file of a volume.
    pub(in crate::backup) fn file_name(id: &str) -> String {
        format!("{id}{VOLUME}")
    }
}

impl Manifest {
    /// Writes the manifest and its checksum.
    pub(in crate::backup) fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        let sum = blake3::hash(text.as_bytes()).to_hex();
        files::write_file(&directory.join(MANIFEST_SUM), sum.as_bytes(), 0o600)?;
        files::write_file(&directory.join(MANIFEST), text.as_bytes(), 0o600)
    }

    /// The files of the backup, without the manifest.
    pub(in crate::backup) fn files(&self) -> impl Iterator<Item = &FileSum> {
        self.files_without_volumes().chain(self.volumes.iter().map(|volume| &volume.file))
    }

    /// The same without the volumes.
    pub(in crate::backup) fn files_without_volumes(&self) -> impl Iterator<Item = &FileSum> {
        [&self.database_file, &self.objects.list].into_iter().chain(&self.secret_key)
    }

    /// Reads the manifest of a backup, or says what is wrong with it.
    pub(in crate::backup) async fn read(medium: &dyn Medium, name: &str) -> io::Result<Result<Manifest, String>> {
        let mut texts = Vec::new();
        for file in [MANIFEST, MANIFEST_SUM] {
            match medium.read_file(name, file).await {
                Ok(text) => texts.push(String::from_utf8_lossy(&text).into_owned()),
                Err(error) if medium.says_damage(&error) => return Ok(Err(format!("{file} cannot be read: {error}"))),
                Err(error) => return Err(error),
            }
        }
        let parsed = Manifest::parse(name, &texts[0], &texts[1]);
        Ok(parsed.map_err(|fault| plain(&fault, MAX_SHOWN).into_owned()))
    }

    fn parse(name: &str, text: &str, sum: &str) -> Result<Manifest, String> {
        if blake3::hash(text.as_bytes()).to_hex().as_str() != sum.trim() {
            return Err(format!("{MANIFEST} was changed"));
        }
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_str(text).map_err(|error| format!("{MANIFEST}: {error}"))?;
        if version.format != FORMAT {
            return Err(format!("it has format {}, which a newer program understands", version.format));
        }
        let mut manifest: Manifest = serde_json::from_str(text).map_err(|error| format!("{MANIFEST}: {error}"))?;
        if manifest.name != name {
            return Err(format!("{MANIFEST} is that of backup {:?}", manifest.name));
        }
        if let Some(name) = manifest.foreign_name() {
            return Err(format!("{MANIFEST} names {name:?}, which is no file of a backup"));
        }
        manifest.make_texts_plain();
        Ok(manifest)
    }

    /// Makes the texts of a manifest safe to be shown and stored.
    fn make_texts_plain(&mut self) {
        self.created = Time::from_micros(self.created_us).to_string();
        let lists = [&mut self.objects.damaged, &mut self.volumes_left_out].into_iter().flatten();
        for text in lists.chain(self.key_fingerprint.as_mut()).chain([&mut self.tarn]) {
            *text = plain(text, MAX_SHOWN).into_owned();
        }
    }

    /// Returns a name that does not belong into a backup. A backup may come from elsewhere, and a restore by root must
    /// read nothing outside of its directory.
    fn foreign_name(&self) -> Option<&str> {
        let database = match self.database {
            DatabaseKind::Sqlite => SQLITE,
            DatabaseKind::Postgresql => DUMP,
        };
        let fixed = [(&self.database_file, database), (&self.objects.list, LIST)].into_iter();
        let mut fixed = fixed.chain(self.secret_key.as_ref().map(|key| (key, SEALED_KEY)));
        if let Some((file, _)) = fixed.find(|(file, name)| file.name != *name) {
            return Some(&file.name);
        }
        let is_wrong = |volume: &&VolumeCopy| {
            volume.id.parse::<VolumeId>().is_err() || volume.file.name != VolumeCopy::file_name(&volume.id)
        };
        self.volumes.iter().find(is_wrong).map(|volume| volume.file.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(name: &str) -> FileSum {
        FileSum { name: name.to_owned(), bytes: 0, blake3: String::new() }
    }

    fn good() -> Manifest {
        Manifest {
            format: FORMAT,
            name: "20261119T041500Z".to_owned(),
            created_us: 0,
            created: Time::from_micros(0).to_string(),
            tarn: String::new(),
            schema: 1,
            database: DatabaseKind::Sqlite,
            database_file: sum(SQLITE),
            secret_key: Some(sum(SEALED_KEY)),
            key_fingerprint: None,
            objects: ObjectsCopy { files: 0, bytes: 0, list: sum(LIST), damaged: Vec::new() },
            volumes: vec![VolumeCopy { id: "s-000000000001".to_owned(), file: sum("s-000000000001.volume") }],
            volumes_left_out: Vec::new(),
        }
    }

    /// What is read of a manifest whose checksum is right.
    fn read(manifest: &Manifest) -> Result<Manifest, String> {
        let text = serde_json::to_string(manifest).unwrap();
        Manifest::parse(&good().name, &text, blake3::hash(text.as_bytes()).to_hex().as_str())
    }

    /// A manifest whose files are outside of the backup is refused, also if its checksum is right.
    #[test]
    fn files_are_those_of_the_backup() {
        assert_eq!(read(&good()).unwrap(), good());
        let changes: [fn(&mut Manifest); 6] = [
            |manifest| manifest.database_file.name = "../../tarn.db".to_owned(),
            |manifest| manifest.objects.list.name = "/etc/shadow".to_owned(),
            |manifest| manifest.secret_key = Some(sum("other")),
            |manifest| manifest.volumes[0].file.name = "/etc/shadow".to_owned(),
            |manifest| manifest.volumes[0].id = "../../x".to_owned(),
            |manifest| manifest.name = "20261119T041501Z".to_owned(),
        ];
        for change in changes {
            let mut wrong = good();
            change(&mut wrong);
            let said = read(&wrong).unwrap_err();
            assert!(said.contains("is no file of a backup") || said.contains("is that of backup"), "{said}");
        }
    }

    /// A manifest from elsewhere does not control the terminal that shows it, or the messages of the restored engine.
    #[test]
    fn texts_are_plain() {
        let mut foreign = good();
        let text = || "\u{1b}]0;title\u{7}\n".to_owned();
        foreign.created = text();
        foreign.tarn = text();
        foreign.key_fingerprint = Some(text());
        foreign.objects.damaged = vec![text()];
        foreign.volumes_left_out = vec![text()];
        let read = read(&foreign).unwrap();
        assert_eq!(read.created, good().created);
        let shown = [&read.tarn, &read.key_fingerprint.unwrap(), &read.objects.damaged[0], &read.volumes_left_out[0]];
        assert!(shown.iter().all(|text| !text.contains(char::is_control)), "{shown:?}");
    }
}
